#include "runtime/vulkan/vk_matrix.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/vulkan/vk_command.h"

#define SIZE VK_MATRIX_SIZE
#define SUBGROUP 32
#define ELEMENTS (SIZE * SIZE)
#define HELD (ELEMENTS / SUBGROUP) /* elements of a matrix that an invocation holds */
#define WARM_BYTES (256u << 10)    /* of weights, from which asking for them at once pays on an H200 */
#define SPLIT_SIZE 14 /* subgroups share out a convolution's input channels only in pictures of up to 128×128 */

/* Whether one of the forms that the device multiplies is ours. */
static bool matrix_has_form(VkInstance instance, VkPhysicalDevice physical)
{
    PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR get =
        (PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)vkGetInstanceProcAddr(
            instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    VkCooperativeMatrixPropertiesKHR forms[64] = {{.sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR}};
    uint32_t count = sizeof forms / sizeof forms[0];
    for (uint32_t i = 0; i < count; i++)
        forms[i].sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
    if (!get || get(physical, &count, forms) < 0)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (forms[i].MSize == SIZE && forms[i].NSize == SIZE && forms[i].KSize == SIZE &&
            forms[i].AType == VK_COMPONENT_TYPE_FLOAT16_KHR && forms[i].BType == VK_COMPONENT_TYPE_FLOAT16_KHR &&
            forms[i].CType == VK_COMPONENT_TYPE_FLOAT32_KHR && forms[i].ResultType == VK_COMPONENT_TYPE_FLOAT32_KHR &&
            forms[i].scope == VK_SCOPE_SUBGROUP_KHR)
            return true;
    return false;
}

bool vk_matrix_present(VkInstance instance, VkPhysicalDevice physical, const struct device_info *info)
{
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR};
    VkPhysicalDeviceVulkanMemoryModelFeaturesKHR model = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES_KHR, .pNext = &matrix};
    VkPhysicalDeviceShaderFloat16Int8FeaturesKHR halves = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES_KHR, .pNext = &model};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &halves};
    if (!info->fp16 || info->subgroup_size != SUBGROUP)
        return false;
    vkGetPhysicalDeviceFeatures2(physical, &features);
    return matrix.cooperativeMatrix && model.vulkanMemoryModel && halves.shaderFloat16 &&
           matrix_has_form(instance, physical);
}

/* Runs shaders/matrix/probe.comp, whose results go to `out`. */
static enum error_code matrix_run_probe(struct vk_device *device, const struct vk_buffer *out, struct error *err)
{
    const struct vk_pipeline_key key = {.shader = "matrix_probe", .fp16 = true};
    const VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, BIND_COUNT};
    const VkDescriptorPoolCreateInfo create = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO, .maxSets = 1, .poolSizeCount = 1, .pPoolSizes = &size};
    const VkDescriptorSetLayout layout = vk_pipeline_set_layout(device);
    VkDescriptorPool pool = VK_NULL_HANDLE;
    VkDescriptorSet set;
    VkPipeline pipeline;
    VkCommandBuffer commands = VK_NULL_HANDLE;
    enum error_code code = vk_pipeline_get(device, &key, &pipeline, err);
    if (code != OK)
        return code;
    VkResult result = vkCreateDescriptorPool(device->handle, &create, NULL, &pool);
    if (result == VK_SUCCESS) {
        const VkDescriptorSetAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                                      .descriptorPool = pool,
                                                      .descriptorSetCount = 1,
                                                      .pSetLayouts = &layout};
        result = vkAllocateDescriptorSets(device->handle, &allocate, &set);
    }
    if (result != VK_SUCCESS) {
        vkDestroyDescriptorPool(device->handle, pool, NULL);
        return vk_device_error(device, result, "describe a buffer", err);
    }
    const VkDescriptorBufferInfo buffer = {out->handle, 0, out->size};
    const VkWriteDescriptorSet write = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                        .dstSet = set,
                                        .dstBinding = BIND_Y,
                                        .descriptorCount = 1,
                                        .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                        .pBufferInfo = &buffer};
    vkUpdateDescriptorSets(device->handle, 1, &write, 0, NULL);
    code = vk_command_begin(device, &commands, err);
    if (code == OK) {
        vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
        vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, vk_pipeline_layout(device), 0, 1, &set, 0,
                                NULL);
        vkCmdDispatch(commands, 1, 1, 1);
        vk_command_to_host(commands);
        code = vk_command_end(device, commands, err);
        if (code == OK)
            code = vk_command_run(device, &commands, 1, NULL, err);
        vk_command_free(device, &commands, 1);
    }
    vkDestroyDescriptorPool(device->handle, pool, NULL);
    return code;
}

