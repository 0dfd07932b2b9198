"""Networks of others that the runtime reads, as functions of a checkpoint's tensors: PyTorch's side of the comparison in
tests/golden/test_starter.c. And tensors for them: nobody's weights, but of the official names and shapes.

    python3 -m models.training.networks_other [--to build/other-networks]

writes small and official sizes there, random and structured; then

    python3 -m models.training.goldens --models build/other-networks --to build/other-networks
"""
import argparse
import os

import torch
import torch.nn.functional as F

LUMA = (0.299, 0.587, 0.114)


# ---- the scratch detector of Bringing Old Photos Back to Life ---------------------------------------------------------
def _conv(t, name, x, pad):
    return F.conv2d(F.pad(x, [pad] * 4, mode="reflect"), t[f"{name}.weight"], t[f"{name}.bias"])


def _norm_act(t, name, x):
    parts = [t[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")]
    return F.leaky_relu(F.batch_norm(x, *parts), 0.2)


def _block(t, name, x):
    for conv, norm in ((1, 2), (5, 6)):
        x = _norm_act(t, f"{name}.block.{norm}", _conv(t, f"{name}.block.{conv}", x, 1))
    return x


def scratches(t, rgb):
    """Pictures N×3×h×w RGB -0.5..0.5, sides divisible by 2^levels, to logits N×1×h×w."""
    gray = 2 * (rgb * rgb.new_tensor(LUMA).reshape(1, 3, 1, 1)).sum(1, keepdim=True)
    x = F.leaky_relu(_conv(t, "first.1", gray, 3), 0.2)
    levels = sum(1 for k in t if k.startswith("down_path.") and k.endswith(".block.1.weight"))
    kept = []
    for i in range(levels):
        kept.append(x)
        x = _norm_act(t, f"down_sample.{i}.2", _conv(t, f"down_sample.{i}.1", x, 1))
        blur = t[f"down_sample.{i}.4.filt"]
        x = F.conv2d(F.pad(x, [1] * 4, mode="reflect"), blur, stride=2, groups=len(blur))
        x = _block(t, f"down_path.{i}", x)
    for i in range(levels):
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        x = torch.cat([_conv(t, f"up_path.{i}.up.2", x, 1), kept.pop()], 1)
        x = _block(t, f"up_path.{i}.conv_block", x)
    return _conv(t, "last.1", x, 1)


def scratch_tensors(make, first, levels):
    """make(name, shape) gives each of them."""
    t = {}

    def conv(name, out, inside, kernel):
        t[f"{name}.weight"] = make(f"{name}.weight", (out, inside, kernel, kernel))
        t[f"{name}.bias"] = make(f"{name}.bias", (out,))

    def norm(name, channels):
        for part in ("weight", "bias", "running_mean", "running_var"):
            t[f"{name}.{part}"] = make(f"{name}.{part}", (channels,))
        t[f"{name}.num_batches_tracked"] = torch.tensor(1)

    def block(name, out, inside):
        for c, n, channels in ((1, 2, inside), (5, 6, out)):
            conv(f"{name}.block.{c}", out, channels, 3)
            norm(f"{name}.block.{n}", out)

    conv("first.1", first, 1, 7)
    blur = torch.tensor([1.0, 2.0, 1.0])
    for i in range(levels):
        width = first << i
        conv(f"down_sample.{i}.1", width, width, 3)
        norm(f"down_sample.{i}.2", width)
        t[f"down_sample.{i}.4.filt"] = torch.outer(blur, blur).div(16).repeat(width, 1, 1, 1)
        block(f"down_path.{i}", 2 * width, width)
    for i in range(levels):
        width = first << levels - 1 - i
        conv(f"up_path.{i}.up.2", width, 2 * width, 3)
        block(f"up_path.{i}.conv_block", width, 2 * width)
    conv("last.1", 1, first, 3)
    return t


# ---- MI-GAN ----------------------------------------------------------------------------------------------------------
def _root2(x):
    return (F.leaky_relu(x, 0.2) * 2 ** 0.5).clamp(-256, 256)


def _doubled(x, weight):
    """Zeros between the pixels, then the filter."""
    big = x.new_zeros(x.shape[0], x.shape[1], 2 * x.shape[2], 2 * x.shape[3])
    big[:, :, ::2, ::2] = x
    return F.conv2d(F.pad(big, (2, 1, 2, 1)), weight, groups=len(weight))


def _separable(t, name, x, noise=False):
    weight = t[f"{name}.conv1.weight"]
    x = _root2(F.conv2d(x, weight, t[f"{name}.conv1.bias"], padding=1, groups=len(weight)))
    if f"{name}.downsample.filter.weight" in t:
        down = t[f"{name}.downsample.filter.weight"]
        x = F.conv2d(x, down, stride=2, padding=1, groups=len(down))
    x = F.conv2d(x, t[f"{name}.conv2.weight"])
    if f"{name}.upsample.filter.weight" in t:
        x = _doubled(x, t[f"{name}.upsample.filter.weight"])
    if noise:
        x = x + t[f"{name}.noise_const"] * t[f"{name}.noise_strength"]
    return _root2(x)


def migan(t, given):
    """N×4×s×s: RGB -1..1, 0 in holes, and the mask, 1 in holes; to RGB -1..1. (The authors' own input is [1/2 - mask, RGB].)"""
    side = next(s for s in (8 << k for k in range(9)) if f"encoder.b{s}.fromrgb.weight" in t)
    x = torch.cat([0.5 - given[:, 3:], given[:, :3]], 1)
    x = _root2(F.conv2d(x, t[f"encoder.b{side}.fromrgb.weight"], t[f"encoder.b{side}.fromrgb.bias"]))
    kept, s = {}, side
    while s >= 4:
        kept[s] = _separable(t, f"encoder.b{s}.conv1", x)
        x = _separable(t, f"encoder.b{s}.conv2", kept[s])
        s //= 2
    picture, s = 0, 4
    while s <= side:
        x = _separable(t, f"synthesis.b{s}.conv1", x, s > 4) + kept[s]
        x = _separable(t, f"synthesis.b{s}.conv2", x, s > 4)
        rgb = F.conv2d(x, t[f"synthesis.b{s}.torgb.weight"], t[f"synthesis.b{s}.torgb.bias"])
        picture = rgb if s == 4 else _doubled(picture, t[f"synthesis.b{s}.upsample.filter.weight"]) + rgb
        s *= 2
    return picture


def migan_tensors(make, side, base=32768, most=512):
    t = {}
    long = torch.tensor([1.0, 3.0, 3.0, 1.0])
    filters = {1: torch.outer(long, long) / 64, 4: torch.outer(long, long) / 16}

    def width(s):
        return min(base // s, most)

    def separable(name, inside, out, noise=0):
        t[f"{name}.conv1.weight"] = make(f"{name}.conv1.weight", (inside, 1, 3, 3))
        t[f"{name}.conv1.bias"] = make(f"{name}.conv1.bias", (inside,))
        t[f"{name}.conv2.weight"] = make(f"{name}.conv2.weight", (out, inside, 1, 1))
        if noise:
            t[f"{name}.noise_const"] = make(f"{name}.noise_const", (noise, noise))
            t[f"{name}.noise_strength"] = make(f"{name}.noise_strength", ())

    def rgb(name, out, inside):
        t[f"{name}.weight"] = make(f"{name}.weight", (out, inside, 1, 1))
        t[f"{name}.bias"] = make(f"{name}.bias", (out,))

    rgb(f"encoder.b{side}.fromrgb", width(side), 4)
    s = side
    while s >= 4:
        out = width(max(s // 2, 4))
        separable(f"encoder.b{s}.conv1", width(s), width(s))
        separable(f"encoder.b{s}.conv2", width(s), out)
        if s > 4:
            t[f"encoder.b{s}.conv2.downsample.filter.weight"] = filters[1].repeat(width(s), 1, 1, 1)
        s //= 2
    s = 4
    while s <= side:
        separable(f"synthesis.b{s}.conv1", width(max(s // 2, 4)), width(s), s if s > 4 else 0)
        separable(f"synthesis.b{s}.conv2", width(s), width(s), s if s > 4 else 0)
        rgb(f"synthesis.b{s}.torgb", 3, width(s))
        if s > 4:
            t[f"synthesis.b{s}.conv1.upsample.filter.weight"] = filters[4].repeat(width(s), 1, 1, 1)
            t[f"synthesis.b{s}.upsample.filter.weight"] = filters[4].repeat(3, 1, 1, 1)
        s *= 2
    return t


# ---- nobody's weights ------------------------------------------------------------------------------------------------
def maker(seed, centre=0):
    """Random tensors that keep a signal's size. centre: what is added to the centre of each filter, so that what comes in is
    still seen at the end."""
    random = torch.Generator().manual_seed(seed)

    def make(name, shape):
        value = torch.randn(shape, generator=random)
        kind = name.rsplit(".", 1)[1]
        if kind == "running_var":
            return (0.2 if centre else 0.5) + value.abs()
        if kind == "noise_strength":
            return torch.tensor(0.1)
        if kind == "noise_const":
            return value
        if kind in ("bias", "running_mean"):
            return 0.1 * value
        if len(shape) == 1:
            return 1 + 0.2 * value
        value *= (shape[1] * shape[2] * shape[3]) ** -0.5
        for o in range(shape[0] if centre else 0):
            value[o] *= 0.3
            value[o, o % shape[1], shape[2] // 2, shape[3] // 2] += centre
        return value

    return make


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--to", default="build/other-networks")
    to = options.parse_args().to
    os.makedirs(to, exist_ok=True)
    made = {"scratches_random": scratch_tensors(maker(1), 8, 4),
            "scratches_structured": scratch_tensors(maker(2, 1), 8, 3),
            "scratches_official": scratch_tensors(maker(3), 64, 4),
            "migan_random": migan_tensors(maker(4), 64, 1024, 32),
            "migan_structured": migan_tensors(maker(5, 0.6), 32, 512, 64),
            "migan_official": migan_tensors(maker(6), 256)}
    for name, tensors in made.items():
        # as their authors save them
        torch.save({"epoch": 1, "model_state": tensors} if "scratches" in name else tensors, os.path.join(to, f"{name}.pt"))
        print(f"{name}: {sum(v.numel() for v in tensors.values())} values")


if __name__ == "__main__":
    main()
