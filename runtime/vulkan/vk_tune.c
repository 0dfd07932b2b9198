#include "runtime/vulkan/vk_tune.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/switches.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/vulkan/vk_command.h"
#include "runtime/vulkan/vk_direct.h"
#include "runtime/vulkan/vk_matrix.h"
#include "runtime/vulkan/vk_tiled.h"
#include "runtime/vulkan/vk_timer.h"

#define ROUNDS 3 /* each tile is timed this often in turn, and its best time counts */
/* Multiply-accumulates of a timing: a fraction of a millisecond on a fast device. */
#define ROUND_WORK 40000000000u
#define ROUND_WORK_SHARED 4000000000u /* of a device that shares the host's memory, and so is slow */
#define MAX_REPEAT 32
#define WARM_MS 20
#define MAX_TILES 40 /* of a family */
#define SLOW 2       /* times as long as the best: not timed again */
#define FEW 14       /* log2 of the number of pixels up to which the number of workgroups matters */
#define LARGEST 18   /* above it they are all alike */
#define BATCH 4      /* convolutions whose tiles are compiled together, on all cores */

static const struct vk_tune_family *const families[VK_TUNE_KIND_COUNT] = {
    [VK_TUNE_MATRIX] = &vk_matrix_family,          [VK_TUNE_TILED_F16] = &vk_tiled_family,
    [VK_TUNE_TILED_F32] = &vk_tiled_family,        [VK_TUNE_DIRECT] = &vk_direct_family,
    [VK_TUNE_MATRIX_F32] = &vk_matrix_fp32_family,
};

struct entry {
    struct vk_tune_key key;
    union vk_tile tile;
};

struct vk_tunes {
    struct entry *list;
    size_t count, capacity;
    bool changed;
    char file[1024]; /* empty: none */
};

static struct entry *tune_find(const struct vk_tunes *tunes, const struct vk_tune_key *key)
{
    for (size_t i = 0; i < tunes->count; i++)
        if (memcmp(&tunes->list[i].key, key, sizeof *key) == 0)
            return &tunes->list[i];
    return NULL;
}

/* The tile of the nearest size for which there is one. */
static const struct entry *tune_find_like(const struct vk_device *device, const struct vk_tune_key *key)
{
    const struct vk_tunes *tunes = device->tunes;
    const struct entry *nearest = NULL;
    uint32_t least = UINT32_MAX;
    for (size_t i = 0; i < tunes->count; i++) {
        struct vk_tune_key like = tunes->list[i].key;
        const uint32_t apart = like.size > key->size ? like.size - key->size : key->size - like.size;
        like.size = key->size;
        if (apart < least && memcmp(&like, key, sizeof like) == 0 &&
            families[key->family]->fits(device, key, &tunes->list[i].tile)) {
            nearest = &tunes->list[i];
            least = apart;
        }
    }
    return nearest;
}

static enum error_code tune_add(struct vk_tunes *tunes, const struct vk_tune_key *key, const union vk_tile *tile,
                                struct error *err)
{
    if (tunes->count == tunes->capacity) {
        const size_t capacity = tunes->capacity * 2 + 32;
        struct entry *grown = realloc(tunes->list, capacity * sizeof *grown);
        if (!grown)
            return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
        tunes->list = grown;
        tunes->capacity = capacity;
    }
    tunes->list[tunes->count++] = (struct entry){*key, *tile};
    return OK;
}

uint32_t vk_tune_size(const struct vk_operand *y)
{
    uint32_t size = 0;
    while (size < LARGEST && (uint64_t)y->n * y->h * y->w > UINT64_C(1) << size)
        size += size < FEW ? 1 : 2;
    return size;
}

