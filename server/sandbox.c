#include "server/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/mem.h"

#define SANDBOX_RULES 128

/* Of newer kernels than Debian 12's headers know. */
#define SANDBOX_TRUNCATE (UINT64_C(1) << 14) /* version 3 */
#define SANDBOX_PORTS 64
#define SANDBOX_RULE_PORT 2                    /* LANDLOCK_RULE_NET_PORT of version 4 */
#define SANDBOX_CONNECT_TCP (UINT64_C(1) << 1) /* version 4, of handled_access_net */
#define SANDBOX_READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define SANDBOX_WRITE                                                                                                  \
    (SANDBOX_READ | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |   \
     LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REFER | SANDBOX_TRUNCATE)
#define SANDBOX_OF_FILES                                                                                               \
    (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_EXECUTE | SANDBOX_TRUNCATE)
#define SANDBOX_ALL ((UINT64_C(1) << 15) - 1) /* execute and every kind of making, too */

struct sandbox {
    struct {
        int fd; /* O_PATH; held, because a rule for /proc/self ends when the kernel forgets that folder */
        uint64_t access;
        dev_t device;
        ino_t inode;
    } rules[SANDBOX_RULES];
    int count;
    uint64_t ports[SANDBOX_PORTS];
    int port_count;
};

/* struct landlock_ruleset_attr of version 4. */
struct sandbox_attributes {
    uint64_t files, net;
};
/* struct landlock_net_port_attr of version 4. */
struct sandbox_port_rule {
    uint64_t access, port;
};

static void sandbox_add(struct sandbox *sandbox, const char *path, uint64_t access)
{
    struct stat status;
    if (!path || !*path || sandbox->count == SANDBOX_RULES)
        return;
    const int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return;
    bool known = fstat(fd, &status) != 0;
    for (int i = 0; i < sandbox->count && !known; i++)
        known = sandbox->rules[i].device == status.st_dev && sandbox->rules[i].inode == status.st_ino &&
                (sandbox->rules[i].access & access) == access;
    if (known) {
        close(fd);
        return;
    }
    sandbox->rules[sandbox->count].device = status.st_dev;
    sandbox->rules[sandbox->count].inode = status.st_ino;
    sandbox->rules[sandbox->count].fd = fd;
    sandbox->rules[sandbox->count++].access = S_ISDIR(status.st_mode) ? access : access & SANDBOX_OF_FILES;
}

void sandbox_add_port(struct sandbox *sandbox, unsigned port)
{
    if (sandbox->port_count < SANDBOX_PORTS)
        sandbox->ports[sandbox->port_count++] = port;
}

void sandbox_add_read(struct sandbox *sandbox, const char *folder)
{
    sandbox_add(sandbox, folder, SANDBOX_READ);
}

void sandbox_add_write(struct sandbox *sandbox, const char *folder)
{
    sandbox_add(sandbox, folder, SANDBOX_WRITE);
}

static void sandbox_add_parent(struct sandbox *sandbox, const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!slash)
        sandbox_add_read(sandbox, ".");
    else if (slash > path && snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path) < PATH_MAX)
        sandbox_add_read(sandbox, folder);
}

void sandbox_add_file(struct sandbox *sandbox, const char *path)
{
    char real[PATH_MAX];
    if (!path || !*path)
        return;
    sandbox_add_parent(sandbox, path);
    if (realpath(path, real) && strcmp(real, path) != 0)
        sandbox_add_parent(sandbox, real);
}

void sandbox_add_devices(struct sandbox *sandbox)
{
    sandbox_add(sandbox, "/dev", SANDBOX_WRITE);
    sandbox_add_read(sandbox, "/proc/driver");
    sandbox_add_read(sandbox, "/opt"); /* drivers that come with their own libraries */
}

enum error_code sandbox_create(struct sandbox **out, struct error *err)
{
    /* What libraries open: shared objects and their data, the settings of getaddrinfo and of Vulkan's loader, and what
     * the kernel says of the machine and of this process. */
    static const char *const read[] = {"/usr",
                                       "/lib",
                                       "/lib64",
                                       "/sys",
                                       "/proc/self",
                                       "/proc/cpuinfo",
                                       "/proc/meminfo",
                                       "/proc/stat",
                                       "/proc/uptime",
                                       "/proc/sys/vm",
                                       "/proc/sys/kernel/random",
                                       "/proc/pressure",
                                       "/dev/urandom",
                                       "/dev/random",
                                       "/dev/zero",
                                       "/etc/ld.so.cache",
                                       "/etc/nsswitch.conf",
                                       "/etc/hosts",
                                       "/etc/host.conf",
                                       "/etc/resolv.conf",
                                       "/etc/gai.conf",
                                       "/etc/services",
                                       "/etc/localtime",
                                       "/etc/gnutls",
                                       "/etc/ssl/certs",
                                       "/etc/vulkan",
                                       "/etc/drirc"};
    struct sandbox *sandbox = *out = mem_calloc(1, sizeof *sandbox);
    if (!sandbox)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the sandbox");
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        sandbox_add_read(sandbox, read[i]);
    sandbox_add(sandbox, "/dev/null", SANDBOX_WRITE);
    return OK;
}

void sandbox_destroy(struct sandbox **sandbox)
{
    struct sandbox *old = *sandbox;
    *sandbox = NULL;
    if (!old)
        return;
    for (int i = 0; i < old->count; i++)
        close(old->rules[i].fd);
    free(old);
}

