"""GFPGANv1 (Wang et al. 2021) in its original form, written from its checkpoint's layout: the network of gfpgan.py with
StyleGAN2's own layers (Karras et al. 2020). Weights count by 1/sqrt(inputs of a sum) (equalised learning rates),
activations are times sqrt(2), sums of two branches over sqrt(2), and sizes change through the filter (1, 3, 3, 1).
It is the oracle of the runtime's graph. Pictures are N×3×size×size, RGB, -1..1; the state dict has the official names.

As in gfpgan.py, the style network (style_mlp) is missing: input_is_latent bypasses it.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from models.training.gfpgan import Constant, Noises, channels, double

ROOT = 2**0.5


def leaky(x):
    return F.leaky_relu(x, 0.2) * ROOT


def filtered(x, before, after, up=1):
    """x with zeros put between its pixels, `before` and `after` pixels of zeros around it, through the filter; `up`
    also makes up for the zeros between."""
    n, c, h, w = x.shape
    if up > 1:
        x = F.pad(x.reshape(n, c, h, 1, w, 1), (0, up - 1, 0, 0, 0, up - 1)).reshape(n, c, h * up, w * up)
    row = torch.tensor([1.0, 3.0, 3.0, 1.0], dtype=x.dtype, device=x.device) / 8
    kernel = (row[:, None] * row * up**2).expand(c, 1, 4, 4)
    return F.conv2d(F.pad(x, (before, after, before, after)), kernel, groups=c)


class Leaky(nn.Module):
    def forward(self, x):
        return leaky(x)


class Conv(nn.Module):
    def __init__(self, source, target, kernel, bias=True):
        super().__init__()
        self.kernel = kernel
        self.weight = nn.Parameter(torch.randn(target, source, kernel, kernel))
        self.bias = nn.Parameter(torch.zeros(target)) if bias else None

    def forward(self, x, stride=1, pad=None):
        weight = self.weight / math.sqrt(self.weight[0].numel())
        return F.conv2d(x, weight, self.bias, stride, self.kernel // 2 if pad is None else pad)


class Linear(nn.Module):
    def __init__(self, source, target, bias=0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(target, source))
        self.bias = nn.Parameter(torch.full((target,), bias))

    def forward(self, x):
        return F.linear(x, self.weight / math.sqrt(self.weight.shape[1]), self.bias)


class Activation(nn.Module):
    """A bias for each channel, and LeakyReLU."""

    def __init__(self, count):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(count))

    def forward(self, x):
        return leaky(x + self.bias[None, :, None, None])


class Filter(nn.Module):
    """Before a convolution of every other pixel: no tensors."""

    def __init__(self, kernel):
        super().__init__()
        self.around = (kernel + 1) // 2

    def forward(self, x):
        return filtered(x, self.around, self.around)


class Halving(Conv):
    def forward(self, x):
        return super().forward(x, 2, 0)


def activated(source, target, kernel):
    return nn.Sequential(Conv(source, target, kernel, False), Activation(target))


class ResDown(nn.Module):
    def __init__(self, source, target):
        super().__init__()
        self.conv1 = activated(source, source, 3)
        self.conv2 = nn.Sequential(Filter(3), Halving(source, target, 3, False), Activation(target))
        self.skip = nn.Sequential(Filter(1), Halving(source, target, 1, False))

    def forward(self, x):
        return (self.conv2(self.conv1(x)) + self.skip(x)) / ROOT


class Enlarging(Conv):
    """A bilinear resize by 2, then the convolution, then perhaps an activation with the bias."""

    def __init__(self, source, target, kernel, active):
        super().__init__(source, target, kernel, False)
        if active:
            self.activation = Activation(target)

    def forward(self, x):
        x = super().forward(double(x))
        return self.activation(x) if hasattr(self, "activation") else x


class ResUp(nn.Module):
    def __init__(self, source, target):
        super().__init__()
        self.conv1 = activated(source, source, 3)
        self.conv2, self.skip = Enlarging(source, target, 3, True), Enlarging(source, target, 1, False)

    def forward(self, x):
        return (self.conv2(self.conv1(x)) + self.skip(x)) / ROOT


class ModulatedConv(nn.Module):
    """Weights of each picture's own: times its style, and normed (Karras et al. 2020, equations 1 and 3). Doubling, it
    is a transposed convolution with the filter behind it."""

    def __init__(self, source, target, kernel, features, demodulate=True, doubles=False):
        super().__init__()
        self.kernel, self.demodulate, self.doubles = kernel, demodulate, doubles
        self.weight = nn.Parameter(torch.randn(1, target, source, kernel, kernel))
        self.modulation = Linear(features, source, 1.0)

    def one(self, x, style):
        weight = self.weight[0] * style[None, :, None, None] / math.sqrt(self.weight[0, 0].numel())
        if self.demodulate:
            weight = weight * torch.rsqrt(weight.square().sum((1, 2, 3), keepdim=True) + 1e-8)
        if not self.doubles:
            return F.conv2d(x, weight, padding=self.kernel // 2)
        return filtered(F.conv_transpose2d(x, weight.transpose(0, 1), stride=2), 1, 1) * 4

    def forward(self, x, latent):
        styles = self.modulation(latent)
        return torch.cat([self.one(x[i : i + 1], styles[i]) for i in range(x.shape[0])])


class StyleConv(nn.Module):
    def __init__(self, source, target, features, doubles=False):
        super().__init__()
        self.modulated_conv = ModulatedConv(source, target, 3, features, doubles=doubles)
        self.weight = nn.Parameter(torch.zeros(1))  # of the noise
        self.activate = Activation(target)

    def forward(self, x, latent, noise):
        return self.activate(self.modulated_conv(x, latent) + self.weight * noise)


class ToRgb(nn.Module):
    def __init__(self, source, features):
        super().__init__()
        self.modulated_conv = ModulatedConv(source, 3, 1, features, demodulate=False)
        self.bias = nn.Parameter(torch.zeros(1, 3, 1, 1))

    def forward(self, x, latent, skip):
        out = self.modulated_conv(x, latent) + self.bias
        return out if skip is None else out + filtered(skip, 2, 1, up=2)


class Decoder(nn.Module):
    def __init__(self, size, width, features):
        super().__init__()
        self.levels = int(math.log2(size)) - 2
        self.constant_input = Constant(width[4])
        self.style_conv1, self.to_rgb1 = StyleConv(width[4], width[4], features), ToRgb(width[4], features)
        self.style_convs, self.to_rgbs = nn.ModuleList(), nn.ModuleList()
        for i in range(self.levels):
            source, target = width[4 << i], width[8 << i]
            self.style_convs += [StyleConv(source, target, features, True), StyleConv(target, target, features)]
            self.to_rgbs.append(ToRgb(target, features))
        self.noises = Noises(self.levels)

    def forward(self, latents, conditions):
        def noise(i):
            return getattr(self.noises, f"noise{i}")

        x = self.constant_input.weight.expand(latents.shape[0], -1, -1, -1)
        x = self.style_conv1(x, latents[:, 0], noise(0))
        rgb = self.to_rgb1(x, latents[:, 1], None)
        for i, (scale, shift) in enumerate(conditions):
            x = self.style_convs[2 * i](x, latents[:, 2 * i + 1], noise(2 * i + 1))
            keep = x.shape[1] - scale.shape[1]  # sft_half: the first half passes by
            x = torch.cat([x[:, :keep], x[:, keep:] * scale + shift], 1)
            x = self.style_convs[2 * i + 1](x, latents[:, 2 * i + 2], noise(2 * i + 2))
            rgb = self.to_rgbs[i](x, latents[:, 2 * i + 3], rgb)
        return rgb


class GfpganOriginal(nn.Module):
    """several: a latent code for each layer (different_w), else one for all; half: sft_half."""

    def __init__(self, size=512, narrow=1.0, multiplier=1, features=512, width=None, unet=None, several=True,
                 half=True):
        super().__init__()
        width = width or channels(size, narrow, multiplier)
        unet = unet or {side: max(1, c // 2) for side, c in width.items()}
        self.size, self.levels, self.features = size, int(math.log2(size)) - 2, features
        self.codes = 2 * self.levels + 2
        self.conv_body_first = activated(3, unet[size], 1)
        self.conv_body_down = nn.ModuleList(
            ResDown(unet[size >> i], unet[size >> (i + 1)]) for i in range(self.levels))
        self.final_conv = activated(unet[4], unet[4], 3)
        self.final_linear = Linear(unet[4] * 16, features * (self.codes if several else 1))
        self.conv_body_up, self.toRGB = nn.ModuleList(), nn.ModuleList()
        self.condition_scale, self.condition_shift = nn.ModuleList(), nn.ModuleList()
        for i in range(self.levels):
            c = unet[8 << i]
            given = width[8 << i] // 2 if half else width[8 << i]
            self.conv_body_up.append(ResUp(unet[4 << i], c))
            self.toRGB.append(Conv(c, 3, 1))  # for training alone
            for conditions in (self.condition_scale, self.condition_shift):
                conditions.append(nn.Sequential(Conv(c, c, 3), Leaky(), Conv(c, given, 3)))
        self.stylegan_decoder = Decoder(size, width, features)

    def forward(self, x):
        n = x.shape[0]
        feature, skips = self.conv_body_first(x), []
        for block in self.conv_body_down:
            feature = block(feature)
            skips.insert(0, feature)
        feature = self.final_conv(feature)
        latents = self.final_linear(feature.reshape(n, -1)).reshape(n, -1, self.features).expand(-1, self.codes, -1)
        conditions = []
        for i, block in enumerate(self.conv_body_up):
            feature = block(feature + skips[i])
            conditions.append((self.condition_scale[i](feature), self.condition_shift[i](feature)))
        return self.stylegan_decoder(latents, conditions)


def from_state(state):
    """The network that a state dict is of, with its tensors."""
    state = {k: v.float() for k, v in state.items() if ".style_mlp." not in k}
    levels = sum(k.startswith("conv_body_down.") and k.endswith("conv1.0.weight") for k in state)
    decoder, size = "stylegan_decoder.", 4 << levels
    width = {4: state[decoder + "constant_input.weight"].shape[1]}
    unet = {size: state["conv_body_first.0.weight"].shape[0], 4: state["final_conv.0.weight"].shape[0]}
    for i in range(levels):
        width[8 << i] = state[f"{decoder}style_convs.{2 * i}.modulated_conv.weight"].shape[1]
        unet[size >> (i + 1)] = state[f"conv_body_down.{i}.conv2.1.weight"].shape[0]
    features = state[decoder + "style_conv1.modulated_conv.modulation.weight"].shape[1]
    net = GfpganOriginal(size, features=features, width=width, unet=unet,
                         several=state["final_linear.bias"].shape[0] > features,
                         half=state["condition_scale.0.2.bias"].shape[0] < width[8])
    wrong = net.load_state_dict(state, strict=False)
    if wrong.unexpected_keys or [k for k in wrong.missing_keys if not k.startswith("toRGB.")]:
        raise ValueError(f"not tensors of a GfpganOriginal: {wrong}")
    return net.eval()