bool vk_tune_find(const struct vk_device *device, const struct vk_tune_key *key, union vk_tile *out)
{
    const struct vk_tune_family *family = families[key->family];
    const char *forced = switches_get(SWITCH_VULKAN_TILE);
    const size_t number = *forced ? strtoul(forced, NULL, 10) : family->count;
    if (number < family->count && family->fits(device, key, &family->tiles[number])) {
        *out = family->tiles[number];
        return true;
    }
    const struct entry *entry = tune_find(device->tunes, key), *like = entry ? NULL : tune_find_like(device, key);
    if (entry || like) {
        *out = entry ? entry->tile : like->tile;
        return entry != NULL;
    }
    size_t guess = 0;
    while (guess + 1 < family->count && !family->fits(device, key, &family->tiles[guess]))
        guess++;
    *out = family->tiles[guess];
    return false;
}

void vk_tune_apply(const union vk_tile *tile, struct vk_dispatch *dispatch)
{
    families[dispatch->tune.family]->apply(tile, dispatch);
}

/* --- the file ------------------------------------------------------------------------------------------------------
 * A line a convolution: the numbers of its key and those of its tile. */

static const char head[] = "restored-tiles 8\n";

static bool tune_known(const struct vk_tune_family *family, const union vk_tile *tile)
{
    for (size_t i = 0; i < family->count; i++)
        if (memcmp(tile, &family->tiles[i], sizeof *tile) == 0)
            return true;
    return false;
}

/* Reads `count` numbers; returns what follows them, or NULL. */
static const char *tune_read_numbers(const char *text, uint32_t *out, size_t count)
{
    int used = 0;
    for (size_t i = 0; i < count; i++, text += used)
        if (sscanf(text, "%u%n", &out[i], &used) != 1)
            return NULL;
    return text;
}

static enum error_code tune_read_lines(struct vk_device *device, const char *text, struct error *err)
{
    struct vk_tune_key k;
    union vk_tile t;
    enum error_code code = OK;
    while (code == OK && (text = tune_read_numbers(text, &k.kernel, sizeof k / sizeof k.kernel)) != NULL &&
           (text = tune_read_numbers(text, t.number, sizeof t / sizeof t.number[0])) != NULL)
        if (k.family < VK_TUNE_KIND_COUNT && tune_known(families[k.family], &t) && k.kernel >= 1 && k.kernel < 32 &&
            k.stride >= 1 && k.stride < 16 && families[k.family]->fits(device, &k, &t) && !tune_find(device->tunes, &k))
            code = tune_add(device->tunes, &k, &t, err);
    return code;
}

/* Adds what is in the file but not in the list. */
static enum error_code tune_read_file(struct vk_device *device, struct error *err)
{
    struct error ignored = ERROR_INIT;
    struct file file = {0};
    enum error_code code = OK;
    if (!device->tunes->file[0] || file_map(&file, device->tunes->file, &ignored) != OK)
        return OK;
    char *text = mem_alloc(file.size + 1, 1);
    if (text) {
        memcpy(text, file.data ? file.data : (const uint8_t *)"", file.size);
        text[file.size] = 0;
        if (strncmp(text, head, sizeof head - 1) == 0)
            code = tune_read_lines(device, text + sizeof head - 1, err);
    }
    free(text);
    file_unmap(&file);
    return code;
}

enum error_code vk_tune_create(struct vk_device *device, const char *cache_dir, struct error *err)
{
    struct vk_tunes *tunes = device->tunes = mem_calloc(1, sizeof *tunes);
    if (!tunes)
        return error_set(err, ERROR_NO_MEMORY, "out of memory to open %s", device->traits.info.name);
    if (cache_dir) {
        const int length = snprintf(tunes->file, sizeof tunes->file, "%s/vulkan-%s-%08x.tiles", cache_dir,
                                    device->traits.info.uuid, device->traits.driver_version);
        if (length < 0 || (size_t)length >= sizeof tunes->file)
            tunes->file[0] = 0;
    }
    return tune_read_file(device, err);
}

void vk_tune_destroy(struct vk_device *device)
{
    if (device->tunes)
        free(device->tunes->list);
    free(device->tunes);
    device->tunes = NULL;
}

