#include "runtime/vulkan/vk_pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/embed.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "shaders/include/params.h"

struct module {
    const char *shader;
    bool fp16;
    VkShaderModule handle;
};

struct pipeline {
    struct vk_pipeline_key key;
    VkPipeline handle;
};

struct list {
    struct pipeline *items;
    uint32_t count, capacity;
};

struct vk_pipelines {
    VkDescriptorSetLayout set_layout;
    VkPipelineLayout layout;
    VkPipelineCache cache, trial_cache; /* the latter while there are trials */
    struct module *modules;
    uint32_t module_count;
    struct list kept, trials;
    uint32_t seen;   /* how many were kept when the cache's size was last checked */
    size_t saved;    /* bytes of the cache in the file; 0: no valid one */
    char file[1024]; /* empty: no cache on disk */
};

/* Our own header of the cache file. Drivers check little of what they get, so a damaged file must not reach them. */
struct cache_head {
    char magic[8];
    uint64_t size, checksum; /* of what follows */
};

static const char cache_magic[8] = "rstvkpc2";

/* FNV-1a over words of 8 bytes, the last filled up with zeros: the file is read at every start. */
static uint64_t pipeline_checksum(const uint8_t *data, size_t size)
{
    uint64_t sum = 0xcbf29ce484222325u, word;
    for (size_t i = 0; i < size; i += sizeof word) {
        word = 0;
        memcpy(&word, data + i, size - i < sizeof word ? size - i : sizeof word);
        sum = (sum ^ word) * 0x100000001b3u;
    }
    return sum;
}

/* Vulkan's blob in the file, or NULL: it must carry our sums, and Vulkan's own header name this device. */
static const uint8_t *pipeline_cache_blob(const struct vk_device *device, const struct file *file, size_t *size)
{
    struct cache_head head;
    VkPipelineCacheHeaderVersionOne one;
    if (file->size < sizeof head + sizeof one)
        return NULL;
    memcpy(&head, file->data, sizeof head);
    memcpy(&one, file->data + sizeof head, sizeof one);
    *size = file->size - sizeof head;
    if (memcmp(head.magic, cache_magic, sizeof head.magic) != 0 || head.size != *size ||
        head.checksum != pipeline_checksum(file->data + sizeof head, *size))
        return NULL;
    if (one.headerSize < sizeof one || one.headerVersion != VK_PIPELINE_CACHE_HEADER_VERSION_ONE ||
        one.vendorID != device->traits.vendor || one.deviceID != device->traits.device ||
        memcmp(one.pipelineCacheUUID, device->traits.cache_uuid, VK_UUID_SIZE) != 0)
        return NULL;
    return file->data + sizeof head;
}

static VkResult pipeline_open_cache(struct vk_device *device, const char *cache_dir)
{
    struct vk_pipelines *pipelines = device->pipelines;
    VkPipelineCacheCreateInfo create = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
    struct file file = {0};
    struct error ignored = ERROR_INIT;

    if (cache_dir) {
        int length = snprintf(pipelines->file, sizeof pipelines->file, "%s/vulkan-%s-%08x.cache", cache_dir,
                              device->traits.info.uuid, device->traits.driver_version);
        if (length < 0 || (size_t)length >= sizeof pipelines->file)
            pipelines->file[0] = 0;
    }
    if (pipelines->file[0] && file_map(&file, pipelines->file, &ignored) == OK) {
        create.pInitialData = pipeline_cache_blob(device, &file, &create.initialDataSize);
        if (!create.pInitialData) {
            create.initialDataSize = 0;
            log_event(LOG_WARN, "pipeline-cache-rebuilt", "file=\"%s\" reason=\"damaged or of another driver\"",
                      pipelines->file);
        }
    }
    VkResult result = vkCreatePipelineCache(device->handle, &create, NULL, &pipelines->cache);
    if (result != VK_SUCCESS && create.pInitialData) {
        create.pInitialData = NULL;
        create.initialDataSize = 0;
        result = vkCreatePipelineCache(device->handle, &create, NULL, &pipelines->cache);
    }
    pipelines->saved = create.initialDataSize;
    file_unmap(&file);
    return result;
}

