#include "tests/common/models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/common/shared.h"

struct model_store *models_of(const char *folder, const struct model_defaults *defaults)
{
    struct model_store *store;
    struct error err = ERROR_INIT;
    if (model_store_create(&store, folder, defaults, &err))
        fail_msg("%s", err.text);
    return store;
}

struct model_store *models_of_fixtures(void)
{
    const struct model_defaults defaults = {.name = {"detector", "face_64", "parser", "srvgg_x2"}};
    return models_of(shared_fixtures(), &defaults);
}

const struct model_entry *models_resolve(const struct model_store *store, enum model_role role, const char *wanted)
{
    const struct model_entry *entry;
    struct error err = ERROR_INIT;
    if (model_store_resolve(store, role, wanted, &entry, &err))
        fail_msg("%s: %s", wanted ? wanted : "default", err.text);
    return entry;
}
