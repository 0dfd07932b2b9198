#include "runtime/vulkan/vk_tiled.h"

#include <string.h>

#define UNIT 4         /* out quads that are side by side in the weights */
#define SMALL_KERNEL 3 /* above it only small tiles are unrolled */
#define SIDE 4         /* pixels of Winograd's tiles */
#define PACKED_SIDE 2  /* in packed fp16 */
#define MIN_PACKED 4   /* quads of output channels: pictures are made of fewer, and there rounding would show */
#define MIN_IN 2       /* quads of input channels: a picture's must not be rounded, nor are transforms worth while */
/* Bytes of transformed weights, which are 4 times as many, and fp32, or packed 16/9 times. */
#define MAX_WINOGRAD ((uint64_t)8 << 20)

enum { FP32, PACKED, WINOGRAD, WINOGRAD_PACKED }; /* kinds of tiles */

/* In the order of union vk_tile; the last one can do everything. The first that can do the convolution is the guess. */
static const union vk_tile tiles[] = {
    {{WINOGRAD_PACKED, 8, 1, 8, 8, 1, 8, 1}},
    {{WINOGRAD_PACKED, 8, 1, 8, 8, 1, 16, 1}},
    {{WINOGRAD_PACKED, 8, 1, 16, 8, 1, 16, 1}},
    {{WINOGRAD_PACKED, 8, 1, 16, 8, 1, 16, 0}},
    {{WINOGRAD_PACKED, 4, 2, 16, 8, 1, 16, 1}},
    {{PACKED, 32, 1, 4, 8, 2}},
    {{PACKED, 16, 1, 8, 8, 2}},
    {{PACKED, 16, 2, 4, 8, 1}},
    {{PACKED, 8, 2, 8, 4, 2}},
    {{PACKED, 8, 4, 4, 2, 1}},
    {{FP32, 16, 2, 4, 8, 1}},
    {{FP32, 16, 1, 8, 8, 2}},
    {{FP32, 8, 2, 8, 4, 2}},
    {{FP32, 8, 4, 4, 2, 1}},
    {{FP32, 8, 1, 8, 2, 1}},
    {{FP32, 16, 4, 1, 4, 1}},
    {{WINOGRAD, 4, 2, 8, 1, 2, 0}},
    {{WINOGRAD, 4, 4, 8, 1, 2, 1}},
    {{WINOGRAD, 4, 2, 4, 1, 1, 1}},
    {{FP32, 8, 1, 1, 1, 1}},
};

static bool tiled_transforms(const union vk_tile *tile)
{
    return tile->tiled.kind >= WINOGRAD;
}

static uint32_t tiled_invocations(const union vk_tile *tile)
{
    const uint32_t tiles_of = tile->winograd.across * tile->winograd.down, shares = tile->winograd.shares;
    return tile->tiled.kind == WINOGRAD          ? WINOGRAD_POSITIONS * tiles_of / 8 * shares
           : tile->tiled.kind == WINOGRAD_PACKED ? WINOGRAD_PACKED_POSITIONS * tiles_of / tile->pairs.per * shares
                                                 : tile->tiled.columns * tile->tiled.down * tile->tiled.across;
}

static uint32_t tiled_out_quads(const union vk_tile *tile)
{
    return tile->tiled.kind == WINOGRAD          ? tile->winograd.shares * tile->winograd.per
           : tile->tiled.kind == WINOGRAD_PACKED ? tile->pairs.shares * tile->pairs.quads
                                                 : tile->tiled.across * tile->tiled.quads;
}

/* In quads of a chunk: with a 1×1 kernel a chunk needs many to be worth its barriers. */
static uint32_t tiled_steps(uint32_t kernel)
{
    return kernel == 1 ? 8 : 1;
}

/* Bytes of shared memory that a workgroup needs: see the shaders. */
static uint32_t tiled_shared_bytes(const union vk_tile *tile, uint32_t kernel, uint32_t stride)
{
    if (tile->tiled.kind == WINOGRAD) {
        const uint32_t pixels = (tile->winograd.down * SIDE + 2) * (tile->winograd.across + 1) * SIDE;
        const uint32_t tiles_of = tile->winograd.across * tile->winograd.down, channels = tile->winograd.steps * 4;
        return (channels * pixels + WINOGRAD_POSITIONS * (channels * tiles_of + 8)) * 4;
    }
    if (tile->tiled.kind == WINOGRAD_PACKED) {
        const uint32_t tiles_of = tile->pairs.across * tile->pairs.down;
        const uint32_t in = tile->pairs.steps * tiles_of + 8, out = (tiled_out_quads(tile) + 1) * tiles_of;
        return WINOGRAD_PACKED_POSITIONS * (in > out ? in : out) * 8;
    }
    const uint32_t apart = kernel == 1 ? 1 : stride; /* a 1×1 convolution copies only the pixels that it needs */
    const uint32_t w = (tile->tiled.columns - 1) * apart + kernel;
    const uint32_t h = (tile->tiled.down * tile->tiled.rows - 1) * apart + kernel;
    return tiled_steps(kernel) * (w * h + kernel * kernel * 4 * tiled_out_quads(tile)) *
           (tile->tiled.kind == PACKED ? 8 : 16);
}

