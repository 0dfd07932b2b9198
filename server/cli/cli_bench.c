/* restored bench: measures how fast networks and the pipeline are on this machine. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/models/model_random.h"
#include "server/cli/bench.h"
#include "server/cli/cli.h"
#include "server/version.h"

struct bench {
    struct config config;
    struct bench_settings settings;
    const char *model, *picture, *load;
    int connections;
    bool json, help;
    char cache[1024];
};

/* What is measured by default: the networks at sizes that suit a CPU or a GPU. */
static const struct bench_case {
    const char *model;
    int width, height, batch;
} cases_cpu[] = {{"srvgg_x4_32", 128, 128, 1},          {"rrdbnet_x4", 128, 128, 1},     {"gfpgan", 512, 512, 1},
                 {"retinaface_mobilenet", 640, 640, 1}, {"retinaface_r50", 640, 640, 1}, {"parsenet", 512, 512, 1}},
  cases_gpu[] = {{"rrdbnet_x4", 512, 512, 1}, {"srvgg_x4_32", 512, 512, 1},      {"gfpgan", 512, 512, 1},
                 {"gfpgan", 512, 512, 8},     {"retinaface_r50", 1920, 1080, 1}, {"parsenet", 512, 512, 1}};

static void cli_bench_usage(void)
{
    printf(
        "restored bench [--model M] [--pipeline PICTURE] [--load PICTURE] [OPTION]...\n\n"
        "Measures a network, or the whole pipeline stage by stage, after a warm-up: the median and the 90th "
        "percentile\n"
        "of its times, GFLOP/s (two for each multiply-accumulate of the network), the most memory it took, and that\n"
        "its output is finite. Times are from memory to memory; \"device\" is without the way to the device and back.\n"
        "Without --model and --pipeline it measures a set of networks.\n\n"
        "  --model M             a checkpoint file, the name of an installed model, or a network of an official shape\n"
        "                        with random weights:\n");
    for (int i = 0; i < model_random_count; i++)
        printf("                          %-22s as %s\n", model_randoms[i].name, model_randoms[i].what);
    printf("  --size WxH            of the input, px\n"
           "  --batch N             pictures at once\n"
           "  --pipeline PICTURE    restore this file; every option of restored restore applies\n"
           "  --load PICTURE        pictures a second of a server with a full queue, by HTTP clients of its own, on "
           "the first\n"
           "                        of the devices (--device A,B,C,D), the first two, four, and so on to all\n"
           "  --connections N       of the clients at once [8 for each device]\n"
           "  --device ID           one, as restored devices lists them [auto]\n"
           "  --precision P         auto, fp32 or fp16\n"
           "  --runs N              how often [as often as a few seconds hold]\n"
           "  --layers              the time of each kind of layer, too; --layers=shapes: of each shape of each kind\n"
           "  --keep DIR            write the network's input and outputs there, and a built-in one's weights\n"
           "  --models DIR          folder of checkpoints\n"
           "  --json                print one JSON object\n");
}

/* ---- arguments ---- */

static enum error_code cli_bench_take_number(struct cli *cli, int least, int most, int *out, struct error *err)
{
    const char *value;
    char *end;
    enum error_code code = cli_value(cli, &value, err);
    if (code)
        return code;
    long n = strtol(value, &end, 10);
    if (!*value || *end || n < least || n > most)
        return error_set(err, ERROR_INVALID, "--%s: \"%s\" is not a number from %d to %d", cli->name, value, least,
                         most);
    *out = (int)n;
    return OK;
}

static enum error_code cli_bench_take_size(struct cli *cli, struct bench_settings *settings, struct error *err)
{
    const char *value;
    int used = 0;
    enum error_code code = cli_value(cli, &value, err);
    if (code)
        return code;
    if (sscanf(value, "%5dx%5d%n", &settings->width, &settings->height, &used) != 2 || value[used] ||
        settings->width < 1 || settings->height < 1)
        return error_set(err, ERROR_INVALID, "--size: \"%s\" is not WIDTHxHEIGHT in pixels, such as 640x480", value);
    return OK;
}

static enum error_code cli_bench_take_layers(struct cli *cli, struct bench_settings *settings, struct error *err)
{
    settings->layer_shapes = cli->value && !strcmp(cli->value, "shapes");
    if (settings->layer_shapes) {
        settings->layers = true;
        return OK;
    }
    return cli_flag(cli, &settings->layers, err);
}

