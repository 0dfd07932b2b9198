#include "tests/common/restoration.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/common/shared.h"

struct restoration *restoration_of(struct file *input, const char *picture, const char *const *options)
{
    char path[512];
    struct error err = ERROR_INIT;
    struct restoration *r;
    snprintf(path, sizeof path, "%s/%s", shared_fixtures(), picture);
    file_unmap(input);
    if (restoration_create(&r, &err) || file_map(input, path, &err))
        fail_msg("%s", err.text);
    r->input = input->data;
    r->input_bytes = input->size;
    for (; *options; options += 2)
        if (options_set(&r->options, options[0], options[1], &err))
            fail_msg("%s", err.text);
    return r;
}
