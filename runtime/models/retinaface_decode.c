#include "runtime/models/retinaface_decode.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#define DECODE_VARIANCE_CENTER 0.1f
#define DECODE_VARIANCE_SIZE 0.2f

struct decode_list {
    struct face_box *items;
    size_t count, capacity;
};

static enum error_code decode_append(struct decode_list *list, const struct face_box *face, struct error *err)
{
    if (list->count == list->capacity) {
        size_t wanted = list->capacity ? list->capacity * 2 : 64;
        struct face_box *bigger = realloc(list->items, wanted * sizeof *bigger);
        if (!bigger)
            return error_set(err, ERROR_NO_MEMORY, "out of memory for %zu faces", wanted);
        list->items = bigger;
        list->capacity = wanted;
    }
    list->items[list->count++] = *face;
    return OK;
}

/* Box and landmarks of one anchor. value(c): channel c of the map at this cell. cx, cy, side: the anchor, relative to
 * the picture. */
static void decode_anchor(struct face_box *face, const float *cell, size_t plane, int anchor, float cx, float cy,
                          float sx, float sy, int h, int w)
{
    const float *loc = cell + (size_t)(4 + anchor * 4) * plane, *points = cell + (size_t)(12 + anchor * 10) * plane;
    float x = cx + loc[0] * DECODE_VARIANCE_CENTER * sx, y = cy + loc[plane] * DECODE_VARIANCE_CENTER * sy;
    float bw = sx * expf(loc[2 * plane] * DECODE_VARIANCE_SIZE), bh = sy * expf(loc[3 * plane] * DECODE_VARIANCE_SIZE);
    face->box[0] = (x - bw / 2) * (float)w;
    face->box[1] = (y - bh / 2) * (float)h;
    face->box[2] = (x - bw / 2 + bw) * (float)w;
    face->box[3] = (y - bh / 2 + bh) * (float)h;
    for (int p = 0; p < 5; p++) {
        face->landmarks[p][0] = (cx + points[(size_t)(2 * p) * plane] * DECODE_VARIANCE_CENTER * sx) * (float)w;
        face->landmarks[p][1] = (cy + points[(size_t)(2 * p + 1) * plane] * DECODE_VARIANCE_CENTER * sy) * (float)h;
    }
}

static int decode_order(const void *a, const void *b)
{
    float x = ((const struct face_box *)a)->score, y = ((const struct face_box *)b)->score;
    return x < y ? 1 : x > y ? -1 : 0;
}

static float decode_area(const float box[4])
{
    return (box[2] - box[0] + 1) * (box[3] - box[1] + 1); /* pixels counted inclusively, as py_cpu_nms does */
}

static float decode_overlap(const float a[4], const float b[4])
{
    float w = fminf(a[2], b[2]) - fmaxf(a[0], b[0]) + 1, h = fminf(a[3], b[3]) - fmaxf(a[1], b[1]) + 1;
    float shared = fmaxf(0, w) * fmaxf(0, h);
    return shared / (decode_area(a) + decode_area(b) - shared);
}

/* Keeps the first of every group of overlapping faces; the list is sorted by score. */
static size_t decode_suppress(struct face_box *faces, size_t count, float nms)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        bool keep = true;
        for (size_t k = 0; k < kept && keep; k++)
            keep = decode_overlap(faces[k].box, faces[i].box) <= nms;
        if (keep)
            faces[kept++] = faces[i];
    }
    return kept;
}

enum error_code retinaface_decode(const float *const maps[3], int h, int w, const float min_sizes[3][2],
                                  float threshold, float nms, struct face_box **faces, size_t *count, struct error *err)
{
    struct decode_list list = {0};
    enum error_code code = OK;
    for (int level = 0; level < 3 && !code; level++) {
        int stride = 8 << level, rows = (h + stride - 1) / stride, columns = (w + stride - 1) / stride;
        size_t plane = (size_t)rows * (size_t)columns;
        for (size_t i = 0; i < plane * 2 && !code; i++) { /* cell by cell, its two anchors in turn */
            size_t at = i / 2;
            int anchor = (int)(i % 2);
            const float *cell = maps[level] + at;
            float background = cell[(size_t)(2 * anchor) * plane], foreground = cell[(size_t)(2 * anchor + 1) * plane];
            struct face_box face = {.score = 1 / (1 + expf(background - foreground))};
            if (!(face.score > threshold))
                continue;
            float cx = ((float)(at % (size_t)columns) + 0.5f) * (float)stride / (float)w;
            float cy = ((float)(at / (size_t)columns) + 0.5f) * (float)stride / (float)h;
            float size = min_sizes[level][anchor];
            decode_anchor(&face, cell, plane, anchor, cx, cy, size / (float)w, size / (float)h, h, w);
            code = decode_append(&list, &face, err);
        }
    }
    if (code) {
        free(list.items);
        list = (struct decode_list){0};
    } else if (list.count) {
        qsort(list.items, list.count, sizeof *list.items, decode_order);
        list.count = decode_suppress(list.items, list.count, nms);
    }
    *faces = list.items;
    *count = list.count;
    return code;
}
