#include "runtime/vulkan/vk_tune.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/vulkan/vk_command.h"
#include "runtime/vulkan/vk_matrix.h"
#include "runtime/vulkan/vk_timer.h"

#define ROUNDS 3                /* each tile is timed so often, one after the other, and its best time counts */
#define ROUND_WORK 40000000000u /* multiply-accumulates of a timing: a fraction of a millisecond on a fast device */
#define MAX_REPEAT 32
#define WARM_MS 20
#define SPLIT_SIZE 7 /* subgroups share out a convolution's input channels only in pictures of up to 128×128 */

/* Tiles that were the best for some convolution on some device. The first that can do it is the guess. */
static const struct vk_tile tiles[] = {
    {4, 1, 4, 1, 4, 1, 4, 2, 1}, {8, 1, 4, 1, 8, 1, 8, 1, 1}, {8, 1, 2, 1, 8, 1, 8, 1, 1}, {8, 1, 4, 2, 4, 1, 4, 1, 1},
    {4, 1, 2, 2, 4, 1, 4, 1, 1}, {4, 1, 4, 2, 4, 1, 2, 1, 1}, {4, 1, 4, 2, 2, 0, 1, 4, 1}, {4, 1, 4, 2, 2, 0, 1, 4, 0},
    {4, 2, 4, 2, 2, 0, 1, 4, 1}, {4, 2, 4, 2, 1, 0, 1, 4, 1}, {2, 1, 4, 2, 2, 0, 1, 4, 1}, {2, 1, 4, 2, 1, 0, 1, 4, 1},
    {2, 1, 4, 2, 1, 0, 1, 4, 0}, {2, 1, 8, 2, 1, 0, 1, 8, 1}, {4, 4, 4, 2, 1, 0, 1, 4, 0}, {2, 2, 4, 2, 2, 0, 1, 4, 1},
    {2, 2, 4, 2, 1, 0, 1, 4, 0}, {1, 1, 4, 2, 1, 0, 1, 4, 0}, {4, 1, 4, 1, 2, 0, 1, 4, 1}, {2, 2, 4, 1, 1, 0, 1, 4, 0},
};

struct entry {
    struct vk_tune_key key;
    struct vk_tile tile;
};

struct vk_tunes {
    struct entry *list;
    size_t count, capacity;
    bool changed;
    char file[1024]; /* empty: none */
};

static uint32_t across(const struct vk_tile *tile)
{
    return tile->subgroups / tile->split / tile->down * tile->blocks;
}

/* Whether the tile can do the convolution, and is not mostly idle at it. */
static bool fits(const struct vk_device *device, const struct vk_tune_key *key, const struct vk_tile *tile)
{
    return key->in_steps % tile->steps == 0 && (across(tile) <= key->out_blocks || across(tile) == 1) &&
           (tile->split == 1 || key->size <= SPLIT_SIZE) &&
           tile->subgroups * 32 <= device->traits.limits.maxComputeWorkGroupInvocations &&
           vk_matrix_shared_bytes(tile, key->kernel, key->stride) <= device->traits.limits.maxComputeSharedMemorySize;
}

static struct entry *find(const struct vk_tunes *tunes, const struct vk_tune_key *key)
{
    for (size_t i = 0; i < tunes->count; i++)
        if (memcmp(&tunes->list[i].key, key, sizeof *key) == 0)
            return &tunes->list[i];
    return NULL;
}

static enum error_code add(struct vk_tunes *tunes, const struct vk_tune_key *key, const struct vk_tile *tile,
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

bool vk_tune_find(const struct vk_device *device, const struct vk_tune_key *key, struct vk_tile *out)
{
    const char *forced = getenv("RESTORED_VULKAN_TILE"); /* for tests: the tile of that number, where it can be */
    const size_t number = forced ? strtoul(forced, NULL, 10) : sizeof tiles;
    if (number < sizeof tiles / sizeof tiles[0] && fits(device, key, &tiles[number])) {
        *out = tiles[number];
        return true;
    }
    const struct entry *entry = find(device->tunes, key);
    if (entry) {
        *out = entry->tile;
        return true;
    }
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++) {
        if (fits(device, key, &tiles[i])) {
            *out = tiles[i];
            return false;
        }
    }
    *out = (struct vk_tile){1, 1, 1, 1, 1, 0, 1, 1, 1};
    return false;
}

/* --- the file ------------------------------------------------------------------------------------------------------
 * A line a convolution: the numbers of its key and those of its tile. */

static const char head[] = "restored-tiles 3\n";

static bool known(const struct vk_tile *tile)
{
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++)
        if (memcmp(tile, &tiles[i], sizeof *tile) == 0)
            return true;
    return false;
}

