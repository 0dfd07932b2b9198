#include "server/config.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/switches.h"
#include "runtime/base/file.h"
#include "server/suggest.h"

enum config_kind {
    KIND_TEXT,
    KIND_LISTEN,
    KIND_COUNT,
    KIND_BYTES,
    KIND_PIXELS,
    KIND_PRECISION, /* this and the next five are enums: the value is the number of the name */
    KIND_LEVEL,
    KIND_FORMAT,
    KIND_ISA,
    KIND_ROLE,
    KIND_FROM,
    KIND_DIRECT, /* one of several names, or a boolean */
    KIND_BOOLEAN
};

struct config_key {
    const char *name;
    enum config_kind kind;
    size_t offset, size;
    const char *initial;
    uint64_t min, max; /* of numbers */
    const char *help;
};

#define KEY(name, kind) #name, kind, offsetof(struct config, name), sizeof(((struct config *)0)->name)
#define TEXT(name, initial) KEY(name, KIND_TEXT), initial, 0, 0
#define SECONDS_MAX 86400

static const struct config_key config_keys[] = {
    {KEY(listen, KIND_LISTEN), "127.0.0.1:8080", 0, 0, "address and port; port 0 takes any free one"},
    {TEXT(allowed_hosts, ""),
     "names, with commas between, under which the server may also be asked (Host): photos.example.com, "
     "*.example.com, or * for any; loopback's names always work, and with another listen address all names that no "
     "public DNS has"},
    {KEY(metrics_listen, KIND_LISTEN), "", 0, 0,
     "a second address and port with connections of its own, for /healthz, /readyz, /metrics and /v1/devices alone; "
     "empty: none"},
    {TEXT(trusted_proxies, ""),
     "addresses and ranges, with commas between, of reverse proxies whose X-Forwarded-For (else Forwarded) tells the "
     "log "
     "who the client is"},
    {TEXT(cors_origins, ""),
     "origins, with commas between, whose pages may use the server from a browser (CORS): https://photos.example.com"},
    {TEXT(compat, "openai,a1111,cog"),
     "clients of other programs that are answered in their own form, with commas between: openai (/v1/images/edits), "
     "a1111 (/sdapi/v1), cog (/predictions); none: no such paths"},
    {TEXT(webhook_origins, ""),
     "origins, with commas between, to which cog's clients may have their predictions told (webhook): "
     "https://hooks.example.com; empty: none"},
    {TEXT(webhook_private, ""),
     "addresses and ranges, with commas between, that webhooks may go to although they are not public: 10.0.0.0/8"},
    {TEXT(fetch_origins, ""),
     "origins, with commas between, from which cog's clients may have their pictures fetched (an http address as img): "
     "https://photos.example.com; empty: none is fetched"},
    {TEXT(fetch_private, ""),
     "addresses and ranges, with commas between, that pictures may be fetched from although they are not public: "
     "10.0.0.0/8"},
    {KEY(requests_per_minute, KIND_COUNT), "0", 0, 1000000,
     "requests that a client's address may send a minute; loopback, /healthz and /readyz are exempt; 0: no limit"},
    {TEXT(auth_token_file, ""),
     "file of tokens, one of which every request must have then, except for the page, /openapi.json, /healthz, "
     "/readyz and cog's /health-check; empty: whoever reaches the server may use it"},
    {TEXT(tls_cert, ""),
     "file with the server's certificate and those that lead to its issuer (PEM): HTTPS instead of HTTP; empty: none"},
    {TEXT(tls_key, ""), "file with the certificate's private key (PEM, without a password)"},
    {KEY(sandbox, KIND_DIRECT), "auto", 0, 0,
     "auto, true or false: whether the server goes without what it does not need of the system, see docs/security.md; "
     "auto: where only the device cpu works"},
    {TEXT(models_dir, ""),
     "folder of checkpoints, searched with its subfolders; empty: ./models, $XDG_DATA_HOME/restored/models; then "
     "always "
     "PREFIX/share/restored/models of the installed program and /usr/share/restored/models"},
    {KEY(starter_models, KIND_BOOLEAN), "true", 0, 0,
     "true: work with the program's own small models where no official one is found; false: refuse to run without "
     "official models"},
    {TEXT(device, "auto"),
     "what jobs run on that name no device: id, UUID or name of one, or several with commas between, the preferred one "
     "first; auto: every one of the best kind there is"},
    {KEY(precision, KIND_PRECISION), "auto", 0, 0, "auto, fp32 or fp16"},
    {KEY(cpu_threads, KIND_COUNT), "0", 0, 256,
     "threads of the device cpu, for each worker; 0: the cores this process may use, by affinity and cgroup, divided "
     "by the workers"},
    {KEY(workers, KIND_COUNT), "1", 1, 16, "jobs in work at once on each device, each with its own copy of the models"},
    {KEY(memory, KIND_BYTES), "0", 0, UINT64_C(1) << 60,
     "what stays on each device between jobs, of all networks, precisions and workers together: plans, weights, "
     "buffers; "
     "the least recently used goes first. The default models' weights count and always stay, and so does what the jobs "
     "at work need. 0: on the CPU, an integrated GPU or in software a quarter of the machine's or the cgroup's memory, "
     "at most 4GiB; on other GPUs nine tenths of what is free there. At least 16MiB"},
    {KEY(keep_seconds, KIND_COUNT), "300", 0, SECONDS_MAX,
     "anything unused for this long is returned to the system, except the default models' weights"},
    {KEY(queue, KIND_COUNT), "64", 1, 10000, "jobs that may wait; more are refused with 429"},
    {KEY(body_limit, KIND_BYTES), "64MiB", 1024, UINT64_C(4) << 30, "largest request body"},
    {KEY(inflight_memory, KIND_BYTES), "0", 0, UINT64_C(1) << 50,
     "most memory for the bodies, pictures and results of all requests together; past it requests wait unread for some "
     "seconds, then they are refused with 429; 0: half of what the machine or cgroup has, at most 4GiB; at least 1MiB"},
    {KEY(header_limit, KIND_BYTES), "32KiB", 4096, 1 << 20, "largest request header"},
    {KEY(input_pixels, KIND_PIXELS), "64MP", 1, UINT64_C(4000000000),
     "largest input picture, checked before it is decoded"},
    {KEY(result_pixels, KIND_PIXELS), "400MP", 1, UINT64_C(16000000000), "largest result"},
    {KEY(connections, KIND_COUNT), "256", 4, 10000, "open connections"},
    {KEY(connections_per_address, KIND_COUNT), "32", 1, 10000,
     "open connections of one client address; loopback is exempt"},
    {KEY(idle_seconds, KIND_COUNT), "30", 1, SECONDS_MAX, "a connection on which nothing moves is closed after this"},
    {KEY(request_seconds, KIND_COUNT), "300", 1, SECONDS_MAX, "time to send a whole request, and to take its answer"},
    {KEY(job_seconds, KIND_COUNT), "0", 0, SECONDS_MAX,
     "deadline of a job, waiting included; what by its estimate cannot be done in time is refused at once; 0: none"},
    {KEY(stall_seconds, KIND_COUNT), "120", 0, SECONDS_MAX,
     "a job at work on a device that makes no progress for this long is stopped; 0: never"},
    {KEY(drain_seconds, KIND_COUNT), "30", 0, SECONDS_MAX,
     "on SIGTERM running jobs may take this long, then they are cancelled"},
    {TEXT(default_version, ""), "face model; empty: the official default, 1.3"},
    {TEXT(default_bg_upsampler, ""), "background upsampler; empty: the official default, realesrgan"},
    {TEXT(default_detector, ""), "face detector; empty: the official default, resnet50"},
    {TEXT(default_parser, ""), "face parser; empty: the official default, parsing_parsenet"},
    {KEY(detect_max_side, KIND_COUNT), "2048", 0, 65535,
     "faces are looked for on a reduction to this longest side, px; 0: never reduced"},
    {KEY(max_faces, KIND_COUNT), "256", 1, 5000,
     "most faces of a picture that are restored, the largest and surest; the report says how many were left out"},
    {TEXT(cache_dir, ""), "folder for compiled pipelines; empty: $XDG_CACHE_HOME/restored, else ~/.cache/restored"},
    {TEXT(state_dir, ""),
     "folder for asynchronous jobs, their pictures, and bodies too large for memory; one server at a time; empty: "
     "$XDG_STATE_HOME/restored, else ~/.local/state/restored"},
    {TEXT(store, "sqlite"),
     "where asynchronous jobs are kept: sqlite, a file in state_dir, or postgresql://USER@HOST,HOST/DATABASE?sslmode="
     "verify-full, which several servers share (libpq's URI)"},
    {TEXT(store_password_file, ""), "file whose first line is the database's password; empty: none"},
    {TEXT(payload, "auto"),
     "where the pictures of jobs are kept: spool, rows (of the database), s3://BUCKET/PREFIX, or a folder's path, "
     "which all servers see; auto: rows with postgresql://, else spool"},
    {KEY(share_pixels, KIND_PIXELS), "64MP", 0, UINT64_C(1) << 50,
     "workers with one store = postgresql:// share the tiles of pictures whose network makes so many pixels or more, "
     "where the device cpu computes; 0: none"},
    {KEY(role, KIND_ROLE), "both", 0, 0,
     "both, front or worker: front takes requests and computes nothing, worker computes and answers only at "
     "metrics_listen; these two need store = postgresql://"},
    {KEY(models_from, KIND_FROM), "folder", 0, 0,
     "folder or store: store fetches what jobs need and this server has not, if it was published (restored models "
     "publish), into state_dir/models; needs store = postgresql://"},
    {KEY(models_cache_bytes, KIND_BYTES), "20GiB", 1 << 20, UINT64_C(1) << 50,
     "most bytes of all models that were fetched; past it no more are, and at the next start those that were fetched "
     "first go"},
    {KEY(async_queue, KIND_COUNT), "10000", 1, 1000000, "asynchronous jobs that may wait; more are refused with 429"},
    {KEY(result_ttl, KIND_COUNT), "3600", 1, 366 * SECONDS_MAX,
     "seconds that an asynchronous job and its result are kept after its end"},
    {KEY(spool_max_bytes, KIND_BYTES), "10GiB", 1 << 20, UINT64_C(1) << 50,
     "most bytes of all files in state_dir together; past it new jobs are refused with 507"},
    {KEY(log_level, KIND_LEVEL), "info", 0, 0, "debug, info, warn or error"},
    {KEY(log_format, KIND_FORMAT), "text", 0, 0, "text or json: what a line of the log is"},
    {KEY(cpu_isa, KIND_ISA), "auto", 0, 0,
     "auto, base, avx2 or avx512: instruction set of the device cpu; auto: the best that the processor has"},
    {KEY(vulkan_memory, KIND_BYTES), "0", 0, UINT64_C(1) << 50,
     "most memory that is used of each Vulkan device, at least 16MiB; 0: all there is"},
    {KEY(vulkan_direct, KIND_DIRECT), "auto", 0, 0,
     "auto, true or false: whether pictures are written straight into device memory that the processor can reach; "
     "auto: "
     "where that is the device's main memory"},
    {KEY(vulkan_matrix, KIND_BOOLEAN), "true", 0, 0, "false: Vulkan devices work without their matrix units"},
    {KEY(vulkan_chain, KIND_BOOLEAN), "true", 0, 0,
     "false: convolutions on matrix units wait for each other as a whole, which is slower"},
    {KEY(vulkan_validation, KIND_BOOLEAN), "false", 0, 0,
     "true: Vulkan's validation layer, where it is installed, checks every call and logs what is wrong; slow"},
};
#define KEY_COUNT (sizeof config_keys / sizeof *config_keys)
_Static_assert(sizeof config_keys / sizeof *config_keys <= CONFIG_KEY_MAX, "struct config has too few sources");

