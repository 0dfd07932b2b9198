/* restored doctor's checks on machines that this one is not: made of files below a folder. What needs the real loader
 * and devices is in tests/api/doctor.test.mjs. */
#include <grp.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/cli/doctor.h"

static char root[64];
static struct doctor doctor;

static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(full, 0755);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int begin(void **state)
{
    static const char *const variables[] = {
        "VK_DRIVER_FILES",
        "VK_ICD_FILENAMES",
        "VK_ADD_DRIVER_FILES",
        "VK_LOADER_DRIVERS_SELECT",
        "VK_LOADER_DRIVERS_DISABLE",
        "XDG_CONFIG_HOME",
        "XDG_CONFIG_DIRS",
        "XDG_DATA_HOME",
        "XDG_DATA_DIRS",
    };
    (void)state;
    strcpy(root, "/tmp/test_doctor.XXXXXX");
    if (!mkdtemp(root) || chmod(root, 0755) != 0)
        return -1;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    setenv("HOME", root, 1);
    memset(&doctor, 0, sizeof doctor);
    doctor.root = root;
    return 0;
}

static int end(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static void run(const char *name)
{
    for (const struct doctor_check *check = doctor_checks; check->name; check++)
        if (!strcmp(check->name, name))
            doctor_run(&doctor, check);
}

/* The finding with this text; fails the test if there is none, or if it lacks what its state asks for. */
static const struct finding *finding(enum doctor_state state, const char *text)
{
    for (int i = 0; i < doctor.count; i++) {
        const struct finding *f = &doctor.findings[i];
        if (!strstr(f->found, text))
            continue;
        assert_int_equal(f->state, state);
        assert_int_equal(state != DOCTOR_OK, *f->why != 0);
        assert_int_equal(state != DOCTOR_OK, *f->fix != 0);
        return f;
    }
    for (int i = 0; i < doctor.count; i++)
        print_error("found: %s\n", doctor.findings[i].found);
    fail_msg("no finding \"%s\"", text);
    return NULL;
}

/* --- graphics processors -------------------------------------------------------------------------------------------
 */

static void put_pci(const char *slot, const char *class, const char *vendor, const char *driver)
{
    char path[256], full[512], target[256];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/class", slot);
    put(path, class);
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/vendor", slot);
    put(path, vendor);
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/device", slot);
    put(path, "0x1234\n");
    if (!driver)
        return;
    snprintf(full, sizeof full, "%s/sys/bus/pci/devices/%s/driver", root, slot);
    snprintf(target, sizeof target, "../../../bus/pci/drivers/%s", driver);
    assert_int_equal(symlink(target, full), 0);
}

static void no_graphics_processor(void **state)
{
    (void)state;
    put_pci("0000:00:01.0", "0x020000\n", "0x8086\n", "e1000");     /* a network card */
    put_pci("0000:00:02.0", "0x030000\n", "0x1234\n", "bochs-drm"); /* a virtual screen */
    run("gpu");
    assert_int_equal(doctor.count, 1);
    assert_non_null(strstr(finding(DOCTOR_NOTE, "no NVIDIA, AMD or Intel graphics")->fix, "pass one through"));
    run("permissions");
    finding(DOCTOR_OK, "nothing to open");
}

static void graphics_processors_and_their_kernel_drivers(void **state)
{
    (void)state;
    put_pci("0000:00:02.0", "0x030000\n", "0x8086\n", "i915");
    put_pci("0000:01:00.0", "0x030200\n", "0x10de\n", NULL);
    put_pci("0000:02:00.0", "0x038000\n", "0x1002\n", "vfio-pci");
    run("gpu");
    assert_int_equal(doctor.count, 3);
    finding(DOCTOR_OK, "Intel 8086:1234 at 0000:00:02.0, kernel driver i915");
    assert_non_null(strstr(finding(DOCTOR_PROBLEM, "NVIDIA 10de:1234 at 0000:01:00.0 has no kernel driver")->fix,
                           "nvidia-vulkan-icd"));
    finding(DOCTOR_PROBLEM, "AMD 1002:1234 at 0000:02:00.0 is set aside for virtual machines");
}

/* --- permissions ---------------------------------------------------------------------------------------------------
 */

/* group: -1 as it comes. */
static void put_node(const char *path, mode_t mode, gid_t group)
{
    char full[256];
    put(path, "");
    snprintf(full, sizeof full, "%s%s", root, path);
    assert_int_equal(chown(full, (uid_t)-1, group), 0);
    assert_int_equal(chmod(full, mode), 0);
}

/* As somebody whom permissions bind: the superuser opens anything. */
static void run_as_nobody(const char *name)
{
    const bool super = geteuid() == 0;
    gid_t groups[256];
    const int count = getgroups(256, groups);
    if (super)
        assert_true(count >= 0 && setgroups(0, NULL) == 0 && setegid(65534) == 0 && seteuid(65534) == 0);
    run(name);
    if (super)
        assert_true(seteuid(0) == 0 && setegid(0) == 0 && setgroups((size_t)count, groups) == 0);
}

static void files_that_may_not_be_opened(void **state)
{
    (void)state;
    const gid_t named = geteuid() ? (gid_t)-1 : 1; /* 1: daemon, which every Linux has */
    put_node("/dev/dri/renderD128", geteuid() ? 0060 : 0660, named);
    put_node("/dev/dri/renderD129", geteuid() ? 0000 : 0600, named);
    put_node("/dev/dri/renderD130", 0666, named);
    put_node("/dev/dri/card0", 0000, named); /* for screens */
    put_node("/dev/nvidia0", 0000, named);
    put_node("/dev/nvidiactl", 0666, named);
    put_node("/dev/nvidia-uvm", 0000, named);
    run_as_nobody("permissions");
    assert_int_equal(doctor.count, 5);
    const struct finding *group = finding(DOCTOR_PROBLEM, "/dev/dri/renderD128 cannot be opened: Permission denied");
    assert_non_null(strstr(group->why, "silently lists no such device"));
    assert_non_null(strstr(group->fix, "usermod -aG "));
    assert_non_null(strstr(group->fix, "--group-add "));
    assert_null(strstr(group->fix, "chmod"));
    assert_non_null(
        strstr(finding(DOCTOR_PROBLEM, "/dev/dri/renderD129 cannot")->fix, "chmod g+rw /dev/dri/renderD129"));
    finding(DOCTOR_OK, "/dev/dri/renderD130 can be opened");
    finding(DOCTOR_PROBLEM, "/dev/nvidia0 cannot be opened");
    finding(DOCTOR_OK, "/dev/nvidiactl can be opened");
}

/* What the fix for the file says; names of groups are this machine's. */
static const char *fix_of(const char *path)
{
    char text[128];
    snprintf(text, sizeof text, "%s cannot be opened: Permission denied", path);
    return finding(DOCTOR_PROBLEM, text)->fix;
}

/* Membership of root's group is no permission to give: the file changes, not the user. */
static void files_of_the_group_root(void **state)
{
    static const char *const paths[] = {"/dev/dri/renderD128", "/dev/dri/renderD129", "/dev/nvidia0"};
    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: only the superuser can make files of the group root\n");
        skip();
    }
    put_node(paths[0], 0660, 0);
    put_node(paths[1], 0600, 0);
    put_node(paths[2], 0660, 0);
    run_as_nobody("permissions");
    assert_int_equal(doctor.count, 3);
    for (int i = 0; i < 3; i++) {
        const char *fix = fix_of(paths[i]);
        assert_null(strstr(fix, "usermod -aG root"));
        assert_null(strstr(fix, "--group-add 0"));
        assert_null(strstr(fix, "SupplementaryGroups=root"));
        char change[128];
        snprintf(change, sizeof change,
                 i < 2 ? "chgrp render %s && chmod 660 %s && usermod -aG render " : "chmod 666 %s", paths[i], paths[i]);
        assert_non_null(strstr(fix, change));
        if (i < 2) {
            assert_non_null(strstr(fix, "KERNEL==\"renderD*\", GROUP=\"render\", MODE=\"0660\""));
            assert_int_equal(strstr(fix, "groupadd -r render && ") != NULL, getgrnam("render") == NULL);
        }
    }
}