static enum error_code read_lines(struct vk_device *device, const char *text, struct error *err)
{
    struct vk_tune_key k;
    struct vk_tile t;
    enum error_code code = OK;
    int used = 0;
    for (; code == OK && sscanf(text, "%u %u %u %u %u %u %u %u %u %u %u %u %u %u %u%n", &k.kernel, &k.stride,
                                &k.upsample, &k.in_steps, &k.out_blocks, &k.size, &t.subgroups, &t.down, &t.rows,
                                &t.blocks, &t.steps, &t.prefetch, &t.split, &t.phase, &t.padding, &used) == 15;
         text += used)
        if (known(&t) && k.kernel >= 1 && k.kernel <= VK_MATRIX_KERNEL && k.stride >= 1 && k.stride <= 2 &&
            fits(device, &k, &t) && !find(device->tunes, &k))
            code = add(device->tunes, &k, &t, err);
    return code;
}

/* Adds what the file has and the list has not. */
static enum error_code read_file(struct vk_device *device, struct error *err)
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
            code = read_lines(device, text + sizeof head - 1, err);
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
    return read_file(device, err);
}

void vk_tune_destroy(struct vk_device *device)
{
    if (device->tunes)
        free(device->tunes->list);
    free(device->tunes);
    device->tunes = NULL;
}

/* With what other processes have added to it in the meantime. */
static void save(struct vk_device *device)
{
    struct vk_tunes *tunes = device->tunes;
    struct error err = ERROR_INIT;
    char *text = NULL;
    size_t size = 0;
    if (!tunes->changed || !tunes->file[0])
        return;
    tunes->changed = false;
    if (read_file(device, &err) != OK)
        error_clear(&err);
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return;
    fputs(head, out);
    for (size_t i = 0; i < tunes->count; i++) {
        const struct vk_tune_key *k = &tunes->list[i].key;
        const struct vk_tile *t = &tunes->list[i].tile;
        fprintf(out, "%u %u %u %u %u %u  %u %u %u %u %u %u %u %u %u\n", k->kernel, k->stride, k->upsample, k->in_steps,
                k->out_blocks, k->size, t->subgroups, t->down, t->rows, t->blocks, t->steps, t->prefetch, t->split,
                t->phase, t->padding);
    }
    if (fclose(out) == 0) {
        char folder[sizeof tunes->file];
        memcpy(folder, tunes->file, sizeof folder);
        *strrchr(folder, '/') = 0;
        if (file_make_folders(folder, &err) != OK || file_write(tunes->file, text, size, &err) != OK)
            log_event(LOG_WARN, "tiles-not-written", "reason=%s", err.text);
    }
    free(text);
}

/* --- measuring -----------------------------------------------------------------------------------------------------
 */

/* Records the dispatch `repeat` times, one after the other, between two stamps. */
static enum error_code record(struct vk_device *device, const struct vk_dispatch *dispatch, VkDescriptorSet set,
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
    const struct vk_tile *tile;
    struct vk_timer timer;
    VkCommandBuffer commands; /* NULL: it does not compile */
    double ms;                /* the best, of all repeats */
};

/* A device that was idle has a low clock and would find other tiles the best. */
static enum error_code warm_up(struct vk_device *device, const struct trial *trial, struct error *err)
{
    const double until = log_clock_ms() + WARM_MS;
    enum error_code code = OK;
    do
        code = vk_command_run(device, &trial->commands, 1, NULL, err);
    while (code == OK && log_clock_ms() < until);
    return code;
}

/* warm: the device was at work until now. */
static enum error_code run_trials(struct vk_device *device, struct trial *trials, int count, bool warm,
                                  struct error *err)
{
    enum error_code code = OK;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < count && code == OK; i++) {
            if (!trials[i].commands)
                continue;
            if (!warm)
                code = warm_up(device, &trials[i], err);
            warm = true;
            if (code == OK)
                code = vk_command_run(device, &trials[i].commands, 1, NULL, err);
            const double ms = code == OK ? vk_timer_read(&trials[i].timer, device, NULL) : -1;
            if (ms >= 0 && (trials[i].ms < 0 || ms < trials[i].ms))
                trials[i].ms = ms;
        }
    }
    return code;
}

/* Whether the dispatch has tiles that are to be measured. */
static bool unknown(const struct vk_device *device, const struct vk_dispatch *dispatch)
{
    struct vk_tile ignored;
    return dispatch->matrix.kernel != 0 && device->traits.limits.timestampComputeAndGraphics &&
           !vk_tune_find(device, &dispatch->matrix, &ignored);
}