/* For the kinds with a fixed set of words. */
static const char *const config_words[][5] = {
    [KIND_PRECISION] = {"auto", "fp32", "fp16"},
    [KIND_LEVEL] = {"debug", "info", "warn", "error"},
    [KIND_FORMAT] = {"text", "json"},
    [KIND_ISA] = {"auto", "base", "avx2", "avx512"},
    [KIND_ROLE] = {"both", "front", "worker"},
    [KIND_FROM] = {"folder", "store"},
    [KIND_DIRECT] = {"auto", "false", "true"},
    [KIND_BOOLEAN] = {"false", "true"},
};

const char *config_role_name(enum config_role role)
{
    return config_words[KIND_ROLE][role];
}

/* The least of a size that may also be 0: below it nothing works, and a forgotten unit is likely. */
static uint64_t config_least(const struct config_key *key)
{
    if (key->offset == offsetof(struct config, vulkan_memory) || key->offset == offsetof(struct config, memory))
        return 16 << 20;
    return key->offset == offsetof(struct config, inflight_memory) ? 1 << 20 : 0;
}

struct config_unit {
    const char *name;
    uint64_t factor;
};
static const struct config_unit byte_units[] = {{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {NULL, 0}};
static const struct config_unit pixel_units[] = {{"MP", 1000000}, {NULL, 0}};
static const struct config_unit no_units[] = {{NULL, 0}};

static const struct config_unit *config_units(enum config_kind kind)
{
    return kind == KIND_BYTES ? byte_units : kind == KIND_PIXELS ? pixel_units : no_units;
}

/* Accepts digits and an optional unit, nothing else. */
static bool config_parse_number(const char *text, const struct config_unit *units, uint64_t *out)
{
    if (!isdigit((unsigned char)*text))
        return false;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno)
        return false;
    while (*end == ' ')
        end++;
    uint64_t factor = 1;
    if (*end) {
        for (; units->name && strcasecmp(units->name, end) != 0; units++)
            ;
        if (!units->name)
            return false;
        factor = units->factor;
    }
    return !__builtin_mul_overflow((uint64_t)value, factor, out);
}