/* usermod knows no group by a number that has no name: it is made first. */
static void files_of_a_group_without_a_name(void **state)
{
    char make[96];
    const gid_t group = 54321;
    (void)state;
    if (geteuid() != 0 || getgrgid(group)) {
        print_message("skipped: only the superuser can make files of a group that has no name\n");
        skip();
    }
    snprintf(make, sizeof make,
             getgrnam("render") ? "groupadd -g %u render%u && usermod -aG render%u "
                                : "groupadd -g %u render && usermod -aG render ",
             group, group, group);
    put_node("/dev/dri/renderD128", 0660, group);
    put_node("/dev/dri/renderD129", 0600, group);
    run_as_nobody("permissions");
    assert_int_equal(doctor.count, 2);
    for (int i = 0; i < 2; i++) {
        const char *fix = fix_of(i ? "/dev/dri/renderD129" : "/dev/dri/renderD128");
        assert_non_null(strstr(fix, make));
        assert_non_null(strstr(fix, "--group-add 54321;"));
        assert_null(strstr(fix, "-aG 54321"));
        assert_int_equal(strstr(fix, "chmod g+rw /dev/dri/renderD129 && ") != NULL, i);
    }
}

static void a_graphics_processor_without_its_files(void **state)
{
    (void)state;
    put_pci("0000:01:00.0", "0x030000\n", "0x1002\n", "amdgpu");
    run("gpu");
    run("permissions");
    assert_non_null(strstr(finding(DOCTOR_PROBLEM, "no /dev/dri/renderD*")->fix, "--device /dev/dri"));
}

