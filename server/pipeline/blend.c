#include "server/pipeline/blend.h"

#include <math.h>

#include "runtime/base/thread.h"

struct blend_work {
    void *to;
    const void *with;
    size_t row; /* samples */
    int bits;
    float share; /* of what is in `to` */
};

static void blend_row(void *context, int y)
{
    const struct blend_work *work = context;
    for (size_t i = (size_t)y * work->row; i < ((size_t)y + 1) * work->row; i++)
        if (work->bits == 16) {
            uint16_t *to = (uint16_t *)work->to + i;
            const float with = ((const uint16_t *)work->with)[i];
            *to = (uint16_t)lrintf(with + work->share * ((float)*to - with));
        } else {
            uint8_t *to = (uint8_t *)work->to + i;
            const float with = ((const uint8_t *)work->with)[i];
            *to = (uint8_t)lrintf(with + work->share * ((float)*to - with));
        }
}

enum error_code blend_result(struct restoration *r, struct error *err)
{
    struct image *to = r->result, *with = r->other;
    if (to->width != with->width || to->height != with->height || to->channels != with->channels ||
        to->bits != with->bits || !to->alpha != !with->alpha)
        return error_set(err, ERROR_INVALID, "the two results differ in size or form, and cannot be blended");
    struct blend_work work = {to->pixels, with->pixels, (size_t)to->width * (size_t)to->channels, to->bits,
                              (float)r->other_share};
    thread_for(to->height, blend_row, &work);
    if (to->alpha) {
        work = (struct blend_work){to->alpha, with->alpha, (size_t)to->width, to->bits, (float)r->other_share};
        thread_for(to->height, blend_row, &work);
    }
    image_destroy(&r->other);
    return OK;
}
