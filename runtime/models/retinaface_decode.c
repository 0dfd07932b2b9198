#include "runtime/models/retinaface_decode.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "runtime/base/mem.h"

#define DECODE_VARIANCE_CENTER 0.1f
#define DECODE_VARIANCE_SIZE 0.2f

/* An anchor that may be a face. */
struct decode_candidate {
    float score;
    uint32_t cell; /* of its level */
    uint8_t level, anchor;
};

/* The best so far, as a heap whose first is the worst of them. */
struct decode_list {
    struct decode_candidate *items; /* RETINAFACE_CANDIDATES */
    size_t count;
};

/* By score, then in the order of the maps. */
static int decode_order(const void *a, const void *b)
{
    const struct decode_candidate *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    if (x->level != y->level)
        return x->level > y->level ? 1 : -1;
    if (x->cell != y->cell)
        return x->cell > y->cell ? 1 : -1;
    return (x->anchor > y->anchor) - (x->anchor < y->anchor);
}

static void decode_swap(struct decode_candidate *a, struct decode_candidate *b)
{
    const struct decode_candidate kept = *a;
    *a = *b;
    *b = kept;
}

static void decode_keep(struct decode_list *list, const struct decode_candidate *candidate)
{
    struct decode_candidate *heap = list->items;
    size_t at = list->count;
    if (at < RETINAFACE_CANDIDATES) {
        heap[list->count++] = *candidate;
        for (; at > 0 && decode_order(&heap[at], &heap[(at - 1) / 2]) > 0; at = (at - 1) / 2)
            decode_swap(&heap[at], &heap[(at - 1) / 2]);
        return;
    }
    if (decode_order(candidate, &heap[0]) > 0)
        return;
    heap[0] = *candidate;
    for (at = 0;;) {
        size_t worst = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < list->count; child++)
            worst = decode_order(&heap[child], &heap[worst]) > 0 ? child : worst;
        if (worst == at)
            return;
        decode_swap(&heap[at], &heap[worst]);
        at = worst;
    }
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

struct decode_level {
    int stride, columns;
    size_t plane;
};

static struct decode_level decode_level(int level, int h, int w)
{
    struct decode_level out = {.stride = 8 << level};
    out.columns = (w + out.stride - 1) / out.stride;
    out.plane = (size_t)((h + out.stride - 1) / out.stride) * (size_t)out.columns;
    return out;
}

/* Cell by cell, its two anchors in turn. */
static void decode_find(struct decode_list *list, const float *map, int level, size_t plane, float threshold)
{
    for (size_t i = 0; i < plane * 2; i++) {
        const size_t at = i / 2, anchor = i % 2;
        const float background = map[2 * anchor * plane + at], foreground = map[(2 * anchor + 1) * plane + at];
        const struct decode_candidate candidate = {.score = 1 / (1 + expf(background - foreground)),
                                                   .cell = (uint32_t)at,
                                                   .level = (uint8_t)level,
                                                   .anchor = (uint8_t)anchor};
        if (candidate.score > threshold)
            decode_keep(list, &candidate);
    }
}

enum error_code retinaface_decode(const float *const maps[3], int h, int w, const float min_sizes[3][2],
                                  float threshold, float nms, struct face_box **faces, size_t *count, struct error *err)
{
    struct decode_list list = {.items = mem_alloc(RETINAFACE_CANDIDATES, sizeof *list.items)};
    *faces = NULL;
    *count = 0;
    if (!list.items)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for faces");
    for (int level = 0; level < 3; level++)
        decode_find(&list, maps[level], level, decode_level(level, h, w).plane, threshold);
    *faces = list.count ? mem_alloc(list.count, sizeof **faces) : NULL;
    if (list.count && !*faces) {
        free(list.items);
        return error_set(err, ERROR_NO_MEMORY, "out of memory for %zu faces", list.count);
    }
    qsort(list.items, list.count, sizeof *list.items, decode_order);
    for (size_t i = 0; i < list.count; i++) {
        const struct decode_candidate *c = &list.items[i];
        const struct decode_level l = decode_level(c->level, h, w);
        const float cx = ((float)(c->cell % (size_t)l.columns) + 0.5f) * (float)l.stride / (float)w,
                    cy = ((float)(c->cell / (size_t)l.columns) + 0.5f) * (float)l.stride / (float)h,
                    size = min_sizes[c->level][c->anchor];
        (*faces)[i].score = c->score;
        decode_anchor(&(*faces)[i], maps[c->level] + c->cell, l.plane, c->anchor, cx, cy, size / (float)w,
                      size / (float)h, h, w);
    }
    free(list.items);
    *count = decode_suppress(*faces, list.count, nms);
    return OK;
}