/* --- drivers -------------------------------------------------------------------------------------------------------
 */

#define MANIFEST(library)                                                                                              \
    "{\"file_format_version\": \"1.0.0\", \"ICD\": {\"library_path\": \"" library "\", \"api_version\": \"1.3.1\"}}"

static void no_driver(void **state)
{
    (void)state;
    put_pci("0000:01:00.0", "0x030000\n", "0x8086\n", "i915");
    run("gpu");
    run("drivers");
    const struct finding *f = finding(DOCTOR_PROBLEM, "there is no Vulkan driver that can be loaded in ");
    assert_non_null(strstr(f->found, "/etc/vulkan/icd.d, "));
    assert_non_null(strstr(f->found, "/usr/share/vulkan/icd.d"));
    assert_string_equal(f->fix, "apt-get install mesa-vulkan-drivers");
}

static void drivers_where_the_loader_looks(void **state)
{
    (void)state;
    /* any library will do to be loaded */
    put("/.config/vulkan/icd.d/a.json", MANIFEST("libm.so.6"));
    put("/etc/xdg/vulkan/icd.d/b.json", MANIFEST("libm.so.6"));
    put("/etc/vulkan/icd.d/c.json", MANIFEST("libm.so.6"));
    put("/.local/share/vulkan/icd.d/d.json", MANIFEST("libm.so.6"));
    put("/usr/local/share/vulkan/icd.d/e.json", MANIFEST("libm.so.6"));
    put("/usr/share/vulkan/icd.d/f.json", MANIFEST("libm.so.6"));
    put("/usr/share/vulkan/icd.d/f.txt", "not read");
    run("drivers");
    assert_int_equal(doctor.count, 6);
    for (int i = 0; i < 6; i++) {
        char name[16];
        snprintf(name, sizeof name, "/%c.json: libm", 'a' + i);
        assert_non_null(strstr(doctor.findings[i].found, name));
        assert_int_equal(doctor.findings[i].state, DOCTOR_OK);
    }
}

