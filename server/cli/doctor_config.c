/* What of this configuration a server refuses, in its own words. state_dir is not looked at: that would make files of
 * this user's there, and take a server's lock. */
#include <errno.h>
#include <string.h>

#include "server/cli/cli.h"
#include "server/cli/doctor.h"
#include "server/http/server.h"
#include "server/store/payload.h"
#include "server/store/store.h"

/* Whether the system keeps this user from something, which it may allow to the server's: a file of tokens, a port below
 * 1024. */
static bool doctor_lacks_rights(const struct error *err)
{
    const char *denied = strerror(EACCES);
    const size_t length = strlen(err->text), end = strlen(denied);
    return length >= end && !strcmp(err->text + length - end, denied);
}

static enum error_code doctor_check_config(const struct config *config, struct error *err)
{
    struct payload *payload = NULL; /* none is opened for a store of one server; a shared one is the next check's */
    enum error_code code = cli_check_config(config, err);
    if (!code && !store_is_shared(config->store))
        code =
            payload_open(&payload, &(struct payload_settings){.where = config->payload, .store = config->store}, err);
    return code;
}

void doctor_config(struct doctor *doctor)
{
    struct config config = *doctor->config;
    struct error err = ERROR_INIT;
    if (config.role == SERVE_WORKER) /* as restored serve does */
        *config.listen = 0;
    enum error_code code = doctor_check_config(&config, &err);
    if (!code)
        code = server_check_addresses(&config, &err);
    if (!code) {
        doctor_ok(doctor, "a server accepts it");
    } else if (code == ERROR_BUSY) {
        doctor_add(doctor, DOCTOR_NOTE, "a second server cannot listen there",
                   "nothing, if that is restored; else stop what listens there, or change the address", "%s", err.text);
    } else if (doctor_lacks_rights(&err)) {
        doctor_add(doctor, DOCTOR_NOTE,
                   "a server of this user does not start with it; what else may be wrong was not looked for",
                   "run restored doctor as the server's user; a port below 1024 needs CAP_NET_BIND_SERVICE", "%s",
                   err.text);
    } else {
        doctor->refused = true;
        doctor_add(doctor, DOCTOR_PROBLEM, "a server does not start with it",
                   "change that value; restored serve --print_config says where each value is set", "%s", err.text);
    }
}
