"""PyTorch's outputs of the starter models, for the runtime to be compared with (tests/golden/test_starter.c).

    python3 -m models.training.goldens [--models models/starter] [--to build/starter-goldens]

For each file NAME.safetensors or NAME.pt: NAME.in.npy, the network's input as float32 N×C×H×W, and NAME.out0.npy … for its outputs.
"""
import argparse
import os

import numpy as np
import torch

from models.training import common, gfpgan, parsenet
from models.training.networks_damage import damage_of, whole
from models.training.networks_fill import fill_of, given
from models.training.networks_other import migan, scratches
from models.training.networks_scene import retinaface_of, srvgg_of


def noise_picture(h, w, seed):
    """A smooth random picture RGB 0..1, 1×3×h×w: all frequencies, so that no layer is left idle."""
    random = np.random.RandomState(seed)
    out = np.zeros((3, h, w), np.float32)
    for cell in (1, 2, 4, 8, 16, 32):
        small = random.rand(3, -(-h // cell), -(-w // cell)).astype(np.float32)
        out += small.repeat(cell, 1).repeat(cell, 2)[:, :h, :w] / 6
    return torch.from_numpy(out)[None]


def detector(tensors):
    if "ClassHead.0.conv1x1.weight" not in tensors:
        return None
    x = noise_picture(211, 318, 1).flip(1) * 255 - torch.tensor([104.0, 117.0, 123.0]).reshape(1, 3, 1, 1)
    return x, retinaface_of(tensors)(x)


def upsampler(tensors):
    if "body.0.weight" not in tensors or tensors["body.0.weight"].shape[1] != 3:
        return None
    x = noise_picture(48, 64, 2)
    return x, [srvgg_of(tensors)(x)]


def face(tensors):
    if "stylegan_decoder.constant_input.weight" not in tensors:
        return None
    net = gfpgan.from_state(tensors).eval()
    x = noise_picture(net.size, net.size, 3) * 2 - 1
    return x, [net(x)]


def parser(tensors):
    if "out_mask_conv.conv2d.weight" not in tensors:
        return None
    x = noise_picture(512, 512, 4) * 2 - 1
    return x, parsenet.from_state(tensors).eval()(x)


def damage(tensors):
    if "whole.down1.weight" not in tensors:
        return None
    x = noise_picture(168, 216, 5)
    return x - 0.5, [whole(damage_of(tensors), x)]


def filler(tensors):
    if "head.weight" not in tensors or "tail.weight" not in tensors:
        return None
    mask = (noise_picture(96, 160, 7)[:, :1] > 0.6).float()
    x = given(2 * noise_picture(96, 160, 6) - 1, mask)
    return x, [fill_of(tensors)(x)]


def exact(network, tensors, x):
    """In double precision: weights that nobody trained may amplify what float rounds away."""
    return network({k: v.double() for k, v in tensors.items()}, x.double())


def scratch_detector(tensors):
    if "down_sample.0.4.filt" not in tensors:
        return None
    x = noise_picture(96, 64, 8) - 0.5
    return x, [exact(scratches, tensors, x)]


def square_filler(tensors):
    side = next((s for s in (8 << k for k in range(9)) if f"encoder.b{s}.fromrgb.weight" in tensors), 0)
    if not side:
        return None
    mask = (noise_picture(side, side, 9)[:, :1] > 0.6).float()
    x = torch.cat([(2 * noise_picture(side, side, 10) - 1) * (1 - mask), mask], 1)
    return x, [exact(migan, tensors, x)]


# Each: tensors by name -> (input, list of outputs), or None when the tensors are not its network's.
NETWORKS = [detector, upsampler, face, parser, damage, filler, scratch_detector, square_filler]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--models", default="models/starter")
    options.add_argument("--to", default="build/starter-goldens")
    args = options.parse_args()
    os.makedirs(args.to, exist_ok=True)
    for file in sorted(os.listdir(args.models)):
        if not file.endswith((".safetensors", ".pt")):
            continue
        tensors = common.load_weights(os.path.join(args.models, file))
        with torch.no_grad():
            found = next((r for r in (make(tensors) for make in NETWORKS) if r), None)
        if not found:
            common.fail(f"{file}: no definition for it here")
        x, outputs = found
        stem = os.path.join(args.to, os.path.splitext(file)[0])
        np.save(stem + ".in.npy", np.ascontiguousarray(x.numpy(), np.float32))
        for i, y in enumerate(outputs):
            np.save(f"{stem}.out{i}.npy", np.ascontiguousarray(y.numpy(), np.float32))
        print(f"{stem}: {tuple(x.shape)} -> {[tuple(y.shape) for y in outputs]}")


if __name__ == "__main__":
    main()
