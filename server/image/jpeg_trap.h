/* Turns libjpeg's errors, which arrive by callback and longjmp, into ours. Thread-safety: a trap belongs to one thread
 * at a time. */
#ifndef SERVER_IMAGE_JPEG_TRAP_H
#define SERVER_IMAGE_JPEG_TRAP_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>

#include <jpeglib.h>

#include "runtime/base/error.h"

/* Keep it in a caller of the function that calls setjmp on jump, so that its fields are well defined after the jump. */
struct jpeg_trap {
    struct jpeg_error_mgr manager; /* first: libjpeg hands back a pointer to it */
    jmp_buf jump;
    struct error *err;
    enum error_code code; /* after the jump: of the failure */
    bool lenient;         /* go on after damage; the first damage is kept: */
    int damage;           /* libjpeg's message, 0 for none */
    int scan;             /* where it was, from 1 */
    unsigned mcu_row;     /* the row of blocks */
};

/* For the err field of a libjpeg struct. Damage that libjpeg would only warn about is an error, too. */
struct jpeg_error_mgr *jpeg_trap_set(struct jpeg_trap *trap, struct error *err);

#endif