/* The number with the largest unit that divides it. */
static void config_print_number(uint64_t value, enum config_kind kind, char *out, size_t size)
{
    const struct config_unit *best = NULL;
    for (const struct config_unit *unit = config_units(kind); unit->name; unit++)
        if (value && value % unit->factor == 0)
            best = unit;
    snprintf(out, size, "%llu%s", (unsigned long long)(best ? value / best->factor : value), best ? best->name : "");
}

/* The number of the word among those of the kind; -1: it is not one of them. Booleans accept more words than they
 * print. */
static int config_find_word(enum config_kind kind, const char *value)
{
    static const char *const booleans[] = {"false", "true", "0", "1", "off", "on", "no", "yes"};
    for (int i = 0; config_words[kind][i]; i++)
        if (!strcasecmp(config_words[kind][i], value))
            return i;
    for (int i = 0; (kind == KIND_BOOLEAN || kind == KIND_DIRECT) && i < 8; i++)
        if (!strcasecmp(booleans[i], value))
            return (i & 1) + (kind == KIND_DIRECT);
    return -1;
}

bool config_split_listen(const char *listen, char *host, size_t host_size, char *port, size_t port_size)
{
    const char *colon = strrchr(listen, ':');
    if (!colon)
        return false;
    const char *begin = listen, *end = colon;
    if (*begin == '[') {
        begin++;
        if (end - begin < 1 || *--end != ']')
            return false;
    } else if (memchr(begin, ':', (size_t)(end - begin))) {
        return false; /* an IPv6 address needs its brackets */
    }
    uint64_t number;
    if (end <= begin || (size_t)(end - begin) >= host_size || !config_parse_number(colon + 1, no_units, &number) ||
        number > 65535 || strlen(colon + 1) >= port_size)
        return false;
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = 0;
    strcpy(port, colon + 1);
    return true;
}

