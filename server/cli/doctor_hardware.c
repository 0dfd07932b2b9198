/* What can be found out about the machine without Vulkan: graphics processors and their device files, the processor and
 * memory. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/machine.h"
#include "server/cli/doctor.h"

#define PCI "/sys/bus/pci/devices"

/* --- graphics processors -------------------------------------------------------------------------------------------
 */

/* The hexadecimal number in root/sys/bus/pci/devices/slot/name; 0 if there is none. */
static unsigned hardware_pci_number(const struct doctor *doctor, const char *slot, const char *name)
{
    char path[PATH_MAX];
    unsigned value = 0;
    snprintf(path, sizeof path, "%s" PCI "/%.63s/%s", doctor->root, slot, name);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%x", &value) != 1)
        value = 0;
    if (file)
        fclose(file);
    return value;
}

static const char *hardware_vendor_name(unsigned vendor)
{
    switch (vendor) {
    case 0x10de:
        return "NVIDIA";
    case 0x1002:
        return "AMD";
    case 0x8086:
        return "Intel";
    default:
        return NULL; /* the display of a virtual machine or a server: it cannot compute */
    }
}

static void hardware_check_gpu(struct doctor *doctor, const char *slot)
{
    const unsigned vendor = hardware_pci_number(doctor, slot, "vendor"),
                   device = hardware_pci_number(doctor, slot, "device");
    const char *name = hardware_vendor_name(vendor);
    char path[PATH_MAX], driver[PATH_MAX];
    if (hardware_pci_number(doctor, slot, "class") >> 16 != 3 || !name) /* 03: display controller */
        return;
    snprintf(path, sizeof path, "%s" PCI "/%.63s/driver", doctor->root, slot);
    const ssize_t length = readlink(path, driver, sizeof driver - 1);
    driver[length > 0 ? length : 0] = 0;
    const char *slash = strrchr(driver, '/'), *kernel = slash ? slash + 1 : driver;
    if (!doctor->vendor || vendor == 0x10de || vendor == 0x1002) /* rather the one that is likely a card */
        doctor->vendor = vendor;
    if (!*kernel)
        doctor_add(doctor, DOCTOR_PROBLEM, "nothing can reach it until the kernel has a driver for it",
                   doctor_driver_advice(doctor), "%s %04x:%04x at %s has no kernel driver", name, vendor, device, slot);
    else if (!strcmp(kernel, "vfio-pci"))
        doctor_add(doctor, DOCTOR_PROBLEM, "programs on this machine cannot use it",
                   "run restored in the virtual machine that has it, or give it back to its own kernel driver",
                   "%s %04x:%04x at %s is set aside for virtual machines (vfio-pci)", name, vendor, device, slot);
    else
        doctor_ok(doctor, "%s %04x:%04x at %s, kernel driver %s", name, vendor, device, slot, kernel);
}

static int hardware_by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The names in root/folder that begin with prefix, in order; at most size. */
static int hardware_names_in(const struct doctor *doctor, const char *folder, const char *prefix, char (*names)[64],
                             int size)
{
    char path[PATH_MAX];
    int count = 0;
    snprintf(path, sizeof path, "%s%s", doctor->root, folder);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && count < size && (entry = readdir(dir));)
        if (entry->d_name[0] != '.' && !strncmp(entry->d_name, prefix, strlen(prefix)))
            snprintf(names[count++], sizeof *names, "%.63s", entry->d_name);
    if (dir)
        closedir(dir);
    qsort(names, (size_t)count, sizeof *names, hardware_by_name);
    return count;
}

void doctor_gpu(struct doctor *doctor)
{
    char slots[256][64];
    const int count = hardware_names_in(doctor, PCI, "", slots, 256);
    for (int i = 0; i < count; i++)
        hardware_check_gpu(doctor, slots[i]);
    if (!doctor->vendor)
        doctor_add(
            doctor, DOCTOR_NOTE,
            "the processor does the work: seconds to minutes for a photo that takes a graphics processor a second",
            "nothing, if this machine has none; pass one through, if this is a virtual machine or a container",
            "there is no NVIDIA, AMD or Intel graphics processor on the PCI bus");
}