static void drivers_that_cannot_be_loaded(void **state)
{
    (void)state;
    put("/etc/vulkan/icd.d/gone.json", MANIFEST("libgone_icd.so"));
    put("/etc/vulkan/icd.d/beside.json", MANIFEST("./libbeside_icd.so"));
    put("/etc/vulkan/icd.d/broken.json", "{\"ICD\": ");
    put("/etc/vulkan/icd.d/other.json", "{\"ICD\": {\"library\": 1}}");
    run("drivers");
    assert_int_equal(doctor.count, 5);
    finding(DOCTOR_PROBLEM, "gone.json names a library that cannot be loaded: libgone_icd.so: cannot open");
    finding(DOCTOR_PROBLEM, "/etc/vulkan/icd.d/./libbeside_icd.so: cannot open");
    finding(DOCTOR_PROBLEM, "broken.json is not a driver's manifest: ");
    finding(DOCTOR_PROBLEM, "other.json is not a driver's manifest: it names no ICD.library_path");
    finding(DOCTOR_PROBLEM, "there is no Vulkan driver that can be loaded in");
}

/* A driver for 32-bit programs beside ours is no problem. */
static void a_driver_of_another_class(void **state)
{
    (void)state;
    static const unsigned char header[64] = {0x7f, 'E', 'L', 'F', 1 /* 32 bit */, 1, 1};
    char full[512];
    put("/etc/vulkan/icd.d/small.json", MANIFEST("./libsmall_icd.so"));
    snprintf(full, sizeof full, "%s/etc/vulkan/icd.d/libsmall_icd.so", root);
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(header, 1, sizeof header, file), sizeof header);
    assert_int_equal(fclose(file), 0);
    run("drivers");
    assert_int_equal(doctor.count, 2);
    finding(DOCTOR_OK, "small.json: for 32-bit programs, not used");
}

static void variables_that_choose_drivers(void **state)
{
    char list[256];
    (void)state;
    put("/usr/share/vulkan/icd.d/installed.json", MANIFEST("libm.so.6"));
    put("/own/a.json", MANIFEST("libm.so.6"));
    snprintf(list, sizeof list, "/nowhere/a.json:%s/own", root);
    setenv("VK_ICD_FILENAMES", list, 1);
    run("drivers");
    assert_int_equal(doctor.count, 3);
    finding(DOCTOR_NOTE, "VK_ICD_FILENAMES is set: /nowhere/a.json:");
    assert_non_null(
        strstr(finding(DOCTOR_PROBLEM, "VK_ICD_FILENAMES names /nowhere/a.json, and there is no such file")->why,
               "looks nowhere else"));
    finding(DOCTOR_OK, "/own/a.json: libm.so.6, Vulkan 1.3.1");

    doctor.count = 0; /* the newer name wins */
    setenv("VK_DRIVER_FILES", "/nowhere/b.json", 1);
    run("drivers");
    finding(DOCTOR_PROBLEM, "VK_DRIVER_FILES names /nowhere/b.json");
    assert_string_equal(finding(DOCTOR_PROBLEM, "in what VK_DRIVER_FILES names")->fix, "unset VK_DRIVER_FILES");

    doctor.count = 0;
    unsetenv("VK_DRIVER_FILES");
    unsetenv("VK_ICD_FILENAMES");
    setenv("VK_ADD_DRIVER_FILES", "/nowhere/c.json", 1);
    setenv("VK_LOADER_DRIVERS_DISABLE", "*", 1);
    run("drivers");
    finding(DOCTOR_PROBLEM, "VK_ADD_DRIVER_FILES names /nowhere/c.json");
    finding(DOCTOR_NOTE, "VK_LOADER_DRIVERS_DISABLE is set: *");
    finding(DOCTOR_OK, "installed.json: libm.so.6");
    unsetenv("VK_ADD_DRIVER_FILES");
    unsetenv("VK_LOADER_DRIVERS_DISABLE");
}

/* --- processor and memory ------------------------------------------------------------------------------------------
 */