static bool config_same_name(const char *a, const char *b)
{
    for (; *a && (*a == *b || (*a == '-' && *b == '_') || (*a == '_' && *b == '-')); a++, b++)
        ;
    return !*a && !*b;
}

static enum error_code config_bad_value(const struct config_key *key, const char *value, const char *source,
                                        struct error *err)
{
    char low[32], high[32];
    switch (key->kind) {
    case KIND_LISTEN:
        return error_set(err, ERROR_INVALID, "%s: %s = \"%s\" is not ADDRESS:PORT", source, key->name, value);
    case KIND_PRECISION:
    case KIND_LEVEL:
    case KIND_FORMAT:
    case KIND_ISA:
    case KIND_ROLE:
    case KIND_FROM:
    case KIND_DIRECT:
        return error_set(err, ERROR_INVALID, "%s: %s = \"%s\" is not %.*s", source, key->name, value,
                         (int)strcspn(key->help, ":"), key->help);
    case KIND_BOOLEAN:
        return error_set(err, ERROR_INVALID, "%s: %s = \"%s\" is not true or false", source, key->name, value);
    case KIND_TEXT:
        return error_set(err, ERROR_INVALID, "%s: the value of %s is longer than %zu bytes", source, key->name,
                         key->size - 1);
    default:
        config_print_number(key->min, key->kind, low, sizeof low);
        config_print_number(key->max, key->kind, high, sizeof high);
        return error_set(err, ERROR_INVALID, "%s: %s = \"%s\" is not a number from %s to %s%s", source, key->name,
                         value, low, high,
                         key->kind == KIND_BYTES    ? " (units: KiB, MiB, GiB)"
                         : key->kind == KIND_PIXELS ? " (unit: MP)"
                                                    : "");
    }
}