/* --- permissions ---------------------------------------------------------------------------------------------------
 */

static const char *hardware_user_name(void)
{
    const struct passwd *user = getpwuid(geteuid());
    return user ? user->pw_name : "$USER";
}

/* What to do when the file's group and mode deny access. */
static void hardware_advise_on_group(const char *path, const struct stat *status, char *fix, size_t size)
{
    const unsigned gid = (unsigned)status->st_gid;
    const struct group *entry = getgrgid(status->st_gid);
    char group[64], make[128] = "", allow[160] = "";
    if (gid == 0 && strstr(path, "nvidia")) { /* a service must never join root's group */
        snprintf(fix, size,
                 "chmod 666 %s as root, which is how NVIDIA's driver makes it; for good: NVreg_DeviceFileMode=0666 for "
                 "the module nvidia in /etc/modprobe.d",
                 path);
        return;
    }
    if (gid == 0) {
        snprintf(fix, size,
                 "as root: %schgrp render %s && chmod 660 %s && usermod -aG render %s, then log in again (a "
                 "container's "
                 "on the host, then --group-add with the number of the group); for good: a udev rule "
                 "SUBSYSTEM==\"drm\", KERNEL==\"renderD*\", GROUP=\"render\", MODE=\"0660\"",
                 getgrnam("render") ? "" : "groupadd -r render && ", path, path, hardware_user_name());
        return;
    }
    snprintf(group, sizeof group, "%s", entry ? entry->gr_name : "render");
    if (!entry) { /* usual in containers: the number is the host's */
        if (getgrnam("render"))
            snprintf(group, sizeof group, "render%u", gid);
        snprintf(make, sizeof make, "groupadd -g %u %s && ", gid, group);
    }
    if ((status->st_mode & 060) != 060)
        snprintf(allow, sizeof allow, "chmod g+rw %s && ", path);
    snprintf(fix, size,
             "as root: %s%susermod -aG %s %s, then log in again; start a container with --group-add %u; a systemd "
             "service needs SupplementaryGroups=%s",
             allow, make, group, hardware_user_name(), gid, group);
}

/* True if the device's file can be opened as its driver does; if it is there and cannot, says why. */
static void hardware_check_node(struct doctor *doctor, const char *path)
{
    char full[PATH_MAX], group[64], fix[640];
    struct stat status;
    snprintf(full, sizeof full, "%s%s", doctor->root, path);
    const int node = open(full, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    const int why = errno;
    if (node >= 0) {
        close(node);
        doctor_ok(doctor, "%s can be opened", path);
        return;
    }
    if (stat(full, &status) != 0)
        memset(&status, 0, sizeof status);
    const struct group *entry = getgrgid(status.st_gid);
    snprintf(group, sizeof group, "%s", entry ? entry->gr_name : "");
    if (!*group)
        snprintf(group, sizeof group, "%u", (unsigned)status.st_gid);
    if (why == EACCES)
        hardware_advise_on_group(path, &status, fix, sizeof fix);
    else if (why == EPERM)
        snprintf(fix, sizeof fix, "start the container with --device %s; a systemd service needs DeviceAllow=%s rw",
                 path, path);
    else
        snprintf(fix, sizeof fix, "see what the kernel logged about it: dmesg");
    doctor_add(doctor, DOCTOR_PROBLEM,
               "the driver reaches the graphics processor through this file; where it may not, Vulkan silently lists "
               "no such device",
               fix, "%s cannot be opened: %s (mode %04o, group %s; this is user %s)", path, strerror(why),
               (unsigned)status.st_mode & 07777, group, hardware_user_name());
}

void doctor_nodes(struct doctor *doctor)
{
    char names[64][64], path[128];
    const int count = hardware_names_in(doctor, "/dev/dri", "renderD", names, 64);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "/dev/dri/%.63s", names[i]);
        hardware_check_node(doctor, path);
    }
    const int nvidia = hardware_names_in(doctor, "/dev", "nvidia", names, 64);
    for (int i = 0; i < nvidia; i++) { /* nvidia0, nvidiactl; the others are for CUDA, screens and administrators */
        snprintf(path, sizeof path, "/dev/%.63s", names[i]);
        if (!strcmp(names[i], "nvidiactl") || (names[i][6] >= '0' && names[i][6] <= '9'))
            hardware_check_node(doctor, path);
    }
    if (count + nvidia > 0)
        return;
    if (doctor->vendor)
        doctor_add(doctor, DOCTOR_PROBLEM, "drivers reach the graphics processor through these files",
                   doctor->vendor == 0x10de
                       ? "load the kernel's driver (modprobe nvidia) and run nvidia-modprobe -c 0; "
                         "start a container with --gpus all"
                       : "load the kernel's driver; start a container with --device /dev/dri",
                   "there is a graphics processor, but no /dev/dri/renderD* and no /dev/nvidia*");
    else
        doctor_ok(doctor, "no /dev/dri/renderD* and no /dev/nvidia*: nothing to open");
}

