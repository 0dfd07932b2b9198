#include "runtime/models/foreign.h"

#include <stddef.h>

/* Two tensors that together only this network has (or one), as spandrel tells networks apart. Where one network's
 * tensors are among another's, the other comes first. */
static const struct foreign {
    const char *name, *keys[2];
} foreign_list[] = {
    {"ATD, a transformer", {"layers.0.residual_group.td", "layers.0.residual_group.layers.0.sigma"}},
    {"HAT, a transformer", {"relative_position_index_SA", "layers.0.residual_group.blocks.0.norm1.weight"}},
    {"Swin2SR, a transformer", {"patch_embed.proj.weight", "layers.0.residual_group.blocks.0.attn.logit_scale"}},
    {"SwinIR, a transformer",
     {"layers.0.residual_group.blocks.0.norm1.weight",
      "layers.0.residual_group.blocks.0.attn.relative_position_index"}},
    {"SRFormer, a transformer",
     {"layers.0.residual_group.blocks.0.norm1.weight",
      "layers.0.residual_group.blocks.0.attn.aligned_relative_position_index"}},
    {"CRAFT, a transformer", {"conv_first.weight", "layers.0.residual_group.hf_blocks.0.attn.temperature"}},
    {"DRCT, a transformer", {"conv_first.weight", "layers.0.swin1.attn.relative_position_bias_table"}},
    {"DAT, a transformer", {"before_RG.1.weight", "layers.0.blocks.0.ffn.sg.norm.weight"}},
    {"RGT, a transformer", {"before_RG.1.weight", "layers.0.blocks.0.gamma"}},
    {"OmniSR, a transformer", {"input.weight", "residual_layer.0.residual_layer.0.layer.0.fn.0.weight"}},
    {"FDAT, a transformer", {"groups.0.blocks.0.attn.bias", "groups.0.blocks.0.inter.cg.1.weight"}},
    {"DITN, a transformer", {"sft.weight", "UFONE.0.ITLs.0.attn.temperature"}},
    {"Uformer, a transformer", {"input_proj.proj.0.weight", "encoderlayer_0.blocks.0.norm1.weight"}},
    {"FFTformer, a transformer", {"encoder_level1.0.ffn.fft", "patch_embed.proj.weight"}},
    {"GRL, a transformer", {"conv_first.weight", "layers.0.blocks.0.attn.window_attn.attn_transform.logit_scale"}},
    {"GRL, a transformer",
     {"model.conv_first.weight", "model.layers.0.blocks.0.attn.window_attn.attn_transform.logit_scale"}},
    {"IPT, a transformer", {"sub_mean.weight", "body.encoder.layers.0.self_attn.in_proj_weight"}},
    {"DCTLSA, a transformer", {"fea_conv.weight", "B1.body.0.transformer_body.0.blocks.0.attn.qkv.weight"}},
    {"Restormer, a transformer", {"patch_embed.proj.weight", "encoder_level1.0.attn.temperature"}},
    {"RetinexFormer, a transformer",
     {"body.0.estimator.conv1.weight", "body.0.denoiser.encoder_layers.0.0.blocks.0.0.rescale"}},
    {"MAT, a transformer", {"synthesis.first_stage.conv_first.conv.resample_filter", NULL}},
    {"MAT, a transformer", {"model.synthesis.first_stage.conv_first.conv.resample_filter", NULL}},
    {"AuraSR", {"mid_attn.layers.0.0.to_out.weight", "final_res_block.block1.proj.weights"}},
    {"AdaCode",
     {"multiscale_encoder.in_conv.weight",
      "weight_predictor.blocks.0.swin_blks.0.residual_group.blocks.0.norm1.weight"}},
    {"FeMaSR", {"multiscale_encoder.in_conv.weight", "quantize_group.0.embedding.weight"}},
    {"DDColor", {"refine_net.0.0.weight_orig", "encoder.arch.downsample_layers.0.0.weight"}},
    {"MIRNet2", {"conv_in.weight", "body.0.body.0.dau_top.gcnet.conv_mask.weight"}},
    {"MPRNet", {"shallow_feat1.0.weight", "stage1_encoder.encoder_level1.0.CA.conv_du.0.weight"}},
    {"MixDehazeNet", {"patch_embed.proj.weight", "layer1.blocks.0.conv3_19.weight"}},
    {"HVI-CIDNet", {"HVE_block0.1.weight", "IE_block0.1.weight"}},
    {"SeemoRe", {"conv_1.weight", "body.0.local_block.block.agg_conv.0.weight"}},
    {"SAFMN-BCIE", {"to_feat.1.weight", "feats.0.layers.0.safm.mfr.0.weight"}},
    {"KBNet", {"encoders.0.0.attgamma", "intro.weight"}},
    {"SCUNet, a transformer", {"m_head.0.weight", "m_tail.0.weight"}},
    {"PLKSR", {"feats.0.weight", "feats.1.channe_mixer.0.weight"}},
    {"MoSR", {"gblocks.0.weight", "gblocks.1.fc1.weight"}},
    {"MoESR", {"in_to_dim.weight", "blocks.0.blocks.0.gamma"}},
    {"RCAN", {"tail.1.weight", "body.0.body.0.body.3.conv_du.0.weight"}},
    {"SAFMN", {"to_feat.weight", "feats.0.safm.aggr.weight"}},
    {"Swift-SRGAN", {"initial.cnn.depthwise.weight", "final_conv.pointwise.weight"}},
    {"M3SNet", {"intro.weight", "middle_blks.0.temperature"}},
    {"SPAN of which only the folded convolutions (eval_conv) are left; the file as it was trained is read",
     {"conv_1.eval_conv.weight", "block_1.c1_r.eval_conv.weight"}},
    {"NAFNet", {"intro.weight", "middle_blks.0.beta"}},
    {"IRCNN", {"model.0.weight", "model.12.weight"}},
    {"LaMa", {"model.model.1.bn_l.running_mean", "model.model.1.ffc.convl2l.weight"}},
    {"LaMa", {"generator.model.1.bn_l.running_mean", "generator.model.1.ffc.convl2l.weight"}},
};

const char *foreign_name(const struct weights *weights)
{
    for (size_t i = 0; i < sizeof foreign_list / sizeof foreign_list[0]; i++)
        if (weights_find(weights, foreign_list[i].keys[0]) &&
            (!foreign_list[i].keys[1] || weights_find(weights, foreign_list[i].keys[1])))
            return foreign_list[i].name;
    return NULL;
}

const char *foreign_disguise(const struct weights *weights)
{
    const bool degradation =
        weights_find(weights, "dd_embed.0.weight") && weights_find(weights, "am_list.0.fc.0.weight");
    return degradation ? "MM-RealSR" : NULL;
}
