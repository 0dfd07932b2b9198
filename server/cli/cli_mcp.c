/* restored mcp: the Model Context Protocol on stdin and stdout. This thread reads; another one does the calls, one at a
 * time, so that a ping is answered and a call can be cancelled while one is at work. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/cli/cli.h"
#include "server/cli/cli_engine.h"
#include "server/cli/cli_progress.h"
#include "server/cli/mcp.h"
#include "server/cli/mcp_tool.h"
#include "server/http/json.h"
#include "server/image/codec.h"
#include "server/job/job.h"

#define MCP_WAITING 16                     /* calls at most */
#define MCP_LINE_MORE ((size_t)1 << 16)    /* bytes of a line beside its picture */
#define MCP_INLINE ((size_t)32 << 20)      /* bytes of a picture in an answer, at most */
#define MCP_PROGRESS_NS INT64_C(500000000) /* between two messages */
#define MCP_ROOTS 16
#define CLI_MCP_LINK 32 /* bytes of "/proc/self/fd/N" */

struct cli_mcp {
    struct config config;
    const char *device;
    const char *roots[MCP_ROOTS];
    int root_count;
    json_t *tools;
    struct model_store *store;
    struct cli_engine engine;
    bool open; /* the engine */
    char cache[1024];

    pthread_mutex_t out; /* of stdout */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct mcp_message waiting[MCP_WAITING]; /* all below: guarded by lock */
    int count;
    bool ended;                  /* nothing more comes */
    bool stopped;                /* what waits is dropped */
    const json_t *id;            /* of the running call */
    struct restoration *running; /* of it, while there is one */
    bool cancelled;              /* it is */

    const json_t *progress; /* the rest is the calling thread's */
    int64_t told_ns;
};

static int cli_mcp_stop_fd = -1;

static void cli_mcp_signal(int number)
{
    const uint64_t one = 1;
    const int before = errno;
    (void)number;
    if (write(cli_mcp_stop_fd, &one, sizeof one) < 0)
        _exit(128 + SIGTERM);
    errno = before;
}

static void cli_mcp_usage(void)
{
    printf("restored mcp [--root DIR]... [OPTION]...\n\n"
           "A server of the Model Context Protocol on stdin and stdout, for assistants: the tools restore, detect and\n"
           "models. Programs that speak the protocol start it themselves. It reads pictures by their path and writes\n"
           "results to new files, never over one that exists. It ends with its stdin, or by SIGTERM.\n\n"
           "  --root DIR          read and write below this folder only; may be repeated [anywhere]\n"
           "  --models DIR        folder of checkpoints\n"
           "  --device ID,ID...   a device, or several in the order of preference [auto]\n\n"
           "The configuration's keys are options, too: see restored serve --help.\n");
}

/* Takes the message. */
static void cli_mcp_send(struct cli_mcp *mcp, json_t *message)
{
    pthread_mutex_lock(&mcp->out);
    if (message) {
        json_dumpf(message, stdout, JSON_COMPACT | JSON_REAL_PRECISION(10));
        putchar('\n');
        fflush(stdout);
    }
    pthread_mutex_unlock(&mcp->out);
    json_decref(message);
}

/* ---- a call ---- */

/* What is open lies below one of the roots. It is asked of the descriptor and not of a path, which may lead elsewhere
 * by the time that it is opened. */
static bool cli_mcp_within(const struct cli_mcp *mcp, int fd)
{
    char link[CLI_MCP_LINK], real[PATH_MAX];
    bool within = !mcp->root_count;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t size = mcp->root_count ? readlink(link, real, sizeof real - 1) : 0;
    real[size > 0 ? size : 0] = 0;
    for (int i = 0; i < mcp->root_count && !within; i++) {
        char *root = realpath(mcp->roots[i], NULL);
        const size_t n = root ? strlen(root) : 0;
        within = root && !strncmp(real, root, n) && (n == 1 || !real[n] || real[n] == '/');
        free(root);
    }
    return within;
}

/* Opens it as O_PATH, if it may be used: nothing is read, and no device or FIFO notices. */
static enum error_code cli_mcp_reach(const struct cli_mcp *mcp, const char *path, const char *said, int *fd,
                                     struct error *err)
{
    *fd = open(path, O_PATH | O_CLOEXEC);
    if (*fd < 0)
        return error_set(err, ERROR_NOT_FOUND, "%s: %m", said);
    if (cli_mcp_within(mcp, *fd))
        return OK;
    close(*fd);
    *fd = -1;
    return error_set(err, ERROR_INVALID, "%s is in none of the folders that --root allows", said);
}

