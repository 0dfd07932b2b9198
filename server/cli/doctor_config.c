/* Whether a server would start with this configuration: what it refuses, in its own words. */
#include "server/cli/cli.h"
#include "server/cli/doctor.h"
#include "server/http/server.h"
#include "server/store/payload.h"
#include "server/store/store.h"

static enum error_code doctor_check_config(const struct config *config, struct error *err)
{
    struct payload *payload = NULL; /* none is opened for a store of one server; a shared one is the next check's */
    enum error_code code = cli_check_config(config, err);
    if (!code && !store_is_shared(config->store))
        code = payload_open(&payload, &(struct payload_settings){.where = config->payload, .store = config->store}, err);
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
        doctor_ok(doctor, "a server can start with it");
    } else if (code == ERROR_BUSY) {
        doctor_add(doctor, DOCTOR_NOTE, "a second server cannot listen there",
                   "nothing, if that is restored; else stop what listens there, or change the address", "%s", err.text);
    } else {
        doctor->refused = true;
        doctor_add(doctor, DOCTOR_PROBLEM, "a server does not start with it",
                   "change that value; restored serve --print_config says where each value is set", "%s", err.text);
    }
}
