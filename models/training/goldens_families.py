"""Tiny networks of the families that the runtime reads, with random weights, and what PyTorch makes of a picture.

    python3 -m models.training.goldens_families [--to tests/golden/families]

Each file is a checkpoint as its authors' programs write it (names, shapes), and holds two tensors more: golden.in, the
picture as the runtime is given it, RGB 0..1, and golden.out, RGB as it should come back. tests/golden/test_families.c
compares. ncnn's files have no room for more: these tensors are in NAME.golden beside NAME.param. NAME.odd has them for a
picture of sides that a network fills up first; its values are those of bytes (tests/api/restorers.test.mjs).
"""
import argparse
import os

import torch
import torch.nn.functional as F
from torch import nn

from models.training import common, gfpgan_original, ncnn_writer, networks_codebook as codebook
from models.training import networks_esrgan as esrgan
from models.training import networks_restore as restore
from models.training.goldens import noise_picture

LUMA = torch.tensor([0.299, 0.587, 0.114]).reshape(1, 3, 1, 1)  # ITU-R BT.601


def given(x, channels):
    """RGB as a network with other channels is given it: gray, or with a fourth channel that is opaque."""
    if channels == 1:
        return (x * LUMA).sum(1, keepdim=True)
    return torch.cat((x, torch.ones_like(x[:, :1])), 1) if channels == 4 else x


def taken(y):
    """Its result as RGB."""
    return y.expand(-1, 3, -1, -1) if y.shape[1] == 1 else y[:, :3]


def randomise(net, seed):
    """Random weights as large as keeps values of a picture at their size, and no bias of 0."""
    generator = torch.Generator().manual_seed(seed)
    for p in net.parameters():
        fan = p[0].numel() if p.dim() > 1 else 1
        values = torch.randn(p.shape, generator=generator) * (1.2 / fan**0.5 if p.dim() > 1 else 0.1)
        p.data = values.half().float()  # as they are written
    return net.eval()


# name: (network, channels in, height, width)
def families():
    old, trunk = esrgan.OldEsrgan, esrgan.TrunkEsrgan
    return {
        "esrgan_old_x1": (old(ups=0), 3, 9, 12),
        "esrgan_old_x2": (old(ups=1), 3, 7, 10),
        "esrgan_old_x4": (old(ups=2), 3, 6, 8),
        "esrgan_old_x8": (old(ups=3, blocks=1), 3, 4, 5),
        "esrgan_old_x16": (old(ups=4, blocks=1), 3, 2, 3),
        "esrgan_old_x2_unshuffle2": (old(ups=2, factor=2), 3, 8, 12),
        "esrgan_old_x1_unshuffle4": (old(ups=2, factor=4), 3, 12, 16),
        "esrgan_old_gray": (old(1, 1), 1, 6, 8),
        "esrgan_old_gray_to_colour": (old(1, 3, ups=0), 1, 9, 12),
        "esrgan_old_rgba": (old(4, 4, ups=1), 4, 7, 10),
        "esrgan_plus_x4": (old(plus=True), 3, 6, 8),
        "esrgan_trunk_x4": (trunk(), 3, 6, 8),
        "esrgan_trunk_x2": (trunk(ups=1), 3, 7, 10),
    }