/* Keeps what other processes have added meanwhile. */
static void tune_save(struct vk_device *device)
{
    struct vk_tunes *tunes = device->tunes;
    struct error err = ERROR_INIT;
    char *text = NULL;
    size_t size = 0;
    if (!tunes->changed || !tunes->file[0])
        return;
    tunes->changed = false;
    if (tune_read_file(device, &err) != OK)
        error_clear(&err);
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return;
    fputs(head, out);
    for (size_t i = 0; i < tunes->count; i++) {
        const struct entry *entry = &tunes->list[i];
        const uint32_t *key = &entry->key.kernel;
        for (size_t k = 0; k < sizeof entry->key / sizeof *key; k++)
            fprintf(out, "%u ", key[k]);
        for (size_t k = 0; k < sizeof entry->tile / sizeof entry->tile.number[0]; k++)
            fprintf(out, " %u", entry->tile.number[k]);
        fputc('\n', out);
    }
    if (fclose(out) == 0) {
        char folder[sizeof tunes->file];
        memcpy(folder, tunes->file, sizeof folder);
        *strrchr(folder, '/') = 0;
        if (file_make_folders(folder, 0777, &err) != OK || file_write(tunes->file, text, size, &err) != OK)
            log_event(LOG_WARN, "tiles-not-written", "reason=\"%s\"", err.text);
    }
    free(text);
}

/* --- measuring -----------------------------------------------------------------------------------------------------
 */

/* Records the dispatch `repeat` times, one after the other, between two stamps. */
static enum error_code tune_record(struct vk_device *device, const struct vk_dispatch *dispatch, VkDescriptorSet set,
                                   int repeat, struct vk_timer *timer, VkCommandBuffer *out, struct error *err)
{
    const VkPipelineLayout layout = vk_pipeline_layout(device);
    const uint32_t widest = device->traits.limits.maxComputeWorkGroupCount[0];
    const uint32_t groups = dispatch->groups[0] < widest ? dispatch->groups[0] : widest; /* a part is as good */
    const VkPipeline pipeline = vk_pipeline_trial(device, &dispatch->key);
    enum error_code code = pipeline ? vk_command_begin(device, out, err) : OK;
    if (code != OK || !pipeline)
        return code;
    vk_timer_reset(timer, *out);
    vkCmdBindPipeline(*out, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    vkCmdBindDescriptorSets(*out, VK_PIPELINE_BIND_POINT_COMPUTE, layout, 0, 1, &set, 0, NULL);
    vkCmdPushConstants(*out, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof dispatch->push, &dispatch->push);
    vk_timer_stamp(timer, *out, -1);
    for (int i = 0; i < repeat; i++) {
        vkCmdDispatch(*out, groups, dispatch->groups[1], dispatch->groups[2]);
        vk_command_barrier(*out);
    }
    vk_timer_stamp(timer, *out, 0);
    return vk_command_end(device, *out, err);
}

struct trial {
    const union vk_tile *tile;
    struct vk_timer timer;
    VkCommandBuffer commands; /* NULL: it does not compile */
    double ms;                /* the best, of all repeats */
};

/* An idle device has a low clock and would prefer other tiles. */
static enum error_code tune_warm_up(struct vk_device *device, const struct trial *trial, struct error *err)
{
    const double until = log_clock_ms() + WARM_MS;
    enum error_code code = OK;
    do
        code = vk_command_run(device, &trial->commands, 1, NULL, err);
    while (code == OK && log_clock_ms() < until);
    return code;
}

/* warm: the device was at work until now. */
static enum error_code tune_run_trials(struct vk_device *device, struct trial *trials, int count, bool warm,
                                       struct error *err)
{
    enum error_code code = OK;
    double best = -1;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < count && code == OK; i++) {
            if (!trials[i].commands || (round > 0 && (trials[i].ms < 0 || trials[i].ms > SLOW * best)))
                continue;
            if (!warm)
                code = tune_warm_up(device, &trials[i], err);
            warm = true;
            if (code == OK)
                code = vk_command_run(device, &trials[i].commands, 1, NULL, err);
            const double ms = code == OK ? vk_timer_read(&trials[i].timer, device, NULL) : -1;
            if (ms >= 0 && (trials[i].ms < 0 || ms < trials[i].ms))
                trials[i].ms = ms;
            if (ms >= 0 && (best < 0 || ms < best))
                best = ms;
        }
    }
    return code;
}