bool vk_tiled_packed(const struct vk_device *device, const struct vk_tune_key *key)
{
    return device->packed && key->family == VK_TUNE_TILED_F16 && key->out_blocks >= MIN_PACKED &&
           key->in_blocks >= MIN_IN;
}

/* Whether the kernel is for such a convolution. */
static bool tiled_suits(const struct vk_device *device, const struct vk_tune_key *key, const union vk_tile *tile)
{
    const bool packed = vk_tiled_packed(device, key);
    const uint64_t bytes = packed ? WINOGRAD_PACKED_POSITIONS * 2 : WINOGRAD_POSITIONS * 4; /* for each pair of lanes */
    if (tiled_transforms(tile))
        return packed == (tile->tiled.kind == WINOGRAD_PACKED) && key->kernel == 3 && key->stride == 1 &&
               key->in_blocks >= MIN_IN &&
               key->in_blocks * 4 * ((key->out_blocks + 3) / 4) * 16 * bytes <= MAX_WINOGRAD;
    return (tile->tiled.kind == FP32 || packed) &&
           (key->kernel <= SMALL_KERNEL || tile->tiled.rows * tile->tiled.quads <= 4);
}

static bool tiled_fits(const struct vk_device *device, const struct vk_tune_key *key, const union vk_tile *tile)
{
    const VkPhysicalDeviceLimits *limits = &device->traits.limits;
    const uint32_t columns = tiled_transforms(tile) ? tiled_invocations(tile) : tile->tiled.columns;
    return tiled_suits(device, key, tile) && tiled_out_quads(tile) < key->out_blocks + UNIT &&
           tiled_invocations(tile) <= limits->maxComputeWorkGroupInvocations &&
           columns <= limits->maxComputeWorkGroupSize[0] &&
           tiled_shared_bytes(tile, key->kernel, key->stride) <= limits->maxComputeSharedMemorySize;
}

static void tiled_apply(const union vk_tile *tile, struct vk_dispatch *dispatch)
{
    static const char *const shaders[] = {"conv2d_tiled", "conv2d_packed", "winograd", "winograd_packed"};
    enum { OF_CONVOLUTION = 6 }; /* constants that come after those of the tile */
    struct vk_pipeline_key *key = &dispatch->key;
    struct params_conv2d *push = &dispatch->push.conv2d;
    const bool winograd = tiled_transforms(tile);
    const uint32_t side = tile->tiled.kind == WINOGRAD_PACKED ? PACKED_SIDE : SIDE;
    const uint32_t columns = winograd ? tile->winograd.across * side : tile->tiled.columns;
    const uint32_t rows = winograd ? tile->winograd.down * side : tile->tiled.down * tile->tiled.rows;
    uint32_t constants[OF_CONVOLUTION];
    memcpy(constants, key->spec + key->spec_count - OF_CONVOLUTION, sizeof constants);
    if (winograd) {
        key->spec[0] = tiled_invocations(tile);
        key->spec_count =
            (tile->tiled.kind == WINOGRAD_PACKED ? sizeof tile->pairs : sizeof tile->winograd) / sizeof(uint32_t);
        memcpy(key->spec + 1, &tile->number[1], (key->spec_count - 1) * sizeof(uint32_t));
    } else {
        memcpy(key->spec, &tile->tiled.columns, sizeof tile->tiled - sizeof tile->tiled.kind);
        key->spec_count = sizeof tile->tiled / sizeof(uint32_t);
        key->spec[key->spec_count - 1] = tiled_steps(dispatch->tune.kernel);
    }
    memcpy(key->spec + key->spec_count, constants, sizeof constants);
    key->spec_count += OF_CONVOLUTION;
    key->shader = shaders[tile->tiled.kind];
    push->tiles_x = (push->out_w + columns - 1) / columns;
    dispatch->groups[0] = push->tiles_x * ((push->out_h + rows - 1) / rows);
    dispatch->groups[1] = (push->out_blocks + tiled_out_quads(tile) - 1) / tiled_out_quads(tile);
}

const struct vk_tune_family vk_tiled_family = {tiles, sizeof tiles / sizeof tiles[0], tiled_fits, tiled_apply};

bool vk_tiled_takes(const struct vk_build *build, const struct op_conv2d *args)
{
    const union vk_tile *least = &tiles[sizeof tiles / sizeof tiles[0] - 1];
    return build->device->stage_convolution && args->kernel < 16 && args->stride < 16 &&
           tiled_shared_bytes(least, (uint32_t)args->kernel, (uint32_t)args->stride) <=
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
    tiled_apply(&tile, dispatch);
}

bool vk_tiled_wants(const struct vk_device *device, const struct vk_dispatch *dispatch, enum vk_pack_kind kind)
{
    union vk_tile tile;
    if (vk_tune_find(device, &dispatch->tune, &tile) || !vk_tune_measures(device))
        return tiled_transforms(&tile) == (kind == PACK_WINOGRAD);
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++)
        if (tiled_transforms(&tiles[i]) == (kind == PACK_WINOGRAD) && tiled_fits(device, &dispatch->tune, &tiles[i]))
            return true;
    return false;
}
