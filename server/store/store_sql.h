/* The store's tables and statements, as SQLite and PostgreSQL both understand them. Each engine's file includes this
 * once, after it has defined what differs: STORE_SQL_NUMBER and STORE_SQL_OF_JOB (types of keys), STORE_SQL_BYTES,
 * STORE_SQL_SKIP_LOCKED, STORE_SQL_TEXTS(json) (the texts of a JSON array, as rows of `value`), STORE_SQL_BEGIN,
 * STORE_SQL_NOTIFY, STORE_SQL_EXPIRE, STORE_SQL_HEX(bytes), STORE_SQL_LOCK_JOBS (rows that are read wait for the
 * transaction), and STORE_SQL_MORE, further steps of the schema (of PostgreSQL: models that are published). Parameters
 * are $1, $2 …, in PostgreSQL's sense. States are the numbers of enum store_state. Thread-safety: constants. */
#ifndef SERVER_STORE_STORE_SQL_H
#define SERVER_STORE_STORE_SQL_H

#include "server/store/store_statement.h"

/* A store is made by all of them, in this order, and brought up to date by those of a later version than its own. */
/* Reports are in a table of their own, so that lists and scans do not read them. Every index but the first serves some
 * of the jobs: those at work or waiting are few beside those that have ended. Its condition stands literally in the
 * statements that use it. */
static const struct store_step store_sql_schema[] = {
    {1, "CREATE TABLE jobs (number " STORE_SQL_NUMBER ", id TEXT NOT NULL UNIQUE,"
        " state SMALLINT NOT NULL CHECK (state BETWEEN 0 AND 4), low SMALLINT NOT NULL CHECK (low BETWEEN 0 AND 1),"
        " cancel SMALLINT NOT NULL CHECK (cancel BETWEEN 0 AND 1), attempts INTEGER NOT NULL, turn BIGINT NOT NULL,"
        " created BIGINT NOT NULL, started BIGINT NOT NULL, finished BIGINT NOT NULL, expires BIGINT NOT NULL,"
        " lease BIGINT NOT NULL, seconds DOUBLE PRECISION NOT NULL, megapixels DOUBLE PRECISION NOT NULL,"
        " input_bytes BIGINT NOT NULL, output_bytes BIGINT NOT NULL, owner TEXT NOT NULL, client TEXT NOT NULL,"
        " token TEXT NOT NULL, batch TEXT NOT NULL, name TEXT NOT NULL, idempotency_key TEXT,"
        " request_hash " STORE_SQL_BYTES ", options TEXT, error TEXT)"},
    {1, "CREATE TABLE results (job " STORE_SQL_OF_JOB ", report TEXT, parts TEXT)"},
    {1, "CREATE TABLE gone (id TEXT PRIMARY KEY, until BIGINT NOT NULL)"},
    {1, "CREATE INDEX gone_until ON gone (until)"},
    {1, "CREATE INDEX jobs_state ON jobs (state, created, number)"},
    {1, "CREATE INDEX jobs_token ON jobs (token, state, created, number) WHERE token <> ''"},
    {1, "CREATE INDEX jobs_batch ON jobs (batch, state, created, number) WHERE batch <> ''"},
    {1,
     "CREATE INDEX jobs_token_batch ON jobs (token, batch, state, created, number) WHERE token <> '' AND batch <> ''"},
    {1, "CREATE INDEX jobs_queue ON jobs (low, turn, number, state, seconds) WHERE state <= 1"},
    {1, "CREATE INDEX jobs_client ON jobs (client, low, turn) WHERE state = 0"},
    {1, "CREATE INDEX jobs_expires ON jobs (expires) WHERE state >= 2"},
    {1, "CREATE UNIQUE INDEX jobs_key ON jobs (client, idempotency_key) WHERE idempotency_key IS NOT NULL"},
    /* The models that a job needs, as a JSON array of names or SHA-256; NULL: any server has them. */
    {2, "ALTER TABLE jobs ADD COLUMN needs TEXT"},
    {2, "ALTER TABLE jobs ADD COLUMN progress TEXT"},
    {2, "CREATE TABLE workers (owner TEXT PRIMARY KEY, seen BIGINT NOT NULL, about TEXT NOT NULL)"},
    STORE_SQL_MORE
    /* Webhooks that are still to be sent: hook_rows.h. */
    {4, "CREATE TABLE hooks (job TEXT PRIMARY KEY, about TEXT NOT NULL, owner TEXT NOT NULL, lease BIGINT NOT NULL)"}};

