#include "server/config.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/file.h"

enum kind { KIND_TEXT, KIND_LISTEN, KIND_COUNT, KIND_BYTES, KIND_PIXELS, KIND_PRECISION, KIND_LEVEL, KIND_BOOLEAN };

struct key {
    const char *name;
    enum kind kind;
    size_t offset, size;
    const char *initial;
    uint64_t min, max; /* of numbers */
    const char *help;
};

#define KEY(name, kind) #name, kind, offsetof(struct config, name), sizeof(((struct config *)0)->name)
#define SECONDS_MAX 86400

static const struct key keys[] = {
    {KEY(listen, KIND_LISTEN), "127.0.0.1:8080", 0, 0, "address and port; port 0 takes any free one"},
    {KEY(models_dir, KIND_TEXT), "", 0, 0,
     "folder of checkpoints, searched with its subfolders; empty: ./models, $XDG_DATA_HOME/restored/models, "
     "/usr/share/restored/models"},
    {KEY(starter_models, KIND_BOOLEAN), "true", 0, 0,
     "true: work with the program's own small models where no official one is found; false: rather not work"},
    {KEY(device, KIND_TEXT), "auto", 0, 0,
     "what jobs run on that name no device: id, UUID or name of one, or several with commas between, the preferred one "
     "first; auto: every one of the best kind there is"},
    {KEY(precision, KIND_PRECISION), "auto", 0, 0, "auto, fp32 or fp16"},
    {KEY(cpu_threads, KIND_COUNT), "0", 0, 256,
     "threads of the device cpu, for each worker; 0: the cores this process may use, by affinity and cgroup, divided "
     "by the workers"},
    {KEY(workers, KIND_COUNT), "1", 1, 16, "jobs in work at once on each device, each with its own copy of the models"},
    {KEY(queue, KIND_COUNT), "64", 1, 10000, "jobs that may wait; more are refused with 429"},
    {KEY(body_limit, KIND_BYTES), "64MiB", 1024, UINT64_C(4) << 30, "largest request body"},
    {KEY(header_limit, KIND_BYTES), "32KiB", 4096, 1 << 20, "largest request header"},
    {KEY(input_pixels, KIND_PIXELS), "64MP", 1, UINT64_C(4000000000),
     "largest input picture, checked before it is decoded"},
    {KEY(result_pixels, KIND_PIXELS), "400MP", 1, UINT64_C(16000000000), "largest result"},
    {KEY(connections, KIND_COUNT), "256", 4, 10000, "open connections"},
    {KEY(connections_per_address, KIND_COUNT), "32", 1, 10000,
     "open connections of one client address; loopback is exempt"},
    {KEY(idle_seconds, KIND_COUNT), "30", 1, SECONDS_MAX, "a connection on which nothing moves is closed after this"},
    {KEY(request_seconds, KIND_COUNT), "300", 1, SECONDS_MAX, "time to send a whole request, and to take its answer"},
    {KEY(job_seconds, KIND_COUNT), "600", 1, SECONDS_MAX,
     "deadline of a job, waiting included; restored restore has none"},
    {KEY(drain_seconds, KIND_COUNT), "30", 0, SECONDS_MAX,
     "on SIGTERM jobs at hand may take this long, then they are cancelled"},
    {KEY(default_version, KIND_TEXT), "", 0, 0, "face model; empty: the official default, 1.3"},
    {KEY(default_bg_upsampler, KIND_TEXT), "", 0, 0, "background upsampler; empty: the official default, realesrgan"},
    {KEY(default_detector, KIND_TEXT), "", 0, 0, "face detector; empty: the official default, resnet50"},
    {KEY(default_parser, KIND_TEXT), "", 0, 0, "face parser; empty: the official default, parsing_parsenet"},
    {KEY(detect_max_side, KIND_COUNT), "2048", 0, 65535,
     "faces are looked for on a reduction to this longest side, px; 0: never reduced"},
    {KEY(cache_dir, KIND_TEXT), "", 0, 0,
     "folder for compiled pipelines; empty: $XDG_CACHE_HOME/restored, else ~/.cache/restored"},
    {KEY(log_level, KIND_LEVEL), "info", 0, 0, "debug, info, warn or error"},
};
#define KEY_COUNT (sizeof keys / sizeof *keys)
_Static_assert(sizeof keys / sizeof *keys <= CONFIG_KEY_MAX, "struct config has too few sources");

static const char *const precision_names[] = {"auto", "fp32", "fp16"};
static const char *const boolean_names[] = {"false", "true"};
static const char *const level_names[] = {"debug", "info", "warn", "error"};