enum error_code vk_pipeline_create(struct vk_device *device, const char *cache_dir, struct error *err)
{
    struct vk_pipelines *pipelines = device->pipelines = mem_calloc(1, sizeof *pipelines);
    if (!pipelines)
        return error_set(err, ERROR_NO_MEMORY, "out of memory to open %s", device->traits.info.name);
    VkDescriptorSetLayoutBinding bindings[BIND_COUNT];
    for (uint32_t i = 0; i < BIND_COUNT; i++)
        bindings[i] = (VkDescriptorSetLayoutBinding){.binding = i,
                                                     .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                                     .descriptorCount = 1,
                                                     .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
    const VkDescriptorSetLayoutCreateInfo set = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
                                                 .bindingCount = BIND_COUNT,
                                                 .pBindings = bindings};
    const VkPushConstantRange push = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = 128};
    const VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                               .setLayoutCount = 1,
                                               .pSetLayouts = &pipelines->set_layout,
                                               .pushConstantRangeCount = 1,
                                               .pPushConstantRanges = &push};
    VkResult result = vkCreateDescriptorSetLayout(device->handle, &set, NULL, &pipelines->set_layout);
    if (result == VK_SUCCESS)
        result = vkCreatePipelineLayout(device->handle, &layout, NULL, &pipelines->layout);
    if (result == VK_SUCCESS)
        result = pipeline_open_cache(device, cache_dir);
    return result == VK_SUCCESS ? OK : vk_device_error(device, result, "create a pipeline layout", err);
}

void vk_pipeline_destroy(struct vk_device *device)
{
    struct vk_pipelines *pipelines = device->pipelines;
    if (!pipelines)
        return;
    vk_pipeline_save(device);
    vk_pipeline_end_trials(device);
    for (uint32_t i = 0; i < pipelines->kept.count; i++)
        vkDestroyPipeline(device->handle, pipelines->kept.items[i].handle, NULL);
    for (uint32_t i = 0; i < pipelines->module_count; i++)
        vkDestroyShaderModule(device->handle, pipelines->modules[i].handle, NULL);
    vkDestroyPipelineCache(device->handle, pipelines->cache, NULL);
    vkDestroyPipelineLayout(device->handle, pipelines->layout, NULL);
    vkDestroyDescriptorSetLayout(device->handle, pipelines->set_layout, NULL);
    free(pipelines->modules);
    free(pipelines->kept.items);
    free(pipelines->trials.items);
    free(pipelines);
    device->pipelines = NULL;
}

static enum error_code pipeline_get_module(struct vk_device *device, const char *shader, bool fp16, VkShaderModule *out,
                                           struct error *err)
{
    struct vk_pipelines *pipelines = device->pipelines;
    for (uint32_t i = 0; i < pipelines->module_count; i++) {
        if (pipelines->modules[i].fp16 == fp16 && strcmp(pipelines->modules[i].shader, shader) == 0) {
            *out = pipelines->modules[i].handle;
            return OK;
        }
    }
    char name[64];
    size_t size = 0;
    snprintf(name, sizeof name, "%s.%s.spv", shader, fp16 ? "f16" : "f32");
    const uint8_t *code = embed_find(name, &size);
    if (!code)
        return error_set(err, ERROR_INTERNAL, "the shader %s is not in this binary", name);
    struct module *grown = realloc(pipelines->modules, (pipelines->module_count + 1) * sizeof *grown);
    if (!grown)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for the shader %s", name);
    pipelines->modules = grown;
    const VkShaderModuleCreateInfo create = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                             .codeSize = size,
                                             .pCode = (const uint32_t *)(const void *)code};
    VkResult result = vkCreateShaderModule(device->handle, &create, NULL, out);
    if (result != VK_SUCCESS)
        return vk_device_error(device, result, "load a shader", err);
    grown[pipelines->module_count++] = (struct module){shader, fp16, *out};
    return OK;
}

static bool pipeline_same_key(const struct vk_pipeline_key *a, const struct vk_pipeline_key *b)
{
    return a->fp16 == b->fp16 && a->spec_count == b->spec_count && strcmp(a->shader, b->shader) == 0 &&
           memcmp(a->spec, b->spec, a->spec_count * sizeof a->spec[0]) == 0;
}