static enum error_code measure(struct vk_device *device, const struct vk_dispatch *dispatch, VkDescriptorSet set,
                               bool warm, struct error *err)
{
    const struct vk_tune_key *key = &dispatch->matrix;
    struct trial trials[sizeof tiles / sizeof tiles[0]];
    int count = 0;
    enum error_code code = OK;
    const struct trial *best = NULL;
    const uint64_t wanted = ROUND_WORK / (dispatch->work + 1) + 1;
    const int repeat = wanted < MAX_REPEAT ? (int)wanted : MAX_REPEAT;
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0] && code == OK; i++) {
        if (!fits(device, key, &tiles[i]))
            continue;
        struct vk_dispatch with = *dispatch;
        struct trial *trial = &trials[count++];
        *trial = (struct trial){.tile = &tiles[i], .ms = -1};
        vk_matrix_apply(&tiles[i], &with);
        code = vk_timer_create(&trial->timer, device, 0, false, err);
        if (code == OK)
            code = record(device, &with, set, repeat, &trial->timer, &trial->commands, err);
    }
    if (code == OK)
        code = run_trials(device, trials, count, warm, err);
    for (int i = 0; i < count; i++) {
        if (trials[i].ms >= 0 && (!best || trials[i].ms < best->ms))
            best = &trials[i];
        log_event(LOG_DEBUG, "tile", "conv=%u/%u/%u in=%u out=%u size=%u tile=%u,%u,%u,%u,%u,%u,%u,%u,%u us=%.1f",
                  key->kernel, key->stride, key->upsample, key->in_steps * 16, key->out_blocks * 16, key->size,
                  trials[i].tile->subgroups, trials[i].tile->down, trials[i].tile->rows, trials[i].tile->blocks,
                  trials[i].tile->steps, trials[i].tile->prefetch, trials[i].tile->split, trials[i].tile->phase,
                  trials[i].tile->padding, trials[i].ms * 1e3 / repeat);
    }
    if (code == OK && best) {
        code = add(device->tunes, key, best->tile, err);
        device->tunes->changed = true;
    }
    for (int i = 0; i < count; i++) {
        vk_command_free(device, &trials[i].commands, trials[i].commands ? 1 : 0);
        vk_timer_destroy(&trials[i].timer, device);
    }
    return code;
}

/* Compiles whatever tile fits one of the dispatches that are not known. */
static enum error_code compile(struct vk_device *device, const struct vk_dispatch *dispatches, uint32_t count,
                               struct error *err)
{
    enum { TILES = sizeof tiles / sizeof tiles[0] };
    size_t key_count = 0, capacity = 0;
    struct vk_pipeline_key *keys = NULL;
    enum error_code code = OK;
    for (uint32_t i = 0; i < count && code == OK; i++) {
        if (!unknown(device, &dispatches[i]))
            continue;
        if (key_count + TILES > capacity) {
            capacity = capacity * 2 + 16 * TILES;
            struct vk_pipeline_key *grown = realloc(keys, capacity * sizeof *keys);
            if (!grown) {
                code = error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
                break;
            }
            keys = grown;
        }
        for (size_t t = 0; t < TILES; t++) {
            if (!fits(device, &dispatches[i].matrix, &tiles[t]))
                continue;
            struct vk_dispatch with = dispatches[i];
            vk_matrix_apply(&tiles[t], &with);
            keys[key_count++] = with.key;
        }
    }
    if (code == OK)
        code = vk_pipeline_make_trials(device, keys, key_count, err);
    free(keys);
    return code;
}

bool vk_tune_wants(const struct vk_device *device, const struct vk_dispatch *dispatches, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (unknown(device, &dispatches[i]))
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
    double compiled = begin;
    if (!vk_tune_wants(device, dispatches, count))
        return OK;
    pthread_mutex_lock(lock);
    enum error_code code = read_file(device, err); /* whoever had the lock may have measured the same */
    if (code == OK)
        code = compile(device, dispatches, count, err);
    compiled = log_clock_ms();
    bool warm = false;
    for (uint32_t i = 0; i < count && code == OK; i++)
        if (unknown(device, &dispatches[i])) {
            code = measure(device, &dispatches[i], sets[i], warm, err);
            warm = true;
        }
    vk_pipeline_end_trials(device);
    save(device);
    pthread_mutex_unlock(lock);
    log_event(LOG_INFO, "tiles-measured", "device=%s convolutions=%zu compile_ms=%.0f ms=%.0f", device->traits.info.id,
              device->tunes->count - before, compiled - begin, log_clock_ms() - begin);
    return code;
}
