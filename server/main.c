/* restored: restores photos, as an HTTP server and on the command line. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "server/cli/cli.h"
#include "server/version.h"

static const struct {
    const char *name, *help;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"serve", "the HTTP server, with its page", cli_serve},
    {"restore", "restore files or folders", cli_restore},
    {"devices", "the devices there are, best first", cli_devices},
    {"doctor", "why a GPU is or is not used, and what to do", cli_doctor},
    {"models", "the models found, and how to get those missing", cli_models},
    {"bench", "how fast networks and the pipeline are here", cli_bench},
    {"healthcheck", "exit 0 if the server answers that it is ready", cli_healthcheck},
};
#define COMMAND_COUNT (sizeof commands / sizeof *commands)

static void usage(FILE *out)
{
    fprintf(out, "restored %s: restores photos: faces and backgrounds, on any GPU with Vulkan or on the CPU\n\n",
            RESTORED_VERSION);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  restored %-12s %s\n", commands[i].name, commands[i].help);
    fprintf(out, "\nrestored COMMAND --help says more.\n");
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    signal(SIGPIPE, SIG_IGN); /* a client or a pipe that is gone is an error of write(), not the end */
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (!strcmp(commands[i].name, name))
            return commands[i].run(argc - 2, argv + 2);
    if (!strcmp(name, "--version")) {
        printf("restored %s\n", RESTORED_VERSION);
        return CLI_OK;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        usage(stdout);
        return CLI_OK;
    }
    if (*name)
        fprintf(stderr, "restored: there is no command \"%s\"\n\n", name);
    usage(stderr);
    return CLI_USAGE;
}