/* The columns of a struct store_job, in the order in which they are read. */
#define STORE_SQL_COLUMNS                                                                                              \
    "id, client, token, batch, name, low, state, cancel, attempts, created, started, finished, expires, lease, "       \
    "seconds, input_bytes, output_bytes, megapixels, options, error, owner, progress"

/* Who is asked for; parameters 1 and 2. */
#define STORE_SQL_ANY ""
#define STORE_SQL_TOKEN " AND token = $1 AND token <> ''"
#define STORE_SQL_BATCH " AND batch = $2 AND batch <> ''"

/* A page. $3: bits of states, $4: since, ($5, $6): behind this one, $7: how many. Each state is a walk along an index,
 * and these are merged, so that no filter reads more rows than it gives. */
#define STORE_SQL_PAGE(state, of)                                                                                      \
    "SELECT " STORE_SQL_COLUMNS ", number FROM jobs WHERE state = " #state " AND ($3 & (1 << " #state ")) <> 0" of     \
    " AND created >= $4 AND (created, number) < ($5, $6)"
#define STORE_SQL_LIST(of)                                                                                             \
    STORE_SQL_PAGE(0, of)                                                                                              \
    " UNION ALL " STORE_SQL_PAGE(1, of) " UNION ALL " STORE_SQL_PAGE(2, of) " UNION ALL " STORE_SQL_PAGE(              \
        3, of) " UNION ALL " STORE_SQL_PAGE(4, of) " ORDER BY created DESC, number DESC LIMIT $7"
#define STORE_SQL_COUNT(of) "SELECT state, count(*) FROM jobs WHERE state >= 0" of " GROUP BY state"
#define STORE_SQL_COUNT_WAITING(of)                                                                                    \
    "SELECT coalesce((SELECT min(created) FROM jobs WHERE state = 0" of "), 0), "                                      \
    "coalesce((SELECT sum(seconds) FROM jobs WHERE low >= 0 AND state <= 1 AND +state = 0" of "), 0)"
#define STORE_SQL_FOUR(at, sql)                                                                                        \
    [at] = sql(STORE_SQL_ANY), [(at) + 1] = sql(STORE_SQL_TOKEN), [(at) + 2] = sql(STORE_SQL_BATCH),                   \
    [(at) + 3] = sql(STORE_SQL_TOKEN STORE_SQL_BATCH)

#define STORE_SQL_EXPIRED                                                                                              \
    "(SELECT number FROM jobs WHERE state >= 2 AND expires > 0 AND expires < $1 ORDER BY expires, number LIMIT "       \
    "$2" STORE_SQL_SKIP_LOCKED ")"

/* The turn of a new job, among those of the same priority: one after the client's last that waits, but not before the
 * first that waits. Where none waits, that of the jobs at work, which may have to wait again. */
#define STORE_SQL_TURN(client, low)                                                                                    \
    "(SELECT coalesce(max(t), (SELECT max(turn) FROM jobs WHERE state <= 1 AND low = " low "), 0) FROM"                \
    " (SELECT min(turn) AS t FROM jobs WHERE state <= 1 AND state = 0 AND low = " low " UNION ALL"                     \
    " SELECT max(turn) + 1 FROM jobs WHERE state = 0 AND client = " client " AND low = " low ") AS turns)"