static enum error_code cli_bench_take(struct bench *bench, struct cli *cli, struct error *err)
{
    struct bench_settings *settings = &bench->settings;
    const char *value;
    enum error_code code;
    if (!*cli->name)
        return error_set(err, ERROR_INVALID,
                         "bench takes no \"%s\"; --model, --pipeline and --load say what to measure", cli->value);
    if (!strcmp(cli->name, "help") || !strcmp(cli->name, "h"))
        return cli_flag(cli, &bench->help, err);
    if (!strcmp(cli->name, "json"))
        return cli_flag(cli, &bench->json, err);
    if (!strcmp(cli->name, "model"))
        return cli_value(cli, &bench->model, err);
    if (!strcmp(cli->name, "pipeline"))
        return cli_value(cli, &bench->picture, err);
    if (!strcmp(cli->name, "load"))
        return cli_value(cli, &bench->load, err);
    if (!strcmp(cli->name, "connections"))
        return cli_bench_take_number(cli, 1, 192, &bench->connections, err);
    if (!strcmp(cli->name, "keep"))
        return cli_value(cli, &settings->keep, err);
    if (!strcmp(cli->name, "size"))
        return cli_bench_take_size(cli, settings, err);
    if (!strcmp(cli->name, "batch"))
        return cli_bench_take_number(cli, 1, 1024, &settings->batch, err);
    if (!strcmp(cli->name, "runs"))
        return cli_bench_take_number(cli, 1, 1000000, &settings->runs, err);
    if (!strcmp(cli->name, "layers"))
        return cli_bench_take_layers(cli, settings, err);
    const struct option_row *row = options_find(cli->name);
    if (!row)
        return cli_config(cli, &bench->config, err);
    if (!strcmp(row->type, "boolean"))
        return options_set(&settings->options, row->name, cli_flag_value(cli), err);
    return (code = cli_value(cli, &value, err)) ? code : options_set(&settings->options, row->name, value, err);
}

static enum error_code cli_bench_prepare(struct bench *bench, struct error *err)
{
    const struct config *config = &bench->config;
    struct bench_settings *settings = &bench->settings;
    struct options *options = &settings->options;
    if ((bench->picture || bench->load) && (bench->model || settings->width || settings->batch || settings->layers))
        return error_set(err, ERROR_INVALID, "--model, --size, --batch and --layers are not for --pipeline and --load");
    if (bench->picture && bench->load)
        return error_set(err, ERROR_INVALID, "--pipeline or --load, one at a time");
    if (bench->connections && !bench->load)
        return error_set(err, ERROR_INVALID, "--connections is for --load");
    if (!bench->model && (settings->width || settings->batch || settings->keep))
        return error_set(err, ERROR_INVALID, "--size, --batch and --keep are for --model");
    settings->device = *options->device && strcmp(options->device, "auto") ? options->device : config->device;
    settings->cache_dir = config_cache_dir(config, bench->cache, sizeof bench->cache);
    settings->limits = (struct limits){.input_pixels = config->input_pixels,
                                       .result_pixels = config->result_pixels,
                                       .detect_max_side = (int)config->detect_max_side,
                                       .max_faces = (int)config->max_faces};
    if (options->precision == PRECISION_AUTO)
        options->precision = config->precision;
    return options_check(options, err);
}

/* ---- tables ---- */

static double cli_bench_number(const json_t *object, const char *key, const char *inner)
{
    const json_t *value = json_object_get(object, key);
    return json_number_value(inner ? json_object_get(value, inner) : value);
}

static const char *cli_bench_text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "";
}

static void cli_bench_print_device(const json_t *result)
{
    const json_t *device = json_object_get(result, "device");
    printf("%s: %s, %s; restored %s\n\n", cli_bench_text(device, "id"), cli_bench_text(device, "name"),
           cli_bench_text(device, "driver"), RESTORED_VERSION);
}

static void cli_bench_print_network_head(void)
{
    printf("| network | input | | median ms | p90 ms | device ms | GFLOP/s | device MiB | process MiB | output |\n"
           "|---|---|---|---|---|---|---|---|---|---|\n");
}

static void cli_bench_print_network(const json_t *r)
{
    const json_t *input = json_object_get(r, "input"), *device = json_object_get(r, "device_ms");
    char device_ms[32] = "–";
    if (!json_is_null(device))
        snprintf(device_ms, sizeof device_ms, "%.2f", cli_bench_number(r, "device_ms", "median"));
    double flops = cli_bench_number(r, "device_gflops", NULL);
    printf("| %s | %d×%d×%d | %s | %.2f | %.2f | %s | %.0f | %.0f | %.0f | %.2f ± %.2f |\n", cli_bench_text(r, "model"),
           (int)json_integer_value(json_array_get(input, 0)), (int)json_integer_value(json_array_get(input, 3)),
           (int)json_integer_value(json_array_get(input, 2)), cli_bench_text(r, "precision"),
           cli_bench_number(r, "ms", "median"), cli_bench_number(r, "ms", "p90"), device_ms,
           flops > 0 ? flops : cli_bench_number(r, "gflops", NULL),
           cli_bench_number(r, "memory", "device_peak") / 0x1p20,
           cli_bench_number(r, "memory", "process_peak") / 0x1p20, cli_bench_number(r, "output", "mean"),
           cli_bench_number(r, "output", "deviation"));
    fflush(stdout);
}