static const struct pipeline *pipeline_find(const struct list *list, const struct vk_pipeline_key *key)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (pipeline_same_key(&list->items[i].key, key))
            return &list->items[i];
    return NULL;
}

/* A pipeline in the making. */
struct making {
    struct vk_pipeline_key key;
    VkShaderModule module;
    VkPipeline handle;
    VkResult result;
};

struct make_loop {
    const struct vk_device *device;
    VkPipelineCache cache;
    struct making *items;
};

static void pipeline_make_one(void *context, int item)
{
    const struct make_loop *loop = context;
    struct making *making = &loop->items[item];
    const struct vk_pipeline_key *key = &making->key;
    VkSpecializationMapEntry entries[VK_PIPELINE_MAX_SPEC];
    for (uint32_t i = 0; i < key->spec_count; i++)
        entries[i] = (VkSpecializationMapEntry){i, i * (uint32_t)sizeof key->spec[0], sizeof key->spec[0]};
    const VkSpecializationInfo spec = {.mapEntryCount = key->spec_count,
                                       .pMapEntries = entries,
                                       .dataSize = key->spec_count * sizeof key->spec[0],
                                       .pData = key->spec};
    const VkComputePipelineCreateInfo create = {.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
                                                .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                                                          .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                                                          .module = making->module,
                                                          .pName = "main",
                                                          .pSpecializationInfo = &spec},
                                                .layout = loop->device->pipelines->layout};
    making->result = vkCreateComputePipelines(loop->device->handle, loop->cache, 1, &create, NULL, &making->handle);
    if (making->result != VK_SUCCESS)
        making->handle = VK_NULL_HANDLE;
}

/* The keys that are in neither list, each once, with their modules. */
static enum error_code pipeline_list_new(struct vk_device *device, const struct vk_pipeline_key *keys, size_t count,
                                         const struct list *list, const struct list *also, struct making *items,
                                         size_t *made, struct error *err)
{
    enum error_code code = OK;
    *made = 0;
    for (size_t i = 0; i < count && code == OK; i++) {
        bool known = pipeline_find(list, &keys[i]) || (also && pipeline_find(also, &keys[i]));
        for (size_t k = 0; k < *made && !known; k++)
            known = pipeline_same_key(&items[k].key, &keys[i]);
        if (known)
            continue;
        items[*made] = (struct making){.key = keys[i]};
        code = pipeline_get_module(device, keys[i].shader, keys[i].fp16, &items[*made].module, err);
        ++*made;
    }
    return code;
}

/* must: each of them has to compile. */
static enum error_code pipeline_make(struct vk_device *device, const struct vk_pipeline_key *keys, size_t count,
                                     struct list *list, const struct list *also, VkPipelineCache cache, bool must,
                                     struct error *err)
{
    const double start = log_clock_ms();
    size_t made = 0;
    struct making *items = mem_calloc(count + 1, sizeof *items);
    enum error_code code =
        items ? pipeline_list_new(device, keys, count, list, also, items, &made, err) : ERROR_NO_MEMORY;
    if (code == OK && list->count + made > list->capacity) {
        const size_t capacity = list->capacity * 2 + made;
        struct pipeline *grown = realloc(list->items, capacity * sizeof *grown);
        if (grown) {
            list->items = grown;
            list->capacity = (uint32_t)capacity;
        } else {
            code = ERROR_NO_MEMORY;
        }
    }
    if (code == ERROR_NO_MEMORY)
        error_set(err, code, "out of memory for pipelines");
    struct make_loop loop = {device, cache, items};
    if (code == OK)
        thread_for((int)made, pipeline_make_one, &loop);
    for (size_t i = 0; i < made; i++) {
        const VkResult result = items[i].result;
        if (code == OK && result != VK_SUCCESS && (must || result == VK_ERROR_DEVICE_LOST))
            code = vk_device_error(device, result, "compile a shader", err);
        if (items[i].handle)
            list->items[list->count++] = (struct pipeline){items[i].key, items[i].handle};
    }
    free(items);
    if (made > 1)
        log_event(LOG_DEBUG, "pipelines-made", "device=%s pipelines=%zu kept=%d ms=%.1f", device->traits.info.id, made,
                  must, log_clock_ms() - start);
    return code;
}

