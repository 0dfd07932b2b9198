#include "server/cli/doctor.h"

#include <stdarg.h>
#include <stdio.h>

#include "runtime/base/utf8.h"

const struct doctor_check doctor_checks[] = {
    {"gpu", "Graphics processors", doctor_gpu},
    {"permissions", "Permissions", doctor_nodes},
    {"loader", "Vulkan loader", doctor_loader},
    {"drivers", "Vulkan drivers", doctor_drivers},
    {"devices", "Vulkan devices", doctor_devices},
    {"cpu", "Processor and memory", doctor_cpu},
    {"self_test", "Self-tests", doctor_selftests},
    {"choice", "Choice", doctor_choice},
    {"configuration", "Configuration", doctor_config},
    {"store", "Shared store", doctor_store},
    {0},
};

void doctor_run(struct doctor *doctor, const struct doctor_check *check)
{
    doctor->check = check->name;
    check->run(doctor);
}

static void doctor_add_finding(struct doctor *doctor, enum doctor_state state, const char *why, const char *fix,
                               const char *format, va_list arguments)
{
    if (doctor->count == DOCTOR_FINDINGS)
        return;
    struct finding *finding = &doctor->findings[doctor->count++];
    char text[sizeof finding->found];
    vsnprintf(text, sizeof text, format, arguments); /* may contain any bytes, from paths and the environment */
    utf8_copy(finding->found, sizeof finding->found, text);
    finding->check = doctor->check;
    finding->state = state;
    utf8_copy(finding->why, sizeof finding->why, why);
    utf8_copy(finding->fix, sizeof finding->fix, fix);
}

void doctor_ok(struct doctor *doctor, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    doctor_add_finding(doctor, DOCTOR_OK, "", "", format, arguments);
    va_end(arguments);
}

void doctor_add(struct doctor *doctor, enum doctor_state state, const char *why, const char *fix, const char *format,
                ...)
{
    va_list arguments;
    va_start(arguments, format);
    doctor_add_finding(doctor, state, why, fix, format, arguments);
    va_end(arguments);
}

const char *doctor_driver_advice(const struct doctor *doctor)
{
    switch (doctor->vendor) {
    case 0x10de:
        return "install NVIDIA's driver with its Vulkan part (Debian, contrib and non-free: apt-get install "
               "nvidia-driver nvidia-vulkan-icd); start a container with --gpus all and "
               "NVIDIA_DRIVER_CAPABILITIES=all";
    case 0x1002:
        return "apt-get install mesa-vulkan-drivers (and firmware-amd-graphics, if the kernel asks for firmware)";
    case 0x8086:
        return "apt-get install mesa-vulkan-drivers";
    default:
        return "install the Vulkan driver of the graphics processor, if there is one (AMD, Intel: apt-get install "
               "mesa-vulkan-drivers; NVIDIA: nvidia-vulkan-icd)";
    }
}