bool vk_tune_measures(const struct vk_device *device)
{
    return device->traits.limits.timestampComputeAndGraphics && device->traits.info.type != DEVICE_SOFTWARE;
}

/* Whether to measure a tile for such a convolution. */
static bool tune_wanted(const struct vk_device *device, const struct vk_tune_key *key, size_t tile)
{
    const struct vk_tune_family *family = families[key->family];
    return tile + 1 < family->count && family->fits(device, key, &family->tiles[tile]);
}

/* Whether the dispatch has tiles to measure. */
static bool tune_unknown(const struct vk_device *device, const struct vk_dispatch *dispatch)
{
    union vk_tile ignored;
    return dispatch->tune.kernel != 0 && vk_tune_measures(device) && !vk_tune_find(device, &dispatch->tune, &ignored);
}

static enum error_code tune_measure(struct vk_device *device, const struct vk_dispatch *dispatch, VkDescriptorSet set,
                                    bool warm, struct error *err)
{
    const struct vk_tune_key *key = &dispatch->tune;
    const struct vk_tune_family *family = families[key->family];
    struct trial trials[MAX_TILES];
    int count = 0;
    enum error_code code = OK;
    const struct trial *best = NULL;
    const bool shared = device->traits.info.type == DEVICE_INTEGRATED;
    const uint64_t enough = (shared ? ROUND_WORK_SHARED : ROUND_WORK) / (dispatch->work + 1) + 1;
    const int repeat = enough < MAX_REPEAT ? (int)enough : MAX_REPEAT;
    for (size_t i = 0; i < family->count && count < MAX_TILES && code == OK; i++) {
        if (!tune_wanted(device, key, i))
            continue;
        struct vk_dispatch with = *dispatch;
        struct trial *trial = &trials[count++];
        *trial = (struct trial){.tile = &family->tiles[i], .ms = -1};
        family->apply(&family->tiles[i], &with);
        code = vk_timer_create(&trial->timer, device, 0, false, err);
        if (code == OK)
            code = tune_record(device, &with, set, repeat, &trial->timer, &trial->commands, err);
    }
    if (code == OK)
        code = tune_run_trials(device, trials, count, warm, err);
    for (int i = 0; i < count; i++) {
        if (trials[i].ms >= 0 && (!best || trials[i].ms < best->ms))
            best = &trials[i];
        const uint32_t *t = trials[i].tile->number;
        log_event(LOG_DEBUG, "tile",
                  "conv=%u/%u/%u in=%u out=%u size=%u family=%u tile=%u,%u,%u,%u,%u,%u,%u,%u,%u us=%.1f", key->kernel,
                  key->stride, key->upsample, key->in_blocks, key->out_blocks, key->size, key->family, t[0], t[1], t[2],
                  t[3], t[4], t[5], t[6], t[7], t[8], trials[i].ms * 1e3 / repeat);
    }
    if (code == OK) { /* if none can be timed, the guess stays */
        union vk_tile guess;
        vk_tune_find(device, key, &guess);
        code = tune_add(device->tunes, key, best ? best->tile : &guess, err);
        device->tunes->changed |= best != NULL;
    }
    for (int i = 0; i < count; i++) {
        vk_command_free(device, &trials[i].commands, trials[i].commands ? 1 : 0);
        vk_timer_destroy(&trials[i].timer, device);
    }
    return code;
}

/* Convolutions of one key. */
struct kind {
    uint32_t dispatch; /* the first of them */
    uint64_t work;     /* of all */
};

static int tune_more_work(const void *a, const void *b)
{
    const struct kind *x = a, *y = b;
    return x->work == y->work ? (x->dispatch > y->dispatch) - (x->dispatch < y->dispatch) : x->work < y->work ? 1 : -1;
}

