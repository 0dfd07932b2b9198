#include "server/image/decoder.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "server/image/decoder_child.h"

#define DECODER_SPARES 2     /* processes that wait for a picture, so that it need not wait for one */
#define DECODER_POLL_MS 50   /* between two calls of check */
#define DECODER_SECONDS 10   /* of the processor, for any picture and for each megapixel: the slowest */
#define DECODER_SECONDS_MP 1 /* library takes a tenth of that */
#define DECODER_MEMORY ((uint64_t)512 << 20)
#define DECODER_MEMORY_PIXEL 64 /* bytes: four planes of 32 bits, three times, and the picture */
#define DECODER_HANG_SECONDS 1
#define DECODER_PATIENCE 4        /* how many times the seconds may pass while others have the processor, */
#define DECODER_PATIENCE_MS 60000 /* and beside that */
#define DECODER_BLOB_MOST ((uint64_t)128 << 20)

struct decoder_worker {
    int socket;
    uint64_t id;
};

static struct {
    pthread_mutex_t lock;
    bool started;
    int control; /* to the process that forks */
    pid_t pid;
    uint64_t ids;
    struct decoder_worker spares[DECODER_SPARES];
    int spare_count;
    char program[256];
} decoder = {.lock = PTHREAD_MUTEX_INITIALIZER, .control = -1};

/* ---- processes --------------------------------------------------------------------------------------------------- */

/* Nothing of this process's environment, which may hold secrets, but what sanitizers and the linker look at. */
static void decoder_environment(char *out[8])
{
    static const char *const names[] = {
        "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "TSAN_OPTIONS=", "LSAN_OPTIONS=", "LD_LIBRARY_PATH="};
    int count = 0;
    for (char **at = environ; at && *at; at++)
        for (size_t i = 0; i < sizeof names / sizeof *names && count < 7; i++)
            if (!strncmp(*at, names[i], strlen(names[i])))
                out[count++] = *at;
    out[count] = NULL;
}

/* Under the lock: the process that forks. */
static enum error_code decoder_spawn(struct error *err)
{
    char *arguments[] = {"restored", DECODER_COMMAND, NULL}, *environment[8];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    int ends[2], failed;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return error_set(err, ERROR_IO, "the process that reads pictures could not be started: %m");
    decoder_environment(environment);
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], DECODER_CONTROL);
    posix_spawn_file_actions_addclosefrom_np(&actions, DECODER_CONTROL + 1);
    failed = posix_spawn(&decoder.pid, decoder.program, &actions, &attributes, arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(ends[1]);
    if (failed) {
        close(ends[0]);
        decoder.pid = 0;
        return error_set(err, ERROR_IO, "the process that reads pictures could not be started: %s", strerror(failed));
    }
    decoder.control = ends[0];
    return OK;
}

/* Under the lock. */
static void decoder_forget(void)
{
    for (int i = 0; i < decoder.spare_count; i++)
        close(decoder.spares[i].socket);
    decoder.spare_count = 0;
    if (decoder.control >= 0)
        close(decoder.control);
    decoder.control = -1;
    if (decoder.pid > 0)
        waitpid(decoder.pid, NULL, 0); /* it ends when its socket closes */
    decoder.pid = 0;
}

/* Sends one datagram with descriptors. */
static bool decoder_send(int to, const void *data, size_t size, const int *fds, int count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control = {0};
    struct iovec part = {(void *)(uintptr_t)data, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, (size_t)count * sizeof(int));
    }
    return sendmsg(to, &message, MSG_NOSIGNAL) == (ssize_t)size;
}

