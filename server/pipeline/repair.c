#include "server/pipeline/repair.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/image/text_page.h"

/* Scans larger than this show the same damage wider, and blur its edge over more pixels. */
#define REPAIR_LARGE 2000

/* Levels (defect.h): 110 is a probability of 0.25, 130 of 0.53, 150 of 0.8, 160 of 0.88, 170 of 0.93, 185 of 0.97.
 * What is sure of a good part of a defect keeps the picture's own lines out; how much and how sure differs by kind, and
 * by size: what is large and of which little is sure is a fence, an animal's coat or a wall. The rules were chosen on
 * photos and damage that the test does not have: models/training/README.md has what they find and mark. Huge things
 * that are no damage stayed below 0.4 (thin lines) and 0.65 (others) there. */
static const struct defect_rule repair_sure = {
    .kinds = {{114, 172, 0.42f, 0.4f}, {134, 159, 0.55f, 0.7f}, {130, 160, 0.7f, 0.65f}, {114, 165, 0.55f, 0.55f}},
    .sure = 0.35f,
    .large = 0.001f,
    .huge = 0.01f,
    .least = 8};
/* Damage seldom comes alone: where a speck or two thin lines are sure, less sure specks count, too. */
static const struct defect_rule repair_dusty = {
    .kinds = {{114, 172, 0.42f, 0.4f}, {134, 159, 0.55f, 0.7f}, {130, 155, 0.6f, 0.65f}, {114, 165, 0.55f, 0.55f}},
    .sure = 0.35f,
    .large = 0.001f,
    .huge = 0.01f,
    .least = 8};
static const struct defect_rule repair_many = {
    .kinds = {{114, 154, 0.35f, 0.4f}, {134, 154, 0.5f, 0.7f}, {130, 150, 0.85f, 0.65f}, {114, 159, 0.5f, 0.5f}},
    .sure = 0.5f,
    .large = 0.001f,
    .huge = 0.01f,
    .least = 6};
/* A print that is damaged all over: what is as likely as not counts, and so does a line's fainter part (94: 0.11). */
static const struct defect_rule repair_worn = {
    .kinds = {{94, 134, 0.35f, 0.25f}, {124, 154, 0.5f, 0.5f}, {112, 124, 0.3f, 0.5f}, {114, 139, 0.3f, 0.5f}},
    .sure = 0.2f,
    .large = 0.001f,
    .huge = 0.01f,
    .least = 3};
/* And so does a line of which two fifths have a probability of 0.012 (58), if it is long and straight; or of 0.035
 * (75), where what is less likely joins it to others. */
#define REPAIR_LINE(low, high)                                                                                         \
    {                                                                                                                  \
        .kinds = {{low, high, 0.4f, 0.4f}, {255, 255, 1, 1}, {255, 255, 1, 1}, {255, 255, 1, 1}}, .sure = 0.4f,        \
        .large = 1, .least = 30, .more = true, .line = true                                                            \
    }
static const struct defect_rule repair_lines[] = {REPAIR_LINE(50, 75), REPAIR_LINE(30, 58)};
/* repair=true: somebody says that there is damage, but none is sure. Where some is, repair_many adds to it: what is
 * less likely is then more often the picture's own. */
static const struct defect_rule repair_all = {
    .kinds = {{114, 154, 0.2f, 0.2f}, {124, 154, 0.2f, 0.2f}, {130, 150, 0.5f, 0.5f}, {114, 159, 0.5f, 0.5f}},
    .sure = 0.2f,
    .large = 0.002f,
    .least = 6};
/* What is sure counts although it lies in something larger of which too little is: a scratch in a net of others, specks
 * in a cloud. What is huge even so does not: of nothing are twice as many pixels sure. */
