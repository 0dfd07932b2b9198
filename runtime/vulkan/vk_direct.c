#include "runtime/vulkan/vk_direct.h"

#include <string.h>

#include "runtime/vulkan/vk_matrix.h"

#define SIZE VK_MATRIX_SIZE
#define SUBGROUP 32
#define DEEP 64       /* quads of input channels from which this way is faster with a stride: measured */
#define SPLIT_SIZE 14 /* subgroups divide the steps only in pictures of up to 128×128 */

/* --- weights -------------------------------------------------------------------------------------------------------
 */

static int direct_kernel_of(int taps)
{
    int kernel = 1;
    while ((kernel + 1) * (kernel + 1) <= taps)
        kernel++;
    return kernel;
}

/* A picture: one quad, so that 4 taps side by side make a matrix. */
static bool direct_is_picture(const struct vk_layout *in, int taps)
{
    return in->blocks == 1 && taps > 1;
}

int vk_direct_steps(const struct vk_layout *in, int taps, int *taps_each)
{
    const bool picture = direct_is_picture(in, taps);
    const int kernel = direct_kernel_of(taps);
    *taps_each = picture ? 1 : taps;
    return picture ? kernel * ((kernel + 3) / 4) : (in->blocks + 3) / 4;
}

void vk_direct_lanes(const struct vk_device *device, const struct vk_layout *in, int taps, uint32_t *lanes)
{
    int taps_each;
    const int kernel = direct_kernel_of(taps), groups = (kernel + 3) / 4, steps = vk_direct_steps(in, taps, &taps_each);
    uint32_t channels[SIZE];
    if (!direct_is_picture(in, taps))
        vk_pack_lanes(in, lanes);
    for (int i = direct_is_picture(in, taps) ? 0 : in->blocks * 4; i < steps * SIZE; i++)
        lanes[i] = VK_PACK_NO_CHANNEL;
    for (int step = 0; step < steps; step++, lanes += SIZE) {
        for (int i = 0; i < SIZE && direct_is_picture(in, taps); i++) { /* quad i / 4 is a tap */
            const int kx = step % groups * 4 + i / 4, tap = step / groups * kernel + kx;
            if (kx < kernel && i % 4 < in->channels)
                lanes[i] = (uint32_t)(i % 4 * taps + tap);
        }
        memcpy(channels, lanes, sizeof channels);
        for (int row = 0; row < SIZE; row++)
            lanes[row] = channels[device->matrix_row[row]];
    }
}

/* --- tiles ---------------------------------------------------------------------------------------------------------
 */

/* In the order of union vk_tile. */
static const union vk_tile tiles[] = {
    {{4, 1, 4, 4, 1, 4, 1}}, {{8, 1, 2, 4, 1, 4, 1}}, {{4, 1, 4, 4, 1, 2, 1}}, {{4, 1, 2, 2, 2, 4, 2}},
    {{8, 1, 2, 2, 2, 8, 2}}, {{4, 1, 2, 4, 2, 4, 2}}, {{4, 4, 2, 4, 1, 1, 2}}, {{4, 4, 4, 4, 2, 1, 4}},
    {{4, 4, 2, 4, 2, 1, 2}}, {{4, 4, 2, 4, 4, 1, 2}}, {{4, 4, 2, 2, 1, 1, 2}}, {{4, 4, 4, 2, 2, 1, 4}},
    {{1, 1, 1, 2, 1, 1, 1}},
};

static uint32_t direct_across(const union vk_tile *tile)
{
    return tile->direct.subgroups / tile->direct.split / tile->direct.down * tile->direct.blocks;
}

/* Bytes of shared memory that a workgroup needs. */
static uint32_t direct_shared_bytes(const union vk_tile *tile)
{
    const uint32_t held = tile->direct.subgroups * tile->direct.phase * tile->direct.blocks * SIZE * SIZE;
    return ((tile->direct.split > 1 ? held : 0) + 1) * 4;
}

static bool direct_fits(const struct vk_device *device, const struct vk_tune_key *key, const union vk_tile *tile)
{
    return (direct_across(tile) <= key->out_blocks || direct_across(tile) == 2) &&
           (tile->direct.split == 1 ||
            (key->size <= SPLIT_SIZE && key->in_blocks * key->kernel >= 2 * tile->direct.split)) &&
           tile->direct.subgroups * SUBGROUP <= device->traits.limits.maxComputeWorkGroupInvocations &&
           direct_shared_bytes(tile) <= device->traits.limits.maxComputeSharedMemorySize;
}

