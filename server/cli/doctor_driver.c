/* The Vulkan loader and the drivers that it will find, following its documentation "Driver interface to the Vulkan
 * Loader" for Linux. */
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "server/cli/doctor.h"

void doctor_loader(struct doctor *doctor)
{
    struct error err = ERROR_INIT;
    char library[64];
    doctor->loader = device_loader(library, sizeof library, &err) == OK;
    if (!doctor->loader) {
        doctor_add(doctor, DOCTOR_PROBLEM, "without Vulkan's loader no graphics processor can be used",
                   "apt-get install libvulkan1 (with --reinstall, if the file is there)",
                   "there is no usable Vulkan loader: %s", err.text);
        return;
    }
    doctor_ok(doctor, "%s", library);
}

/* The search for drivers. */
struct search {
    struct doctor *doctor;
    int found;        /* drivers that can be loaded */
    char places[700]; /* where was looked */
};

/* Whether the library can be loaded; else adds why not. `manifest` is its own path, `library` is as written in it. */
static void driver_check_library(struct search *search, const char *manifest, const char *library, const char *api)
{
    char path[PATH_MAX];
    const char *slash = strrchr(manifest, '/');
    if (strchr(library, '/') && *library != '/') /* relative to the manifest's folder */
        snprintf(path, sizeof path, "%.*s/%s", slash ? (int)(slash - manifest) : 1, slash ? manifest : ".", library);
    else
        snprintf(path, sizeof path, "%s", library);
    void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (handle) {
        dlclose(handle);
        search->found++;
        doctor_ok(search->doctor, "%s: %s, Vulkan %s", manifest, path, api);
        return;
    }
    const char *why = dlerror();
    if (why && strstr(why, "wrong ELF class"))
        doctor_ok(search->doctor, "%s: for 32-bit programs, not used", manifest);
    else
        doctor_add(search->doctor, DOCTOR_PROBLEM, "the loader leaves the driver out, and its devices are not listed",
                   "install the driver anew (dpkg -S tells the manifest's package), or remove the manifest",
                   "%s names a library that cannot be loaded: %s", manifest, why ? why : path);
}

static void driver_check_manifest(struct search *search, const char *path)
{
    json_error_t error;
    json_t *json = json_load_file(path, 0, &error);
    const char *library = NULL, *api = "";
    if (json)
        json_unpack(json, "{s:{s:s, s?s}}", "ICD", "library_path", &library, "api_version", &api);
    if (library)
        driver_check_library(search, path, library, api);
    else
        doctor_add(search->doctor, DOCTOR_PROBLEM, "the loader leaves the driver out, and its devices are not listed",
                   "install the driver anew (dpkg -S tells the manifest's package), or remove the file",
                   "%s is not a driver's manifest: %s", path, json ? "it names no ICD.library_path" : error.text);
    json_decref(json);
}

static int driver_is_manifest(const struct dirent *entry)
{
    const size_t length = strlen(entry->d_name);
    return length > 5 && !strcmp(entry->d_name + length - 5, ".json");
}

static void driver_look_in(struct search *search, const char *folder)
{
    struct dirent **entries;
    const size_t used = strlen(search->places);
    snprintf(search->places + used, sizeof search->places - used, "%s%s", used ? ", " : "", folder);
    const int count = scandir(folder, &entries, driver_is_manifest, alphasort);
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX];
        if (snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name) < (int)sizeof path)
            driver_check_manifest(search, path);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
}

/* Looks into each part of a colon-separated list, in order: base + part + "/vulkan/icd.d". */
static void driver_look_in_each(struct search *search, const char *base, const char *list)
{
    char copy[PATH_MAX], folder[PATH_MAX], *rest = copy;
    snprintf(copy, sizeof copy, "%s", list);
    for (char *part; (part = strsep(&rest, ":"));)
        if (*part && snprintf(folder, sizeof folder, "%s%s/vulkan/icd.d", base, part) < (int)sizeof folder)
            driver_look_in(search, folder);
}

static const char *driver_variable(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

/* A user's own folder: the one that the variable names, else the one in the home directory. */
static void driver_look_at_home(struct search *search, const char *name, const char *otherwise)
{
    const char *home = driver_variable("HOME", ""), *own = driver_variable(name, "");
    if (*own)
        driver_look_in_each(search, "", own);
    else if (*home)
        driver_look_in_each(search, home, otherwise);
}

/* Files and folders that a variable names. */
static void driver_look_at_variable(struct search *search, const char *name, const char *list, bool instead)
{
    char copy[PATH_MAX], *rest = copy;
    snprintf(copy, sizeof copy, "%s", list);
    for (char *part; (part = strsep(&rest, ":"));) {
        struct stat status;
        if (!*part)
            continue;
        if (stat(part, &status) != 0)
            doctor_add(search->doctor, DOCTOR_PROBLEM,
                       instead ? "while the variable is set the loader looks nowhere else, so other drivers that are "
                                 "installed are not found"
                               : "the driver that is meant is not found",
                       "unset the variable, or let it name the driver's file, such as "
                       "/usr/share/vulkan/icd.d/radeon_icd.x86_64.json",
                       "%s names %s, and there is no such file", name, part);
        else if (S_ISDIR(status.st_mode))
            driver_look_in(search, part);
        else
            driver_check_manifest(search, part);
    }
}

const char *doctor_driver_variable(void)
{
    static const char *const names[] = {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"}; /* the first that is set wins */
    for (int i = 0; i < 2; i++)
        if (*driver_variable(names[i], ""))
            return names[i];
    return NULL;
}

void doctor_drivers(struct doctor *doctor)
{
    struct search search = {.doctor = doctor};
    const char *name = doctor_driver_variable(), *only = name ? getenv(name) : "";
    const char *added = driver_variable("VK_ADD_DRIVER_FILES", "");
    if (name) {
        doctor_add(doctor, DOCTOR_NOTE,
                   "the loader then looks nowhere else: other drivers that are installed are not used",
                   "unset it, if that is not meant", "%s is set: %s", name, only);
        driver_look_at_variable(&search, name, only, true);
    } else {
        driver_look_at_variable(&search, "VK_ADD_DRIVER_FILES", added, false);
        driver_look_at_home(&search, "XDG_CONFIG_HOME", "/.config");
        driver_look_in_each(&search, doctor->root, driver_variable("XDG_CONFIG_DIRS", "/etc/xdg"));
        driver_look_in_each(&search, doctor->root, "/etc");
        driver_look_at_home(&search, "XDG_DATA_HOME", "/.local/share");
        driver_look_in_each(&search, doctor->root, driver_variable("XDG_DATA_DIRS", "/usr/local/share:/usr/share"));
    }
    const char *const filters[] = {"VK_LOADER_DRIVERS_SELECT", "VK_LOADER_DRIVERS_DISABLE"};
    for (int i = 0; i < 2; i++)
        if (*driver_variable(filters[i], ""))
            doctor_add(doctor, DOCTOR_NOTE, "the loader leaves out drivers by this", "unset it, if that is not meant",
                       "%s is set: %s", filters[i], driver_variable(filters[i], ""));
    if (search.found)
        return;
    char unset[64] = "";
    if (name) {
        snprintf(unset, sizeof unset, "unset %s", name);
        snprintf(search.places, sizeof search.places, "what %s names", name);
    }
    doctor_add(doctor, DOCTOR_PROBLEM, "the loader finds graphics processors only through a driver's manifest (ICD)",
               name ? unset : doctor_driver_advice(doctor), "there is no Vulkan driver that can be loaded in %s",
               search.places);
}