static const char *const store_sql[STORE_STATEMENTS] = {
    [STORE_BEGIN] = STORE_SQL_BEGIN,
    [STORE_COMMIT] = "COMMIT",
    [STORE_ROLLBACK] = "ROLLBACK",
    [STORE_SAVE] = "SAVEPOINT part",
    [STORE_RELEASE] = "RELEASE SAVEPOINT part",
    [STORE_UNDO] = "ROLLBACK TO SAVEPOINT part",

    [STORE_INSERT] =
        "INSERT INTO jobs (id, client, token, batch, name, low, created, seconds, input_bytes, megapixels, options,"
        " idempotency_key, request_hash, state, cancel, attempts, started, finished, expires, lease, output_bytes,"
        " owner, needs, turn) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 0, 0, 0, 0, 0, 0, 0, $14,"
        " '', $15, " STORE_SQL_TURN("$2", "$6") ") ON CONFLICT DO NOTHING",
    [STORE_SAME_KEY] = "SELECT id, request_hash FROM jobs WHERE client = $1 AND idempotency_key = $2",
    [STORE_TOUCH] = "UPDATE jobs SET name = name WHERE id = $1",

    /* Jobs whose lease is over by $3, if they were to stop or have had $5 attempts. */
    [STORE_END_OVER] = "UPDATE jobs SET state = CASE WHEN cancel = 1 THEN 4 ELSE 3 END,"
                       " error = CASE WHEN cancel = 1 THEN NULL ELSE $4 END,"
                       " cancel = 0, owner = '', lease = 0, finished = $1, expires = $2"
                       " WHERE state = 1 AND lease <= $3 AND (cancel = 1 OR attempts >= $5) RETURNING id, state",
    /* $5: by when a lease must be over. Those at work stand at the head of this index, and are few. */
    [STORE_CLAIM] =
        "UPDATE jobs SET state = 1, attempts = attempts + 1, owner = $1, started = $2, lease = $3 WHERE number ="
        " (SELECT number FROM jobs WHERE state <= 1 AND (state = 0 OR lease <= $5)"
        " AND (needs IS NULL OR NOT EXISTS (SELECT 1 FROM (SELECT " STORE_SQL_TEXTS(
            "needs") ") AS wanted"
                     " WHERE value NOT IN (SELECT " STORE_SQL_TEXTS(
                         "$4") ")))"
                               " ORDER BY low, turn, number LIMIT 1" STORE_SQL_SKIP_LOCKED
                               ") RETURNING " STORE_SQL_COLUMNS ", number",
    /* Its id stays as it is, because the index may have another one; so it never expires, which would remove it. */
    [STORE_SET_ASIDE] = "UPDATE jobs SET state = 3, error = $2, cancel = 0, owner = '', lease = 0, finished = $3,"
                        " expires = 0 WHERE number = $1",
    [STORE_LOSE] = "UPDATE jobs SET state = 3, error = $2, output_bytes = 0 WHERE id = $1 AND state = 2",
    [STORE_RENEW] = "UPDATE jobs SET lease = $4 WHERE id = $1 AND owner = $2 AND attempts = $3 AND state = 1"
                    " RETURNING cancel",
    [STORE_FINISH] = "UPDATE jobs SET state = $4, finished = $5, expires = $6, output_bytes = $7, error = $8,"
                     " started = $9, attempts = CASE WHEN $9 = 0 THEN attempts - 1 ELSE attempts END, cancel = 0, "
                     "owner = '', lease = 0"
                     " WHERE id = $1 AND owner = $2 AND attempts = $3 AND state = 1 RETURNING number",
    [STORE_RESULT] = "INSERT INTO results (job, report, parts) VALUES ($1, $2, $3)",
    /* state = cancel: one that was to stop does not wait again, but stays at work with its lease over, so that the next
     * claim or start ends it as cancelled. */
    [STORE_GIVE_BACK] = "UPDATE jobs SET state = cancel, attempts = attempts - 1, owner = '', started = 0, lease = 0"
                        " WHERE id = $1 AND owner = $2 AND attempts = $3 AND state = 1",
    /* $4: the new owner. Where the row names it, its first try has had no answer, and has made its attempt. */
    [STORE_ADOPT] =
        "UPDATE jobs SET state = 1, owner = $4, lease = $5, attempts = CASE WHEN state = 0 THEN attempts + 1"
        " ELSE attempts END WHERE id = $1 AND cancel = 0 AND (state = 0 OR (state = 1 AND (owner = $4"
        " OR (owner = $2 AND attempts = $3)))) RETURNING attempts",
    [STORE_WAIT_AGAIN] = "UPDATE jobs SET state = 0, owner = '', started = 0, lease = 0 WHERE state = 1",
    [STORE_STATE] = "SELECT state FROM jobs WHERE id = $1",
    [STORE_CANCEL_WAITING] = "UPDATE jobs SET state = 4, finished = $2, expires = $3 WHERE id = $1 AND state = 0",
    [STORE_CANCEL_RUNNING] = "UPDATE jobs SET cancel = 1 WHERE id = $1 AND state = 1",
    [STORE_FORGET_RESULT] = "DELETE FROM results WHERE job = (SELECT number FROM jobs WHERE id = $1 AND state >= 2)",
    [STORE_FORGET] = "DELETE FROM jobs WHERE id = $1 AND state >= 2 RETURNING state",
    [STORE_EXPIRE_RESULTS] = "DELETE FROM results WHERE job IN " STORE_SQL_EXPIRED,
    [STORE_EXPIRE_IDS] =
        "INSERT INTO gone SELECT id, $3 FROM jobs WHERE number IN " STORE_SQL_EXPIRED " ON CONFLICT (id) DO NOTHING",
    [STORE_FORGET_GONE] = "DELETE FROM gone WHERE id IN"
                          " (SELECT id FROM gone WHERE until < $1 ORDER BY until LIMIT $2)",
    [STORE_GONE] = "SELECT 1 FROM gone WHERE id = $1",
    [STORE_EXPIRE] = STORE_SQL_EXPIRE,

    [STORE_GET] = "SELECT " STORE_SQL_COLUMNS ", report, parts FROM jobs LEFT JOIN results ON job = number"
                  " WHERE id = $1",
    [STORE_AFTER] = "SELECT created, number FROM jobs WHERE id = $1 AND (token = $2 OR $2 IS NULL)",
    STORE_SQL_FOUR(STORE_LIST, STORE_SQL_LIST),
    STORE_SQL_FOUR(STORE_COUNT, STORE_SQL_COUNT),
    [STORE_COUNT_AT_HAND] = "SELECT state, count(*) FROM jobs WHERE state <= 1 AND low >= 0 GROUP BY state",
    STORE_SQL_FOUR(STORE_COUNT_WAITING, STORE_SQL_COUNT_WAITING),
    [STORE_WAITING] = "SELECT (SELECT count(*) FROM jobs WHERE state = 0 AND client = $1) - (SELECT count(*) FROM jobs"
                      " WHERE id IN (SELECT " STORE_SQL_TEXTS("$2") ") AND state = 0 AND client || '' = $1)",
    [STORE_PLACE] = "SELECT low, turn, number FROM jobs WHERE id = $1 AND state = 0",
    [STORE_AHEAD] = "SELECT count(*), coalesce(sum(seconds), 0) FROM jobs WHERE state <= 1 AND +state = 0"
                    " AND (low, turn, number) < ($1, $2, $3)",
    [STORE_AHEAD_OF_NEW] = "SELECT coalesce(sum(seconds), 0) FROM jobs WHERE state <= 1 AND +state = 0"
                           " AND (low < $2 OR (low = $2 AND turn <= " STORE_SQL_TURN("$1", "$2") "))",
    [STORE_NEAREST] = "SELECT client, low, seconds FROM jobs WHERE state <= 1 AND +state = 0"
                      " AND (low, turn, number) < ($1, $2, $3) ORDER BY low DESC, turn DESC, number DESC LIMIT $4",
    [STORE_FILES] = "SELECT id, state, output_bytes > 0 FROM jobs WHERE state <= 2",
    [STORE_KNOWN] = "SELECT id, state, attempts FROM jobs WHERE id IN (SELECT " STORE_SQL_TEXTS("$1") ")",
    [STORE_BEAT] = "UPDATE jobs SET lease = $4, progress = $5 WHERE id = $1 AND owner = $2 AND attempts = $3 AND"
                   " state = 1 RETURNING cancel",
    [STORE_NOTIFY] = STORE_SQL_NOTIFY,
    [STORE_WORKER] = "INSERT INTO workers (owner, seen, about) VALUES ($1, $2, $3)"
                     " ON CONFLICT (owner) DO UPDATE SET seen = excluded.seen, about = excluded.about",
    [STORE_WORKER_GONE] = "DELETE FROM workers WHERE owner = $1 OR seen < $2",
    [STORE_WORKERS] = "SELECT owner, seen, about FROM workers WHERE seen >= $1 ORDER BY owner",
    [STORE_CLOCK] = STORE_SQL_CLOCK,
    [STORE_HOOK_ADD] = "INSERT INTO hooks (job, about, owner, lease) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
    [STORE_HOOK_DONE] = "DELETE FROM hooks WHERE owner = $1 AND job IN (SELECT " STORE_SQL_TEXTS("$2") ")",
    /* Within a text a quote would have a backslash before it, so this is the member itself. */
    [STORE_HOOK_TOLD] = "UPDATE hooks SET about = replace(about, '\"start\":true', '\"start\":false') WHERE owner = $1"
                        " AND job IN (SELECT " STORE_SQL_TEXTS("$2") ")",
    [STORE_HOOK_LEASE] = "UPDATE hooks SET lease = $2 WHERE owner = $1",
    [STORE_HOOK_TAKE] = "UPDATE hooks SET owner = $1, lease = $2 WHERE job IN (SELECT job FROM hooks WHERE lease <= $3"
                        " AND owner <> $1 ORDER BY lease LIMIT $4" STORE_SQL_SKIP_LOCKED ") RETURNING job, about",
    [STORE_COPY_READ] = "SELECT " STORE_SQL_COLUMNS ", report, parts, needs, idempotency_key, " STORE_SQL_HEX(
        "request_hash") ", turn, number, (SELECT about FROM hooks WHERE hooks.job = id) FROM jobs LEFT JOIN results"
                        " ON results.job = number WHERE number > $1"
                        " ORDER BY number LIMIT 1" STORE_SQL_LOCK_JOBS,
    [STORE_COPY_INSERT] =
        "INSERT INTO jobs (id, client, token, batch, name, low, created, seconds, input_bytes, megapixels, options,"
        " idempotency_key, request_hash, output_bytes, needs, turn, state, cancel, attempts, started, finished,"
        " expires, lease, owner) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, 0, 0,"
        " 0, 0, 0, 0, 0, '') ON CONFLICT DO NOTHING RETURNING number",
    [STORE_COPY_STATE] = "UPDATE jobs SET state = $2, cancel = $3, attempts = $4, started = $5, finished = $6,"
                         " expires = $7, lease = $8, owner = $9, error = $10, progress = $11 WHERE number = $1",
    [STORE_COPY_DROP] = "DELETE FROM jobs WHERE number = $1",
    [STORE_COPY_DROP_HOOK] = "DELETE FROM hooks WHERE job = (SELECT id FROM jobs WHERE number = $1)",
    [STORE_COPY_DROP_RESULT] = "DELETE FROM results WHERE job = $1",
    [STORE_NEEDS] = "SELECT needs, count(*), coalesce(sum(megapixels), 0) FROM jobs WHERE low >= 0 AND state <= 1"
                    " AND +state = 0 GROUP BY needs",
    [STORE_PUBLISH] = "INSERT INTO models (name, sha256, bytes, about) VALUES ($1, $2, $3, $4) ON CONFLICT (name)"
                      " DO UPDATE SET sha256 = excluded.sha256, bytes = excluded.bytes, about = excluded.about",
    [STORE_UNPUBLISH] = "DELETE FROM models WHERE name = $1",
    [STORE_PUBLISHED] = "SELECT name, sha256, bytes, about FROM models ORDER BY name",
    [STORE_PROMISED] = "SELECT coalesce(sum(output_bytes), 0) FROM jobs WHERE low >= 0 AND state <= 1",
};

#endif