static void direct_apply(const union vk_tile *tile, struct vk_dispatch *dispatch)
{
    struct params_conv2d *push = &dispatch->push.conv2d;
    const uint32_t pixels = tile->direct.down * tile->direct.rows * SIZE;
    dispatch->key.spec[0] = SUBGROUP * tile->direct.subgroups;
    memcpy(dispatch->key.spec + 1, &tile->direct, sizeof tile->direct);
    push->tiles_x = (dispatch->tune.out_blocks + direct_across(tile) - 1) / direct_across(tile);
    dispatch->groups[0] = push->tiles_x * ((push->out_h * push->out_w + pixels - 1) / pixels);
    dispatch->groups[1] = 1;
}

const struct vk_tune_family vk_direct_family = {tiles, sizeof tiles / sizeof tiles[0], direct_fits, direct_apply};

/* --- convolutions --------------------------------------------------------------------------------------------------
 */

bool vk_direct_takes(const struct vk_build *build, const struct op_conv2d *args, const struct vk_operand *x)
{
    if (!build->fp16 || !build->device->matrix_direct || args->upsample != 1)
        return false;
    if (args->kernel == 1)
        return args->pad == 0 && x->layout.group_log == 2;
    if (args->kernel > VK_MATRIX_KERNEL) /* a pixel would be loaded for each tap */
        return false;
    if (args->stride == 1 && args->kernel <= 3) /* these run without barriers in between: vk_chain.h */
        return false;
    return x->layout.blocks == 1 || (x->layout.group_log == 2 && x->layout.blocks >= DEEP);
}

/* Whether bias and residual 1 can be added first at no cost: y and the residual are in pairs of groups of 16 channels,
 * and only ReLU follows. */
static bool direct_is_lean(const struct op_conv2d *args, const struct vk_operand *y, const struct vk_operand *residual1,
                           uint32_t flags)
{
    const bool last = !residual1->n || flags & FLAG_ACTIVATION_LAST;
    return y->layout.group_log == 2 && (!residual1->n || residual1->layout.group_log == 2) &&
           vk_matrix_unit(y->layout.blocks) > SIZE && y->layout.blocks % 8 == 0 &&
           !(flags & (FLAG_SCALED | FLAG_OUT_SCALE | FLAG_NOISE | FLAG_RESIDUAL2 | FLAG_SHIFT)) &&
           (args->activation == ACTIVATION_NONE || (args->activation == ACTIVATION_RELU && last));
}

void vk_direct_conv2d(const struct vk_device *device, const struct op_conv2d *args, const struct vk_operand *x,
                      const struct vk_operand *y, const struct vk_operand *residual1, uint32_t flags,
                      struct vk_dispatch *dispatch)
{
    enum { OF_TILE = sizeof tiles[0].direct / sizeof(uint32_t) + 1 }; /* constants that apply() sets */
    if (direct_is_lean(args, y, residual1, flags))
        flags |= FLAG_LEAN;
    const uint32_t constants[] = {device->matrix_slot_bit,
                                  device->matrix_half_bit,
                                  vk_matrix_unit(y->layout.blocks) > SIZE,
                                  (uint32_t)args->kernel,
                                  (uint32_t)args->stride,
                                  (uint32_t)args->pad,
                                  args->activation,
                                  flags | (x->layout.blocks == 1 ? FLAG_PLANAR : 0) | vk_matrix_warm_flag(args, x, y)};
    _Static_assert(OF_TILE + sizeof constants / sizeof constants[0] <= VK_PIPELINE_MAX_SPEC, "room for all constants");
    union vk_tile tile;
    dispatch->tune = (struct vk_tune_key){.family = VK_TUNE_DIRECT,
                                          .kernel = (uint32_t)args->kernel,
                                          .stride = (uint32_t)args->stride,
                                          .upsample = 1,
                                          .in_blocks = ((uint32_t)x->layout.blocks + 3) / 4,
                                          .out_blocks = ((uint32_t)y->layout.blocks + 3) / 4,
                                          .size = vk_tune_size(y)};
    dispatch->key.shader = "matrix_direct";
    dispatch->key.spec_count = OF_TILE + sizeof constants / sizeof constants[0];
    memcpy(dispatch->key.spec + OF_TILE, constants, sizeof constants);
    dispatch->groups[2] = y->n;
    vk_tune_find(device, &dispatch->tune, &tile);
    direct_apply(&tile, dispatch);
}
