/* The configuration: defaults, the annotated file, the order of sources, and what stops the start. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/config_load.h"

/* A file with this text; its path into path. */
static void make_file(char path[64], const char *text)
{
    strcpy(path, "/tmp/restored-config-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static enum error_code load_text(struct config *config, const char *text, char path[64], struct error *err)
{
    make_file(path, text);
    enum error_code code = config_load(config, path, err);
    unlink(path);
    return code;
}

static void test_defaults(void **state)
{
    (void)state;
    struct config config;
    config_init(&config);
    assert_string_equal(config.listen, "127.0.0.1:8080");
    assert_int_equal(config.body_limit, 64 << 20);
    assert_int_equal(config.header_limit, 32 << 10);
    assert_int_equal(config.input_pixels, 64000000);
    assert_int_equal(config.result_pixels, 400000000);
    assert_int_equal(config.queue, 64);
    assert_int_equal(config.connections, 256);
    assert_int_equal(config.connections_per_address, 32);
    assert_int_equal(config.idle_seconds, 30);
    assert_int_equal(config.job_seconds, 0);
    assert_int_equal(config.drain_seconds, 30);
    assert_int_equal(config.detect_max_side, 2048);
    assert_int_equal(config.precision, PRECISION_AUTO);
    assert_string_equal(config.source[0], "default");
}

/* config/restored.conf names every key once, with its default. */
static void test_annotated_file(void **state)
{
    (void)state;
    struct config initial, loaded;
    struct error err = ERROR_INIT;
    config_init(&initial);
    config_init(&loaded);
    assert_int_equal(config_load(&loaded, "config/restored.conf", &err), OK);
    int keys = 0;
    for (int i = 0; i < CONFIG_KEY_MAX && *initial.source[i]; i++, keys++) {
        if (strncmp(loaded.source[i], "config/restored.conf:", 21) != 0)
            fail_msg("key %d of the table is not in config/restored.conf", i);
    }
    assert_true(keys > 20);
    memset(initial.source, 0, sizeof initial.source);
    memset(loaded.source, 0, sizeof loaded.source);
    assert_memory_equal(&initial, &loaded, sizeof initial);
}

static void test_order(void **state)
{
    (void)state;
    struct config config;
    struct error err = ERROR_INIT;
    char path[64], *environment[] = {"HOME=/", "RESTORED_QUEUE=7", "RESTORED_JOB_SECONDS=9", NULL};
    config_init(&config);
    assert_int_equal(load_text(&config,
                               "# a comment\n\nqueue = 5\n  workers=3 # jobs\njob-seconds\t=\t8\n"
                               "default_version =# none: what is printed as `= # none` reads the same\n",
                               path, &err),
                     OK);
    assert_string_equal(config.default_version, "");
    assert_int_equal(config.queue, 5);
    assert_int_equal(config.workers, 3);
    assert_int_equal(config.job_seconds, 8);
    assert_int_equal(config_load_environment(&config, environment, &err), OK);
    assert_int_equal(config.queue, 7);
    assert_int_equal(config_set(&config, "queue", "11", "flag --queue", &err), OK);
    assert_int_equal(config.queue, 11);
    assert_int_equal(config.job_seconds, 9);
    assert_int_equal(config.workers, 3);

    /* what is printed says where each came from, and can be read back */
    char *text = NULL, want[128];
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    config_print(&config, NULL, out);
    fclose(out);
    snprintf(want, sizeof want, "workers = 3  # %s:4\n", path);
    assert_non_null(strstr(text, want));
    assert_non_null(strstr(text, "queue = 11  # flag --queue\n"));
    assert_non_null(strstr(text, "job_seconds = 9  # environment RESTORED_JOB_SECONDS\n"));
    assert_non_null(strstr(text, "body_limit = 64MiB  # default\n"));
    struct config again;
    config_init(&again);
    assert_int_equal(load_text(&again, text, path, &err), OK);
    memset(config.source, 0, sizeof config.source);
    memset(again.source, 0, sizeof again.source);
    assert_memory_equal(&config, &again, sizeof config);
    free(text);
}

static void test_file_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *say;
        enum error_code code;
    } cases[] = {
        {"queue = 5\nqueu = 6\n", ":2: unknown key \"queu\"", ERROR_NOT_FOUND},
        {"\n\nqueue\n", ":3: \"queue\" is not key = value", ERROR_INVALID},
        {"queue = 0\n", ":1: queue = \"0\" is not a number from 1 to 10000", ERROR_INVALID},
        {"queue = -1\n", "is not a number", ERROR_INVALID},
        {"queue = 1.5\n", "is not a number", ERROR_INVALID},
        {"queue = 99999999999999999999999\n", "is not a number", ERROR_INVALID},
        {"queue = 5 MiB\n", "is not a number", ERROR_INVALID},
        {"body_limit = 99999999999999GiB\n", "is not a number from 1KiB to 4GiB", ERROR_INVALID},
        {"input_pixels =\n", "is not a number", ERROR_INVALID},
        {"precision = fp64\n", "is not auto, fp32 or fp16", ERROR_INVALID},
        {"starter_models = maybe\n", "is not true or false", ERROR_INVALID},
        {"log_level = loud\n", "is not debug, info, warn or error", ERROR_INVALID},
        {"\nqueue = 5\nworkers = 1\nqueue = 5\n", ":4: \"queue\" is set in line 2 already", ERROR_INVALID},
        {"job_seconds = 5\njob-seconds = 6\n", ":2: \"job_seconds\" is set in line 1 already", ERROR_INVALID},
        {"queue = 5\n\xef\xbb\xbfworkers = 2\n", ":2: unknown key", ERROR_NOT_FOUND},
        {"listen = 8080\n", "is not ADDRESS:PORT", ERROR_INVALID},
        {"listen = ::1:8080\n", "is not ADDRESS:PORT", ERROR_INVALID},
        {"listen = localhost:99999\n", "is not ADDRESS:PORT", ERROR_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config config;
        struct error err = ERROR_INIT;
        char path[64];
        config_init(&config);
        assert_int_equal(load_text(&config, cases[i].text, path, &err), cases[i].code);
        if (!strstr(err.text, cases[i].say) || !strstr(err.text, path))
            fail_msg("\"%s\" gives \"%s\"", cases[i].text, err.text);
    }
    struct config config;
    struct error err = ERROR_INIT;
    config_init(&config);
    assert_int_equal(config_load(&config, "/nowhere/restored.conf", &err), ERROR_NOT_FOUND);
    assert_non_null(strstr(err.text, "/nowhere/restored.conf"));
}

/* The byte order mark that some editors begin UTF-8 with. */
static void test_byte_order_mark(void **state)
{
    (void)state;
    struct config config;
    struct error err = ERROR_INIT;
    char path[64];
    config_init(&config);
    assert_int_equal(load_text(&config, "\xef\xbb\xbfqueue = 5\n", path, &err), OK);
    assert_int_equal(config.queue, 5);
    assert_int_equal(load_text(&config, "\xef\xbb\xbf# mine\nqueue = 6\n", path, &err), OK);
    assert_int_equal(config.queue, 6); /* another file may set it again */
}

static enum error_code take(const char *variable, struct config *config, struct error *err)
{
    char *environment[] = {(char *)variable, NULL};
    error_clear(err);
    config_init(config);
    return config_load_environment(config, environment, err);
}

static void test_environment(void **state)
{
    (void)state;
    static const struct {
        const char *variable, *say; /* NULL: it is passed over */
    } cases[] = {
        /* what Kubernetes makes of services named restored and restored-api */
        {"RESTORED_PORT=tcp://10.0.0.1:8080", NULL},
        {"RESTORED_API_PORT=udp://10.0.0.1:8080", NULL},
        {"RESTORED_SERVICE_HOST=10.0.0.1", NULL},
        {"RESTORED_SERVICE_PORT=8080", NULL},
        {"RESTORED_SERVICE_PORT_HTTP=8080", NULL},
        {"RESTORED_PORT_8080_TCP=tcp://10.0.0.1:8080", NULL},
        {"RESTORED_PORT_8080_TCP_PROTO=tcp", NULL},
        {"RESTORED_API_PORT_8080_SCTP_ADDR=10.0.0.1", NULL},
        {"RESTORED_PORT_8080_TCP_PORT=8080", NULL},
        /* what the clients of examples/ use */
        {"RESTORED_URL=http://127.0.0.1:8080", NULL},
        {"RESTORED_TOKEN=secret", NULL},
        /* what tests use */
        {"RESTORED_FAULTS=nan@run:1", NULL},
        {"RESTORED_CONFIG=x", NULL},
        {"RESTORED_VULKAN_TILE=3", NULL},
        /* neither a key nor any of these */
        {"RESTORED_PORT=8080", "environment RESTORED_PORT: unknown key \"port\"; did you mean listen?"},
        {"RESTORED_WORKRES=1", "environment RESTORED_WORKRES: unknown key \"workres\"; did you mean workers?"},
        {"RESTORED_PORT__TCP=1", "unknown key \"port__tcp\""},
        {"RESTORED_PORT_80_TC=1", "unknown key \"port_80_tc\""},
        {"RESTORED_PORT_X_TCP=1", "unknown key \"port_x_tcp\""},
        {"RESTORED_=x", "environment RESTORED_: unknown key \"\""},
        {"RESTORED_WORKERS=many", "environment RESTORED_WORKERS: workers = \"many\""},
        {"RESTORED_QUEUE=", "environment RESTORED_QUEUE: queue = \"\""},
        {"RESTORED_A_NAME_THAT_IS_MUCH_LONGER_THAN_ANY_KEY_OF_THE_CONFIGURATION_EVER_WAS=1",
         "unknown key \"a_name_that"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config config, initial;
        struct error err = ERROR_INIT;
        config_init(&initial);
        assert_int_equal(take(cases[i].variable, &config, &err), cases[i].say ? ERROR_INVALID : OK);
        if (!cases[i].say)
            assert_memory_equal(&config, &initial, sizeof config);
        else if (!strstr(err.text, cases[i].say))
            fail_msg("%s gives \"%s\"", cases[i].variable, err.text);
    }
}

/* Every word that a key may be, and what is nearest to a wrong one. */
static void test_words(void **state)
{
    (void)state;
    struct config config;
    struct error err = ERROR_INIT;
    config_init(&config);
    assert_true(config.vulkan_matrix && config.vulkan_chain && !config.vulkan_validation && config.starter_models);
    assert_int_equal(config_set(&config, "vulkan_matrix", "0", "test", &err), OK);
    assert_int_equal(config_set(&config, "vulkan_validation", "yes", "test", &err), OK);
    assert_true(!config.vulkan_matrix && config.vulkan_validation && config.starter_models);
    assert_int_equal(config.vulkan_direct, 0);
    assert_int_equal(config_set(&config, "vulkan_direct", "off", "test", &err), OK);
    assert_int_equal(config.vulkan_direct, 1);
    assert_int_equal(config_set(&config, "vulkan_direct", "true", "test", &err), OK);
    assert_int_equal(config.vulkan_direct, 2);
    assert_int_equal(config_set(&config, "cpu_isa", "AVX2", "test", &err), OK);
    assert_int_equal(config.cpu_isa, 2);
    assert_int_equal(config_set(&config, "cpu_isa", "sse", "test", &err), ERROR_INVALID);
    assert_string_equal(err.text, "test: cpu_isa = \"sse\" is not auto, base, avx2 or avx512");
    error_clear(&err);
    assert_int_equal(config_set(&config, "vulkan_memory", "2048", "test", &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "less than 16MiB"));
    error_clear(&err);
    assert_int_equal(config_set(&config, "memory", "5", "test", &err), ERROR_INVALID);
    assert_string_equal(err.text, "test: memory = \"5\" is less than 16MiB, and not 0 (units: KiB, MiB, GiB)");
    assert_int_equal(config_set(&config, "memory", "16MiB", "test", &err), OK);
    assert_int_equal(config_set(&config, "inflight_memory", "1048575", "test", &err), ERROR_INVALID);
    assert_int_equal(config_set(&config, "inflight_memory", "1MiB", "test", &err), OK);
    assert_int_equal(config_set(&config, "vulkan_memory", "2GiB", "test", &err), OK);
    assert_int_equal(config_set(&config, "vulkan_memory", "0", "test", &err), OK);
}

/* The user's file goes over the machine's; a file that is named is the only one. */
static void test_files(void **state)
{
    (void)state;
    struct config config;
    struct config_files files;
    struct error err = ERROR_INIT;
    char folder[] = "/tmp/restored-config-XXXXXX", path[128], command[256];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/restored", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    setenv("XDG_CONFIG_HOME", folder, 1);
    config_init(&config);
    assert_int_equal(config_load_files(&config, NULL, &files, &err), OK);
    assert_int_equal(files.count, 2);
    assert_string_equal(files.file[0].path, "/etc/restored/restored.conf");
    snprintf(path, sizeof path, "%s/restored/restored.conf", folder);
    assert_string_equal(files.file[1].path, path);
    assert_false(files.file[1].read);

    FILE *file = fopen(path, "w");
    fputs("queue = 5\n", file);
    fclose(file);
    assert_int_equal(config_load_files(&config, NULL, &files, &err), OK);
    assert_true(files.file[1].read);
    assert_int_equal(config.queue, 5);
    snprintf(command, sizeof command, "%s:1", path);
    assert_string_equal(config.source[config_index("queue")], command);

    config_init(&config);
    assert_int_equal(config_load_files(&config, "/dev/null", &files, &err), OK);
    assert_int_equal(files.count, 1);
    assert_int_equal(config.queue, 64);

    file = fopen(path, "w");
    fputs("queue = none\n", file);
    fclose(file);
    assert_int_equal(config_load_files(&config, NULL, &files, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, command));
    unlink(path);
    error_clear(&err);
    assert_int_equal(mkdir(path, 0700), 0); /* it is there, and cannot be read */
    assert_int_equal(config_load_files(&config, NULL, &files, &err), ERROR_IO);
    assert_non_null(strstr(err.text, path));
    unsetenv("XDG_CONFIG_HOME");
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void test_values(void **state)
{
    (void)state;
    struct config config;
    struct error err = ERROR_INIT;
    config_init(&config);
    assert_int_equal(config_set(&config, "body-limit", "2 mib", "test", &err), OK);
    assert_int_equal(config.body_limit, 2 << 20);
    assert_int_equal(config_set(&config, "body_limit", "5000", "test", &err), OK);
    assert_int_equal(config.body_limit, 5000);
    assert_int_equal(config_set(&config, "result_pixels", "12MP", "test", &err), OK);
    assert_int_equal(config.result_pixels, 12000000);
    char host[64], port[8];
    assert_true(config_split_listen("[::1]:80", host, sizeof host, port, sizeof port));
    assert_string_equal(host, "::1");
    assert_string_equal(port, "80");
    assert_true(config_split_listen("localhost:0", host, sizeof host, port, sizeof port));
    assert_false(config_split_listen("[]:80", host, sizeof host, port, sizeof port));
    assert_false(config_split_listen("::1", host, sizeof host, port, sizeof port));
    char longer[2000];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(config_set(&config, "models_dir", longer, "test", &err), ERROR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),        cmocka_unit_test(test_annotated_file), cmocka_unit_test(test_order),
        cmocka_unit_test(test_file_errors),     cmocka_unit_test(test_environment),    cmocka_unit_test(test_values),
        cmocka_unit_test(test_byte_order_mark), cmocka_unit_test(test_words),          cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
