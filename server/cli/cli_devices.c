/* restored devices: what GET /v1/devices says, as a table or as JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/cli/cli.h"
#include "server/http/json.h"

static void print_table(const struct device_status *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct device_info *info = &list[i].info;
        printf("%s%-10s %s\n", i ? "\n" : "", info->id, info->name);
        printf("  type       %s, %s%s%s\n", json_device_type_name(info->type), info->backend,
               *info->api_version ? " " : "", info->api_version);
        printf("  driver     %s\n", info->driver);
        if (*info->uuid)
            printf("  uuid       %s\n", info->uuid);
        printf("  memory     %.1f GiB, of which %.1f GiB may be used\n", (double)info->memory_total / 1073741824.0,
               (double)info->memory_budget / 1073741824.0);
        if (info->subgroup_size)
            printf("  features   fp16 %s, cooperative matrix %s, int8 %s, subgroups of %u\n", info->fp16 ? "yes" : "no",
                   info->cooperative_matrix ? "yes" : "no", info->int8 ? "yes" : "no", info->subgroup_size);
        printf("  precision  %s%s%s%s\n", info->preferred == PRECISION_FP16 ? "fp16" : "fp32",
               *info->precision_reason ? " (" : "", info->precision_reason, *info->precision_reason ? ")" : "");
        printf("  usable     %s%s\n", info->usable ? "yes" : "no: ", info->usable ? "" : info->reason);
        if (info->usable)
            printf("  default    %s%s\n", *list[i].reason ? "no: " : "yes", list[i].reason);
        if (info->usable && *info->reason)
            printf("  remark     %s\n", info->reason);
    }
}

int cli_devices(int argc, char **argv)
{
    struct config config;
    struct error err = ERROR_INIT;
    bool json;
    int listed = cli_list(
        argc, argv, "devices",
        "restored devices [--json]\n\nLists every device in the order of preference. --json: as GET /v1/devices.\n",
        &config, &json);
    if (listed >= 0)
        return listed;
    device_set_cpu_threads((int)config.cpu_threads);

    struct device_info *found = NULL;
    struct device_status *list = NULL;
    struct devices *devices = NULL;
    size_t count = 0;
    int status = CLI_OK;
    if (device_list(&found, &count, &err) || devices_create(&devices, found, count, &err) ||
        devices_choose(devices, config.device, &err) || devices_read(devices, &list, &count, &err)) {
        status = cli_fail(&err, CLI_FAILED);
    } else if (json) {
        json_t *object = json_devices(list, count, config.precision);
        json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(10));
        json_decref(object);
        putchar('\n');
    } else {
        print_table(list, count);
    }
    free(list);
    devices_destroy(&devices);
    free(found);
    return status;
}