#define REPAIR_NEVER 2
static const struct defect_rule repair_core = {.kinds = {{154, 179, 0.5f, REPAIR_NEVER},
                                                         {194, 204, 0.3f, REPAIR_NEVER},
                                                         {160, 170, 0.5f, REPAIR_NEVER},
                                                         {154, 184, 0.4f, REPAIR_NEVER}},
                                               .sure = 0.5f,
                                               .large = 0.001f,
                                               .huge = 0.01f,
                                               .least = 100,
                                               .more = true};
/* For detectors that know no kinds, as the authors of BOPBTL have it: all that is likelier than 0.4. */
static const struct defect_rule repair_likely = {
    .kinds = {{122, 122, 0, 0}, {122, 122, 0, 0}, {122, 122, 0, 0}, {122, 122, 0, 0}}, .large = 1, .least = 1};

/* What lies this near to a defect and is this likely belongs to it: a defect's sides are less sure than its middle. */
#define REPAIR_SPREAD 1
#define REPAIR_SPREAD_FROM 110

/* What goes on from a crack, so far, and is this likely is not sure enough to be repaired, but the filler would go on
 * with it, too: it is not shown that. Of thin lines it does so less, and hiding more of the picture cost as much. */
#define REPAIR_FOLLOW 32
#define REPAIR_FOLLOW_FROM 95

/* With that many sure specks of dust, others than dust, and thin lines among these, less sure defects count, too. The
 * first that fits. Lines alone say little of other kinds: a map or a fence has many. */
static const struct repair_stage {
    int dust, others, thin;
    const struct defect_rule *rule;
} repair_stages[] = {
    {4, 1, 0, &repair_worn}, {5, 0, 0, &repair_many}, {0, 0, 2, &repair_dusty}, {1, 0, 0, &repair_dusty}};

bool repair_wanted(const struct step *step)
{
    const struct restoration *r = step->r;
    return !r->repaired && (step->model[ROLE_DAMAGE] || r->mask || r->damage_only);
}

/* Of a large picture too much would be kept, and what is done with it takes longer than new pages do. */
#define REPAIR_KEPT ((size_t)32 << 20)

void *repair_take_room(const struct step *step, size_t *bytes)
{
    const bool kept = step->context && *bytes <= REPAIR_KEPT;
    return kept ? device_take_room(step->context->device, bytes) : mem_alloc(*bytes, 1);
}

void repair_keep_room(const struct step *step, void *room, size_t bytes)
{
    if (room && step->context && bytes <= REPAIR_KEPT)
        device_keep_room(step->context->device, room, bytes);
    else
        free(room);
}

/* The stage's rule for a picture in which that much is sure; NULL: it is a sign of no more. */
static const struct defect_rule *repair_less_sure(const struct defect_counts *counts)
{
    const int dust = counts->defects[DEFECT_DUST], thin = counts->defects[DEFECT_THIN];
    int others = -dust;
    for (int k = 0; k < DEFECT_KINDS; k++)
        others += counts->defects[k];
    for (size_t i = 0; i < sizeof repair_stages / sizeof repair_stages[0]; i++)
        if (dust >= repair_stages[i].dust && others >= repair_stages[i].others && thin >= repair_stages[i].thin)
            return repair_stages[i].rule;
    return NULL;
}

static bool repair_any(const struct defect_counts *counts)
{
    bool any = false;
    for (int k = 0; k < DEFECT_KINDS; k++)
        any = any || counts->defects[k];
    return any;
}

/* What shines through a page of text looks like lines, and dots like dust: a few are no sign of damage there. */
static bool repair_page(const struct image *picture, const uint8_t *level, const struct defect_rule *stage)
{
    return stage != &repair_worn && stage != &repair_many && text_page(picture, level, REPAIR_SPREAD_FROM);
}