static void cli_bench_print_layers(const json_t *r)
{
    size_t index;
    const json_t *layer, *layers = json_object_get(r, "layers");
    if (!layers)
        return;
    printf("\n| layers of %s | count | ms | share | GFLOP/s | GB/s |\n|---|---|---|---|---|---|\n",
           cli_bench_text(r, "model"));
    json_array_foreach(layers, index, layer)
        printf("| %s | %d | %.3f | %.1f%% | %.0f | %.1f |\n", cli_bench_text(layer, "layer"),
               (int)cli_bench_number(layer, "count", NULL), cli_bench_number(layer, "ms", NULL),
               100 * cli_bench_number(layer, "share", NULL), cli_bench_number(layer, "gflops", NULL),
               cli_bench_number(layer, "gbs", NULL));
}

static void cli_bench_print_pipeline(const json_t *r)
{
    const char *name;
    json_t *stage;
    const json_t *input = json_object_get(r, "input"), *output = json_object_get(r, "output");
    double total = cli_bench_number(r, "total_ms", "median");
    cli_bench_print_device(r);
    printf("| %s, %d×%d to %d×%d, %d faces | median ms | p90 ms | share | in networks, ms |\n|---|---|---|---|---|\n",
           cli_bench_text(r, "picture"), (int)cli_bench_number(input, "width", NULL),
           (int)cli_bench_number(input, "height", NULL), (int)cli_bench_number(output, "width", NULL),
           (int)cli_bench_number(output, "height", NULL), (int)cli_bench_number(r, "faces", NULL));
    json_object_foreach(json_object_get(r, "stages"), name, stage)
        printf("| %s | %.1f | %.1f | %.1f%% | %.1f |\n", name, cli_bench_number(stage, "median", NULL),
               cli_bench_number(stage, "p90", NULL), 100 * cli_bench_number(stage, "median", NULL) / total,
               cli_bench_number(stage, "network", NULL));
    printf(
        "| total | %.1f | %.1f | | |\n\nIn the networks: %.1f ms, the device's work on them alone. Outside the "
        "networks: %.1f ms, %.1f%% of that. Memory: %.0f MiB on the device, %.0f MiB of the process.\n",
        total, cli_bench_number(r, "total_ms", "p90"), cli_bench_number(r, "networks_ms", "median"),
        cli_bench_number(r, "outside_networks_ms", "median"), 100 * cli_bench_number(r, "outside_networks_share", NULL),
        cli_bench_number(r, "memory", "device_peak") / 0x1p20, cli_bench_number(r, "memory", "process_peak") / 0x1p20);
}

/* ---- under load ---- */

struct load_rows {
    bool json;
    json_t *rows;
};

static void cli_bench_take_row(json_t *row, void *context)
{
    struct load_rows *load = context;
    const json_t *devices = json_object_get(row, "devices"), *device, *first;
    const char *name;
    json_t *stage;
    size_t index;
    json_array_append_new(load->rows, row);
    first = json_array_get(load->rows, 0);
    if (load->json)
        return;
    if (row == first) {
        printf("restored %s\n\n", RESTORED_VERSION);
        json_array_foreach(devices, index, device)
            printf("%s: %s, %s\n", cli_bench_text(device, "id"), cli_bench_text(device, "name"),
                   cli_bench_text(device, "driver"));
        printf("\n| devices | connections | pictures | faces | pictures/s | of the first | median ms | p95 ms | busy | "
               "mean "
               "ms: stages |\n|---|---|---|---|---|---|---|---|---|---|\n");
    }
    printf("| ");
    json_array_foreach(devices, index, device) printf("%s%s", index ? ", " : "", cli_bench_text(device, "id"));
    printf(" | %d | %d | %d | %.2f | %.2f× | %.0f | %.0f |", (int)cli_bench_number(row, "connections", NULL),
           (int)cli_bench_number(row, "pictures", NULL), (int)cli_bench_number(row, "faces", NULL),
           cli_bench_number(row, "pictures_per_second", NULL),
           cli_bench_number(row, "pictures_per_second", NULL) / cli_bench_number(first, "pictures_per_second", NULL),
           cli_bench_number(row, "ms", "median"), cli_bench_number(row, "ms", "p95"));
    json_array_foreach(devices, index, device)
        printf("%s%.0f%%", index ? ", " : " ", 100 * cli_bench_number(device, "busy", NULL));
    printf(" |");
    json_object_foreach(json_object_get(row, "stages"), name, stage) printf(" %s %.1f", name, json_number_value(stage));
    printf(" |\n");
    fflush(stdout);
}