/* Whether each element of the matrix is held once. */
static bool matrix_is_order(const uint32_t *order)
{
    bool seen[ELEMENTS] = {false};
    for (int i = 0; i < ELEMENTS; i++) {
        if (order[i] >= ELEMENTS || seen[order[i]])
            return false;
        seen[order[i]] = true;
    }
    return true;
}

/* shaders/matrix/leave.glsl wants of a matrix of sums, and direct.comp of an A matrix, that invocation i holds 4
 * elements of row i / 4 and 4 of row i / 4 + 8, told apart by one bit of their numbers, in the same columns, which are
 * those of every fourth invocation. places[column]: counted through 4 such invocations, 4 elements each. */
static bool matrix_learn_columns(const uint32_t *order, uint8_t places[SIZE], uint32_t *slot_bit)
{
    for (uint32_t bit = 0; bit < 3; bit++) {
        bool fits = true;
        for (uint32_t i = 0; i < ELEMENTS && fits; i++) {
            const uint32_t invocation = i / HELD, number = i % HELD, low = number & ((1u << bit) - 1);
            const uint32_t place = invocation % 4 * 4 + ((number >> 1 & ~((1u << bit) - 1)) | low);
            const uint32_t column = order[i] % SIZE;
            if (invocation < 4 && (number >> bit & 1) == 0)
                places[column] = (uint8_t)place;
            fits = order[i] / SIZE == invocation / 4 + (number >> bit & 1) * 8 && places[column] == place;
        }
        if (fits) {
            *slot_bit = bit;
            return true;
        }
    }
    return false;
}

enum error_code vk_matrix_create(struct vk_device *device, struct error *err)
{
    struct vk_buffer out = {0};
    enum error_code code =
        vk_memory_create(device, &out, 3 * ELEMENTS * sizeof(uint32_t), MEMORY_READBACK, "the order of a matrix", err);
    if (code == OK)
        code = matrix_run_probe(device, &out, err);
    if (code != OK && code != ERROR_DEVICE_LOST) { /* a driver that promises more than it compiles: do without */
        log_event(LOG_WARN, "matrix-unused", "device=%s reason=\"%s\"", device->traits.info.id, err->text);
        error_clear(err);
        vk_memory_destroy(device, &out);
        device->matrix = false;
        return OK;
    }
    const uint32_t *order = out.mapped;
    device->matrix = code == OK && matrix_is_order(order) && matrix_is_order(order + ELEMENTS) &&
                     matrix_learn_columns(order + ELEMENTS, device->matrix_column, &device->matrix_slot_bit);
    device->matrix_direct = device->matrix && matrix_is_order(order + 2 * ELEMENTS) &&
                            matrix_learn_columns(order + 2 * ELEMENTS, device->matrix_row, &device->matrix_half_bit);
    for (int i = 0; i < ELEMENTS && device->matrix; i++)
        device->matrix_order[i] = (uint8_t)order[i];
    if (code == OK && !device->matrix)
        log_event(LOG_INFO, "matrix-unused", "device=%s reason=\"its invocations hold matrices in an unknown order\"",
                  device->traits.info.id);
    vk_memory_destroy(device, &out);
    return code;
}

/* Whether out matrices come in pairs, so that an invocation holds 8 channels side by side. */
static bool matrix_paired(int out_blocks)
{
    return (out_blocks + 3) / 4 % 2 == 0;
}

int vk_matrix_unit(int out_blocks)
{
    return matrix_paired(out_blocks) ? 2 * SIZE : SIZE;
}

int vk_matrix_channel(const struct vk_device *device, int out_blocks, int first, int column)
{
    const int place = device->matrix_column[column], own = place / 4, lane = place % 4;
    if (!matrix_paired(out_blocks))
        return first + place;
    return first / 32 * 32 + own * 8 + first / 16 % 2 * 4 + lane;
}

/* --- tiles ---------------------------------------------------------------------------------------------------------
 */

