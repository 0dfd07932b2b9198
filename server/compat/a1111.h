/* Which sizes A1111 makes of a picture; its names and lists of models.
 * Thread-safety: functions without state; the routes as struct request. */
#ifndef SERVER_COMPAT_A1111_H
#define SERVER_COMPAT_A1111_H

#include <stdbool.h>

#include "server/http/request.h"

/* What a request asks for. */
struct a1111_size {
    bool to; /* to width and height (resize_mode 1), else by the factor */
    double by;
    int width, height;
};

/* The size that modules/upscaler.py makes of a picture, int(side·factor // 8 · 8), and how often its loop runs the
 * network of that scale (1 to 3 times). false: nothing would be left of it. */
bool a1111_plan(const struct a1111_size *size, int width, int height, int scale, int *out_width, int *out_height,
                int *runs);

/* What a model is called here that has this name there; other names are the same. */
const char *a1111_ours(const char *theirs);

/* Routes: the lists of models. */
enum MHD_Result a1111_upscalers(struct request *request);
enum MHD_Result a1111_realesrgan_models(struct request *request);
enum MHD_Result a1111_face_restorers(struct request *request);

#endif