/* Defects by the rules for a detector that knows kinds. */
static enum error_code repair_judge(const struct restoration *r, const struct defect_map *map, uint8_t *mask,
                                    struct defect_counts *counts, struct error *err)
{
    const bool all = r->options.repair == REPAIR_TRUE;
    enum error_code code = defect_find(map, &repair_sure, mask, counts, err);
    const struct defect_rule *stage = repair_less_sure(counts);
    struct defect_rule asked = repair_any(counts) ? repair_many : repair_all;
    asked.more = true;
    if (code == OK && stage)
        code = defect_find(map, stage, mask, counts, err);
    if (code == OK && all && stage != &repair_worn)
        code = defect_find(map, &asked, mask, counts, err);
    for (size_t i = 0; i < sizeof repair_lines / sizeof repair_lines[0] && code == OK && stage == &repair_worn; i++)
        code = defect_find(map, &repair_lines[i], mask, counts, err);
    if (code == OK && counts->highest >= repair_core.kinds[DEFECT_THIN].low) /* the least that it asks for */
        code = defect_find(map, &repair_core, mask, counts, err);
    if (code == OK && !all && repair_any(counts) && repair_page(r->picture, map->level, stage)) {
        memset(mask, 0, (size_t)map->width * (size_t)map->height);
        *counts = (struct defect_counts){0};
    }
    return code;
}

/* Kinds that are not to be repaired are as if they had not been found. */
static void repair_leave(const struct restoration *r, uint8_t *mask, struct defect_counts *counts)
{
    const size_t pixels = (size_t)r->picture->width * (size_t)r->picture->height;
    const unsigned kinds = r->options.repair_kinds;
    for (size_t i = 0; kinds != DEFECT_ALL && (i = defect_clear(mask, i, pixels)) < pixels; i++)
        mask[i] = mask[i] && kinds & 1u << (mask[i] - 1) ? mask[i] : 0;
    for (int k = 0; k < DEFECT_KINDS; k++)
        counts->defects[k] = kinds & 1u << k ? counts->defects[k] : 0;
}

/* Grows what is found, since a defect's edges are soft. grown: its copy gets what may go on from cracks, too. spare: as
 * large as the mask. */
static enum error_code repair_widen(const struct defect_map *map, bool kinds, bool cracks, uint8_t *mask,
                                    uint8_t *spare, struct defect_grown *grown, struct error *err)
{
    const int width = map->width, height = map->height, grow = width > REPAIR_LARGE || height > REPAIR_LARGE ? 2 : 1;
    enum error_code code = OK;
    const uint8_t *from = mask;
    for (int left = grow + (kinds ? REPAIR_SPREAD : 0); left > 0 && code == OK; left--) {
        const bool likely = left > grow;
        uint8_t *to = left == 1 ? mask : left == 2 ? spare : grown->copy;
        if (to == from)
            from = memcpy(spare, from, (size_t)width * (size_t)height);
        code = defect_grow(from, to, likely ? map->level : NULL, REPAIR_SPREAD_FROM, width, height,
                           left == 1 ? grown : NULL, err);
        from = to;
    }
    if (code == OK && cracks)
        code = defect_follow(mask, 1 + DEFECT_CRACK, map->level, REPAIR_FOLLOW_FROM, REPAIR_FOLLOW, width, height,
                             grown->copy, err);
    return code;
}

static void repair_shares(struct restoration *r, const uint64_t counts[DEFECT_GIVEN + 1])
{
    const double pixels = (double)r->picture->width * r->picture->height;
    uint64_t all = counts[DEFECT_GIVEN];
    for (int k = 0; k < DEFECT_KINDS; k++) {
        r->damage.shares[k] = (double)counts[1 + k] / pixels;
        all += counts[1 + k];
    }
    r->damage.share = (double)all / pixels;
    r->damage.given = counts[DEFECT_GIVEN] > 0;
}