/* --- processor and memory ------------------------------------------------------------------------------------------
 */

static void hardware_check_isa(struct doctor *doctor)
{
    struct device_info *list, cpu = {0};
    size_t count;
    struct error err = ERROR_INIT;
    if (device_probe("cpu", &err))
        doctor_add(doctor, DOCTOR_NOTE, "the best instruction set that the processor has is used instead",
                   "set it to auto, or to one of these", "%s", err.text);
    if (device_list(&list, &count, NULL))
        return;
    for (size_t i = 0; i < count; i++)
        if (list[i].type == DEVICE_CPU)
            cpu = list[i];
    free(list);
    if (*cpu.reason)
        doctor_add(doctor, DOCTOR_NOTE,
                   "results are the same within rounding, but the processor takes longer: without AVX2 several times",
                   strstr(cpu.reason, "cpu_isa")
                       ? "set cpu_isa to auto"
                       : "use a processor with AVX2 (Intel since 2013, AMD since 2015); a virtual machine must let "
                         "its guest see the host's (-cpu host)",
                   "%s: %s (%s)", cpu.name, cpu.reason, cpu.driver);
    else
        doctor_ok(doctor, "%s: %s", cpu.name, cpu.driver);
}

void doctor_cpu(struct doctor *doctor)
{
    uint64_t total, available;
    hardware_check_isa(doctor);
    const int cores = (int)sysconf(_SC_NPROCESSORS_ONLN), usable = machine_threads(doctor->root, 0);
    if (usable < cores)
        doctor_add(doctor, DOCTOR_NOTE, "the device cpu computes on these alone",
                   "raise the limit, if it is not meant: docker's --cpus and --cpuset-cpus, systemd's CPUQuota and "
                   "CPUAffinity, taskset",
                   "%d of %d cores may be used: affinity or the control group limits them", usable, cores);
    else
        doctor_ok(doctor, "all %d cores may be used", cores);
    machine_memory(doctor->root, &total, &available);
    if (!total)
        doctor_add(doctor, DOCTOR_NOTE,
                   "the device cpu takes no large piece of memory when it cannot see that it is free, so jobs may fail",
                   "mount /proc: a container or chroot needs it",
                   "how much memory is free is unknown: /proc/meminfo cannot be read");
    else if (available < 2ull << 30)
        doctor_add(doctor, DOCTOR_NOTE,
                   "the official networks and a photo of some megapixels need about 2 GiB on the processor; "
                   "with less, tiles get smaller, and in the end jobs fail",
                   "end other programs, or raise the container's limit (docker's --memory, systemd's MemoryMax)",
                   "%.1f of %.1f GiB of memory are free", (double)available / 0x1p30, (double)total / 0x1p30);
    else
        doctor_ok(doctor, "%.1f of %.1f GiB of memory are free", (double)available / 0x1p30, (double)total / 0x1p30);
}