/* The picture's file. */
static enum error_code cli_mcp_map(const struct cli_mcp *mcp, const char *path, struct file *out, struct error *err)
{
    char link[CLI_MCP_LINK];
    int place;
    enum error_code code = cli_mcp_reach(mcp, path, path, &place, err);
    if (code)
        return code;
    snprintf(link, sizeof link, "/proc/self/fd/%d", place);
    const int fd = open(link, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* the same file, whatever the path says now */
    if (fd < 0)
        code = error_set(err, ERROR_IO, "%s: %m", path);
    else
        code = file_map_descriptor(out, fd, path, err);
    if (fd >= 0)
        close(fd);
    close(place);
    return code;
}

/* Where a result goes: its folder, which stays the same one, and its name there. */
struct cli_mcp_target {
    int folder; /* -1: nowhere */
    const char *name;
};

static enum error_code cli_mcp_aim(const struct cli_mcp *mcp, const char *path, struct cli_mcp_target *out,
                                   struct error *err)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const int length = slash ? (int)(slash - path) + 1 : 0;
    if (length >= PATH_MAX || !strcmp(path, "-"))
        return error_set(err, ERROR_INVALID, "%s is no path of a file", path);
    snprintf(folder, sizeof folder, "%.*s", length ? length : 1, length ? path : ".");
    const enum error_code code = cli_mcp_reach(mcp, folder, path, &out->folder, err);
    out->name = path + length;
    if (code || faccessat(out->folder, out->name, F_OK, AT_SYMLINK_NOFOLLOW))
        return code;
    return error_set(err, ERROR_INVALID, "output: %s exists already; choose another name", path); /* before the work */
}

static enum error_code cli_mcp_open(struct cli_mcp *mcp, struct error *err)
{
    if (mcp->open)
        return OK;
    enum error_code code = cli_engine_open(&mcp->engine, *mcp->device ? mcp->device : mcp->config.device,
                                           config_cache_dir(&mcp->config, mcp->cache, sizeof mcp->cache),
                                           mcp->config.precision, mcp->config.memory, mcp->store, err);
    mcp->open = !code;
    if (code) { /* the next call tries again */
        cli_engine_close(&mcp->engine);
        mcp->engine = (struct cli_engine){0};
    }
    return code;
}

static void cli_mcp_moved(struct restoration *r, void *context)
{
    struct cli_mcp *mcp = context;
    const int64_t now = job_now();
    if (now - mcp->told_ns < MCP_PROGRESS_NS)
        return;
    mcp->told_ns = now;
    const int faces[2] = {atomic_load(&r->faces_done), atomic_load(&r->faces_total)};
    const int tiles[2] = {atomic_load(&r->tiles_done), atomic_load(&r->tiles_total)};
    const enum stage stage = (enum stage)atomic_load(&r->stage);
    const bool background = atomic_load(&r->entered) & 1u << STAGE_BACKGROUND;
    cli_mcp_send(mcp, mcp_progress(mcp->progress, cli_progress_part(stage, background, faces, tiles)));
}

/* Lets others cancel it; NULL: no longer. */
static void cli_mcp_run_as(struct cli_mcp *mcp, struct restoration *r)
{
    pthread_mutex_lock(&mcp->lock);
    mcp->running = r;
    if (r && (mcp->cancelled || mcp->stopped))
        atomic_store(&r->cancel, 1);
    pthread_mutex_unlock(&mcp->lock);
}

