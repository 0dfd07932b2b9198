/* Takes from this process what a server does not need, so that whoever gets to run code in it (by a flaw in a decoder,
 * say) gets little: no_new_privs; a seccomp filter against programs, other processes, mounts, modules and the like;
 * and, where the kernel has Landlock, files: only what is named here can be read or written, nothing can be executed,
 * and no TCP connection can be opened to elsewhere but to the ports that are named. Thread-safety: sandbox_enter by the
 * main thread; seccomp holds for all threads, Landlock for those that start later. */
#ifndef SERVER_SANDBOX_H
#define SERVER_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/error.h"

struct sandbox;

enum error_code sandbox_create(struct sandbox **out, struct error *err) MUST_CHECK;
void sandbox_destroy(struct sandbox **sandbox);

/* A folder in which files may be read, or also written. One that does not exist is left out. "" and NULL: nothing. */
void sandbox_add_read(struct sandbox *sandbox, const char *folder);
void sandbox_add_write(struct sandbox *sandbox, const char *folder);

/* The folder of a file, and that of the file which it is a link to, so that it can be replaced and read again. */
void sandbox_add_file(struct sandbox *sandbox, const char *path);

/* A TCP port to which connections may be opened. */
void sandbox_add_port(struct sandbox *sandbox, unsigned port);

/* The files of GPUs and their drivers. */
void sandbox_add_devices(struct sandbox *sandbox);

/* Enters it for good. landlock: the kernel's version of it, 0: it has none. outside: threads that run already, which
 * Landlock does not hold for. ERROR_IO: the kernel has no seccomp filters either. */
enum error_code sandbox_enter(const struct sandbox *sandbox, int *landlock, int *outside, struct error *err) MUST_CHECK;

#endif
