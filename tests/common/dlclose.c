/* In sanitizer builds libraries stay loaded. The Vulkan loader unloads a driver with its last instance, and the
 * driver's static pointers go with it: what they point to, memory that lavapipe keeps for the life of the process,
 * would then be reported as leaked from an unknown module, which no suppression can name. */
#ifdef __has_feature
#define HAS_ADDRESS_SANITIZER __has_feature(address_sanitizer)
#elif defined(__SANITIZE_ADDRESS__)
#define HAS_ADDRESS_SANITIZER 1
#else
#define HAS_ADDRESS_SANITIZER 0
#endif

#if HAS_ADDRESS_SANITIZER
#include <dlfcn.h>

int dlclose(void *handle)
{
    (void)handle;
    return 0;
}
#endif
