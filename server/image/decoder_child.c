#include "server/image/decoder_child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/thread.h"

#define CHILD_MOST 256
#define CHILD_THREADS 8 /* libjpeg's parts want no more */
#define CHILD_STACK ((size_t)2 << 20)

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define CHILD_SANITIZED 1 /* they need address space, files and stderr */
#else
#define CHILD_SANITIZED 0
#endif

/* ---- what a process that decodes may call ------------------------------------------------------------------------ */

#if defined __x86_64__
#define CHILD_ARCH AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define CHILD_ARCH AUDIT_ARCH_AARCH64
#endif

/* Memory, threads, clocks, and the descriptors that it has. */
static const int child_allowed[] = {
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_close,
    SYS_fstat,
    SYS_lseek,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    SYS_futex,
    SYS_sched_yield,
    SYS_getpid,
    SYS_gettid,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_exit,
    SYS_exit_group,
    SYS_recvmsg,
    SYS_sendmsg,
    SYS_ftruncate,
    SYS_fallocate,
    SYS_getrandom,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_membarrier,
    SYS_getrusage,
    SYS_clock_getres,
    SYS_gettimeofday,
    SYS_clock_gettime,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_sched_getaffinity,
    SYS_restart_syscall,
};
#define CHILD_ALLOWED (sizeof child_allowed / sizeof *child_allowed)

/* The low half of an argument: all of these machines are little-endian. */
#define CHILD_ARGUMENT(i) ((unsigned)offsetof(struct seccomp_data, args[i]))

struct child_filter {
    struct sock_filter program[2 * CHILD_ALLOWED + 64];
    unsigned short used;
};

static void child_add(struct child_filter *filter, struct sock_filter line)
{
    filter->program[filter->used++] = line;
}

static void child_return(struct child_filter *filter, unsigned what)
{
    child_add(filter, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what));
}

/* Allows a call if an argument and mask is value, or, if other, is not. Unused where there is no filter. */
__attribute__((unused)) static void child_allow_if(struct child_filter *filter, int call, int argument, unsigned mask,
                                                   unsigned value, bool other)
{
    child_add(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 5));
    child_add(filter, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, CHILD_ARGUMENT(argument)));
    child_add(filter, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask));
    child_add(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, other, !other));
    child_return(filter, SECCOMP_RET_ALLOW);
    child_return(filter, SECCOMP_RET_ERRNO | EPERM);
}

/* Everything else is refused with an error: what a library tries beside, such as reading /sys, it can do without. */
static bool child_enter_filter(void)
{
#if CHILD_SANITIZED
    return true;
#elif defined CHILD_ARCH
    struct child_filter filter = {.used = 0};
    child_add(&filter, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)));
    child_add(&filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CHILD_ARCH, 1, 0));
    child_return(&filter, SECCOMP_RET_KILL_PROCESS);
    child_add(&filter, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    for (size_t i = 0; i < CHILD_ALLOWED; i++) {
        child_add(&filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)child_allowed[i], 0, 1));
        child_return(&filter, SECCOMP_RET_ALLOW);
    }
    /* glibc goes on with clone where there is no clone3, whose flags a filter cannot see */
    child_add(&filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1));
    child_return(&filter, SECCOMP_RET_ERRNO | ENOSYS);
    child_allow_if(&filter, SYS_clone, 0, 0x00010000u, 0x00010000u, false); /* CLONE_THREAD */
    child_allow_if(&filter, SYS_mmap, 2, PROT_EXEC, 0, false);
    child_allow_if(&filter, SYS_mprotect, 2, PROT_EXEC, 0, false);
    child_allow_if(&filter, SYS_newfstatat, 3, AT_EMPTY_PATH, AT_EMPTY_PATH, false); /* glibc's fstat */
    child_allow_if(&filter, SYS_tgkill, 0, ~0u, (unsigned)getpid(), false);
    child_allow_if(&filter, SYS_prlimit64, 0, ~0u, 0, false);
    child_allow_if(&filter, SYS_prctl, 0, ~0u, PR_SET_NAME, false);
    child_return(&filter, SECCOMP_RET_ERRNO | EPERM);
    const struct sock_fprog program = {.len = filter.used, .filter = filter.program};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
