#include "runtime/vulkan/vk_tiled.h"

#include <string.h>

#define UNIT 4                           /* out quads that lie beside each other in the weights */
#define SMALL_KERNEL 3                   /* above it only small tiles are unrolled */
#define SIDE 4                           /* pixels of Winograd's tiles */
#define MAX_WINOGRAD ((uint64_t)4 << 20) /* bytes of transformed weights, which are fp32 and 4 times as many */
#define MIN_PACKED 4   /* quads of output channels: pictures are made of fewer, and there rounding would show */
#define MIN_WINOGRAD 2 /* quads of input channels: with fewer the transforms cost more */

enum { FP32, PACKED, WINOGRAD }; /* kinds of tiles */

/* In the order of union vk_tile: first the direct kernels, then Winograd, and at last what can do all. The first that
 * can do it is the guess. */
static const union vk_tile tiles[] = {
    {{PACKED, 32, 1, 4, 8, 2}},        {{PACKED, 16, 1, 8, 8, 2}},        {{PACKED, 16, 2, 4, 8, 1}},
    {{PACKED, 16, 1, 4, 8, 2}},        {{PACKED, 8, 2, 8, 4, 2}},         {{PACKED, 8, 4, 4, 2, 1}},
    {{PACKED, 8, 1, 8, 2, 1}},         {{FP32, 16, 2, 4, 8, 2}},          {{FP32, 16, 2, 4, 8, 1}},
    {{FP32, 16, 1, 8, 8, 2}},          {{FP32, 8, 2, 8, 4, 2}},           {{FP32, 8, 4, 4, 2, 1}},
    {{FP32, 8, 1, 8, 2, 1}},           {{FP32, 16, 4, 1, 4, 1}},          {{WINOGRAD, 4, 2, 4, 2, 2, 0, 0}},
    {{WINOGRAD, 4, 2, 4, 2, 2, 1, 0}}, {{WINOGRAD, 4, 2, 8, 1, 2, 1, 0}}, {{WINOGRAD, 4, 2, 8, 1, 2, 1, 1}},
    {{WINOGRAD, 4, 2, 8, 1, 2, 0, 0}}, {{WINOGRAD, 4, 4, 8, 1, 2, 1, 0}}, {{WINOGRAD, 4, 4, 4, 2, 2, 1, 1}},
    {{WINOGRAD, 4, 2, 4, 1, 1, 1, 0}}, {{FP32, 8, 1, 1, 1, 1}},
};

static uint32_t invocations(const union vk_tile *tile)
{
    return tile->tiled.kind == WINOGRAD
               ? WINOGRAD_POSITIONS * tile->winograd.across * tile->winograd.down / 8 * tile->winograd.shares
               : tile->tiled.columns * tile->tiled.down * tile->tiled.across;
}

static uint32_t out_quads(const union vk_tile *tile)
{
    return tile->tiled.kind == WINOGRAD ? tile->winograd.shares * tile->winograd.per
                                        : tile->tiled.across * tile->tiled.quads;
}

/* In quads of a chunk: a 1×1 kernel needs many for one that is worth its barriers. */
static uint32_t steps(uint32_t kernel)
{
    return kernel == 1 ? 8 : 1;
}

/* Bytes of shared memory that a workgroup needs: see the shaders. */
static uint32_t shared_bytes(const union vk_tile *tile, uint32_t kernel, uint32_t stride)
{
    if (tile->tiled.kind == WINOGRAD) {
        const uint32_t pixels = (tile->winograd.down * SIDE + 2) * (tile->winograd.across + 1) * SIDE;
        const uint32_t tiles_of = tile->winograd.across * tile->winograd.down, channels = tile->winograd.steps * 4;
        return (channels * pixels + WINOGRAD_POSITIONS * (channels * tiles_of + 8)) * 4;
    }
    const uint32_t apart = kernel == 1 ? 1 : stride; /* a 1×1 convolution copies only the pixels that it needs */
    const uint32_t w = (tile->tiled.columns - 1) * apart + kernel;
    const uint32_t h = (tile->tiled.down * tile->tiled.rows - 1) * apart + kernel;
    return steps(kernel) * (w * h + kernel * kernel * 4 * out_quads(tile)) * (tile->tiled.kind == PACKED ? 8 : 16);
}

/* Whether the kernel is for such a convolution. */
static bool suits(const struct vk_device *device, const struct vk_tune_key *key, const union vk_tile *tile)
{
    if (tile->tiled.kind == WINOGRAD)
        return key->kernel == 3 && key->stride == 1 && key->in_blocks >= MIN_WINOGRAD &&
               (uint64_t)key->in_blocks * 4 * ((key->out_blocks + 3) / 4) * 16 * WINOGRAD_POSITIONS * sizeof(float) <=
                   MAX_WINOGRAD;
    return (tile->tiled.kind == FP32 ||
            (device->packed && key->family == VK_TUNE_TILED_F16 && key->out_blocks >= MIN_PACKED)) &&
           (key->kernel <= SMALL_KERNEL || tile->tiled.rows * tile->tiled.quads <= 4);
}