/* In the order of union vk_tile. */
static const union vk_tile tiles[] = {
    {{4, 1, 4, 1, 4, 1, 4, 2, 1}}, {{8, 1, 4, 1, 8, 1, 8, 1, 1}}, {{8, 1, 2, 1, 8, 1, 8, 1, 1}},
    {{8, 1, 4, 2, 4, 1, 4, 1, 1}}, {{4, 1, 2, 2, 4, 3, 4, 1, 1}}, {{4, 1, 4, 2, 4, 1, 2, 1, 1}},
    {{4, 1, 4, 2, 2, 0, 1, 4, 1}}, {{4, 1, 4, 2, 2, 0, 1, 4, 0}}, {{4, 2, 4, 2, 2, 0, 1, 4, 1}},
    {{4, 2, 4, 2, 1, 0, 1, 4, 1}}, {{2, 1, 4, 2, 2, 0, 1, 4, 1}}, {{2, 1, 4, 2, 1, 0, 1, 4, 1}},
    {{2, 1, 4, 2, 1, 0, 1, 4, 0}}, {{2, 1, 8, 2, 1, 0, 1, 8, 1}}, {{4, 4, 4, 2, 1, 0, 1, 4, 0}},
    {{2, 2, 4, 2, 2, 0, 1, 4, 1}}, {{2, 2, 4, 2, 1, 0, 1, 4, 0}}, {{1, 1, 4, 2, 1, 0, 1, 4, 0}},
    {{4, 1, 4, 1, 2, 0, 1, 4, 1}}, {{4, 4, 4, 1, 1, 0, 1, 4, 0}}, {{6, 6, 4, 1, 1, 0, 1, 4, 0}},
    {{3, 3, 4, 1, 1, 0, 1, 4, 1}}, {{3, 3, 8, 1, 1, 0, 1, 8, 0}}, {{2, 2, 4, 1, 1, 0, 1, 4, 0}},
    {{8, 2, 4, 2, 2, 0, 1, 4, 1}}, {{4, 1, 4, 2, 4, 0, 1, 4, 1}}, {{8, 1, 4, 2, 2, 2, 1, 4, 1}},
    {{8, 2, 4, 2, 4, 0, 1, 4, 1}}, {{3, 1, 8, 1, 1, 0, 1, 8, 1}}, {{3, 1, 4, 1, 1, 0, 1, 4, 1}},
    {{3, 1, 4, 1, 3, 0, 1, 4, 1}}, {{3, 1, 4, 2, 1, 0, 1, 4, 1}}, {{5, 1, 8, 1, 1, 0, 1, 8, 1}},
    {{5, 1, 4, 1, 1, 0, 1, 4, 1}}, {{5, 1, 4, 1, 5, 0, 1, 4, 1}}, {{1, 1, 1, 1, 1, 0, 1, 1, 1}},
};

/* Those for fp32, of which a subgroup holds twice as many sums and weights. */
static const union vk_tile tiles_fp32[] = {
    {{4, 1, 4, 1, 4, 1, 4, 2, 1}}, {{8, 1, 2, 1, 8, 1, 8, 1, 1}}, {{8, 1, 4, 2, 4, 0, 4, 1, 1}},
    {{4, 1, 2, 2, 4, 3, 4, 1, 1}}, {{4, 1, 4, 2, 2, 0, 2, 1, 1}}, {{4, 2, 4, 2, 1, 0, 1, 4, 1}},
    {{4, 2, 4, 2, 1, 1, 1, 4, 1}}, {{4, 1, 4, 2, 1, 0, 1, 4, 1}}, {{8, 2, 4, 2, 1, 0, 1, 4, 1}},
    {{4, 2, 4, 2, 2, 0, 1, 4, 1}}, {{4, 1, 4, 2, 2, 0, 1, 4, 1}}, {{2, 1, 4, 2, 1, 0, 1, 4, 1}},
    {{4, 1, 8, 1, 1, 0, 1, 8, 1}}, {{4, 1, 8, 1, 2, 0, 1, 8, 1}}, {{2, 1, 8, 1, 1, 0, 1, 8, 1}},
    {{4, 1, 4, 1, 1, 0, 1, 4, 1}}, {{4, 2, 4, 1, 1, 1, 1, 4, 1}}, {{4, 1, 4, 1, 2, 0, 1, 4, 1}},
    {{4, 1, 2, 2, 1, 1, 1, 2, 1}}, {{4, 4, 4, 1, 1, 0, 1, 4, 1}}, {{2, 2, 4, 1, 1, 0, 1, 4, 1}},
    {{4, 1, 4, 1, 2, 2, 1, 4, 1}}, {{4, 1, 4, 1, 1, 2, 1, 4, 1}}, {{8, 1, 4, 1, 4, 0, 4, 2, 1}},
    {{4, 1, 2, 1, 2, 2, 2, 2, 1}}, {{1, 1, 1, 1, 1, 0, 1, 1, 1}},
};