/* Under the lock: asks for one more process. */
static bool decoder_fork(struct decoder_worker *out)
{
    int ends[2];
    if (decoder.control < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return false;
    const struct decoder_order order = {.id = ++decoder.ids, .begin = true};
    const bool sent = decoder_send(decoder.control, &order, sizeof order, &ends[1], 1);
    close(ends[1]);
    *out = (struct decoder_worker){ends[0], order.id};
    if (!sent)
        close(ends[0]);
    return sent;
}

/* Whether nothing has come from it: a spare that died has said so. */
static bool decoder_lives(const struct decoder_worker *worker)
{
    char byte;
    return recv(worker->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* A process for one picture. */
static enum error_code decoder_take(struct decoder_worker *out, struct error *err)
{
    enum error_code code = OK;
    bool found = false;
    pthread_mutex_lock(&decoder.lock);
    while (decoder.spare_count && !found) {
        *out = decoder.spares[--decoder.spare_count];
        if (!(found = decoder_lives(out)))
            close(out->socket);
    }
    if (!found && !(found = decoder_fork(out))) {
        log_event(LOG_ERROR, "decoder", "text=\"the process that reads pictures is gone; it is started again\"");
        decoder_forget();
        code = decoder_spawn(err);
        found = !code && decoder_fork(out);
    }
    pthread_mutex_unlock(&decoder.lock);
    return found ? OK : error_set(err, ERROR_INTERNAL, "there is no process to read the picture");
}

/* When it is no longer in the way: the next pictures need not wait for theirs. */
static void decoder_refill(void)
{
    pthread_mutex_lock(&decoder.lock);
    while (decoder.spare_count < DECODER_SPARES && decoder_fork(&decoder.spares[decoder.spare_count]))
        decoder.spare_count++;
    pthread_mutex_unlock(&decoder.lock);
}

static void decoder_kill(const struct decoder_worker *worker)
{
    const struct decoder_order order = {.id = worker->id};
    pthread_mutex_lock(&decoder.lock);
    if (decoder.control >= 0 && !decoder_send(decoder.control, &order, sizeof order, NULL, 0))
        errno = 0; /* then it is dead, too */
    pthread_mutex_unlock(&decoder.lock);
}

enum error_code decoder_start(const char *program, struct error *err)
{
    struct decoder_worker first;
    pthread_mutex_lock(&decoder.lock);
    snprintf(decoder.program, sizeof decoder.program, "%s", program ? program : "/proc/self/exe");
    enum error_code code = decoder_spawn(err);
    decoder.started = !code;
    if (!code && decoder_fork(&first))
        decoder.spares[decoder.spare_count++] = first;
    pthread_mutex_unlock(&decoder.lock);
    return code;
}

void decoder_stop(void)
{
    pthread_mutex_lock(&decoder.lock);
    decoder_forget();
    decoder.started = false;
    pthread_mutex_unlock(&decoder.lock);
}

/* ---- one picture ------------------------------------------------------------------------------------------------- */

/* A descriptor of the file that can only be read: the file's own opened again, or a copy in memory. */
static int decoder_input(const struct decoder_job *job)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", job->fd);
    int fd = job->fd >= 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0)
        return fd;
    fd = memfd_create("file", MFD_CLOEXEC);
    for (size_t done = 0; fd >= 0 && done < job->size;) {
        const ssize_t count = write(fd, job->bytes + done, job->size - done);
        if (count <= 0) {
            close(fd);
            fd = -1;
        }
        done += count > 0 ? (size_t)count : 0;
    }
    return fd;
}

/* Until it answers or has died; else it is killed. */
static enum error_code decoder_wait(const struct decoder_worker *worker, const struct decoder_job *job,
                                    int64_t patience_ms, struct decoder_answer *answer, struct error *err)
{
    struct pollfd wait = {.fd = worker->socket, .events = POLLIN};
    const double until = log_clock_ms() + (double)patience_ms;
    enum error_code code = OK;
    for (;;) {
        const int ready = poll(&wait, 1, DECODER_POLL_MS);
        if (ready > 0)
            break;
        if (job->check && (code = job->check(job->context, err)))
            break;
        if (log_clock_ms() > until) {
            *answer = (struct decoder_answer){.died = true, .status = SIGXCPU};
            decoder_kill(worker);
            return OK;
        }
    }
    if (code) {
        decoder_kill(worker);
        return code;
    }
    const ssize_t got = recv(worker->socket, answer, sizeof *answer, 0);
    if (got != (ssize_t)sizeof *answer)
        *answer = (struct decoder_answer){.died = true};
    answer->text[sizeof answer->text - 1] = answer->detail[sizeof answer->detail - 1] = 0;
    return OK;
}

static enum error_code decoder_died(const struct decoder_answer *answer, uint64_t seconds, struct error *err)
{
    if (WIFSIGNALED(answer->status) && WTERMSIG(answer->status) == SIGXCPU)
        error_set(err, ERROR_CORRUPT, "this picture cannot be read: that took more than %llu seconds of a processor",
                  (unsigned long long)seconds);
    else
        error_set(err, ERROR_CORRUPT,
                  "this picture cannot be read: the process that read it crashed or needed too much memory; "
                  "the file may be damaged, or made to do harm");
    if (WIFSIGNALED(answer->status))
        error_detail(err, "the decoder died of signal %d", WTERMSIG(answer->status));
    return ERROR_CORRUPT;
}

/* Its answer is as little to be trusted as the file: everything in it is checked. */
static enum error_code decoder_accept(const struct decoder_answer *answer, const struct plane_room *room,
                                      const struct codec_info *info, int *planes, struct image **out, struct error *err)
{
    const int fd = room->fd;
    struct stat status;
    struct image *image;
    if (answer->width != info->width || answer->height != info->height || fstat(fd, &status))
        return error_set(err, ERROR_CORRUPT, "this picture cannot be read: its header promised another size");
    const struct image like = {
        .width = answer->width, .height = answer->height, .channels = answer->channels, .bits = answer->bits};
    enum error_code code = image_map(&image, room, planes, &like, answer->pixels, answer->alpha, err);
    if (code)
        return code;
    image->format = info->format;
    for (int i = 0; i < 2; i++)
        image->density[i] = answer->density[i] > 0 && answer->density[i] < 1e6 ? answer->density[i] : 0;
    image->notes = answer->notes & ((1u << IMAGE_NOTE_COUNT) - 1);
    struct image_blob *blobs[DECODER_BLOBS] = {&image->icc,    &image->exif, &image->xmp,
                                               &image->colour, &image->iptc, &image->cmyk};
    for (int i = 0; !code && i < DECODER_BLOBS; i++) {
        const uint64_t at = answer->blobs[i].at, size = answer->blobs[i].size;
        if (!size)
            continue;
        if (size > DECODER_BLOB_MOST || size > (uint64_t)status.st_size || at > (uint64_t)status.st_size - size)
            code = error_set(err, ERROR_CORRUPT, "this picture cannot be read: its metadata make no sense");
        else if (!(blobs[i]->data = malloc(size)))
            code = error_set(err, ERROR_NO_MEMORY, "out of memory for a picture's metadata (%zu bytes)", (size_t)size);
        else if (pread(fd, blobs[i]->data, size, (off_t)at) != (ssize_t)size)
            code = error_set(err, ERROR_CORRUPT, "this picture cannot be read: its metadata make no sense");
        else
            blobs[i]->size = size;
    }
    if (code && *planes) /* they are the room's */
        image->pixels = image->alpha = NULL;
    if (code)
        image_destroy(&image);
    *out = image;
    return code;
}

static enum error_code decoder_refused(const struct decoder_answer *answer, struct error *err)
{
    switch (answer->code) {
    case ERROR_CORRUPT:
    case ERROR_UNSUPPORTED:
    case ERROR_TOO_LARGE:
    case ERROR_INVALID:
        error_set(err, answer->code, "%s", answer->text);
        error_detail(err, "%s", answer->detail);
        return answer->code;
    case ERROR_NO_MEMORY: /* of its own limit */
        return error_set(err, ERROR_CORRUPT,
                         "this picture cannot be read: that needs more memory than a picture of its size should");
    default:
        return error_set(err, ERROR_INTERNAL, "the picture could not be read");
    }
}

/* The bytes that its planes will take, as far as the header says. */
static uint64_t decoder_bytes(const struct codec_info *info)
{
    const uint64_t plane = (uint64_t)info->width * (uint64_t)info->height * (uint64_t)(info->bits / 8);
    const int colours = info->channels - info->alpha;
    return image_pages_of(plane * (uint64_t)(colours < 3 ? 1 : 3)) + (info->alpha ? image_pages_of(plane) : 0);
}

/* One picture on its way through another process. */
struct decoder_turn {
    struct decoder_worker worker;
    struct decoder_request request;
    struct decoder_answer answer;
    int file; /* with the picture's bytes */
};

/* Sends the request to the worker, and waits for what becomes of it. */
static enum error_code decoder_ask(struct decoder_turn *turn, const struct decoder_job *job, int memory,
                                   struct plane_room *room, struct error *err)
{
    const int64_t patience = (int64_t)turn->request.cpu_seconds * 1000 * DECODER_PATIENCE + DECODER_PATIENCE_MS;
    turn->answer = (struct decoder_answer){.code = ERROR_INTERNAL};
    turn->file = decoder_input(job);
    const int fds[2] = {turn->file, memory};
    if (fds[0] < 0 || fds[1] < 0)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the picture");
    if (!decoder_send(turn->worker.socket, &turn->request, sizeof turn->request, fds, 2)) {
        turn->answer.died = true;
        return OK;
    }
    if (room)
        plane_room_fill(room); /* while the other process reads the file's first rows */
    return decoder_wait(&turn->worker, job, patience, &turn->answer, err);
}

/* Nobody said why the worker died: whoever starts such processes was killed, and they with it. That is no fault of the
 * picture. */
static bool decoder_orphaned(const struct decoder_answer *answer)
{
    return answer->died && !answer->status;
}

/* Has the picture read into that memory (room NULL: a file on a disk) or file. The worker's socket stays open if this
 * is OK. */
static enum error_code decoder_run(struct decoder_turn *turn, const struct decoder_job *job,
                                   const struct codec_info *info, int memory, struct plane_room *room, bool *died,
                                   struct error *err)
{
    const uint64_t all = job->reduced > 1 ? (uint64_t)job->reduced * (uint64_t)job->reduced : 1; /* in the file */
    const uint64_t megapixels = all * (uint64_t)info->width * (uint64_t)info->height / 1000000;
    struct decoder_request *request = &turn->request;
    *request = (struct decoder_request){.size = job->size,
                                        .max_pixels = job->max_pixels,
                                        .cpu_seconds = DECODER_SECONDS + megapixels * DECODER_SECONDS_MP,
                                        .memory = DECODER_MEMORY + (megapixels + 1) * 1000000 * DECODER_MEMORY_PIXEL,
                                        .page = job->page,
                                        .reduced = job->reduced > 1 ? job->reduced : 1,
                                        .salvage = job->salvage,
                                        .disk = !room,
                                        .fault = job->fault};
    if (job->fault == DECODER_HANG)
        request->cpu_seconds = DECODER_HANG_SECONDS;
    enum error_code code = decoder_ask(turn, job, memory, room, err);
    for (int left = DECODER_SPARES; !code && decoder_orphaned(&turn->answer) && left; left--) { /* spares die as well */
        close(turn->file);
        close(turn->worker.socket);
        turn->file = turn->worker.socket = -1;
        code = decoder_take(&turn->worker, err);
        if (!code)
            code = decoder_ask(turn, job, memory, room, err);
    }
    *died = !code && turn->answer.died;
    if (*died)
        code = decoder_died(&turn->answer, request->cpu_seconds, err);
    else if (!code && turn->answer.code)
        code = decoder_refused(&turn->answer, err);
    return code;
}

enum error_code decoder_decode(const struct decoder_job *job, struct image **out, struct codec_info *info,
                               struct codec_damage *damage, bool *died, struct error *err)
{
    struct codec_info own;
    struct decoder_turn turn;
    static const struct codec_damage none;
    *died = false;
    *out = NULL;
    if (!info)
        info = &own;
    if (!decoder.started)
        return codec_decode_page(job->bytes, job->size, job->page, job->max_pixels, out, info,
                                 job->salvage ? damage : NULL, err);
    enum error_code code = codec_probe_page(job->bytes, job->size, job->page, info, err);
    if (!code)
        code = decoder_take(&turn.worker, err);
    if (code)
        return code;
    const uint64_t pixels = (uint64_t)info->width * (uint64_t)info->height;
    struct plane_room *room = plane_room_take(!job->max_pixels || pixels <= job->max_pixels ? decoder_bytes(info) : 0);
    int planes = 0;
    code = decoder_run(&turn, job, info, room ? room->fd : -1, room, died, err);
    if (!code)
        code = decoder_accept(&turn.answer, room, info, &planes, out, err);
    const struct codec_damage *told = &turn.answer.damage;
    const bool damaged = !code && job->salvage && (told->rows == (*out)->height || told->rows == (*out)->width) &&
                         told->good >= 0 && told->good <= told->rows;
    if (damage)
        *damage = damaged ? *told : none;
    if (turn.file >= 0)
        close(turn.file);
    if (!code && planes) {
        plane_room_hold(room, planes, turn.worker.socket);
    } else {
        plane_room_drop(room);
        close(turn.worker.socket);
    }
    decoder_refill();
    return code;
}

/* ---- into a file ------------------------------------------------------------------------------------------------- */

/* Where the planes are; checked as in decoder_accept. What is not there is noticed when it is read. */
static enum error_code decoder_accept_file(const struct decoder_answer *answer, const struct codec_info *info, int file,
                                           struct plane_file *out, struct error *err)
{
    const uint64_t at = answer->blobs[0].at, size = answer->blobs[0].size, most = INT64_MAX / 2;
    if (answer->width != info->width || answer->height != info->height ||
        (answer->channels != 1 && answer->channels != 3) || (answer->bits != 8 && answer->bits != 16) ||
        answer->pixels > most || (answer->alpha > most && answer->alpha != DECODER_NONE) || at > most ||
        size > DECODER_BLOB_MOST)
        return error_set(err, ERROR_CORRUPT, "this picture cannot be read: its header promised another one");
    *out = (struct plane_file){.fd = file,
                               .width = answer->width,
                               .height = answer->height,
                               .channels = answer->channels,
                               .bits = answer->bits,
                               .pixels = answer->pixels,
                               .alpha = answer->alpha == DECODER_NONE ? PLANE_FILE_NONE : answer->alpha};
    if (size && !(out->icc.data = malloc(size)))
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a picture's colour profile");
    out->icc.size = size;
    if (size && pread(file, out->icc.data, size, (off_t)at) != (ssize_t)size) {
        plane_file_clear(out);
        return error_set(err, ERROR_CORRUPT, "this picture cannot be read: its metadata make no sense");
    }
    return OK;
}

/* In this process, for programs that have no other. */
static enum error_code decoder_into_here(const struct decoder_job *job, int file, struct plane_file *out,
                                         struct error *err)
{
    struct image *image = NULL;
    enum error_code code =
        codec_decode_page(job->bytes, job->size, job->page, job->max_pixels, &image, NULL, NULL, err);
    if (code)
        return code;
    const size_t plane = (size_t)image->width * (size_t)image->height * (size_t)(image->bits / 8);
    *out = (struct plane_file){.fd = file,
                               .width = image->width,
                               .height = image->height,
                               .channels = image->channels,
                               .bits = image->bits,
                               .alpha = image->alpha ? plane * (size_t)image->channels : PLANE_FILE_NONE,
                               .icc = image->icc};
    image->icc = (struct image_blob){0};
    if (pwrite(file, image->pixels, plane * (size_t)image->channels, 0) != (ssize_t)(plane * (size_t)image->channels) ||
        (image->alpha && pwrite(file, image->alpha, plane, (off_t)out->alpha) != (ssize_t)plane)) {
        code = error_set(err, ERROR_FULL, "there is no room on the disk for the picture");
        plane_file_clear(out);
    }
    image_destroy(&image);
    return code;
}

enum error_code decoder_decode_into(const struct decoder_job *job, int file, struct plane_file *out, struct error *err)
{
    struct codec_info info;
    struct decoder_turn turn;
    bool died;
    *out = (struct plane_file){.fd = -1};
    enum error_code code = codec_probe_page(job->bytes, job->size, job->page, &info, err);
    if (!code && job->max_pixels && (uint64_t)info.width * (uint64_t)info.height > job->max_pixels)
        code = error_set(err, ERROR_TOO_LARGE, "the picture has %d × %d pixels: too many", info.width, info.height);
    if (!code && decoder.started && info.format == IMAGE_JPEG && job->reduced > 1) {
        info.width = (info.width + job->reduced - 1) / job->reduced;
        info.height = (info.height + job->reduced - 1) / job->reduced;
    }
    /* a process that writes where the disk has no room is ended */
    if (!code && fallocate(file, 0, 0, (off_t)decoder_bytes(&info)) && errno != EOPNOTSUPP)
        code = error_set(err, ERROR_FULL, "there is no room on the disk for the picture: %m");
    if (code || !decoder.started)
        return code ? code : decoder_into_here(job, file, out, err);
    if ((code = decoder_take(&turn.worker, err)))
        return code;
    code = decoder_run(&turn, job, &info, file, NULL, &died, err);
    if (!code)
        code = decoder_accept_file(&turn.answer, &info, file, out, err);
    if (turn.file >= 0)
        close(turn.file);
    close(turn.worker.socket);
    decoder_refill();
    return code;
}