static bool fits(const struct vk_device *device, const struct vk_tune_key *key, const union vk_tile *tile)
{
    const VkPhysicalDeviceLimits *limits = &device->traits.limits;
    const uint32_t columns = tile->tiled.kind == WINOGRAD ? invocations(tile) : tile->tiled.columns;
    return suits(device, key, tile) && out_quads(tile) < key->out_blocks + UNIT &&
           invocations(tile) <= limits->maxComputeWorkGroupInvocations &&
           columns <= limits->maxComputeWorkGroupSize[0] &&
           shared_bytes(tile, key->kernel, key->stride) <= limits->maxComputeSharedMemorySize;
}

static void apply(const union vk_tile *tile, struct vk_dispatch *dispatch)
{
    static const char *const shaders[] = {"conv2d_tiled", "conv2d_packed", "winograd"};
    enum { OF_CONVOLUTION = 6 }; /* constants that stand after those of the tile */
    struct vk_pipeline_key *key = &dispatch->key;
    struct params_conv2d *push = &dispatch->push.conv2d;
    const bool winograd = tile->tiled.kind == WINOGRAD;
    const uint32_t columns = winograd ? tile->winograd.across * SIDE : tile->tiled.columns;
    const uint32_t rows = winograd ? tile->winograd.down * SIDE : tile->tiled.down * tile->tiled.rows;
    uint32_t constants[OF_CONVOLUTION];
    memcpy(constants, key->spec + key->spec_count - OF_CONVOLUTION, sizeof constants);
    if (winograd) {
        key->spec[0] = invocations(tile);
        memcpy(key->spec + 1, &tile->winograd.across, sizeof tile->winograd - sizeof tile->winograd.kind);
        key->spec_count = sizeof tile->winograd / sizeof(uint32_t);
    } else {
        memcpy(key->spec, &tile->tiled.columns, sizeof tile->tiled - sizeof tile->tiled.kind);
        key->spec_count = sizeof tile->tiled / sizeof(uint32_t);
        key->spec[key->spec_count - 1] = steps(dispatch->tune.kernel);
    }
    memcpy(key->spec + key->spec_count, constants, sizeof constants);
    key->spec_count += OF_CONVOLUTION;
    key->shader = shaders[tile->tiled.kind];
    push->tiles_x = (push->out_w + columns - 1) / columns;
    dispatch->groups[0] = push->tiles_x * ((push->out_h + rows - 1) / rows);
    dispatch->groups[1] = (push->out_blocks + out_quads(tile) - 1) / out_quads(tile);
}

const struct vk_tune_family vk_tiled_family = {tiles, sizeof tiles / sizeof tiles[0], fits, apply};

bool vk_tiled_takes(const struct vk_build *build, const struct op_conv2d *args)
{
    const union vk_tile *least = &tiles[sizeof tiles / sizeof tiles[0] - 1];
    return build->device->stage_convolution && args->kernel < 16 && args->stride < 16 &&
           shared_bytes(least, (uint32_t)args->kernel, (uint32_t)args->stride) <=
               build->device->traits.limits.maxComputeSharedMemorySize;
}

void vk_tiled_conv2d(const struct vk_build *build, const struct op_conv2d *args, const struct vk_operand *x,
                     const struct vk_operand *y, uint32_t flags, struct vk_dispatch *dispatch)
{
    const uint32_t constants[] = {(uint32_t)args->kernel,   (uint32_t)args->stride, (uint32_t)args->pad,
                                  (uint32_t)args->upsample, args->activation,       flags};
    union vk_tile tile;
    dispatch->tune = (struct vk_tune_key){.family = build->fp16 ? VK_TUNE_TILED_F16 : VK_TUNE_TILED_F32,
                                          .kernel = (uint32_t)args->kernel,
                                          .stride = (uint32_t)args->stride,
                                          .upsample = (uint32_t)args->upsample,
                                          .in_blocks = (uint32_t)x->layout.blocks,
                                          .out_blocks = (uint32_t)y->layout.blocks,
                                          .size = vk_tune_size(y)};
    dispatch->key.spec_count = sizeof constants / sizeof constants[0];
    memcpy(dispatch->key.spec, constants, sizeof constants);
    dispatch->groups[2] = y->n;
    vk_tune_find(build->device, &dispatch->tune, &tile);
    apply(&tile, dispatch);
}

bool vk_tiled_wants(const struct vk_device *device, const struct vk_dispatch *dispatch, enum vk_pack_kind kind)
{
    union vk_tile tile;
    if (vk_tune_find(device, &dispatch->tune, &tile) || !vk_tune_measures(device))
        return (tile.tiled.kind == WINOGRAD) == (kind == PACK_WINOGRAD);
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++)
        if ((tiles[i].tiled.kind == WINOGRAD) == (kind == PACK_WINOGRAD) && fits(device, &dispatch->tune, &tiles[i]))
            return true;
    return false;
}