/* Writes the result to a file that did not exist: takes the name by an empty one, which the whole result replaces. */
static enum error_code cli_mcp_write(const struct restoration *r, const struct cli_mcp_target *target, const char *said,
                                     struct error *err)
{
    char path[CLI_MCP_LINK + NAME_MAX + 2];
    struct error own = ERROR_INIT;
    const int fd = openat(target->folder, target->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return errno == EEXIST ? error_set(err, ERROR_INVALID, "output: %s exists already; choose another name", said)
                               : error_set(err, ERROR_IO, "%s: %m", said);
    close(fd);
    snprintf(path, sizeof path, "/proc/self/fd/%d/%s", target->folder, target->name);
    if (!file_write(path, r->output, r->output_bytes, &own))
        return OK;
    unlinkat(target->folder, target->name, 0);
    return error_set(err, own.code, "%s was not written (%s)", said, own.text);
}

static enum error_code cli_mcp_restore(struct cli_mcp *mcp, const struct mcp_task *task, struct restoration *r,
                                       const struct cli_mcp_target *target, json_t **result, struct error *err)
{
    r->options = task->options;
    r->limits = (struct limits){.input_pixels = mcp->config.input_pixels,
                                .result_pixels = mcp->config.result_pixels,
                                .detect_max_side = (int)mcp->config.detect_max_side,
                                .max_faces = (int)mcp->config.max_faces};
    r->detect_only = task->tool == MCP_DETECT;
    if (mcp->progress) {
        r->moved = cli_mcp_moved;
        r->moved_context = mcp;
    }
    cli_mcp_run_as(mcp, r);
    enum error_code code = cli_engine_run(&mcp->engine, r, err);
    cli_mcp_run_as(mcp, NULL);
    if (!code && task->output)
        code = cli_mcp_write(r, target, task->output, err);
    const bool within = task->tool == MCP_RESTORE && !task->output;
    if (!code && within && r->output_bytes > MCP_INLINE)
        code = error_set(err, ERROR_TOO_LARGE, "the result has %zu MiB: give `output`, a path to write it to",
                         r->output_bytes >> 20);
    if (code)
        return code;
    json_t *facts = restoration_report(r);
    if (task->output)
        json_object_set_new(facts, "written", json_string(task->output));
    *result = mcp_tool_result(facts, within ? r->output : NULL, r->output_bytes,
                              within ? codec_media_type(r->output_format) : NULL);
    return OK;
}

static enum error_code cli_mcp_picture(struct cli_mcp *mcp, const struct mcp_task *task, json_t **result,
                                       struct error *err)
{
    struct file file = {0};
    struct restoration *r = NULL;
    struct cli_mcp_target target = {.folder = -1};
    enum error_code code = task->path ? cli_mcp_map(mcp, task->path, &file, err) : OK;
    if (!code && task->output)
        code = cli_mcp_aim(mcp, task->output, &target, err);
    if (!code)
        code = cli_mcp_open(mcp, err);
    if (!code)
        code = restoration_create(&r, err);
    if (!code) {
        r->input = task->path ? file.data : task->bytes;
        r->input_bytes = task->path ? file.size : task->size;
        code = r->input_bytes ? cli_mcp_restore(mcp, task, r, &target, result, err)
                              : error_set(err, ERROR_CORRUPT, "%s: the file is empty", task->path);
    }
    restoration_destroy(&r);
    file_unmap(&file);
    if (target.folder >= 0)
        close(target.folder);
    return code;
}

static void cli_mcp_call(struct cli_mcp *mcp, const struct mcp_message *call)
{
    struct mcp_task task;
    struct error err = ERROR_INIT;
    json_t *result = NULL;
    mcp->progress = call->progress;
    mcp->told_ns = 0;
    enum error_code code = mcp_tool_read(&task, call->name, call->arguments, (size_t)mcp->config.body_limit, &err);
    if (!code && !mcp->store)
        code = cli_open_store(&mcp->store, &mcp->config, &err);
    if (!code && task.tool == MCP_MODELS) {
        model_store_refresh(mcp->store);
        result = mcp_tool_result(json_models(mcp->store, true), NULL, 0, NULL);
    } else if (!code) {
        code = cli_mcp_picture(mcp, &task, &result, &err);
    }
    if (code)
        result = mcp_tool_failure(err.text);
    pthread_mutex_lock(&mcp->lock);
    const bool quiet = mcp->cancelled || mcp->stopped; /* nobody waits for the answer of a cancelled call */
    mcp->id = NULL;
    pthread_mutex_unlock(&mcp->lock);
    if (quiet)
        json_decref(result);
    else
        cli_mcp_send(mcp, mcp_result(call->id, result));
    mcp_tool_free(&task);
}

static void *cli_mcp_calls(void *context)
{
    struct cli_mcp *mcp = context;
    pthread_mutex_lock(&mcp->lock);
    while (true) {
        while (!mcp->count && !mcp->ended)
            pthread_cond_wait(&mcp->wake, &mcp->lock);
        if (!mcp->count || mcp->stopped)
            break;
        struct mcp_message call = mcp->waiting[0];
        memmove(mcp->waiting, mcp->waiting + 1, (size_t)--mcp->count * sizeof call);
        mcp->id = call.id;
        mcp->cancelled = false;
        pthread_mutex_unlock(&mcp->lock);
        cli_mcp_call(mcp, &call);
        mcp_free(&call);
        pthread_mutex_lock(&mcp->lock);
    }
    pthread_mutex_unlock(&mcp->lock);
    return NULL;
}

/* ---- what comes ---- */

/* A call that waits is dropped, one at work is told to stop. */
static void cli_mcp_cancel(struct cli_mcp *mcp, const json_t *id)
{
    pthread_mutex_lock(&mcp->lock);
    for (int i = 0; i < mcp->count; i++)
        if (json_equal(mcp->waiting[i].id, id)) {
            mcp_free(&mcp->waiting[i]);
            memmove(mcp->waiting + i, mcp->waiting + i + 1, (size_t)(--mcp->count - i) * sizeof *mcp->waiting);
            break;
        }
    if (mcp->id && json_equal(mcp->id, id)) {
        mcp->cancelled = true;
        if (mcp->running)
            atomic_store(&mcp->running->cancel, 1);
    }
    pthread_mutex_unlock(&mcp->lock);
}

static void cli_mcp_line(struct cli_mcp *mcp, const char *line, size_t size)
{
    struct mcp_message message;
    bool kept = false;
    mcp_read(&message, line, size, mcp->tools);
    if (message.kind == MCP_CALL) {
        pthread_mutex_lock(&mcp->lock);
        kept = mcp->count < MCP_WAITING;
        if (kept)
            mcp->waiting[mcp->count++] = message;
        pthread_cond_signal(&mcp->wake);
        pthread_mutex_unlock(&mcp->lock);
        if (!kept)
            cli_mcp_send(mcp, mcp_result(message.id, mcp_tool_failure("too many calls wait; try again later")));
    } else if (message.kind == MCP_ANSWER) {
        cli_mcp_send(mcp, message.answer);
        message.answer = NULL;
    } else if (message.kind == MCP_CANCEL) {
        cli_mcp_cancel(mcp, message.id);
    }
    if (!kept)
        mcp_free(&message);
}

struct cli_mcp_buffer {
    char *bytes;
    size_t used, room, most;
    bool skipping; /* the rest of a line that is too long */
};

/* Takes what was read; complete lines are answered. */
static enum error_code cli_mcp_take(struct cli_mcp *mcp, struct cli_mcp_buffer *buffer, const char *bytes, size_t size,
                                    struct error *err)
{
    for (size_t at = 0; at < size;) {
        const char *end = memchr(bytes + at, '\n', size - at);
        const size_t part = (end ? (size_t)(end - bytes) : size) - at;
        if (!buffer->skipping && buffer->used + part > buffer->most) {
            buffer->skipping = true;
            buffer->used = 0;
            cli_mcp_send(mcp, mcp_error(NULL, MCP_REQUEST, "the line is too long; give the picture's path"));
        }
        if (!buffer->skipping && buffer->used + part > buffer->room) {
            const size_t room = buffer->used + part > 2 * buffer->room ? buffer->used + part : 2 * buffer->room;
            char *grown = realloc(buffer->bytes, room);
            if (!grown)
                return error_set(err, ERROR_NO_MEMORY, "no memory for what comes on stdin");
            buffer->bytes = grown;
            buffer->room = room;
        }
        if (!buffer->skipping && part) {
            memcpy(buffer->bytes + buffer->used, bytes + at, part);
            buffer->used += part;
        }
        if (end && !buffer->skipping && buffer->used)
            cli_mcp_line(mcp, buffer->bytes, buffer->used);
        if (end) {
            buffer->used = 0;
            buffer->skipping = false;
        }
        at += part + (end != NULL);
    }
    return OK;
}

/* Until stdin ends: true; or a signal comes: false. */
static bool cli_mcp_read(struct cli_mcp *mcp, struct error *err)
{
    struct cli_mcp_buffer buffer = {.most = (size_t)mcp->config.body_limit / 3 * 4 + MCP_LINE_MORE};
    char *piece = mem_alloc(MCP_LINE_MORE, 1);
    enum error_code code = piece ? OK : error_set(err, ERROR_NO_MEMORY, "no memory for what comes on stdin");
    bool stop = false;
    for (ssize_t size = 1; size && !code && !stop;) {
        struct pollfd ready[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = cli_mcp_stop_fd, .events = POLLIN}};
        if (poll(ready, 2, -1) < 0 && errno != EINTR)
            code = error_set(err, ERROR_IO, "stdin: %m");
        stop = ready[1].revents;
        if (stop || code || !ready[0].revents)
            continue;
        size = read(STDIN_FILENO, piece, MCP_LINE_MORE);
        if (size > 0)
            code = cli_mcp_take(mcp, &buffer, piece, (size_t)size, err);
        else if (size < 0 && errno != EINTR && errno != EAGAIN)
            code = error_set(err, ERROR_IO, "stdin: %m");
    }
    if (!code && !stop && !buffer.skipping && buffer.used) /* a last line without its end */
        cli_mcp_line(mcp, buffer.bytes, buffer.used);
    free(buffer.bytes);
    free(piece);
    return !code && !stop;
}

