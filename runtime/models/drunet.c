/* DRUNet (Zhang et al. 2021; names as in KAIR's network_unet.py): a U-Net of residual blocks against noise whose level
 * it is told, in one more channel. */
#include "runtime/models/restorer.h"
#include "runtime/models/transposed.h"

#define DRUNET_LEVELS 3

static bool drunet_detect(const struct weights *weights, struct model_info *info, struct error *err)
{
    bool level;
    if (!weights_find(weights, "m_head.weight") || !weights_find(weights, "m_tail.weight") ||
        !weights_find(weights, "m_down1.0.res.0.weight") || !weights_find(weights, "m_body.0.res.0.weight"))
        return false;
    const int blocks = build_count(weights, "m_body.%d.res.0.weight");
    if (build_dim(weights, build_name("m_down1.%d.weight", blocks), 2) != 2 ||
        build_dim(weights, "m_up3.0.weight", 2) != 2)
        error_set(
            err, ERROR_UNSUPPORTED,
            "DRUNet that changes sizes by other layers than convolutions of 2×2 px, which its authors' files have");
    if (err->code || !restorer_channels(build_dim(weights, "m_head.weight", 1), build_dim(weights, "m_tail.weight", 0),
                                        &level, "DRUNet", err))
        return false;
    info->kind = MODEL_UPSCALER;
    info->architecture = "DRUNet";
    info->unshuffle = 1 << DRUNET_LEVELS;
    info->full_body = true;
    /* Two convolutions a block, down and up, each level reaching twice as far as the one above. */
    info->radius = 2 + 4 * blocks * (1 + 2 + 4) + 2 * blocks * 8;
    return true;
}

static void drunet_smallest(const struct model_info *info, struct session_shape *shape)
{
    shape->h = shape->w = info->unshuffle;
}

static void drunet_build(struct model_build *b, const struct session_shape *shape)
{
    const int blocks = build_blocks(b, "m_body.", 0, ".res.0.weight");
    struct view down[DRUNET_LEVELS + 1];
    struct restorer r;
    bool level;
    if (shape->h % (1 << DRUNET_LEVELS) || shape->w % (1 << DRUNET_LEVELS)) {
        build_fail(b, ERROR_INVALID, "%d×%d is not a multiple of %d", shape->w, shape->h, 1 << DRUNET_LEVELS);
        return;
    }
    const int channels =
        restorer_channels(build_size(b, "m_head.weight", 1), build_size(b, "m_tail.weight", 0), &level, NULL, NULL);
    restorer_begin(b, shape, channels, level, &r);
    down[0] = build_like(b, r.x, build_size(b, "m_head.weight", 0));
    restorer_conv(b, "m_head", r.x, down[0], 3);
    for (int i = 1; i <= DRUNET_LEVELS; i++) {
        const struct build_text name = build_text("m_down%d", i);
        const struct view x = restorer_blocks(b, name.text, 0, blocks, down[i - 1], VIEW_NONE);
        down[i] = restorer_halve(b, build_name("%s.%d", name.text, blocks), x);
    }
    struct view x = restorer_blocks(b, "m_body", 0, blocks, down[DRUNET_LEVELS], down[DRUNET_LEVELS]);
    for (int i = DRUNET_LEVELS; i >= 1; i--) {
        const struct build_text name = build_text("m_up%d", i);
        struct node *conv;
        x = build_transposed(b, build_name("%s.0", name.text), TRANSPOSED_2_2_0, x, &conv);
        x = restorer_blocks(b, name.text, 1, blocks, x, down[i - 1]);
    }
    restorer_conv(b, "m_tail", x, restorer_result(b, &r), 3);
    restorer_end(b, &r);
}

const struct architecture architecture_drunet = {drunet_detect, drunet_build, drunet_smallest};
