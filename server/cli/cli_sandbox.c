#include "server/cli/cli_sandbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "server/store/store.h"

/* Whether only the CPU works: drivers of GPUs need more than a sandbox leaves. */
static bool cli_sandbox_is_cpu(struct devices *devices)
{
    uint32_t chosen = devices_chosen(devices, 0);
    for (uint32_t left = chosen; left; left &= left - 1) {
        struct device_info info;
        devices_info(devices, __builtin_ctz(left), &info);
        if (info.type != DEVICE_CPU)
            return false;
    }
    return chosen != 0;
}

/* Why there is none; NULL: there is. */
static const char *cli_sandbox_reason(const struct config *config, struct devices *devices)
{
#ifdef __SANITIZE_ADDRESS__
    if (config->sandbox == SANDBOX_AUTO)
        return "AddressSanitizer looks for leaks with ptrace";
#endif
    if (config->sandbox == SANDBOX_FALSE)
        return "sandbox = false";
    if (config->sandbox == SANDBOX_AUTO && store_is_shared(config->store))
        return "what resolves the database's name may need more than is left";
    return config->sandbox == SANDBOX_AUTO && !cli_sandbox_is_cpu(devices) ? "drivers of GPUs work without" : NULL;
}

/* The ports of these origins. */
static void cli_sandbox_add_ports(struct sandbox *sandbox, const char *origins)
{
    for (const char *at = origins; (at = strstr(at, "://")); at++) {
        const char *host = at + 3, *end = host + strcspn(host, ", "), *colon = end;
        while (colon > host && *colon != ':' && *colon != ']')
            colon--;
        const bool secure = at - origins >= 5 && !strncmp(at - 5, "https", 5);
        sandbox_add_port(sandbox, *colon == ':' ? (unsigned)strtoul(colon + 1, NULL, 10) : secure ? 443 : 80);
    }
}

static void cli_sandbox_port(void *sandbox, unsigned port)
{
    sandbox_add_port(sandbox, port);
}

static void cli_sandbox_file(void *sandbox, const char *path)
{
    sandbox_add_file(sandbox, path);
}

/* The value of an option of payload = s3://…?NAME=VALUE&…, and its length. */
static const char *cli_sandbox_option(const char *payload, const char *name, size_t *length)
{
    const size_t size = strlen(name);
    for (const char *at = payload + strcspn(payload, "?"); *at; at = at + 1 + strcspn(at + 1, "&"))
        if (!strncmp(at + 1, name, size) && at[1 + size] == '=') {
            *length = strcspn(at + size + 2, "&");
            return at + size + 2;
        }
    *length = 0;
    return NULL;
}

/* What a server needs to reach the database of jobs and shared pictures. */
static void cli_sandbox_add_store(struct sandbox *sandbox, const struct config *config)
{
    char value[sizeof config->payload];
    size_t length;
    const char *found;
    store_reaches(config->store, cli_sandbox_port, cli_sandbox_file, sandbox);
    sandbox_add_file(sandbox, config->store_password_file);
    if (*config->payload == '/')
        sandbox_add_write(sandbox, config->payload);
    if (strncmp(config->payload, "s3://", 5) != 0)
        return;
    for (int i = 0; i < 2; i++) {
        found = cli_sandbox_option(config->payload, i ? "ca" : "credentials", &length);
        snprintf(value, sizeof value, "%.*s", (int)length, found ? found : "");
        sandbox_add_file(sandbox, value);
    }
    found = cli_sandbox_option(config->payload, "endpoint", &length);
    snprintf(value, sizeof value, "%.*s", (int)length, found ? found : "");
    cli_sandbox_add_ports(sandbox, found ? value : "https://amazonaws.com");
}

static void cli_sandbox_add(struct sandbox *sandbox, const struct config *config, const struct config_files *files,
                            const struct model_store *store)
{
    char folder[1024];
    sandbox_add_write(sandbox, config_cache_dir(config, folder, sizeof folder));
    sandbox_add_write(sandbox, config_state_dir(config, folder, sizeof folder));
    for (int i = 0; i < files->count; i++)
        sandbox_add_file(sandbox, files->file[i].path);
    cli_sandbox_add_ports(sandbox, config->webhook_origins);
    cli_sandbox_add_ports(sandbox, config->fetch_origins);
    if (store_is_shared(config->store))
        cli_sandbox_add_store(sandbox, config);
    sandbox_add_file(sandbox, config->auth_token_file);
    sandbox_add_file(sandbox, config->tls_cert);
    sandbox_add_file(sandbox, config->tls_key);
    for (int i = 0; model_store_folder(store, i); i++)
        sandbox_add_read(sandbox, model_store_folder(store, i));
    model_store_lock(store);
    for (size_t i = 0; i < model_store_count(store); i++) /* links may lead out of those folders */
        if (!model_store_at(store, i)->content)
            sandbox_add_file(sandbox, model_store_at(store, i)->path);
    model_store_unlock(store);
}

enum error_code cli_sandbox_enter(struct sandbox **out, const struct config *config, const struct config_files *files,
                                  const struct model_store *store, struct devices *devices, struct error *err)
{
    struct error local = ERROR_INIT;
    int landlock = 0, outside = 0;
    const char *reason = cli_sandbox_reason(config, devices);
    *out = NULL;
    if (reason) {
        log_event(LOG_INFO, "sandbox", "seccomp=false landlock=%d reason=\"%s\"", 0, reason);
        return OK;
    }
    enum error_code code = sandbox_create(out, &local);
    if (!code) {
        cli_sandbox_add(*out, config, files, store);
        if (!cli_sandbox_is_cpu(devices))
            sandbox_add_devices(*out);
        code = sandbox_enter(*out, &landlock, &outside, &local);
    }
    if (!code)
        log_event(landlock ? LOG_INFO : LOG_WARN, "sandbox",
                  "seccomp=true landlock=%d threads_outside=%d reason=\"%s\"", landlock, outside,
                  landlock ? "" : "this kernel has no Landlock: files are not kept from the process");
    else if (config->sandbox == SANDBOX_AUTO)
        log_event(LOG_WARN, "sandbox", "seccomp=false landlock=%d reason=\"%s\"", landlock, local.text);
    else
        return error_copy(err, code, &local);
    return OK;
}
