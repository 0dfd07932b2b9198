#include "server/config_load.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *config_load_trim(char *text)
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
static enum error_code config_load_line(struct config *config, char *line, int number, int first[], const char *source,
                                        struct error *err)
{
    for (char *at = line; *at; at++)
        if (*at == '#' && (at == line || at[-1] == '=' || isspace((unsigned char)at[-1]))) {
            *at = 0;
            break;
        }
    line = config_load_trim(line);
    if (!*line)
        return OK;
    char *equals = strchr(line, '=');
    if (!equals)
        return error_set(err, ERROR_INVALID, "%s: \"%s\" is not key = value", source, line);
    *equals = 0;
    line = config_load_trim(line);
    const int key = config_index(line);
    if (key >= 0 && first[key])
        return error_set(err, ERROR_INVALID, "%s: \"%s\" is set in line %d already", source, config_key((size_t)key),
                         first[key]);
    if (key >= 0)
        first[key] = number;
    return config_set(config, line, config_load_trim(equals + 1), source, err);
}

enum error_code config_load(struct config *config, const char *path, struct error *err)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set(err, errno == ENOENT || errno == ENOTDIR ? ERROR_NOT_FOUND : ERROR_IO, "%s: %s", path,
                         strerror(errno));
    enum error_code code = OK;
    char *line = NULL, source[sizeof config->source[0]];
    size_t room = 0;
    int first[CONFIG_KEY_MAX] = {0};
    for (int number = 1; !code && getline(&line, &room, file) >= 0; number++) {
        snprintf(source, sizeof source, "%s:%d", path, number);
        bool mark = number == 1 && !strncmp(line, "\xef\xbb\xbf", 3); /* some editors begin UTF-8 files with it */
        code = config_load_line(config, line + (mark ? 3 : 0), number, first, source, err);
    }
    if (!code && ferror(file))
        code = error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    free(line);
    fclose(file);
    return code;
}

/* One of the optional files: folder + rest. */
static enum error_code config_load_optional(struct config *config, const char *folder, const char *rest,
                                            struct config_files *files, struct error *err)
{
    char *path = files->file[files->count].path;
    const int length = snprintf(path, sizeof files->file[0].path, "%s%s/restored/restored.conf", folder, rest);
    if (length < 0 || (size_t)length >= sizeof files->file[0].path)
        return OK;
    files->count++;
    if (access(path, F_OK) && (errno == ENOENT || errno == ENOTDIR))
        return OK;
    files->file[files->count - 1].read = true;
    return config_load(config, path, err);
}

enum error_code config_load_files(struct config *config, const char *path, struct config_files *files,
                                  struct error *err)
{
    *files = (struct config_files){0};
    if (path) {
        snprintf(files->file[0].path, sizeof files->file[0].path, "%s", path);
        files->count = 1;
        enum error_code code = config_load(config, path, err);
        files->file[0].read = !code;
        return code;
    }
    const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    enum error_code code = config_load_optional(config, RESTORED_SYSCONFDIR, "", files, err);
    if (!code && xdg && *xdg == '/') /* the XDG rule: a relative path is ignored */
        code = config_load_optional(config, xdg, "", files, err);
    else if (!code && home && *home == '/')
        code = config_load_optional(config, home, "/.config", files, err);
    return code;
}

/* --- environment ---------------------------------------------------------------------------------------------------
 */

static bool config_ends_with(const char *text, size_t size, const char *end)
{
    return size >= strlen(end) && !memcmp(text + size - strlen(end), end, strlen(end));
}

/* "_PORT_80_TCP", "_PORT_80_TCP_ADDR" and so on at the end of the name. */
static bool config_load_is_port_variable(const char *name, size_t size)
{
    static const char *const protocols[] = {"_TCP", "_UDP", "_SCTP"}, *const parts[] = {"_PROTO", "_PORT", "_ADDR"};
    for (int i = 0; i < 3; i++)
        if (config_ends_with(name, size, parts[i])) {
            size -= strlen(parts[i]);
            break;
        }
    size_t number = size;
    for (int i = 0; i < 3 && number == size; i++)
        if (config_ends_with(name, size, protocols[i]))
            number -= strlen(protocols[i]);
    const size_t end = number;
    while (number && isdigit((unsigned char)name[number - 1]))
        number--;
    return end < size && number < end && config_ends_with(name, number, "_PORT_");
}

/* The variables that Kubernetes gives to every container of a namespace with a service whose name begins with
 * "restored". name: from "RESTORED" on. */
static bool config_load_is_kubernetes(const char *name, size_t size, const char *value)
{
    static const char *const schemes[] = {"tcp://", "udp://", "sctp://"};
    if (config_ends_with(name, size, "_SERVICE_HOST") || config_ends_with(name, size, "_SERVICE_PORT") ||
        memmem(name, size, "_SERVICE_PORT_", 14) || config_load_is_port_variable(name, size))
        return true;
    for (int i = 0; i < 3; i++)
        if (config_ends_with(name, size, "_PORT") && !strncmp(value, schemes[i], strlen(schemes[i])))
            return true;
    return false;
}

/* No key of ours: the clients of examples/ read it, or tests and the programs built for them, which tests start with
 * their own environment. */
static bool config_load_is_of_others(const char *key)
{
    static const char *const names[] = {
        "url",
        "token",
        "config",
        "binary",
        "faulty_binary",
        "fixtures",
        "shared",
        "full",
        "test_device",
        "faults",
        "vulkan_stage",
        "vulkan_prepare",
        "vulkan_grouped",
        "vulkan_packed",
        "vulkan_tile",
        "vulkan_low_limits",
        "vulkan_least",
        "test_postgres",
        "test_postgres_dir",
        "test_postgres_port",
        "test_postgres_fsync",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], key))
            return true;
    return false;
}

enum error_code config_load_environment(struct config *config, char *const *environment, struct error *err)
{
    static const char prefix[] = "RESTORED_";
    for (; *environment; environment++) {
        if (strncmp(*environment, prefix, sizeof prefix - 1) != 0)
            continue;
        const char *name = *environment + sizeof prefix - 1, *equals = strchr(name, '=');
        char key[64], source[160];
        if (!equals || config_load_is_kubernetes(*environment, (size_t)(equals - *environment), equals + 1))
            continue;
        snprintf(key, sizeof key, "%.*s", (int)(equals - name), name);
        for (char *at = key; *at; at++)
            *at = (char)tolower((unsigned char)*at);
        if (config_load_is_of_others(key))
            continue;
        snprintf(source, sizeof source, "environment %.*s", (int)(equals - *environment), *environment);
        struct error local = ERROR_INIT;
        enum error_code code = config_set(config, key, equals + 1, source, &local);
        if (code)
            return error_set(err, ERROR_INVALID, "%s", local.text);
    }
    return OK;
}