/* Finds defects; *any: there are some, else both masks are empty. unknown: a mask, and room for as many bytes twice. */
static enum error_code repair_look(struct step *step, uint8_t *mask, uint8_t *unknown, bool *any, struct error *err)
{
    struct restoration *r = step->r;
    const int width = r->picture->width, height = r->picture->height;
    const size_t pixels = (size_t)width * (size_t)height;
    const bool kinds = step->model[ROLE_DAMAGE]->info.classes > 1;
    uint8_t *level = unknown + pixels, *kind = level + pixels;
    struct defect_counts counts = {0};
    struct defect_grown grown = {.copy = unknown};
    enum error_code code = repair_find(step, r->picture, 0, level, kind, err);
    const struct defect_map map = {.width = width, .height = height, .level = level, .kind = kind};
    if (code == OK)
        code =
            kinds ? repair_judge(r, &map, mask, &counts, err) : defect_find(&map, &repair_likely, mask, &counts, err);
    if (code == OK && kinds && repair_any(&counts) && repair_is_screen(r->picture)) {
        code = repair_find_halved(step, level, unknown, err);
        code = code == OK ? repair_judge(r, &map, mask, &counts, err) : code;
    }
    if (code == OK)
        repair_leave(r, mask, &counts);
    *any = repair_any(&counts);
    if (code == OK && *any)
        code = repair_widen(&map, kinds, kinds && counts.defects[DEFECT_CRACK], mask, kind, &grown, err);
    else
        memset(unknown, 0, pixels);
    repair_shares(r, grown.counts);
    r->damage.looked = code == OK;
    memcpy(r->damage.defects, counts.defects, sizeof counts.defects);
    return code;
}

/* Which grays of a mask that was sent are white. One that says a kind is not where that is left alone. */
static void repair_whites(const struct restoration *r, bool white[256])
{
    for (int v = 0; v < 256; v++)
        white[v] = v >= 128;
    for (int k = 0; k < DEFECT_KINDS; k++)
        white[defect_grays[1 + k]] = r->options.repair_kinds & 1u << k;
}

/* What a mask's gray says: a kind of defect, or no more than that there is one. */
static uint8_t repair_kind_of(uint8_t gray)
{
    uint8_t kind = 1;
    while (kind < DEFECT_GIVEN && defect_grays[kind] != gray)
        kind++;
    return kind;
}

/* How many of the found defects of a kind hang together in the mask, if all count or those that are not all white.
 * room: for three bytes a pixel. */
static enum error_code repair_groups(const struct restoration *r, const uint8_t *mask, const bool white[256], int kind,
                                     bool all, uint8_t *room, int *count, struct error *err)
{
    const size_t pixels = (size_t)r->picture->width * (size_t)r->picture->height;
    const uint8_t *sent = r->mask->pixels;
    struct defect_rule rule = {.large = 1, .least = 1};
    struct defect_counts counts;
    for (int k = 0; k < DEFECT_KINDS; k++) {
        rule.kinds[k].low = 1;
        rule.kinds[k].high = all ? 1 : 2;
    }
    for (size_t i = 0; i < pixels; i++)
        room[i] = mask[i] != 1 + kind ? 0 : white[sent[i]] ? 1 : 2;
    memset(room + pixels, 0, pixels);
    const struct defect_map map = {r->picture->width, r->picture->height, room, room + pixels};
    const enum error_code code = defect_find(&map, &rule, room + 2 * pixels, &counts, err);
    *count = code == OK ? counts.defects[0] : 0;
    return code;
}

/* With mask_mode=remove, defects that are left alone count no longer. Those that have grown together are left alone
 * together. */
static enum error_code repair_discount(struct restoration *r, const uint8_t *mask, const bool white[256],
                                       struct error *err)
{
    uint8_t *room = NULL;
    enum error_code code = OK;
    for (int k = 0; k < DEFECT_KINDS && code == OK; k++) {
        int before = 0, after = 0, *own = &r->damage.defects[k];
        if (!*own)
            continue;
        if (!room && !(room = mem_alloc((size_t)r->picture->width * (size_t)r->picture->height, 3)))
            return error_set(err, ERROR_NO_MEMORY, "out of memory for a mask");
        code = repair_groups(r, mask, white, k, true, room, &before, err);
        if (code == OK)
            code = repair_groups(r, mask, white, k, false, room, &after, err);
        const int left = *own - (before - after);
        *own = !after ? 0 : left > 1 ? left : 1;
    }
    free(room);
    return code;
}