/* NULL when there is none of that name. */
static const struct config_key *config_find(const char *name)
{
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (config_same_name(config_keys[i].name, name))
            return &config_keys[i];
    return NULL;
}

int config_index(const char *name)
{
    const struct config_key *key = config_find(name);
    return key ? (int)(key - config_keys) : -1;
}

const char *config_key(size_t index)
{
    return index < KEY_COUNT ? config_keys[index].name : NULL;
}

/* "; did you mean KEY?" or "". */
static const char *config_suggest(const char *name, char *out, size_t size)
{
    static const struct {
        const char *name, *key;
    } others[] = {{"port", "listen"},
                  {"host", "listen"},
                  {"address", "listen"},
                  {"bind", "listen"},
                  {"models", "models_dir"},
                  {"token_file", "auth_token_file"},
                  {"tokens", "auth_token_file"},
                  {"threads", "cpu_threads"},
                  {"cache", "cache_dir"}};
    struct suggest suggest = suggest_for(name);
    for (size_t i = 0; i < KEY_COUNT; i++)
        suggest_offer(&suggest, config_keys[i].name);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (config_same_name(others[i].name, name))
            suggest.best = others[i].key;
    return suggest_text(&suggest, "", out, size);
}

enum error_code config_set(struct config *config, const char *name, const char *value, const char *source,
                           struct error *err)
{
    const struct config_key *key = config_find(name);
    if (!key) {
        char meant[80];
        return error_set(err, ERROR_NOT_FOUND, "%s: unknown key \"%s\"%s", source, name,
                         config_suggest(name, meant, sizeof meant));
    }

