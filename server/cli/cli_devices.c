/* restored devices: prints what GET /v1/devices says, as a table or as JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/cli/cli.h"
#include "server/http/json.h"

static void cli_devices_print_table(const struct device_status *list, size_t count)
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
        const struct selftest_figure *test = &list[i].test.fp32;
        if (test->state == SELFTEST_PASSED)
            printf("  self-test  passed, largest error %.1e of the range, %.0f ms\n", test->max_error, list[i].test.ms);
        else
            printf("  self-test  %s\n", selftest_state_name(test->state));
        printf("  usable     %s%s\n", info->usable ? "yes" : "no: ", info->usable ? "" : info->reason);
        if (info->usable)
            printf("  default    %s%s\n", *list[i].reason ? "no: " : "yes", list[i].reason);
        if (info->usable && *info->reason)
            printf("  remark     %s\n", info->reason);
    }
}

/* Tests the devices for which that is quick, as a server does at its start; results are indexed by the place in the
 * list. Software Vulkan takes a while: `restored doctor` tests all. */
static enum error_code cli_devices_test_devices(const struct config *config, struct selftest tests[DEVICES_MAX],
                                                struct error *err)
{
    char storage[1024];
    struct device_info *list;
    size_t count;
    enum error_code code = device_list(&list, &count, err);
    if (code)
        return code;
    const char *cache = config_cache_dir(config, storage, sizeof storage);
    for (size_t i = 0; i < count && i < DEVICES_MAX; i++)
        if (list[i].usable && list[i].type != DEVICE_SOFTWARE)
            selftest_run(list[i].id, cache, &tests[i]);
    free(list);
    return OK;
}

enum error_code cli_devices_read(const struct config *config, const struct selftest *tests, size_t test_count,
                                 struct device_status **list, size_t *count, struct error *err)
{
    struct device_info *found = NULL;
    struct devices *devices = NULL;
    size_t number = 0;
    enum error_code code = device_list(&found, &number, err);
    if (!code)
        code = devices_create(&devices, found, number, err);
    for (size_t i = 0; !code && i < number && i < test_count; i++)
        devices_tested(devices, (int)i, &tests[i]);
    if (!code)
        code = devices_choose(devices, config->device, err);
    if (!code)
        code = devices_read(devices, list, count, err);
    devices_destroy(&devices);
    free(found);
    return code;
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
    config_apply(&config);

    struct selftest tests[DEVICES_MAX] = {0};
    struct device_status *list = NULL;
    size_t count = 0;
    int status = CLI_OK;
    if (cli_devices_test_devices(&config, tests, &err) ||
        cli_devices_read(&config, tests, DEVICES_MAX, &list, &count, &err)) {
        status = cli_fail(&err, CLI_FAILED);
    } else if (json) {
        json_t *object = json_devices(list, count, config.precision);
        json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(10));
        json_decref(object);
        putchar('\n');
    } else {
        cli_devices_print_table(list, count);
    }
    free(list);
    return status;
}