class Gray(nn.Module):
    """A gray network that keeps the size, on a picture: what it changes in the luma is added to every channel."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        luma = given(x, 1)
        return x + (self.net(luma) - luma)


TOLD = {"drunet_gray": {"noise_level": 50}, "fbcnn_gray": {"jpeg_quality": 40}}  # as models.conf has it


# name: (network, height, width); a gray one in Gray
def restorers():
    return {
        "dncnn": (restore.DnCnn(), 9, 12),
        "dncnn_gray": (Gray(restore.DnCnn(1)), 9, 12),
        "dncnn_norm": (restore.DnCnn(convs=5, norm=True), 9, 12),
        "dncnn_level": (restore.DnCnn(level=True), 7, 10),
        "drunet": (restore.DrUnet(blocks=2), 16, 24),
        "drunet_gray": (Gray(restore.DrUnet(1, level=50 / 255)), 8, 16),
        "fbcnn": (restore.FbCnn(blocks=2), 16, 24),
        "fbcnn_gray": (Gray(restore.FbCnn(1, told=1 - 40 / 100)), 8, 16),
        "cugan_x2": (restore.Cugan(2), 20, 22),
        "cugan_x2_pro": (restore.Cugan(2, pro=True), 8, 10),
        "cugan_x3_pro": (restore.Cugan(3, pro=True), 8, 12),
        "cugan_x4": (restore.Cugan(4), 6, 8),
        "cugan_x4_pro": (restore.Cugan(4, pro=True), 6, 8),
        "span_x2": (restore.Span(2, 3), 9, 12),
        "span_x4_plain": (restore.Span(4, 2, norm=False), 5, 6),
        "plksr_x2": (restore.RealPlksr(), 9, 20),
        "plksr_x4_layer": (restore.RealPlksr(4, kernel=13, layer=True), 6, 7),
        "plksr_x1_plain": (restore.RealPlksr(1, kernel=5, part=3, gate=False, blocks=1), 8, 9),
        "plksr_x2_dysample": (restore.RealPlksr(2, kernel=5, blocks=1, dysample=True), 7, 8),
        "plksr_x3_dysample": (restore.RealPlksr(3, kernel=5, blocks=1, layer=True, dysample=True), 5, 6),
        "plksr_x1_dysample": (restore.RealPlksr(1, kernel=5, blocks=1, dysample=True), 7, 8),
        "cugan_x2_nose": (restore.Cugan(2, gated=False), 8, 10),
    }


# of restorers(), whose pictures are filled up in a way of their own: height and width that are no multiples
ODD = {"cugan_x2": (37, 45), "cugan_x2_nose": (37, 45), "cugan_x3_pro": (33, 39), "cugan_x4": (25, 35),
       "cugan_x4_pro": (26, 33), "fbcnn": (43, 53), "fbcnn_gray": (41, 50)}


def write_odd(folder, name, net, seed):
    """net: of doubles."""
    x = (noise_picture(*ODD[name], seed) * 255).round() / 255
    with torch.no_grad():
        golden = {"golden.in": x, "golden.out": net(x.double()).float().contiguous()}
    common.write_safetensors(os.path.join(folder, name + ".odd"), golden, {}, ["golden.in"])  # the other as halves
    show(name + ".odd", x, golden["golden.out"])


# of restorers(): what writes the same network's files for ncnn
NCNN_CUGAN = {
    "cugan_x2": lambda t: ncnn_writer.cugan(t, 2, True),
    "cugan_x2_nose": lambda t: ncnn_writer.cugan(t, 2, False),
    "cugan_x3_pro": lambda t: ncnn_writer.cugan(ncnn_writer.without_range(t), 3, True, ncnn_writer.FP32),
    "cugan_x4": lambda t: ncnn_writer.cugan(t, 4, False, ncnn_writer.FP32),
}


class Compact(nn.Module):
    """SRVGGNetCompact with PReLU, or LeakyReLU of a slope."""

    def __init__(self, scale, features=4, depth=2, slope=None):
        super().__init__()
        def activation():
            return nn.PReLU(features) if slope is None else nn.LeakyReLU(slope)
        layers = [esrgan.conv(3, features), activation()]
        for _ in range(depth):
            layers += [esrgan.conv(features, features), activation()]
        self.body, self.scale = nn.Sequential(*layers, esrgan.conv(features, 3 * scale**2)), scale

    def forward(self, x):
        return F.pixel_shuffle(self.body(x), self.scale) + F.interpolate(x, scale_factor=self.scale, mode="nearest")


# name: (network, what writes its files from its tensors)
def ncnn_families():
    trunk, fp32 = esrgan.TrunkEsrgan, ncnn_writer.FP32
    return {
        "ncnn_rrdbnet_x4": (trunk(blocks=1), lambda t: ncnn_writer.rrdbnet(t, True)),
        "ncnn_rrdbnet_x2_plain": (trunk(ups=1), lambda t: ncnn_writer.rrdbnet(t, False, fp32)),
        "ncnn_rrdbnet_x1": (trunk(ups=0, blocks=1), lambda t: ncnn_writer.rrdbnet(t, True)),
        "ncnn_srvgg_x4": (Compact(4), lambda t: ncnn_writer.srvgg(t, 4, True)),
        "ncnn_srvgg_x3_to_x2": (Compact(3), lambda t: ncnn_writer.srvgg(t, 3, False, end=2 / 3)),
        "ncnn_srvgg_x2_leaky": (Compact(2, slope=0.1), lambda t: ncnn_writer.srvgg(t, 2, True, 0.1)),
        "ncnn_srvgg_x2_relu": (Compact(2, slope=0), lambda t: ncnn_writer.srvgg(t, 2, False, 0)),
    }


def randomise_norms(net):
    """Norms that are near what they are before training."""
    for module in net.modules():
        if isinstance(module, (nn.GroupNorm, nn.LayerNorm)):
            module.weight.data += 1
    return net


# name: (network, side of the picture, what stands before its tensors' names, values of w)
def face_families():
    small = {"wide": (32, 32), "blocks": 1, "z": 8, "entries": 20}
    return {
        "restoreformer": (codebook.RestoreFormer(**small), 32, "", ()),
        "restoreformer_plus": (codebook.RestoreFormer(**small, more=1), 32, "vqvae.", ()),
        "codeformer": (codebook.CodeFormer(32, channels=32, heads=8, layers=2, fused=(32,), **small), 32, "",
                       (0, 0.5, 1)),
    }


# name: (network, side of the picture). Original GFPGAN with sft_half and a latent code a layer, and without both
def original_faces():
    return {
        "gfpgan_v1": (gfpgan_original.GfpganOriginal(16, features=12, width={4: 10, 8: 8, 16: 6}), 16),
        "gfpgan_v1_plain": (gfpgan_original.GfpganOriginal(8, features=8, width={4: 6, 8: 5}, unet={4: 6, 8: 5},
                                                           several=False, half=False), 8),
    }


def write_original_faces(folder):
    """RGB -1..1; weights as equalised learning rates have them: of size 1."""
    for seed, (name, (net, side)) in enumerate(original_faces().items()):
        generator = torch.Generator().manual_seed(90 + seed)
        for key, value in net.state_dict().items():
            values = torch.randn(value.shape, generator=generator)
            small = value.dim() < 2 or value.numel() == 3  # biases, and how strong noise is
            value.copy_((values * 0.1 + ("modulation.bias" in key) if small else values).half().float())
        x = noise_picture(side, side, 190 + seed) * 2 - 1
        with torch.no_grad():
            golden = {"golden.in": x, "golden.out": net.double()(x.double()).float().contiguous()}
        common.write_safetensors(os.path.join(folder, name + ".safetensors"), dict(net.float().state_dict(), **golden), {},
                                 golden)
        show(name, x, golden["golden.out"])


def write_faces(folder):
    """RGB -1..1. golden.out.N is for w = N/1000."""
    for seed, (name, (net, side, prefix, ws)) in enumerate(face_families().items()):
        randomise_norms(randomise(net, 80 + seed))
        x = noise_picture(side, side, 180 + seed) * 2 - 1
        golden = {"golden.in": x}
        with torch.no_grad():
            for w in ws:
                golden[f"golden.out.{round(1000 * w)}"] = net(x, w)
            if not ws:
                golden["golden.out"] = net(x)
        tensors = {prefix + key: value for key, value in net.state_dict().items()}
        if prefix:  # Lightning's checkpoints hold what training needed, too
            tensors["discriminator.main.0.bias"] = torch.zeros(4)
        common.write_safetensors(os.path.join(folder, name + ".safetensors"), dict(tensors, **golden), {}, golden)
        show(name, x, list(golden.values())[-1])


def show(name, x, y):
    print(f"{name}: {tuple(x.shape)} -> {tuple(y.shape)}, {y.min():.3f} to {y.max():.3f}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--to", default="tests/golden/families")
    args = options.parse_args()
    os.makedirs(args.to, exist_ok=True)
    for seed, (name, (net, channels, h, w)) in enumerate(families().items()):
        randomise(net, seed)
        x = noise_picture(h, w, 100 + seed)
        with torch.no_grad():
            y = taken(net(given(x, channels)))
        golden = {"golden.in": x, "golden.out": y.contiguous()}
        common.write_safetensors(os.path.join(args.to, name + ".safetensors"), dict(net.state_dict(), **golden), {},
                                 golden)
        show(name, x, y)
    write_faces(args.to)
    write_original_faces(args.to)
    for seed, (name, (net, h, w)) in enumerate(restorers().items()):
        randomise(net, 70 + seed)
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.data += 1  # as strong as trained ones
                module.bias.data += 0.3
                module.running_mean += 0.1
                module.running_var *= 0.7
            if isinstance(module, restore.Span):  # a picture is 255 times as large to it: as small weights as trained ones
                for part in (module.conv_1.conv[0], module.conv_1.sk):
                    part.weight.data /= 128
            if isinstance(module, restore.FbCnn):  # values of a picture
                module.m_tail.weight.data = (module.m_tail.weight.data / 64).half().float()
        for buffer in net.buffers():
            if buffer.is_floating_point():
                buffer.data = buffer.half().float()  # as they are written
        x = noise_picture(h, w, 170 + seed)
        with torch.no_grad():
            y = net.double()(x.double()).float()
        if name in ODD:
            write_odd(args.to, name, net, 270 + seed)
        net.float()
        told = {f"golden.{k}": torch.tensor([float(v)]) for k, v in TOLD.get(name, {}).items()}
        golden = {"golden.in": x, "golden.out": y.contiguous(), **told}
        tensors = (net.net if isinstance(net, Gray) else net).state_dict()
        common.write_safetensors(os.path.join(args.to, name + ".safetensors"), dict(tensors, **golden), {}, golden)
        if name in NCNN_CUGAN:
            common.write_safetensors(os.path.join(args.to, f"ncnn_{name}.golden"), golden, {}, golden)
            ncnn_writer.save(os.path.join(args.to, f"ncnn_{name}"), NCNN_CUGAN[name](tensors))
        show(name, x, y)
    for seed, (name, (net, files)) in enumerate(ncnn_families().items()):
        randomise(net, 50 + seed)
        x = noise_picture(7, 10, 150 + seed)
        with torch.no_grad():
            y = net(x)
        golden = {"golden.in": x, "golden.out": y}
        common.write_safetensors(os.path.join(args.to, name + ".golden"), golden, {}, golden)
        ncnn_writer.save(os.path.join(args.to, name), files(net.state_dict()))
        show(name, x, y)


if __name__ == "__main__":
    main()
