/* restored doctor: why a graphics processor is or is not used, and what to do about it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "runtime/base/mem.h"
#include "server/cli/cli.h"
#include "server/cli/doctor.h"
#include "server/http/json.h"

static const char help[] =
    "restored doctor [--json]\n\n"
    "Says why a graphics processor is or is not used: the hardware, permissions, the Vulkan loader and its drivers,\n"
    "the devices, the processor and memory; runs a known-answer test on each device; and says which device work will\n"
    "run on; and what of the configuration a server refuses. Where several servers share a store, it says\n"
    "whether that is reached, how fast it answers, which servers were seen there, and whether pictures can be put\n"
    "there. Each problem comes with why it matters and what to do.\n"
    "Exit status: 0 if a device works, nothing is wrong with the configuration, and the shared store,\n"
    "if one is set, works; else 1.\n";

static const char *cli_doctor_state_name(enum doctor_state state)
{
    static const char *const names[] = {"ok", "note", "problem"};
    return names[state];
}

static void cli_doctor_print_findings(const struct doctor *doctor, int first)
{
    for (int i = first; i < doctor->count; i++) {
        const struct finding *finding = &doctor->findings[i];
        printf("  %-8s %s\n", cli_doctor_state_name(finding->state), finding->found);
        if (*finding->why)
            printf("           why: %s\n", finding->why);
        if (*finding->fix)
            printf("           fix: %s\n", finding->fix);
    }
}

static json_t *cli_doctor_text_or_null(const char *text)
{
    return *text ? json_string(text) : json_null();
}

static json_t *cli_doctor_figure(const struct selftest_figure *result)
{
    const bool has_error = result->state != SELFTEST_NOT_RUN && isfinite(result->max_error);
    return json_pack("{s:s, s:o, s:o}", "state", selftest_state_name(result->state), "max_error",
                     has_error ? json_real(result->max_error) : json_null(), "reason",
                     cli_doctor_text_or_null(result->reason));
}

static json_t *cli_doctor_device_row(const struct device_info *info, const struct selftest *test)
{
    json_t *self_test = cli_doctor_figure(&test->fp32);
    json_object_set_new(self_test, "ms", json_real(test->ms));
    json_object_set_new(self_test, "fp16", cli_doctor_figure(&test->fp16));
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:b, s:o, s:o}", "id", info->id, "name", info->name, "type",
        json_device_type_name(info->type), "api_version", info->api_version, "driver", info->driver, "usable",
        info->usable && test->fp32.state == SELFTEST_PASSED, "reason",
        cli_doctor_text_or_null(info->usable && test->fp32.state == SELFTEST_FAILED ? test->fp32.reason : info->reason),
        "self_test", self_test);
}

static void cli_doctor_print_json(const struct doctor *doctor, bool works)
{
    json_t *findings = json_array(), *devices = json_array();
    for (int i = 0; i < doctor->count; i++) {
        const struct finding *finding = &doctor->findings[i];
        json_array_append_new(findings, json_pack("{s:s, s:s, s:s, s:o, s:o}", "check", finding->check, "state",
                                                  cli_doctor_state_name(finding->state), "found", finding->found, "why",
                                                  cli_doctor_text_or_null(finding->why), "fix",
                                                  cli_doctor_text_or_null(finding->fix)));
    }
    for (int i = 0; i < doctor->device_count; i++)
        json_array_append_new(devices, cli_doctor_device_row(&doctor->devices[i], &doctor->tests[i]));
    json_t *all =
        json_pack("{s:b, s:o, s:s, s:o, s:o}", "works", works, "default", cli_doctor_text_or_null(doctor->chosen),
                  "summary", doctor->summary, "findings", findings, "devices", devices);
    json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    json_decref(all);
    putchar('\n');
}

int cli_doctor(int argc, char **argv)
{
    struct config config;
    struct error err = ERROR_INIT;
    bool json;
    const int listed = cli_list(argc, argv, "doctor", help, &config, &json);
    if (listed >= 0)
        return listed;
    config_apply(&config);
    struct doctor *doctor = mem_calloc(1, sizeof *doctor);
    if (!doctor) {
        error_set(&err, ERROR_NO_MEMORY, "no memory for the findings");
        return cli_fail(&err, CLI_FAILED);
    }
    doctor->root = "";
    doctor->config = &config;
    for (const struct doctor_check *check = doctor_checks; check->name; check++) {
        const int first = doctor->count;
        doctor_run(doctor, check);
        if (!json && doctor->count > first) {
            printf("%s%s\n", first ? "\n" : "", check->title);
            cli_doctor_print_findings(doctor, first);
            fflush(stdout); /* the self-tests may take a while */
        }
    }
    const bool works = *doctor->chosen && !doctor->refused;
    if (json)
        cli_doctor_print_json(doctor, works);
    free(doctor);
    return works ? CLI_OK : CLI_FAILED;
}
