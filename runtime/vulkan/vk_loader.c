#include "runtime/vulkan/vk_loader.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#define DEFINE(name) PFN_##name name;
VK_LOADER_FUNCTIONS(DEFINE)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct error failure = ERROR_INIT;

static PFN_vkVoidFunction loader_function(void *library, const char *name)
{
    union {
        void *object;
        PFN_vkVoidFunction function;
    } symbol = {.object = dlsym(library, name)}; /* POSIX: an object's pointer that is a function's */
    if (!symbol.object)
        error_set(&failure, ERROR_NOT_FOUND, "%s has no %s: it is older than Vulkan 1.1", VK_LOADER_LIBRARY, name);
    return symbol.function;
}

static void loader_open_library(void)
{
    void *library = dlopen(VK_LOADER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        error_set(&failure, ERROR_NOT_FOUND, "%s", why ? why : "the Vulkan loader cannot be opened");
        return;
    }
#define LOAD(name) name = (PFN_##name)loader_function(library, #name);
    VK_LOADER_FUNCTIONS(LOAD)
}

enum error_code vk_loader_open(struct error *err)
{
    pthread_once(&once, loader_open_library);
    return failure.code ? error_set(err, failure.code, "%s", failure.text) : OK;
}