static int cli_mcp_run(struct cli_mcp *mcp)
{
    struct error err = ERROR_INIT;
    pthread_t calls;
    struct sigaction action = {.sa_handler = cli_mcp_signal, .sa_flags = (int)SA_RESETHAND};
    mcp->tools = mcp_tool_list();
    cli_mcp_stop_fd = eventfd(0, EFD_CLOEXEC);
    if (!mcp->tools || cli_mcp_stop_fd < 0 || pthread_create(&calls, NULL, cli_mcp_calls, mcp)) {
        error_set(&err, ERROR_NO_MEMORY, "restored mcp cannot be started: %m");
        return cli_fail(&err, CLI_FAILED);
    }
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    const bool whole = cli_mcp_read(mcp, &err);
    pthread_mutex_lock(&mcp->lock);
    mcp->ended = true;
    mcp->stopped = !whole; /* at the end of stdin, what was asked for is still done */
    if (mcp->stopped && mcp->running)
        atomic_store(&mcp->running->cancel, 1);
    pthread_cond_signal(&mcp->wake);
    pthread_mutex_unlock(&mcp->lock);
    pthread_join(calls, NULL);
    for (int i = 0; i < mcp->count; i++)
        mcp_free(&mcp->waiting[i]);
    json_decref(mcp->tools);
    close(cli_mcp_stop_fd);
    cli_engine_close(&mcp->engine);
    model_store_destroy(&mcp->store);
    return err.code ? cli_fail(&err, CLI_FAILED) : CLI_OK;
}

