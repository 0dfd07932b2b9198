/* restored store: looks after a store of jobs, and moves jobs between two. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/cli/cli.h"
#include "server/store/move.h"

#define GROUP_MOST 1000

struct cli_store {
    struct config config;
    const char *from, *to, *from_payload, *to_payload;
    int group;
    bool help;
    bool quiet;
};

static void cli_store_usage(void)
{
    printf(
        "restored store check [--store STORE]\n"
        "restored store migrate [--store STORE]\n"
        "restored store move --from STORE --to STORE [--from_payload P] [--to_payload P] [--group N]\n\n"
        "check reads every job, and asks for every picture that one tells of; it changes nothing. The exit status\n"
        "is 1 if something is damaged or missing. migrate makes the tables of an empty store, and brings older\n"
        "ones up to date, as a server does when it starts. move moves all jobs with their pictures, results and\n"
        "Idempotency-Keys; it may be interrupted at any moment and repeated. STORE: sqlite (the file in state_dir),\n"
        "sqlite:DIR (in another state folder), or postgresql://… A server must not use a store of SQLite meanwhile.\n\n"
        "  --from STORE        where the jobs are\n"
        "  --to STORE          where they go\n"
        "  --from_payload P    where the pictures of a postgresql:// store are: auto, rows, s3://… or a folder\n"
        "                      [the setting payload]\n"
        "  --to_payload P      the same of the other one [the setting payload]\n"
        "  --group N           jobs that move together [20]\n"
        "  --quiet             no line after each group\n"
        "  --KEY VALUE         every key of the configuration, such as --state_dir\n");
}

/* ---- a place ---- */

/* Of SQLite: the file and the spool of a state folder, which is locked against servers. */
static enum error_code cli_store_open_file(const struct cli_store *cli, const char *where, bool make,
                                           struct move_place *out, struct error *err)
{
    char folder[1024], path[1100];
    struct error why = ERROR_INIT;
    if (!strncmp(where, "sqlite:", 7))
        snprintf(folder, sizeof folder, "%s", where + 7);
    else if (!config_state_dir(&cli->config, folder, sizeof folder))
        return error_set(err, ERROR_NOT_FOUND, "there is no state_dir for the store of jobs");
    snprintf(path, sizeof path, "%s/jobs.db", folder);
    if (!make && access(path, F_OK))
        return error_set(err, ERROR_NOT_FOUND, "%s: there is no store of jobs", path);
    snprintf(path, sizeof path, "%s/spool", folder);
    enum error_code code = spool_open(&out->spool, path, cli->config.spool_max_bytes, &why);
    if (code == ERROR_BUSY)
        return error_set(err, code, "a server is running with %s; stop it first", folder);
    if (code)
        return error_copy(err, code, &why);
    snprintf(path, sizeof path, "%s/jobs.db", folder);
    return store_open(&out->store, path, err);
}

static enum error_code cli_store_open(const struct cli_store *cli, const char *where, const char *payload, bool make,
                                      struct move_place *out, struct error *err)
{
    *out = (struct move_place){0};
    if (!strcmp(where, "sqlite") || !strncmp(where, "sqlite:", 7))
        return cli_store_open_file(cli, where, make, out, err);
    if (!store_is_shared(where))
        return error_set(err, ERROR_INVALID, "\"%s\" is no store: sqlite, sqlite:DIR or postgresql://…", where);
    if (!payload)
        payload = strcmp(cli->config.payload, "spool") ? cli->config.payload : "auto";
    const struct payload_settings settings = {
        .where = payload, .store = where, .password_file = cli->config.store_password_file};
    enum error_code code = store_open_shared(&out->store, where, cli->config.store_password_file, err);
    return code ? code : payload_open(&out->payload, &settings, err);
}

static void cli_store_close(struct move_place *place)
{
    store_close(&place->store);
    spool_close(&place->spool);
    payload_close(&place->payload);
}

/* ---- what it says ---- */

static unsigned long long cli_store_sum(const struct move_counts *counts)
{
    unsigned long long sum = 0;
    for (int state = 0; state < STORE_STATES; state++)
        sum += counts->jobs[state];
    return sum;
}

static void cli_store_print(const struct move_counts *counts)
{
    printf("%llu jobs: %llu waiting, %llu running, %llu done, %llu failed, %llu cancelled\n", cli_store_sum(counts),
           (unsigned long long)counts->jobs[STORE_QUEUED], (unsigned long long)counts->jobs[STORE_RUNNING],
           (unsigned long long)counts->jobs[STORE_DONE], (unsigned long long)counts->jobs[STORE_FAILED],
           (unsigned long long)counts->jobs[STORE_CANCELLED]);
    printf("%llu pictures, %llu bytes; missing: %llu; damaged rows: %llu\n", (unsigned long long)counts->pictures,
           (unsigned long long)counts->bytes, (unsigned long long)counts->missing, (unsigned long long)counts->damaged);
}

