"""Tiny networks of the families that the runtime reads, with random weights, and what PyTorch makes of a picture.

    python3 -m models.training.goldens_families [--to tests/golden/families]

Each file is a checkpoint as its authors' programs write it (names, shapes), and holds two tensors more: golden.in, the
picture as the runtime is given it, RGB 0..1, and golden.out, RGB as it should come back. tests/golden/test_families.c
compares.
"""
import argparse
import os

import torch

from models.training import common, networks_esrgan as esrgan
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
        print(f"{name}: {tuple(x.shape)} -> {tuple(y.shape)}, {y.min():.3f} to {y.max():.3f}")


if __name__ == "__main__":
    main()