/* ---- Landlock ---------------------------------------------------------------------------------------------------- */

static int sandbox_landlock_version(void)
{
    const long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    return version > 0 ? (int)version : 0;
}

static enum error_code sandbox_enter_landlock(const struct sandbox *sandbox, int version, struct error *err)
{
    struct sandbox_attributes attributes = {.files = SANDBOX_ALL, .net = SANDBOX_CONNECT_TCP};
    if (version < 3)
        attributes.files &= ~SANDBOX_TRUNCATE;
    if (version < 2)
        attributes.files &= ~(uint64_t)LANDLOCK_ACCESS_FS_REFER;
    const size_t size = version < 4 ? sizeof attributes.files : sizeof attributes;
    const int rules = (int)syscall(SYS_landlock_create_ruleset, &attributes, size, 0);
    if (rules < 0)
        return error_set(err, ERROR_IO, "sandbox: Landlock: %m");
    enum error_code code = OK;
    for (int i = 0; !code && i < sandbox->count; i++) {
        const struct landlock_path_beneath_attr rule = {.allowed_access = sandbox->rules[i].access & attributes.files,
                                                        .parent_fd = sandbox->rules[i].fd};
        /* EBADFD: a pipe or the like, which needs no rule */
        if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) && errno != EBADFD)
            code = error_set(err, ERROR_IO, "sandbox: Landlock: %m");
    }
    for (int i = 0; !code && version >= 4 && i < sandbox->port_count; i++) {
        const struct sandbox_port_rule rule = {SANDBOX_CONNECT_TCP, sandbox->ports[i]};
        if (syscall(SYS_landlock_add_rule, rules, SANDBOX_RULE_PORT, &rule, 0))
            code = error_set(err, ERROR_IO, "sandbox: Landlock: %m");
    }
    if (!code && syscall(SYS_landlock_restrict_self, rules, 0))
        code = error_set(err, ERROR_IO, "sandbox: Landlock: %m");
    close(rules);
    return code;
}

/* ---- seccomp ----------------------------------------------------------------------------------------------------- */

#if defined __x86_64__
#define SANDBOX_ARCH AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define SANDBOX_ARCH AUDIT_ARCH_AARCH64
#endif

/* What a server never does. EPERM instead of death: a library that tries goes on without. */
static const int sandbox_denied[] = {
    /* programs and other processes */
    SYS_execve,
    SYS_execveat,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    SYS_pidfd_getfd,
    SYS_process_madvise,
    /* another view of the system, and its mounts */
    SYS_unshare,
    SYS_setns,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_move_mount,
    SYS_open_tree,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_mount_setattr,
    SYS_name_to_handle_at,
    SYS_open_by_handle_at,
    SYS_swapon,
    SYS_swapoff,
    SYS_quotactl,
    SYS_mknodat,
    /* the kernel and the machine */
    SYS_kexec_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_reboot,
    SYS_syslog,
    SYS_acct,
    SYS_personality,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_adjtimex,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_vhangup,
    /* keys, and other users' rights */
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_setuid,
    SYS_setgid,
    SYS_setreuid,
    SYS_setregid,
    SYS_setresuid,
    SYS_setresgid,
    SYS_setfsuid,
    SYS_setfsgid,
    SYS_setgroups,
    SYS_capset,
#ifdef SYS_kexec_file_load
    SYS_kexec_file_load,
#endif
#ifdef __x86_64__
    SYS_iopl,
    SYS_ioperm,
    SYS_modify_ldt,
    SYS_mknod,
#endif
};
#define SANDBOX_DENIED (sizeof sandbox_denied / sizeof *sandbox_denied)

static enum error_code sandbox_enter_seccomp(struct error *err)
{
#ifdef SANDBOX_ARCH
    enum { HEAD = 5 };
    struct sock_filter program[HEAD + 2 * SANDBOX_DENIED + 1] = {
        /* another architecture's calls have other numbers */
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SANDBOX_ARCH, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        /* x32 has them once more from here on, elsewhere there are none so high: on to the first refusal below */
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 1, 0),
    };
    const struct sock_filter refuse = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    size_t used = HEAD;
    for (size_t i = 0; i < SANDBOX_DENIED; i++) {
        program[used++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)sandbox_denied[i], 0, 1);
        program[used++] = refuse;
    }
    program[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_fprog filter = {.len = (unsigned short)used, .filter = program};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter))
        return error_set(err, ERROR_IO, "sandbox: the kernel takes no seccomp filter: %m");
    return OK;
#else
    return error_set(err, ERROR_IO, "sandbox: there is no seccomp filter for this architecture");
#endif
}

/* Threads of this process but for this one. */
static int sandbox_other_threads(void)
{
    int count = -1;
    DIR *folder = opendir("/proc/self/task");
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        count += *entry->d_name != '.';
    if (folder)
        closedir(folder);
    return count > 0 ? count : 0;
}

enum error_code sandbox_enter(const struct sandbox *sandbox, int *landlock, int *outside, struct error *err)
{
    *outside = sandbox_other_threads();
    *landlock = sandbox_landlock_version();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return error_set(err, ERROR_IO, "sandbox: no_new_privs: %m");
    enum error_code code = *landlock ? sandbox_enter_landlock(sandbox, *landlock, err) : OK;
    return code ? code : sandbox_enter_seccomp(err);
}