static uint32_t matrix_across(const union vk_tile *tile)
{
    return tile->matrix.subgroups / tile->matrix.split / tile->matrix.down * tile->matrix.blocks;
}

/* Whether the tile is for channels that are no multiple of 64, such as 48, 80 and 96: others leave it idle in part. */
static bool matrix_is_odd(const union vk_tile *tile)
{
    return matrix_across(tile) % 3 == 0 || matrix_across(tile) % 5 == 0;
}

/* Bytes of shared memory that a workgroup needs. halves: of a number of the input, 2 in fp32. */
static uint32_t matrix_shared_bytes(const union vk_tile *tile, uint32_t kernel, uint32_t stride, uint32_t halves)
{
    const uint32_t step = kernel == 1 ? 1 : stride; /* a 1×1 convolution copies only the pixels that it needs */
    const uint32_t w = (SIZE - 1) * step + kernel, h = (tile->matrix.rows * tile->matrix.down - 1) * step + kernel;
    const uint32_t held = tile->matrix.subgroups * tile->matrix.phase * tile->matrix.blocks * ELEMENTS;
    const uint32_t sums = (tile->matrix.split > 1 ? held : 0) + 1;
    return w * h * (tile->matrix.steps * 2 * halves + tile->matrix.padding) * 16 + sums * 4;
}

/* Whether such tiles exist. A large kernel's input is wide enough without a stride. */
static bool matrix_reaches(uint32_t kernel, uint32_t stride)
{
    return kernel <= VK_MATRIX_KERNEL ? stride <= 2 : stride == 1 && kernel <= VK_MATRIX_LARGEST;
}

/* Whether the tile can do the convolution, and is not mostly idle at it. Many subgroups one above the other, all of the
 * same channels, pay for large kernels alone, whose input they share. */
static bool matrix_fits(const struct vk_device *device, const struct vk_tune_key *key, const union vk_tile *tile)
{
    return matrix_reaches(key->kernel, key->stride) && key->in_blocks % tile->matrix.steps == 0 &&
           (matrix_across(tile) <= key->out_blocks || matrix_across(tile) == 1) &&
           (!matrix_is_odd(tile) || key->out_blocks % matrix_across(tile) == 0) &&
           (tile->matrix.down <= 2 || matrix_across(tile) > 1 || key->kernel > VK_MATRIX_KERNEL) &&
           (tile->matrix.split == 1 || key->size <= SPLIT_SIZE) &&
           tile->matrix.subgroups * SUBGROUP <= device->traits.limits.maxComputeWorkGroupInvocations &&
           matrix_shared_bytes(tile, key->kernel, key->stride, key->family == VK_TUNE_MATRIX_F32 ? 2 : 1) <=
               device->traits.limits.maxComputeSharedMemorySize;
}

uint32_t vk_matrix_warm_flag(const struct op_conv2d *args, const struct vk_operand *x, const struct vk_operand *y)
{
    const uint64_t taps = (uint64_t)args->kernel * (uint64_t)args->kernel;
    const uint64_t bytes = taps * (uint64_t)x->layout.blocks * (uint64_t)y->layout.blocks * (x->fp16 ? 32 : 64);
    return bytes >= WARM_BYTES ? FLAG_WARM : 0;
}

bool vk_matrix_takes(const struct vk_build *build, const struct node *conv)
{
    const union vk_tile *least = &tiles[sizeof tiles / sizeof tiles[0] - 1];
    const struct vk_device *device = build->device;
    const uint32_t kernel = (uint32_t)conv->args.conv2d.kernel, stride = (uint32_t)conv->args.conv2d.stride;
    const bool fp16 = vk_plan_halves(build, conv->out);
    return build->half && device->matrix && matrix_reaches(kernel, stride) && (fp16 || kernel <= VK_MATRIX_KERNEL) &&
           matrix_shared_bytes(least, kernel, stride, fp16 ? 1 : 2) <= device->traits.limits.maxComputeSharedMemorySize;
}