/* What is found and what was sent become one mask, which is counted; what was sent is known as what it was sent for. */
static enum error_code repair_combine(struct restoration *r, uint8_t *mask, uint8_t *unknown, struct error *err)
{
    const size_t pixels = (size_t)r->picture->width * (size_t)r->picture->height;
    const uint8_t *sent = r->mask->pixels;
    uint64_t counts[DEFECT_GIVEN + 1];
    bool white[256], any = false;
    enum error_code code = OK;
    repair_whites(r, white);
    if (r->options.mask_mode == MASK_REMOVE)
        code = repair_discount(r, mask, white, err);
    for (size_t i = 0; i < pixels; i++)
        if (white[sent[i]]) {
            any = true;
            mask[i] = r->options.mask_mode == MASK_REMOVE ? 0 : mask[i] ? mask[i] : DEFECT_GIVEN;
            unknown[i] = mask[i];
        }
    defect_count(mask, r->picture->width, r->picture->height, counts);
    repair_shares(r, counts);
    r->damage.sent = true;
    for (size_t i = 0; i < pixels; i++) /* a stain that was sent back is repaired as one, but was not found */
        if (mask[i] == DEFECT_GIVEN)
            mask[i] = unknown[i] = repair_kind_of(sent[i]);
    if (!any)
        restoration_note(r, "empty-mask", "nothing of the mask is white, so nothing was filled or left out by it");
    return code;
}

/* Where nothing is known, there is nothing to fill from: a mask that says so is refused, and what is found is left
 * alone. */
static enum error_code repair_unfillable(struct restoration *r, uint8_t *mask, bool *any, struct error *err)
{
    const size_t pixels = (size_t)r->picture->width * (size_t)r->picture->height;
    const uint8_t *sent = r->mask ? r->mask->pixels : NULL;
    bool white[256];
    size_t count = 0;
    repair_whites(r, white);
    for (size_t i = 0; i < pixels && sent; i++)
        count += white[sent[i]];
    if (count == pixels)
        return error_set(err, ERROR_INVALID, "mask: all of it is white, so nothing is left to fill the picture from");
    restoration_note(r, "all-damaged",
                     "all of the picture was taken for damage, and nothing is left to fill it from: nothing was "
                     "repaired");
    memset(mask, 0, pixels);
    memset(r->damage.defects, 0, sizeof r->damage.defects);
    repair_shares(r, (const uint64_t[DEFECT_GIVEN + 1]){0});
    *any = false;
    return OK;
}

struct show_loop {
    struct image *mask;
    bool kinds;
};

static void repair_show_band(void *context, int item)
{
    const struct show_loop *loop = context;
    int begin, end;
    thread_band(loop->mask->height, item, &begin, &end);
    const size_t width = (size_t)loop->mask->width, count = (size_t)(end - begin) * width;
    uint8_t *v = (uint8_t *)loop->mask->pixels + (size_t)begin * width;
    if (loop->kinds)
        for (size_t i = 0; i < count; i++)
            v[i] = defect_grays[v[i]];
    else
        for (size_t i = 0; i < count; i++) /* this vectorises */
            v[i] = v[i] ? 255 : 0;
}

/* The mask as others get it: white where it was filled, or a gray for each kind. */
static void repair_show(struct image *mask, bool kinds)
{
    struct show_loop loop = {mask, kinds};
    thread_for(thread_bands(mask->height), repair_show_band, &loop);
}

/* Through how much of the picture nothing is seen, 0 to 1. */
static double repair_opaque(const struct image *image)
{
    const size_t pixels = (size_t)image->width * (size_t)image->height;
    const uint8_t *a8 = image->alpha;
    const uint16_t *a16 = image->alpha;
    size_t opaque = image->alpha ? 0 : pixels;
    for (size_t i = 0; image->alpha && i < pixels; i++)
        opaque += image->bits == 16 ? a16[i] == 65535 : a8[i] == 255;
    return (double)opaque / (double)pixels;
}

