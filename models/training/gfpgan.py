"""GFPGANv1Clean (Wang et al. 2021), written from its checkpoints' layout: a U-Net that predicts a latent code a layer and
spatial scales and shifts, and a StyleGAN2 decoder modulated by them. The state dict has the official names, so exports load
wherever official checkpoints do; and official or test checkpoints load here (`from_state`), which makes this the oracle of
the runtime's graph. Pictures are N×3×size×size, RGB, -1..1.

The style network (style_mlp) is missing: GFPGAN bypasses it (input_is_latent), and its tensors would be dead weight.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def channels(size, narrow, multiplier):
    """Channels of the decoder at each side 4..size; the U-Net has half as many."""
    full = {4: 512, 8: 512, 16: 512, 32: 512, 64: 256 * multiplier, 128: 128 * multiplier, 256: 64 * multiplier,
            512: 32 * multiplier, 1024: 16 * multiplier}
    return {side: int(c * narrow) for side, c in full.items() if side <= size}


def leaky(x):
    return F.leaky_relu(x, 0.2)


def double(x):
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


class ResBlock(nn.Module):
    """Two convolutions around a bilinear resize by 1/2 or 2, plus a 1×1 convolution of the resized input."""

    def __init__(self, source, target, down):
        super().__init__()
        self.down = down
        self.conv1 = nn.Conv2d(source, source, 3, 1, 1)
        self.conv2 = nn.Conv2d(source, target, 3, 1, 1)
        self.skip = nn.Conv2d(source, target, 1, bias=False)

    def resize(self, x):
        return F.avg_pool2d(x, 2) if self.down else double(x)

    def forward(self, x):
        inner = leaky(self.conv2(self.resize(leaky(self.conv1(x)))))
        if self.down:
            return inner + self.skip(self.resize(x))
        return inner + self.resize(self.skip(x))  # a 1×1 convolution without bias and the resize may change places


class ModulatedConv(nn.Module):
    """Modulation scales the input channels by the style; demodulation scales the output channels so that their variance
    does not depend on it (Karras et al. 2020, equations 1 and 3)."""

    def __init__(self, source, target, kernel, features, demodulate):
        super().__init__()
        self.kernel, self.demodulate = kernel, demodulate
        self.weight = nn.Parameter(torch.randn(1, target, source, kernel, kernel) / math.sqrt(source * kernel**2))
        self.modulation = nn.Linear(features, source)
        nn.init.normal_(self.modulation.weight, std=1 / math.sqrt(features))
        nn.init.ones_(self.modulation.bias)

    def forward(self, x, latent, gain=1.0):
        weight = self.weight[0]
        style = self.modulation(latent).float()
        x = x * style.to(x.dtype)[:, :, None, None]
        out = F.conv2d(x, weight, padding=self.kernel // 2)
        if self.demodulate:
            squares = weight.float().square().sum((2, 3))
            scale = gain * torch.rsqrt(F.linear(style.square(), squares).float() + 1e-8)
            out = out * scale.to(out.dtype)[:, :, None, None]
        return out


class StyleConv(nn.Module):
    def __init__(self, source, target, features):
        super().__init__()
        self.modulated_conv = ModulatedConv(source, target, 3, features, True)
        self.weight = nn.Parameter(torch.zeros(1))  # of the noise
        self.bias = nn.Parameter(torch.zeros(1, target, 1, 1))

    def forward(self, x, latent, noise):
        out = self.modulated_conv(x, latent, 2**0.5)
        if noise is not None:
            out = out + self.weight * noise
        return leaky(out + self.bias.to(out.dtype))


class ToRgb(nn.Module):
    def __init__(self, source, features):
        super().__init__()
        self.modulated_conv = ModulatedConv(source, 3, 1, features, False)
        self.bias = nn.Parameter(torch.zeros(1, 3, 1, 1))

    def forward(self, x, latent, skip):
        out = self.modulated_conv(x, latent).float() + self.bias
        return out if skip is None else out + double(skip)


class Constant(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, count, 4, 4))


class Noises(nn.Module):
    """The stored noise maps noise0…: one of 4×4, then two of each side."""

    def __init__(self, levels):
        super().__init__()
        for i in range(2 * levels + 1):
            side = 4 << ((i + 1) // 2)
            self.register_buffer(f"noise{i}", torch.zeros(1, 1, side, side))


class Decoder(nn.Module):
    def __init__(self, size, width, features, noise):
        super().__init__()
        self.levels = int(math.log2(size)) - 2
        self.constant_input = Constant(width[4])
        self.style_conv1 = StyleConv(width[4], width[4], features)
        self.to_rgb1 = ToRgb(width[4], features)
        self.style_convs, self.to_rgbs = nn.ModuleList(), nn.ModuleList()
        for i in range(self.levels):
            source, target = width[4 << i], width[8 << i]
            self.style_convs += [StyleConv(source, target, features), StyleConv(target, target, features)]
            self.to_rgbs.append(ToRgb(target, features))
        self.noises = Noises(self.levels) if noise else None
        self.layout = torch.channels_last  # the convolutions keep the order that they are given

    def noise(self, i):
        return getattr(self.noises, f"noise{i}") if self.noises is not None else None

    def forward(self, latents, conditions):
        x = self.constant_input.weight.expand(latents.shape[0], -1, -1, -1)
        x = x.contiguous(memory_format=self.layout)
        x = self.style_conv1(x, latents[:, 0], self.noise(0))
        rgbs = [self.to_rgb1(x, latents[:, 1], None)]
        for i in range(self.levels):
            scale, shift = conditions[i]
            x = self.style_convs[2 * i](double(x), latents[:, 2 * i + 1], self.noise(2 * i + 1))
            keep = x.shape[1] - scale.shape[1]  # sft_half: the first half passes by
            x = torch.cat([x[:, :keep], x[:, keep:] * scale + shift], 1)
            x = self.style_convs[2 * i + 1](x, latents[:, 2 * i + 2], self.noise(2 * i + 2))
            rgbs.append(self.to_rgbs[i](x, latents[:, 2 * i + 3], rgbs[-1]))
        return rgbs


class Gfpgan(nn.Module):
    """noise: whether there are stored noise maps; without, nothing is added, as with maps or strengths of zero."""

    def __init__(self, size=512, narrow=1.0, multiplier=2, features=512, noise=True, width=None):
        super().__init__()
        width = width or channels(size, narrow, multiplier)
        half = {side: max(1, c // 2) for side, c in width.items()}
        self.size, self.levels, self.features = size, int(math.log2(size)) - 2, features
        self.conv_body_first = nn.Conv2d(3, half[size], 1)
        self.conv_body_down = nn.ModuleList(
            ResBlock(half[size >> i], half[size >> (i + 1)], True) for i in range(self.levels))
        self.final_conv = nn.Conv2d(half[4], half[4], 3, 1, 1)
        self.conv_body_up, self.toRGB = nn.ModuleList(), nn.ModuleList()
        self.condition_scale, self.condition_shift = nn.ModuleList(), nn.ModuleList()
        for i in range(self.levels):
            c = half[8 << i]
            self.conv_body_up.append(ResBlock(half[4 << i], c, False))
            self.toRGB.append(nn.Conv2d(c, 3, 1))
            for conditions, bias in ((self.condition_scale, 1.0), (self.condition_shift, 0.0)):
                last = nn.Conv2d(c, c, 3, 1, 1)
                nn.init.constant_(last.bias, bias)
                conditions.append(nn.Sequential(nn.Conv2d(c, c, 3, 1, 1), nn.LeakyReLU(0.2), last))
        self.final_linear = nn.Linear(half[4] * 16, (2 * self.levels + 2) * features)
        self.stylegan_decoder = Decoder(size, width, features, noise)

    def forward(self, x, pyramids=False):
        """The picture; with pyramids (picture, the decoder's pictures of side 4…size, the U-Net's of side 8…size)."""
        n = x.shape[0]
        feature = leaky(self.conv_body_first(x))
        skips = []
        for block in self.conv_body_down:
            feature = block(feature)
            skips.insert(0, feature)
        feature = leaky(self.final_conv(feature))
        latents = self.final_linear(feature.reshape(n, -1)).reshape(n, -1, self.features)
        conditions, pictures = [], []
        for i, block in enumerate(self.conv_body_up):
            feature = block(feature + skips[i])
            conditions.append((self.condition_scale[i](feature), self.condition_shift[i](feature)))
            if pyramids:
                pictures.append(self.toRGB[i](feature).float())
        rgbs = self.stylegan_decoder(latents, conditions)
        return (rgbs[-1], rgbs, pictures) if pyramids else rgbs[-1]


def from_state(state):
    """The network that a state dict is of, with its tensors."""
    state = {k: v.float() for k, v in state.items() if ".style_mlp." not in k}
    levels = sum(k.startswith("conv_body_down.") and k.endswith("conv1.weight") for k in state)
    decoder = "stylegan_decoder."
    width = {4: state[decoder + "constant_input.weight"].shape[1]}
    for i in range(levels):
        width[8 << i] = state[f"{decoder}style_convs.{2 * i}.modulated_conv.weight"].shape[1]
    features = state[decoder + "style_conv1.modulated_conv.modulation.weight"].shape[1]
    net = Gfpgan(4 << levels, features=features, noise=decoder + "noises.noise0" in state, width=width)
    net.load_state_dict(state)
    return net


def export_state(state, levels=7):
    """A training state dict (no noise) as the official layout has it: with noise maps, of zeros."""
    out = {k: v for k, v in state.items() if ".noises." not in k}
    for name, buffer in Noises(levels).state_dict().items():
        out["stylegan_decoder.noises." + name] = buffer
    return out