enum error_code vk_pipeline_make(struct vk_device *device, const struct vk_pipeline_key *keys, size_t count,
                                 struct error *err)
{
    struct vk_pipelines *pipelines = device->pipelines;
    return pipeline_make(device, keys, count, &pipelines->kept, NULL, pipelines->cache, true, err);
}

enum error_code vk_pipeline_get(struct vk_device *device, const struct vk_pipeline_key *key, VkPipeline *out,
                                struct error *err)
{
    const struct list *kept = &device->pipelines->kept;
    enum error_code code = pipeline_find(kept, key) ? OK : vk_pipeline_make(device, key, 1, err);
    if (code == OK)
        *out = pipeline_find(kept, key)->handle;
    return code;
}

enum error_code vk_pipeline_make_trials(struct vk_device *device, const struct vk_pipeline_key *keys, size_t count,
                                        struct error *err)
{
    struct vk_pipelines *pipelines = device->pipelines;
    const VkPipelineCacheCreateInfo create = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
    const VkResult result = pipelines->trial_cache
                                ? VK_SUCCESS
                                : vkCreatePipelineCache(device->handle, &create, NULL, &pipelines->trial_cache);
    if (result != VK_SUCCESS)
        return vk_device_error(device, result, "create a pipeline cache", err);
    return pipeline_make(device, keys, count, &pipelines->trials, &pipelines->kept, pipelines->trial_cache, false, err);
}

VkPipeline vk_pipeline_trial(const struct vk_device *device, const struct vk_pipeline_key *key)
{
    const struct pipeline *found = pipeline_find(&device->pipelines->kept, key);
    if (!found)
        found = pipeline_find(&device->pipelines->trials, key);
    return found ? found->handle : VK_NULL_HANDLE;
}

void vk_pipeline_end_trials(struct vk_device *device)
{
    struct vk_pipelines *pipelines = device->pipelines;
    for (uint32_t i = 0; i < pipelines->trials.count; i++)
        vkDestroyPipeline(device->handle, pipelines->trials.items[i].handle, NULL);
    vkDestroyPipelineCache(device->handle, pipelines->trial_cache, NULL);
    pipelines->trials.count = 0;
    pipelines->trial_cache = VK_NULL_HANDLE;
}

void vk_pipeline_save(struct vk_device *device)
{
    struct vk_pipelines *pipelines = device->pipelines;
    struct cache_head head;
    struct error err = ERROR_INIT;
    size_t size = 0;
    if (!pipelines->file[0] || pipelines->seen == pipelines->kept.count)
        return;
    pipelines->seen = pipelines->kept.count;
    /* A pipeline from the cache adds nothing. */
    if (vkGetPipelineCacheData(device->handle, pipelines->cache, &size, NULL) != VK_SUCCESS || size == pipelines->saved)
        return;
    uint8_t *bytes = mem_alloc(1, sizeof head + size);
    if (bytes && vkGetPipelineCacheData(device->handle, pipelines->cache, &size, bytes + sizeof head) == VK_SUCCESS) {
        memcpy(head.magic, cache_magic, sizeof head.magic);
        head.size = size;
        head.checksum = pipeline_checksum(bytes + sizeof head, size);
        memcpy(bytes, &head, sizeof head);
        char folder[sizeof pipelines->file];
        memcpy(folder, pipelines->file, sizeof folder);
        *strrchr(folder, '/') = 0;
        if (file_make_folders(folder, 0777, &err) != OK ||
            file_write(pipelines->file, bytes, sizeof head + size, &err) != OK)
            log_event(LOG_WARN, "pipeline-cache-not-written", "reason=\"%s\"", err.text);
        else
            log_event(LOG_DEBUG, "pipeline-cache", "pipelines=%u bytes=%zu", pipelines->kept.count, size);
        pipelines->saved = size;
    }
    free(bytes);
}

VkPipelineLayout vk_pipeline_layout(const struct vk_device *device)
{
    return device->pipelines->layout;
}

VkDescriptorSetLayout vk_pipeline_set_layout(const struct vk_device *device)
{
    return device->pipelines->set_layout;
}

uint32_t vk_pipeline_count(const struct vk_device *device)
{
    return device->pipelines->kept.count;
}
