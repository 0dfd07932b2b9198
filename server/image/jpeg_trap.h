/* libjpeg's errors as ours: it reports by calling back and longjmp. Thread-safety: a trap belongs to one thread at a
 * time. */
#ifndef SERVER_IMAGE_JPEG_TRAP_H
#define SERVER_IMAGE_JPEG_TRAP_H

#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

#include "runtime/base/error.h"

/* Lies in a caller of the function that calls setjmp on jump, so that its fields are well defined after the jump. */
struct jpeg_trap {
    struct jpeg_error_mgr manager; /* first: libjpeg hands back a pointer to it */
    jmp_buf jump;
    struct error *err;
    enum error_code code; /* after the jump: of the failure */
};

/* For the err field of a libjpeg struct. Damage that libjpeg would only warn of is an error, too. */
struct jpeg_error_mgr *jpeg_trap_set(struct jpeg_trap *trap, struct error *err);

#endif