#else
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); /* limits alone */
#endif
}

static void child_limit(int what, uint64_t most)
{
    const struct rlimit limit = {most, most + (what == RLIMIT_CPU)};
    setrlimit((__rlimit_resource_t)what, &limit);
}

/* ---- the one that decodes ---------------------------------------------------------------------------------------- */

static void child_nothing(void *context, int item)
{
    (void)context;
    (void)item;
}

/* Bytes of address space that it has already. */
static uint64_t child_space(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file && fscanf(file, "%llu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Everything that can be done before there is a picture. */
static bool child_prepare(uint64_t *space)
{
    pthread_attr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGXFSZ, SIG_IGN);
    prctl(PR_SET_NAME, "restored-decode");
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() == 1)
        return false;
    thread_give_way();
    /* when memory is short, the kernel takes these first */
    const int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (score >= 0) {
        if (write(score, "1000", 4) != 4)
            errno = 0; /* it stays as it is */
        close(score);
    }
    child_limit(RLIMIT_CORE, 0);
    child_limit(RLIMIT_NOFILE, 16);
    mallopt(M_ARENA_MAX, 2);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, CHILD_STACK);
    pthread_setattr_default_np(&attributes);
    thread_set_count(thread_count() < CHILD_THREADS ? thread_count() : CHILD_THREADS);
    thread_for(thread_count(), child_nothing, NULL);
    *space = child_space();
    if (!CHILD_SANITIZED) { /* libraries that complain there would fill the server's log */
        const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (null < 0 || dup2(null, STDERR_FILENO) < 0)
            return false;
    }
    return child_enter_filter();
}

static bool child_receive(int from, struct decoder_request *request, int fds[2])
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec part = {request, sizeof *request};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got;
    do
        got = recvmsg(from, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (got != (ssize_t)sizeof *request || !header || header->cmsg_len != CMSG_LEN(2 * sizeof(int)))
        return false;
    memcpy(fds, CMSG_DATA(header), 2 * sizeof(int));
    return true;
}

static void child_fault(enum decoder_fault fault)
{
    for (volatile unsigned turn = 0; fault == DECODER_HANG;)
        turn++;
    if (fault == DECODER_CRASH)
        raise(SIGSEGV);
    for (size_t i = 0; fault == DECODER_BOMB; i++) {
        char *block = malloc((size_t)64 << 20);
        if (!block)
            abort();
        block[i % 4096] = 1;
    }
}

static void child_fill(struct decoder_answer *answer, const struct image *image)
{
    const struct image_blob *blobs[DECODER_BLOBS] = {&image->icc,    &image->exif, &image->xmp,
                                                     &image->colour, &image->iptc, &image->cmyk};
    answer->width = image->width;
    answer->height = image->height;
    answer->channels = image->channels;
    answer->bits = image->bits;
    answer->notes = image->notes;
    memcpy(answer->density, image->density, sizeof answer->density);
    answer->pixels = image_shared_at(image->pixels);
    answer->alpha = image->alpha ? image_shared_at(image->alpha) : DECODER_NONE;
    for (int i = 0; i < DECODER_BLOBS; i++) {
        answer->blobs[i].size = blobs[i]->size;
        if (blobs[i]->size && !image_share_bytes(blobs[i]->data, blobs[i]->size, &answer->blobs[i].at))
            answer->code = ERROR_NO_MEMORY;
    }
}