/* A picture with less than that, such as a logo, is nobody's photo. */
#define REPAIR_PHOTO 0.75

/* A picture whose sides are both shorter is an icon: the detector takes a disc in it for a spot. */
#define REPAIR_LEAST 64

/* Whether the picture is left alone: an icon, or one with transparency, which is no print, and whose shapes end as
 * sharply as tears do. Of the latter, who may have expected a repair is told. */
static bool repair_alone(const struct step *step)
{
    struct restoration *r = step->r;
    const unsigned kinds = r->options.repair_kinds;
    const double opaque = r->options.repair == REPAIR_AUTO ? repair_opaque(r->picture) : 1;
    const bool asked = r->damage_only || r->mask || kinds != DEFECT_ALL;
    if (opaque < 1 && step->model[ROLE_DAMAGE] && kinds && (asked || opaque >= REPAIR_PHOTO))
        restoration_note(r, "transparent",
                         "the picture has transparency: repair=auto leaves it alone, and repair=true repairs it");
    const bool icon = r->picture->width < REPAIR_LEAST && r->picture->height < REPAIR_LEAST;
    return opaque < 1 || (icon && r->options.repair == REPAIR_AUTO);
}

/* Fills what is damaged, before anything else looks at the picture. */
enum error_code repair_step(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    if (r->options.repair == REPAIR_TRUE && !step->model[ROLE_DAMAGE] && !r->mask && !r->options.compat)
        restoration_note(r, "no-damage-detector", "no damage detector is installed or chosen: nothing was repaired");
    if (r->options.repair == REPAIR_TRUE && r->options.compat)
        restoration_note(r, "compat-unrepaired",
                         "compat=true repairs nothing, as the original program: repair=true was ignored");
    if (!repair_wanted(step))
        return OK;
    memset(&r->damage, 0, sizeof r->damage); /* what an earlier attempt found */
    static atomic_uint_fast64_t numbers;
    step->repairing = atomic_fetch_add(&numbers, 1) + 1;
    const bool alone = repair_alone(step);
    const bool gpu = step_on_gpu(step);
    if (gpu)
        thread_keep_awake(true);
    bool any = false;
    struct image *found = NULL; /* until nothing can fail, another attempt may need the mask that was sent */
    enum error_code code = image_create(&found, r->picture->width, r->picture->height, 1, 8, false, err);
    const size_t pixels = (size_t)r->picture->width * (size_t)r->picture->height;
    size_t room = 3 * pixels;
    uint8_t *mask = code == OK ? found->pixels : NULL, *unknown = repair_take_room(step, &room);
    if (code == OK && !unknown)
        code = error_set(err, ERROR_NO_MEMORY, "out of memory for a mask");
    if (code == OK && step->model[ROLE_DAMAGE] && !alone) {
        code = repair_look(step, mask, unknown, &any, err);
    } else if (code == OK) {
        memset(mask, 0, pixels);
        memset(unknown, 0, pixels);
    }
    if (code == OK && r->mask)
        code = repair_combine(r, mask, unknown, err);
    if (code == OK && !r->damage_only && !memchr(unknown, 0, pixels))
        code = repair_unfillable(r, mask, &any, err);
    if (code == OK && r->damage.share > 0 && !r->damage_only)
        code = repair_fill(step, mask, unknown, r->options.repair_strength, err);
    repair_keep_room(step, unknown, room);
    if (code == OK) {
        if (any || r->mask)
            repair_show(found, r->options.mask_kinds);
        image_destroy(&r->mask);
        r->mask = found;
    } else {
        image_destroy(&found);
    }
    if (gpu)
        thread_keep_awake(false);
    r->repaired = code == OK;
    return code;
}