/* ---- */

static enum error_code cli_bench_choose_cases(const struct bench *bench, const struct bench_case **cases, size_t *count,
                                              struct error *err)
{
    struct device *device;
    struct device_info info;
    enum error_code code = device_open(&device, bench->settings.device, NULL, err);
    if (code)
        return code;
    device_info(device, &info);
    device_close(&device);
    bool large = info.type == DEVICE_DISCRETE || info.type == DEVICE_VIRTUAL || info.type == DEVICE_INTEGRATED;
    *cases = large ? cases_gpu : cases_cpu;
    *count = large ? sizeof cases_gpu / sizeof *cases_gpu : sizeof cases_cpu / sizeof *cases_cpu;
    return OK;
}

static enum error_code cli_bench_run_networks(struct bench *bench, json_t *results, struct error *err)
{
    const struct bench_case one = {bench->model, bench->settings.width, bench->settings.height, bench->settings.batch};
    const struct bench_case *cases = &one;
    size_t count = 1;
    enum error_code code = bench->model ? OK : cli_bench_choose_cases(bench, &cases, &count, err);
    for (size_t i = 0; i < count && !code; i++) {
        json_t *result;
        bench->settings.width = cases[i].width;
        bench->settings.height = cases[i].height;
        bench->settings.batch = cases[i].batch;
        code = bench_network(&bench->settings, cases[i].model, &result, err);
        if (code)
            break;
        if (!bench->json && i == 0) {
            cli_bench_print_device(result);
            cli_bench_print_network_head();
        }
        if (!bench->json)
            cli_bench_print_network(result);
        json_array_append_new(results, result);
    }
    size_t index;
    json_t *result;
    json_array_foreach(results, index, result) if (!bench->json) cli_bench_print_layers(result);
    return code;
}

static int cli_bench_run(struct bench *bench)
{
    struct error err = ERROR_INIT;
    json_t *out = json_pack("{s:s}", "version", RESTORED_VERSION), *result = NULL;
    const char *what = bench->picture ? "pipeline" : bench->load ? "load" : "networks";
    enum error_code code = cli_open_store(&bench->settings.store, &bench->config, &err);
    if (!code && bench->load) {
        struct load_rows rows = {bench->json, result = json_array()};
        code = bench_load(&bench->settings, &bench->config, bench->load, bench->connections, cli_bench_take_row, &rows,
                          &err);
    } else if (!code && bench->picture) {
        code = bench_pipeline(&bench->settings, bench->picture, &result, &err);
        if (!code && !bench->json)
            cli_bench_print_pipeline(result);
    } else if (!code) {
        result = json_array();
        code = cli_bench_run_networks(bench, result, &err);
    }
    json_object_set_new(out, what, result ? result : json_null());
    if (!code && bench->json) {
        json_dumpf(out, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(10));
        putchar('\n');
    }
    json_decref(out);
    model_store_destroy(&bench->settings.store);
    return code ? cli_fail(&err, CLI_FAILED) : CLI_OK;
}

int cli_bench(int argc, char **argv)
{
    struct bench bench = {0};
    struct cli cli;
    struct error err = ERROR_INIT;
    options_init(&bench.settings.options);
    static const char *const own[] = {"json", "model", "pipeline", "load",   "connections", "keep",
                                      "size", "batch", "runs",     "layers", NULL};
    enum error_code code = cli_begin(&cli, argc, argv, &bench.config, &err);
    cli.own = own;
    cli.takes_options = true;
    while (!code && !bench.help && cli_next(&cli, "vsw")) {
        cli_letter(&cli);
        code = cli_bench_take(&bench, &cli, &err);
    }
    if (bench.help) {
        cli_bench_usage();
        return CLI_OK;
    }
    if (code || cli_bench_prepare(&bench, &err))
        return cli_fail(&err, CLI_USAGE);
    config_apply_log(&bench.config, LOG_WARN);
    config_apply(&bench.config);
    device_set_patience(INT_MAX);
    if (bench.load)
        device_set_cpu_handles((int)bench.config.workers);
    return cli_bench_run(&bench);
}
