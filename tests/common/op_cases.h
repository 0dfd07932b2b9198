/* Cases of operators on every device against the plain C oracle: fp32 to 1e-5 of the output's range, fp16 to a mean of
 * 1e-3 and a maximum of 1e-2. Each case is run twice, and must give the same bytes. Convolutions without matrices run
 * with each kernel and some of its tiles, whichever the device would choose (each case by every second of them; by all
 * if RESTORED_FULL is 1), and the CPU device with each instruction set. Vulkan's validation layer must have nothing to
 * say.
 * Thread-safety: none; for test programs, which have one thread. */
#ifndef TESTS_COMMON_OP_CASES_H
#define TESTS_COMMON_OP_CASES_H

#include <stddef.h>

#include "runtime/nn/op.h"

enum {
    BIAS = 1,
    RESIDUAL1 = 2,
    RESIDUAL2 = 4,
    IN_SCALE = 8,
    OUT_SCALE = 16,
    NOISE_MAP = 32,
    CONSTANT = 64,          /* x and the noise map are constants */
    INSIDE = 128,           /* x and y are segments in the middle of wider tensors */
    IN_PLACE = 256,         /* y is x */
    OTHER_SEGMENTS = 512,   /* residuals are one segment, however y is divided */
    RESIDUAL_INSIDE = 1024, /* residuals alone are segments in the middle of wider tensors */
    LARGER = 2048,          /* ADD's residual1 or SCALE_SHIFT's x has 3 px more on each side */
    SINGLE = 4096           /* residual1 is of one pixel */
};

struct op_case {
    const char *name;
    enum op_kind kind;
    int n, h, w;       /* of x; of y for noise */
    int in[4], out[4]; /* segments of x and y; out may be absent where it follows from x */
    int out_h, out_w;  /* resize */
    unsigned parts;
    union op_args args;
};

/* Runs all cases in all ways on all devices of this machine; a cmocka test fails where one does not agree. */
void op_cases_run(const struct op_case *cases, size_t count);

#endif
