#include "tests/common/postgres.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef RESTORED_LIBPQ

bool postgres_make(char url[256])
{
    *url = 0;
    return false;
}

void postgres_remove(void)
{
}

long long postgres_sql(const char *text)
{
    (void)text;
    return -1;
}

#else

#include <libpq-fe.h>

static char postgres_url[256], postgres_name[64];

static long long postgres_do(const char *url, const char *text)
{
    PGconn *db = PQconnectdb(url);
    PGresult *result = PQexec(db, text);
    const ExecStatusType status = PQresultStatus(result);
    long long value = -1;
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        fprintf(stderr, "%s: %s", text, PQerrorMessage(db));
        abort();
    }
    if (status == PGRES_TUPLES_OK && PQntuples(result))
        value = atoll(PQgetvalue(result, 0, 0));
    PQclear(result);
    PQfinish(db);
    return value;
}

bool postgres_make(char url[256])
{
    static int count;
    const char *server = getenv("RESTORED_TEST_POSTGRES");
    char sql[128];
    if (!server || !*server)
        return false;
    snprintf(postgres_name, sizeof postgres_name, "test_%ld_%d", (long)getpid(), count++);
    snprintf(sql, sizeof sql, "CREATE DATABASE %s", postgres_name);
    postgres_do(server, sql);
    snprintf(postgres_url, sizeof postgres_url, "%.*s/%s", (int)(strrchr(server, '/') - server), server, postgres_name);
    strcpy(url, postgres_url);
    return true;
}

void postgres_remove(void)
{
    char sql[128];
    snprintf(sql, sizeof sql, "DROP DATABASE %s WITH (FORCE)", postgres_name);
    postgres_do(getenv("RESTORED_TEST_POSTGRES"), sql);
}

long long postgres_sql(const char *text)
{
    return postgres_do(postgres_url, text);
}

#endif
