/* restored: restores photos, as an HTTP server and on the command line. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "server/cli/cli.h"
#include "server/image/decoder_child.h"
#include "server/suggest.h"
#include "server/version.h"

static const struct {
    const char *name, *help;
    int (*run)(int argc, char **argv);
} main_commands[] = {
    {"serve", "the HTTP server, with its page", cli_serve},
    {"restore", "restore files or folders", cli_restore},
    {"watch", "restore what appears in a folder", cli_watch},
    {"mcp", "for assistants: the Model Context Protocol on stdin and stdout", cli_mcp},
    {"devices", "the devices there are, best first", cli_devices},
    {"doctor", "why a GPU is or is not used, and what to do", cli_doctor},
    {"models", "the models that are there; models get NAME downloads one, models add FILE takes yours", cli_models},
    {"store", "looks after the jobs that are kept, and moves them between stores", cli_store},
    {"bench", "how fast networks and the pipeline are here", cli_bench},
    {"healthcheck", "exit 0 if the server answers that it is ready", cli_healthcheck},
};
#define COMMAND_COUNT (sizeof main_commands / sizeof *main_commands)

static void main_usage(FILE *out)
{
    fprintf(out, "restored %s: restores photos: faces and backgrounds, on any GPU with Vulkan or on the CPU\n\n",
            RESTORED_VERSION);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  restored %-12s %s\n", main_commands[i].name, main_commands[i].help);
    fprintf(out, "\nrestored COMMAND --help says more; restored --version prints the version.\n");
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    /* a closed connection or pipe, and a limit on the size of files, are errors of write(), not the program's end */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (!strcmp(main_commands[i].name, name))
            return main_commands[i].run(argc - 2, argv + 2);
    if (!strcmp(name, DECODER_COMMAND))
        return decoder_child_main();
    if (!strcmp(name, "--version") || !strcmp(name, "-V") || !strcmp(name, "version")) {
        printf("restored %s\n", RESTORED_VERSION);
        return CLI_OK;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        main_usage(stdout);
        return CLI_OK;
    }
    if (*name) {
        char hint[64];
        struct suggest suggest = suggest_for(name);
        for (size_t i = 0; i < COMMAND_COUNT; i++)
            suggest_offer(&suggest, main_commands[i].name);
        fprintf(stderr, "restored: there is no command \"%s\"%s\n\n", name,
                suggest_text(&suggest, "restored ", hint, sizeof hint));
    }
    main_usage(stderr);
    return CLI_USAGE;
}