static void limits_of_the_control_group(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/box\n");
    put("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
    put("/sys/fs/cgroup/box/cpu.max", "50000 100000\n");
    put("/sys/fs/cgroup/box/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/box/memory.current", "536870912\n");
    run("cpu");
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
        finding(DOCTOR_NOTE, "cores may be used: affinity or the control group limits them");
    assert_non_null(strstr(finding(DOCTOR_NOTE, "0.5 of 1.0 GiB of memory are free")->fix, "MemoryMax"));
}

static void memory_that_cannot_be_seen(void **state)
{
    (void)state;
    run("cpu");
    const struct finding *f = finding(DOCTOR_NOTE, "how much memory is free is unknown");
    assert_non_null(strstr(f->fix, "mount /proc"));
    for (int i = 0; i < doctor.count; i++)
        assert_null(strstr(doctor.findings[i].found, "0.0 of 0.0"));
}

static void an_instruction_set_that_there_is_not(void **state)
{
    (void)state;
    setenv("RESTORED_CPU_ISA", "nonsense", 1);
    run("cpu");
    const struct finding *f = finding(DOCTOR_NOTE, "cpu_isa = nonsense is ignored: it may be one of ");
    assert_non_null(strstr(f->found, "base here"));
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2"))
        assert_non_null(strstr(f->found, "avx2, base here"));
#endif
    doctor.count = 0;
    setenv("RESTORED_CPU_ISA", "", 1); /* as if it were not set */
    run("cpu");
    unsetenv("RESTORED_CPU_ISA");
    for (int i = 0; i < doctor.count; i++)
        assert_null(strstr(doctor.findings[i].found, "cpu_isa"));
}

static void a_lesser_instruction_set(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
    setenv("RESTORED_CPU_ISA", "base", 1);
    run("cpu");
    unsetenv("RESTORED_CPU_ISA");
    finding(DOCTOR_OK, "8.0 of 16.0 GiB of memory are free");
#ifdef __x86_64__
    const bool able = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const struct finding *f = finding(DOCTOR_NOTE, able ? "cpu_isa = base switches off " : "has no AVX2");
    assert_non_null(strstr(f->why, "the same within rounding"));
    if (able) {
        assert_non_null(strstr(f->found, "avx2, which this processor has"));
        assert_null(strstr(f->found, "has no AVX2"));
        assert_string_equal(f->fix, "set cpu_isa to auto");
    } else {
        assert_non_null(strstr(f->fix, "use a processor with AVX2"));
    }
#endif
}

/* What comes from the environment may be any bytes; findings are UTF-8, and are cut to fit. */
static void any_bytes(void **state)
{
    char name[PATH_MAX];
    (void)state;
    memset(name, 'x', sizeof name);
    memcpy(name, "/\xff\xfe", 3);
    name[sizeof name - 1] = 0;
    setenv("VK_ICD_FILENAMES", name, 1);
    run("drivers");
    unsetenv("VK_ICD_FILENAMES");
    finding(DOCTOR_PROBLEM, "VK_ICD_FILENAMES names /??xxx");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_graphics_processor, begin, end),
        cmocka_unit_test_setup_teardown(graphics_processors_and_their_kernel_drivers, begin, end),
        cmocka_unit_test_setup_teardown(files_that_may_not_be_opened, begin, end),
        cmocka_unit_test_setup_teardown(files_of_the_group_root, begin, end),
        cmocka_unit_test_setup_teardown(files_of_a_group_without_a_name, begin, end),
        cmocka_unit_test_setup_teardown(memory_that_cannot_be_seen, begin, end),
        cmocka_unit_test_setup_teardown(an_instruction_set_that_there_is_not, begin, end),
        cmocka_unit_test_setup_teardown(a_graphics_processor_without_its_files, begin, end),
        cmocka_unit_test_setup_teardown(no_driver, begin, end),
        cmocka_unit_test_setup_teardown(drivers_where_the_loader_looks, begin, end),
        cmocka_unit_test_setup_teardown(drivers_that_cannot_be_loaded, begin, end),
        cmocka_unit_test_setup_teardown(a_driver_of_another_class, begin, end),
        cmocka_unit_test_setup_teardown(variables_that_choose_drivers, begin, end),
        cmocka_unit_test_setup_teardown(limits_of_the_control_group, begin, end),
        cmocka_unit_test_setup_teardown(a_lesser_instruction_set, begin, end),
        cmocka_unit_test_setup_teardown(any_bytes, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