int cli_mcp(int argc, char **argv)
{
    static struct cli_mcp mcp = {.device = "",
                                 .out = PTHREAD_MUTEX_INITIALIZER,
                                 .lock = PTHREAD_MUTEX_INITIALIZER,
                                 .wake = PTHREAD_COND_INITIALIZER};
    struct cli cli;
    struct error err = ERROR_INIT;
    bool help = false;
    const char *value;
    static const char *const own[] = {"root", "device", NULL};
    enum error_code code = cli_begin(&cli, argc, argv, &mcp.config, &err);
    cli.own = own;
    while (!code && !help && cli_next(&cli, "")) {
        if (!*cli.name)
            code = error_set(&err, ERROR_INVALID, "restored mcp takes no \"%s\"", cli.value);
        else if (!strcmp(cli.name, "help") || !strcmp(cli.name, "h"))
            code = cli_flag(&cli, &help, &err);
        else if (!strcmp(cli.name, "device"))
            code = cli_value(&cli, &mcp.device, &err);
        else if (strcmp(cli.name, "root"))
            code = cli_config(&cli, &mcp.config, &err);
        else if (!(code = cli_value(&cli, &value, &err)) && mcp.root_count == MCP_ROOTS)
            code = error_set(&err, ERROR_INVALID, "--root: at most %d folders", MCP_ROOTS);
        else if (!code && access(value, X_OK))
            code = error_set(&err, ERROR_INVALID, "--root %s: there is no such folder", value);
        else if (!code)
            mcp.roots[mcp.root_count++] = value;
    }
    if (help) {
        cli_mcp_usage();
        return CLI_OK;
    }
    if (code)
        return cli_fail(&err, CLI_USAGE);
    config_apply_log(&mcp.config, LOG_WARN);
    config_apply(&mcp.config);
    return cli_mcp_run(&mcp);
}