    char *field = (char *)config + key->offset;
    char host[128], port[8];
    uint64_t number;
    int word;
    switch (key->kind) {
    case KIND_LISTEN:
        if ((*value || *key->initial) && !config_split_listen(value, host, sizeof host, port, sizeof port))
            return config_bad_value(key, value, source, err);
        /* fall through */
    case KIND_TEXT:
        if (strlen(value) >= key->size)
            return config_bad_value(key, value, source, err);
        memmove(field, value, strlen(value) + 1);
        break;
    case KIND_PRECISION:
    case KIND_LEVEL:
    case KIND_FORMAT:
    case KIND_ISA:
    case KIND_ROLE:
    case KIND_FROM:
    case KIND_DIRECT:
        if ((word = config_find_word(key->kind, value)) < 0)
            return config_bad_value(key, value, source, err);
        memcpy(field, &word, sizeof word);
        break;
    case KIND_BOOLEAN:
        if ((word = config_find_word(key->kind, value)) < 0)
            return config_bad_value(key, value, source, err);
        *(bool *)field = word == 1;
        break;
    default:
        if (!config_parse_number(value, config_units(key->kind), &number) || number < key->min || number > key->max)
            return config_bad_value(key, value, source, err);
        if (number && number < config_least(key)) {
            char least[32];
            config_print_number(config_least(key), key->kind, least, sizeof least);
            return error_set(err, ERROR_INVALID, "%s: %s = \"%s\" is less than %s, and not 0 (units: KiB, MiB, GiB)",
                             source, key->name, value, least);
        }
        memcpy(field, &number, sizeof number);
    }
    snprintf(config->source[key - config_keys], sizeof config->source[0], "%s", source);
    return OK;
}

void config_init(struct config *config)
{
    memset(config, 0, sizeof *config);
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (config_set(config, config_keys[i].name, config_keys[i].initial, "default", NULL))
            abort(); /* the table is wrong; the unit test would have shown it */
}

static void config_print_value(const struct config *config, const struct config_key *key, char *out, size_t size)
{
    const char *field = (const char *)config + key->offset;
    uint64_t number;
    int word;
    switch (key->kind) {
    case KIND_LISTEN:
    case KIND_TEXT:
        snprintf(out, size, "%s", field);
        break;
    case KIND_PRECISION:
    case KIND_LEVEL:
    case KIND_FORMAT:
    case KIND_ISA:
    case KIND_ROLE:
    case KIND_FROM:
    case KIND_DIRECT:
        memcpy(&word, field, sizeof word);
        snprintf(out, size, "%s", config_words[key->kind][word]);
        break;
    case KIND_BOOLEAN:
        snprintf(out, size, "%s", config_words[key->kind][*(const bool *)field]);
        break;
    default:
        memcpy(&number, field, sizeof number);
        config_print_number(number, key->kind, out, size);
    }
}

bool config_is_live(size_t index)
{
    static const char *const names[] = {
        "log_level",       "log_format",      "body_limit",      "input_pixels",  "result_pixels",
        "drain_seconds",   "request_seconds", "job_seconds",     "stall_seconds", "connections_per_address",
        "detect_max_side", "allowed_hosts",   "trusted_proxies", "cors_origins",  "requests_per_minute",
        "compat"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], config_keys[index].name))
            return true;
    return false;
}

bool config_equal(const struct config *a, const struct config *b, size_t index)
{
    char one[1100], other[1100];
    config_text(a, index, one, sizeof one);
    config_text(b, index, other, sizeof other);
    return !strcmp(one, other);
}

void config_copy(struct config *to, const struct config *from, size_t index)
{
    const struct config_key *key = &config_keys[index];
    memcpy((char *)to + key->offset, (const char *)from + key->offset, key->size);
    memcpy(to->source[index], from->source[index], sizeof to->source[index]);
}

void config_text(const struct config *config, size_t index, char *out, size_t size)
{
    config_print_value(config, &config_keys[index], out, size);
}

/* *** in place of what lies between two places in the text. */
static void config_hide_part(char *value, size_t size, char *from, const char *to)
{
    char rest[1024];
    snprintf(rest, sizeof rest, "%s", to);
    snprintf(from, size - (size_t)(from - value), "***%s", rest);
}

/* The passwords of a URI are nobody's business who reads what is printed. */
static void config_hide(char *value, size_t size)
{
    static const char name[] = "password=";
    char *user = strstr(value, "://"), *at = user ? strrchr(user, '@') : NULL;
    char *from = at ? memchr(user + 3, ':', (size_t)(at - user - 3)) : NULL;
    if (from)
        config_hide_part(value, size, from + 1, at);
    if (user && (from = strstr(user, name))) {
        from += sizeof name - 1;
        config_hide_part(value, size, from, from + strcspn(from, "&"));
    }
}