/* Those that are to be measured, in the order of their work. kinds: room for `count`. */
static size_t tune_list_unknown(const struct vk_device *device, const struct vk_dispatch *dispatches, uint32_t count,
                                struct kind *kinds)
{
    size_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        size_t k = 0;
        if (!tune_unknown(device, &dispatches[i]))
            continue;
        while (k < found && memcmp(&dispatches[kinds[k].dispatch].tune, &dispatches[i].tune, sizeof dispatches[i].tune))
            k++;
        if (k == found)
            kinds[found++] = (struct kind){.dispatch = i};
        kinds[k].work += dispatches[i].work;
    }
    qsort(kinds, found, sizeof *kinds, tune_more_work);
    return found;
}

/* Compiles whatever tile fits one of the kinds. */
static enum error_code tune_compile(struct vk_device *device, const struct vk_dispatch *dispatches,
                                    const struct kind *kinds, size_t count, struct error *err)
{
    struct vk_pipeline_key *keys = mem_alloc(count * MAX_TILES, sizeof *keys);
    size_t key_count = 0;
    if (!keys)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    for (size_t i = 0; i < count; i++) {
        const struct vk_dispatch *dispatch = &dispatches[kinds[i].dispatch];
        const struct vk_tune_family *family = families[dispatch->tune.family];
        for (size_t t = 0; t < family->count && t < MAX_TILES; t++) {
            if (!tune_wanted(device, &dispatch->tune, t))
                continue;
            struct vk_dispatch with = *dispatch;
            family->apply(&family->tiles[t], &with);
            keys[key_count++] = with.key;
        }
    }
    const enum error_code code = vk_pipeline_make_trials(device, keys, key_count, err);
    free(keys);
    return code;
}

bool vk_tune_wants(const struct vk_device *device, const struct vk_dispatch *dispatches, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (tune_unknown(device, &dispatches[i]))
            return true;
    return false;
}

enum error_code vk_tune_measure(struct vk_device *device, const struct vk_dispatch *dispatches,
                                const VkDescriptorSet *sets, uint32_t count, struct error *err)
{
    static pthread_mutex_t locks[16] = {[0 ... 15] = PTHREAD_MUTEX_INITIALIZER};
    pthread_mutex_t *lock = &locks[(uint8_t)device->traits.info.uuid[35] % 16]; /* two devices may share one */
    const double begin = log_clock_ms();
    const size_t before = device->tunes->count;
    double compiling = 0;
    if (!vk_tune_wants(device, dispatches, count))
        return OK;
    struct kind *kinds = mem_alloc(count, sizeof *kinds);
    if (!kinds)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    pthread_mutex_lock(lock);
    enum error_code code = tune_read_file(device, err); /* the previous holder of the lock may have measured the same */
    const size_t wanted_count = code == OK ? tune_list_unknown(device, dispatches, count, kinds) : 0;
    for (size_t first = 0; first < wanted_count && code == OK; first += BATCH) {
        const size_t batch = wanted_count - first < BATCH ? wanted_count - first : BATCH;
        const double start = log_clock_ms();
        if (first > 0 && start - begin > atomic_load(&backend_patience))
            break;
        code = tune_compile(device, dispatches, kinds + first, batch, err);
        compiling += log_clock_ms() - start;
        for (size_t i = first; i < first + batch && code == OK; i++)
            code = tune_measure(device, &dispatches[kinds[i].dispatch], sets[kinds[i].dispatch], i > first, err);
    }
    vk_pipeline_end_trials(device);
    tune_save(device);
    pthread_mutex_unlock(lock);
    free(kinds);
    log_event(LOG_INFO, "tiles-measured", "device=%s convolutions=%zu left=%zu compile_ms=%.0f ms=%.0f",
              device->traits.info.id, device->tunes->count - before,
              wanted_count > device->tunes->count - before ? wanted_count - (device->tunes->count - before) : 0,
              compiling, log_clock_ms() - begin);
    return code;
}