struct unit {
    const char *name;
    uint64_t factor;
};
static const struct unit byte_units[] = {{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {NULL, 0}};
static const struct unit pixel_units[] = {{"MP", 1000000}, {NULL, 0}};
static const struct unit no_units[] = {{NULL, 0}};

static const struct unit *units_of(enum kind kind)
{
    return kind == KIND_BYTES ? byte_units : kind == KIND_PIXELS ? pixel_units : no_units;
}

/* Digits and an optional unit, nothing else. */
static bool parse_number(const char *text, const struct unit *units, uint64_t *out)
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
static void print_number(uint64_t value, enum kind kind, char *out, size_t size)
{
    const struct unit *best = NULL;
    for (const struct unit *unit = units_of(kind); unit->name; unit++)
        if (value && value % unit->factor == 0)
            best = unit;
    snprintf(out, size, "%llu%s", (unsigned long long)(best ? value / best->factor : value), best ? best->name : "");
}

static int find_name(const char *const *names, int count, const char *value)
{
    for (int i = 0; i < count; i++)
        if (!strcasecmp(names[i], value))
            return i;
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
    if (end <= begin || (size_t)(end - begin) >= host_size || !parse_number(colon + 1, no_units, &number) ||
        number > 65535 || strlen(colon + 1) >= port_size)
        return false;
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = 0;
    strcpy(port, colon + 1);
    return true;
}

static bool same_name(const char *a, const char *b)
{
    for (; *a && (*a == *b || (*a == '-' && *b == '_') || (*a == '_' && *b == '-')); a++, b++)
        ;
    return !*a && !*b;
}

static enum error_code bad_value(const struct key *key, const char *value, const char *source, struct error *err)
{
    char low[32], high[32];
    switch (key->kind) {
    case KIND_LISTEN:
        return error_set(err, ERROR_INVALID, "%s: %s = \"%s\" is not ADDRESS:PORT", source, key->name, value);
    case KIND_PRECISION:
    case KIND_LEVEL:
        return error_set(err, ERROR_INVALID, "%s: %s = \"%s\" is not %s", source, key->name, value, key->help);
    case KIND_BOOLEAN:
        return error_set(err, ERROR_INVALID, "%s: %s = \"%s\" is not true or false", source, key->name, value);
    case KIND_TEXT:
        return error_set(err, ERROR_INVALID, "%s: the value of %s is longer than %zu bytes", source, key->name,
                         key->size - 1);
    default:
        print_number(key->min, key->kind, low, sizeof low);
        print_number(key->max, key->kind, high, sizeof high);
        return error_set(err, ERROR_INVALID, "%s: %s = \"%s\" is not a number from %s to %s", source, key->name, value,
                         low, high);
    }
}

/* NULL when there is none of that name. */
static const struct key *find_key(const char *name)
{
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (same_name(keys[i].name, name))
            return &keys[i];
    return NULL;
}

enum error_code config_set(struct config *config, const char *name, const char *value, const char *source,
                           struct error *err)
{
    const struct key *key = find_key(name);
    if (!key)
        return error_set(err, ERROR_NOT_FOUND, "%s: unknown key \"%s\"", source, name);

    char *field = (char *)config + key->offset;
    char host[128], port[8];
    uint64_t number;
    int index;
    switch (key->kind) {
    case KIND_LISTEN:
        if (!config_split_listen(value, host, sizeof host, port, sizeof port))
            return bad_value(key, value, source, err);
        /* fall through */
    case KIND_TEXT:
        if (strlen(value) >= key->size)
            return bad_value(key, value, source, err);
        memmove(field, value, strlen(value) + 1);
        break;
    case KIND_PRECISION:
        if ((index = find_name(precision_names, 3, value)) < 0)
            return bad_value(key, value, source, err);
        config->precision = (enum precision)index;
        break;
    case KIND_LEVEL:
        if ((index = find_name(level_names, 4, value)) < 0)
            return bad_value(key, value, source, err);
        config->log_level = (enum log_level)index;
        break;
    case KIND_BOOLEAN:
        if ((index = find_name(boolean_names, 2, value)) < 0)
            return bad_value(key, value, source, err);
        config->starter_models = index == 1;
        break;
    default:
        if (!parse_number(value, units_of(key->kind), &number) || number < key->min || number > key->max)
            return bad_value(key, value, source, err);
        memcpy(field, &number, sizeof number);
    }
    snprintf(config->source[key - keys], sizeof config->source[0], "%s", source);
    return OK;
}

void config_init(struct config *config)
{
    memset(config, 0, sizeof *config);
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (config_set(config, keys[i].name, keys[i].initial, "default", NULL))
            abort(); /* the table is wrong; the unit test would have shown it */
}

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        end--;
    *end = 0;
    return text;
}