void config_print(const struct config *config, config_note_fn *note, FILE *out)
{
    for (size_t i = 0; i < KEY_COUNT; i++) {
        char value[1024], more[512] = "";
        config_print_value(config, &config_keys[i], value, sizeof value);
        config_hide(value, sizeof value);
        if (note)
            note(config, config_keys[i].name, more, sizeof more);
        fprintf(out, "%s = %s  # %s%s%s\n", config_keys[i].name, value, config->source[i], *more ? ": " : "", more);
    }
}

void config_help(FILE *out)
{
    for (size_t i = 0; i < KEY_COUNT; i++)
        fprintf(out, "  --%-24s %s%s%s%s\n", config_keys[i].name, config_keys[i].help,
                *config_keys[i].initial ? " [" : "", config_keys[i].initial, *config_keys[i].initial ? "]" : "");
}

void config_apply_log(const struct config *config, enum log_level least)
{
    bool asked = config->log_level == LOG_DEBUG; /* never the default */
    log_set_level(asked || config->log_level > least ? config->log_level : least);
    log_set_format(config->log_format);
}

void config_apply(const struct config *config)
{
    char memory[32] = "";
    if (config->vulkan_memory)
        snprintf(memory, sizeof memory, "%llu", (unsigned long long)config->vulkan_memory);
    device_set_cpu_threads((int)config->cpu_threads);
    /* "": the device's own choice */
    switches_set(SWITCH_CPU_ISA, config->cpu_isa ? config_words[KIND_ISA][config->cpu_isa] : "");
    switches_set(SWITCH_VULKAN_MEMORY, memory);
    switches_set(SWITCH_VULKAN_DIRECT, config->vulkan_direct ? config->vulkan_direct == 2 ? "1" : "0" : "");
    switches_set(SWITCH_VULKAN_MATRIX, config->vulkan_matrix ? "" : "0");
    switches_set(SWITCH_VULKAN_CHAIN, config->vulkan_chain ? "" : "0");
    switches_set(SWITCH_VULKAN_VALIDATION, config->vulkan_validation ? "1" : "");
}

/* A folder of ours: the configured one, else one named restored in $variable, else in ~/home. */
static const char *config_folder(const char *configured, const char *variable, const char *in_home, const char *what,
                                 unsigned mode, char *out, size_t size)
{
    const char *xdg = getenv(variable), *home = getenv("HOME");
    int n;
    if (*configured)
        n = snprintf(out, size, "%s", configured);
    else if (xdg && *xdg == '/') /* the XDG rule: a relative path is ignored */
        n = snprintf(out, size, "%s/restored", xdg);
    else if (home && *home)
        n = snprintf(out, size, "%s/%s/restored", home, in_home);
    else
        return NULL;
    struct error err = ERROR_INIT;
    if (n < 0 || (size_t)n >= size || file_make_folders(out, mode, &err)) {
        log_event(LOG_WARN, "folder", "text=\"no folder for %s: %s\"", what, err.code ? err.text : "path too long");
        return NULL;
    }
    return out;
}

const char *config_cache_dir(const struct config *config, char *out, size_t size)
{
    return config_folder(config->cache_dir, "XDG_CACHE_HOME", ".cache", "compiled pipelines", 0777, out, size);
}

const char *config_state_dir(const struct config *config, char *out, size_t size)
{
    return config_folder(config->state_dir, "XDG_STATE_HOME", ".local/state", "asynchronous jobs", 0700, out, size);
}

const char *config_models_cache(const struct config *config, char *out, size_t size)
{
    char folder[1024];
    if (config->models_from != MODELS_FROM_STORE || !config_state_dir(config, folder, sizeof folder))
        return NULL;
    return snprintf(out, size, "%s/models", folder) < (int)size ? out : NULL;
}