static int child_work(int socket)
{
    struct decoder_request request;
    struct decoder_answer answer = {.code = ERROR_INTERNAL};
    struct error err = ERROR_INIT;
    struct image *image = NULL;
    uint64_t space;
    int fds[2];
    if (!child_prepare(&space) || !child_receive(socket, &request, fds))
        return 0;
    child_limit(RLIMIT_CPU, request.cpu_seconds); /* SIGXCPU, which says why it died; SIGKILL a second later */
    if (!CHILD_SANITIZED) {
        child_limit(RLIMIT_AS, space + request.memory + request.size);
        child_limit(RLIMIT_FSIZE, request.memory);
    }
    void *bytes = mmap(NULL, request.size, PROT_READ, MAP_PRIVATE, fds[0], 0);
    if (bytes != MAP_FAILED) {
        image_share(fds[1], request.disk);
        codec_read_reduced(request.reduced);
        child_fault(request.fault);
        answer.code = codec_decode_page(bytes, request.size, request.page, request.max_pixels, &image, &answer.info,
                                        request.salvage ? &answer.damage : NULL, &err);
        if (!answer.code)
            child_fill(&answer, image);
        snprintf(answer.text, sizeof answer.text, "%s", err.text);
        snprintf(answer.detail, sizeof answer.detail, "%s", err.detail);
    }
    struct iovec part = {&answer, sizeof answer};
    const struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    return sendmsg(socket, &message, MSG_NOSIGNAL) < 0;
}

/* ---- the one that forks ------------------------------------------------------------------------------------------ */

static struct {
    pid_t pid; /* 0: free */
    int socket;
    uint64_t id;
} child_list[CHILD_MOST];

static void child_begin(uint64_t id, int socket, int control, int signals)
{
    int i = 0;
    while (i < CHILD_MOST && child_list[i].pid)
        i++;
    const pid_t pid = i < CHILD_MOST ? fork() : -1;
    if (pid == 0) {
        close(control);
        close(signals);
        for (int k = 0; k < CHILD_MOST; k++)
            if (child_list[k].pid)
                close(child_list[k].socket);
        _exit(child_work(socket));
    }
    if (pid < 0) {
        close(socket); /* its other end notices */
        return;
    }
    child_list[i].pid = pid;
    child_list[i].socket = socket;
    child_list[i].id = id;
}

/* Tells of each that has ended how, unless it has answered. */
static void child_reap(void)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        for (int i = 0; i < CHILD_MOST; i++) {
            if (child_list[i].pid != pid)
                continue;
            const struct decoder_answer answer = {.died = true, .status = status, .code = ERROR_INTERNAL};
            if (status && send(child_list[i].socket, &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
                errno = 0; /* nobody waits for it */
            close(child_list[i].socket);
            child_list[i].pid = 0;
        }
}

/* false: the server has ended. */
static bool child_obey(int control, int signals)
{
    struct decoder_order order;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } space;
    struct iovec part = {&order, sizeof order};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &space, .msg_controllen = sizeof space};
    const ssize_t got = recvmsg(control, &message, MSG_CMSG_CLOEXEC);
    if (got != (ssize_t)sizeof order)
        return got < 0 && errno == EINTR;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int socket;
    if (order.begin && header && header->cmsg_len == CMSG_LEN(sizeof socket)) {
        memcpy(&socket, CMSG_DATA(header), sizeof socket);
        child_begin(order.id, socket, control, signals);
    }
    for (int i = 0; i < CHILD_MOST && !order.begin; i++)
        if (child_list[i].pid && child_list[i].id == order.id)
            kill(child_list[i].pid, SIGKILL); /* not reaped yet, so nobody else has its number */
    return true;
}

int decoder_child_main(void)
{
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE}; /* the server decides when to end */
    sigset_t ended;
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    sigemptyset(&ended);
    sigaddset(&ended, SIGCHLD);
    sigprocmask(SIG_SETMASK, &ended, NULL);
    const int signals = signalfd(-1, &ended, SFD_CLOEXEC | SFD_NONBLOCK);
    struct stat status;
    if (signals < 0 || fstat(DECODER_CONTROL, &status) || !S_ISSOCK(status.st_mode) ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return 2;
    struct pollfd wait[2] = {{.fd = DECODER_CONTROL, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
    for (bool on = true; on;) {
        struct signalfd_siginfo info;
        if (poll(wait, 2, -1) < 0 && errno != EINTR)
            break;
        while (read(signals, &info, sizeof info) > 0)
            ;
        child_reap();
        if (wait[0].revents)
            on = child_obey(DECODER_CONTROL, signals);
    }
    for (int i = 0; i < CHILD_MOST; i++)
        if (child_list[i].pid)
            kill(child_list[i].pid, SIGKILL);
    return 0;
}