/* first: the line of the file in which each key was set, 0 for none yet. */
static enum error_code load_line(struct config *config, char *line, int number, int first[], const char *source,
                                 struct error *err)
{
    for (char *at = line; *at; at++)
        if (*at == '#' && (at == line || isspace((unsigned char)at[-1]))) {
            *at = 0;
            break;
        }
    line = trim(line);
    if (!*line)
        return OK;
    char *equals = strchr(line, '=');
    if (!equals)
        return error_set(err, ERROR_INVALID, "%s: \"%s\" is not key = value", source, line);
    *equals = 0;
    line = trim(line);
    const struct key *key = find_key(line);
    if (key && first[key - keys])
        return error_set(err, ERROR_INVALID, "%s: \"%s\" is set in line %d already", source, key->name,
                         first[key - keys]);
    if (key)
        first[key - keys] = number;
    return config_set(config, line, trim(equals + 1), source, err);
}

enum error_code config_load(struct config *config, const char *path, struct error *err)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "%s: %s", path, strerror(errno));
    enum error_code code = OK;
    char *line = NULL, source[sizeof config->source[0]];
    size_t room = 0;
    int first[KEY_COUNT] = {0};
    for (int number = 1; !code && getline(&line, &room, file) >= 0; number++) {
        snprintf(source, sizeof source, "%s:%d", path, number);
        bool mark = number == 1 && !strncmp(line, "\xef\xbb\xbf", 3); /* some editors put it before UTF-8 */
        code = load_line(config, line + (mark ? 3 : 0), number, first, source, err);
    }
    if (!code && ferror(file))
        code = error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    free(line);
    fclose(file);
    return code;
}

/* Variables that the runtime reads by itself, for tests. */
static bool of_the_runtime(const char *key)
{
    return !strcmp(key, "cpu_isa") || !strcmp(key, "faults") || !strncmp(key, "vulkan_", 7);
}

enum error_code config_environment(struct config *config, char *const *environment, struct error *err)
{
    static const char prefix[] = "RESTORED_";
    for (; *environment; environment++) {
        if (strncmp(*environment, prefix, sizeof prefix - 1) != 0)
            continue;
        const char *name = *environment + sizeof prefix - 1, *equals = strchr(name, '=');
        char key[64], source[160];
        if (!equals || (size_t)(equals - name) >= sizeof key)
            continue;
        for (int i = 0; name + i <= equals; i++)
            key[i] = name + i < equals ? (char)tolower((unsigned char)name[i]) : 0;
        snprintf(source, sizeof source, "environment %.*s", (int)(equals - *environment), *environment);
        struct error local = ERROR_INIT;
        enum error_code code = config_set(config, key, equals + 1, source, &local);
        if (code == ERROR_NOT_FOUND && !of_the_runtime(key))
            log_event(LOG_WARN, "config", "%s is no key of the configuration and is ignored", source);
        else if (code && code != ERROR_NOT_FOUND)
            return error_set(err, code, "%s", local.text);
    }
    return OK;
}

static void print_value(const struct config *config, const struct key *key, char *out, size_t size)
{
    const char *field = (const char *)config + key->offset;
    uint64_t number;
    switch (key->kind) {
    case KIND_LISTEN:
    case KIND_TEXT:
        snprintf(out, size, "%s", field);
        break;
    case KIND_PRECISION:
        snprintf(out, size, "%s", precision_names[config->precision]);
        break;
    case KIND_BOOLEAN:
        snprintf(out, size, "%s", boolean_names[config->starter_models]);
        break;
    case KIND_LEVEL:
        snprintf(out, size, "%s", level_names[config->log_level]);
        break;
    default:
        memcpy(&number, field, sizeof number);
        print_number(number, key->kind, out, size);
    }
}

void config_print(const struct config *config, FILE *out)
{
    for (size_t i = 0; i < KEY_COUNT; i++) {
        char value[1024];
        print_value(config, &keys[i], value, sizeof value);
        fprintf(out, "%s = %s  # %s\n", keys[i].name, value, config->source[i]);
    }
}

void config_help(FILE *out)
{
    for (size_t i = 0; i < KEY_COUNT; i++)
        fprintf(out, "  --%-24s %s%s%s%s\n", keys[i].name, keys[i].help, *keys[i].initial ? " [" : "", keys[i].initial,
                *keys[i].initial ? "]" : "");
}

const char *config_cache_dir(const struct config *config, char *out, size_t size)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (*config->cache_dir)
        n = snprintf(out, size, "%s", config->cache_dir);
    else if (xdg && *xdg == '/') /* the XDG rule: a relative path is ignored */
        n = snprintf(out, size, "%s/restored", xdg);
    else if (home && *home)
        n = snprintf(out, size, "%s/.cache/restored", home);
    else
        return NULL;
    struct error err = ERROR_INIT;
    if (n < 0 || (size_t)n >= size || file_make_folders(out, &err)) {
        log_event(LOG_WARN, "cache", "no folder for compiled pipelines: %s", err.code ? err.text : "path too long");
        return NULL;
    }
    return out;
}