static void matrix_apply(const union vk_tile *tile, struct vk_dispatch *dispatch)
{
    const struct params_conv2d *push = &dispatch->push.conv2d;
    const uint32_t down = tile->matrix.rows * tile->matrix.down;
    dispatch->key.spec[0] = SUBGROUP * tile->matrix.subgroups;
    memcpy(dispatch->key.spec + 1, &tile->matrix, sizeof tile->matrix);
    dispatch->tile_rows = down;
    dispatch->groups[0] = push->tiles_x * ((push->out_h + down - 1) / down);
    dispatch->groups[1] = (dispatch->tune.out_blocks + matrix_across(tile) - 1) / matrix_across(tile);
}

const struct vk_tune_family vk_matrix_family = {tiles, sizeof tiles / sizeof tiles[0], matrix_fits, matrix_apply};
const struct vk_tune_family vk_matrix_fp32_family = {tiles_fp32, sizeof tiles_fp32 / sizeof tiles_fp32[0], matrix_fits,
                                                     matrix_apply};

#define LEAST_FACTOR (1.0f / 64) /* of a sum: divided by less, residuals would make it too coarse */

/* FLAG_EARLY where only factors stand between the sum and its residuals, and they and y are in pairs of groups. */
static uint32_t matrix_early_flag(const struct op_conv2d *args, const struct vk_operand *y,
                                  const struct vk_operand *residual1, const struct vk_operand *residual2,
                                  uint32_t flags, int shuffle)
{
    const bool none = !(flags & (FLAG_RESIDUAL1 | FLAG_RESIDUAL2)), last = (flags & FLAG_ACTIVATION_LAST) != 0;
    const bool fits = y->fp16 && y->layout.group_log == 2 && y->layout.blocks % 8 == 0 &&
                      (!residual1->n || residual1->layout.group_log == 2) &&
                      (!residual2->n || residual2->layout.group_log == 2);
    const bool adds = (flags & FLAG_TRANSFORM) == 0 && (args->activation == ACTIVATION_NONE || last);
    return !none && fits && adds && shuffle == 1 && args->gain * args->scale >= LEAST_FACTOR ? FLAG_EARLY : 0;
}

void vk_matrix_conv2d(const struct vk_device *device, const struct op_conv2d *args, const struct vk_operand *x,
                      const struct vk_operand *y, const struct vk_operand *residual1,
                      const struct vk_operand *residual2, uint32_t flags, int shuffle, struct vk_dispatch *dispatch)
{
    enum { OF_TILE = sizeof tiles[0].matrix / sizeof(uint32_t) + 1 }; /* constants that apply() sets */
    flags |= matrix_early_flag(args, y, residual1, residual2, flags, shuffle);
    const uint32_t constants[] = {
        device->matrix_slot_bit, matrix_paired(y->layout.blocks),
        (uint32_t)args->kernel,  (uint32_t)args->stride,
        (uint32_t)args->pad,     (uint32_t)args->upsample,
        args->activation,        flags | (x->layout.group_log == 0 ? FLAG_PLANAR : 0) | vk_matrix_warm_flag(args, x, y),
        (uint32_t)shuffle};
    _Static_assert(OF_TILE + sizeof constants / sizeof constants[0] <= VK_PIPELINE_MAX_SPEC, "room for all constants");
    union vk_tile tile;
    dispatch->tune = (struct vk_tune_key){.family = x->fp16 ? VK_TUNE_MATRIX : VK_TUNE_MATRIX_F32,
                                          .kernel = (uint32_t)args->kernel,
                                          .stride = (uint32_t)args->stride,
                                          .upsample = (uint32_t)args->upsample,
                                          .in_blocks = ((uint32_t)x->layout.blocks + 3) / 4,
                                          .out_blocks = ((uint32_t)y->layout.blocks + 3) / 4,
                                          .size = vk_tune_size(y)};
    dispatch->key.shader = "matrix_conv2d";
    dispatch->shuffled = shuffle > 1;
    dispatch->watched = !x->fp16;
    dispatch->key.spec_count = OF_TILE + sizeof constants / sizeof constants[0];
    memcpy(dispatch->key.spec + OF_TILE, constants, sizeof constants);
    dispatch->push.conv2d.tiles_x = (y->w + SIZE - 1) / SIZE;
    dispatch->groups[2] = y->n;
    vk_tune_find(device, &dispatch->tune, &tile);
    matrix_apply(&tile, dispatch);
}