static void cli_store_told(void *context, const struct move_counts *counts)
{
    (void)context;
    fprintf(stderr, "moved %llu jobs, %llu bytes of pictures\n", cli_store_sum(counts),
            (unsigned long long)counts->bytes);
}

/* ---- the commands ---- */

static int cli_store_look(const struct cli_store *cli, bool check)
{
    struct error err = ERROR_INIT;
    struct move_place place = {0};
    struct move_counts counts = {0};
    enum error_code code = OK;
    bool there = true;
    if (check && store_is_shared(cli->config.store)) /* opening it would make its tables */
        code = store_look_shared(cli->config.store, cli->config.store_password_file, &there, &err);
    if (!code && !there) {
        printf("there are no tables in this database yet; the first server that starts makes them\n");
        return CLI_OK;
    }
    if (!code)
        code = cli_store_open(cli, cli->config.store, NULL, !check, &place, &err);
    if (!code && check)
        code = move_check(&place, &counts, &err);
    cli_store_close(&place);
    if (code)
        return cli_fail(&err, code == ERROR_INVALID ? CLI_USAGE : CLI_FAILED);
    if (check)
        cli_store_print(&counts);
    else
        printf("the store is up to date\n");
    return counts.missing || counts.damaged ? CLI_FAILED : CLI_OK;
}

static int cli_store_move(const struct cli_store *cli)
{
    struct error err = ERROR_INIT;
    struct move_place from, to = {0};
    struct move_counts counts = {0};
    if (!cli->from || !cli->to || !strcmp(cli->from, cli->to)) {
        error_set(&err, ERROR_INVALID, "restored store move wants --from STORE and --to STORE, which differ");
        return cli_fail(&err, CLI_USAGE);
    }
    enum error_code code = cli_store_open(cli, cli->from, cli->from_payload, false, &from, &err);
    if (!code)
        code = cli_store_open(cli, cli->to, cli->to_payload, true, &to, &err);
    if (!code)
        code = move_jobs(&from, &to, cli->group, cli->quiet ? NULL : cli_store_told, NULL, &counts, &err);
    cli_store_close(&from);
    cli_store_close(&to);
    if (code)
        return cli_fail(&err, code == ERROR_INVALID ? CLI_USAGE : CLI_FAILED);
    cli_store_print(&counts);
    if (counts.before)
        printf("%llu of them had been moved before\n", (unsigned long long)counts.before);
    if (counts.keyless)
        printf("%llu came without their Idempotency-Key, because another job there has it\n",
               (unsigned long long)counts.keyless);
    return counts.damaged ? CLI_FAILED : CLI_OK; /* a picture that was missing before is missing now */
}

static enum error_code cli_store_take(struct cli_store *self, struct cli *cli, struct error *err)
{
    const char *text;
    struct {
        const char *name, **value;
    } texts[] = {{"from", &self->from},
                 {"to", &self->to},
                 {"from_payload", &self->from_payload},
                 {"to_payload", &self->to_payload}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strcmp(cli->name, texts[i].name))
            return cli_value(cli, texts[i].value, err);
    if (!strcmp(cli->name, "help") || !strcmp(cli->name, "h")) {
        self->help = true;
        return OK;
    }
    if (!strcmp(cli->name, "quiet"))
        return cli_flag(cli, &self->quiet, err);
    if (!strcmp(cli->name, "group")) {
        char more;
        enum error_code code = cli_value(cli, &text, err);
        if (!code && (sscanf(text, "%d%c", &self->group, &more) != 1 || self->group < 1 || self->group > GROUP_MOST))
            code = error_set(err, ERROR_INVALID, "--group: 1 to %d, not \"%s\"", GROUP_MOST, text);
        return code;
    }
    if (!*cli->name)
        return error_set(err, ERROR_INVALID, "restored store: \"%s\" is one word too many", cli->value);
    return cli_config(cli, &self->config, err);
}

int cli_store(int argc, char **argv)
{
    static struct cli_store self = {.group = 20};
    static const char *const own[] = {"from", "to", "from_payload", "to_payload", "group", "quiet", NULL};
    struct cli cli;
    struct error err = ERROR_INIT;
    const char *what = argc && argv[0][0] != '-' ? argv[0] : "";
    const int skip = *what != 0;
    enum error_code code = cli_begin(&cli, argc - skip, argv + skip, &self.config, &err);
    cli.own = own;
    while (!code && !self.help && cli_next(&cli, ""))
        code = cli_store_take(&self, &cli, &err);
    if (self.help) {
        cli_store_usage();
        return CLI_OK;
    }
    const bool check = !strcmp(what, "check"), migrate = !strcmp(what, "migrate"), move = !strcmp(what, "move");
    if (!code && !check && !migrate && !move)
        code = error_set(&err, ERROR_INVALID, "restored store check, migrate or move; --help says more");
    if (code)
        return cli_fail(&err, CLI_USAGE);
    return move ? cli_store_move(&self) : cli_store_look(&self, check);
}
