"""The filler of damage: a U-Net from 1/2 to 1/32 of the picture's size, which corrects a coarse pre-fill.

All of it is pixel shuffles by 2, convolutions of 3×3 and 1×1 (stride 1 or 2) with bias, LeakyReLU, additions and nearest
enlargement, which the runtime has. Sides are multiples of CELL.
"""
import torch
import torch.nn.functional as F
from torch import nn

from models.training.networks_damage import SLOPE, Block, Up, act, blocks, conv

CELL = 32
DEEP = 40  # px from a hole's border: what the network fills at once
WIDTHS = (64, 96, 128, 160, 192)
DOWN, UP = (1, 2, 2, 1, 1), (1, 1, 1, 1)  # blocks at each size: on the way down, and on the way up again


class Fill(nn.Module):
    """N×4×h×w (RGB -1..1, pre-filled in the holes; the mask, 1 in holes) to N×3×h×w, RGB -1..1. Only holes and what is near
    them have a meaning in it."""

    def __init__(self, widths=WIDTHS, down=DOWN, up=UP):
        super().__init__()
        self.head, self.tail = conv(16, widths[0]), conv(widths[0], 12)
        self.down = nn.ModuleList(conv(a, b, 3, 2) for a, b in zip(widths, widths[1:]))
        self.body = nn.ModuleList(blocks(w, n) for w, n in zip(widths, down))
        self.up = nn.ModuleList(Up(b, a, n) for a, b, n in zip(widths, widths[1:], up))

    def forward(self, x):
        x = F.pixel_unshuffle(x, 2)
        y = self.body[0](act(self.head(x)))
        skips = []
        for down, body in zip(self.down, self.body[1:]):
            skips.append(y)
            y = body(act(down(y)))
        for up, skip in zip(reversed(self.up), reversed(skips)):
            y = up(y, skip)
        return F.pixel_shuffle(self.tail(y) + x[:, :12], 2)


def pull_push(picture, mask):
    """Pictures N×3×h×w whose holes (mask N×1×h×w is 1) are filled with means of what is around them, from coarse to fine."""
    weight = 1 - mask
    levels = [(picture * weight, weight)]
    while max(levels[-1][1].shape[2:]) > 1:
        colour, weight = levels[-1]
        h, w = weight.shape[2:]
        both = F.avg_pool2d(F.pad(torch.cat([colour * weight, weight], 1), (0, w % 2, 0, h % 2)), 2)
        colour, weight = both[:, :3], both[:, 3:]
        levels.append((torch.where(weight > 0, colour / weight.clamp(min=1e-9), torch.zeros_like(colour)), weight))
    out = levels[-1][0]
    for colour, weight in reversed(levels[:-1]):
        big = F.interpolate(out, scale_factor=2, mode="bilinear", align_corners=False)
        out = torch.lerp(big[:, :, :weight.shape[2], :weight.shape[3]], colour, weight)
    return out


def given(picture, mask):
    """What the network is given of pictures RGB -1..1 with holes; what is in the holes does not matter."""
    return torch.cat([pull_push(picture, mask), mask], 1)


def eroded(mask, by):
    """Of masks what is more than `by` px from all that they do not cover; beyond the picture's sides nothing is known."""
    return 1 - F.max_pool2d(F.pad(1 - mask, (by, by, by, by)), 2 * by + 1, 1)


def halved(picture, mask):
    """Both at half their size: the means of what is known, and holes where nothing is."""
    odd = (0, picture.shape[3] % 2, 0, picture.shape[2] % 2)
    known = F.avg_pool2d(F.pad(1 - mask, odd), 2)
    mean = F.avg_pool2d(F.pad(picture * (1 - mask), odd), 2) / known.clamp(min=0.25)
    return mean, (known == 0).float()


def whole(net, picture, mask):
    """Pictures RGB 0..1 of any size with their holes filled, in one piece; beyond their sides everything is a hole. What is
    deeper in holes than DEEP is filled at half the size first, and then known to the network."""
    h, w = picture.shape[2:]
    core = eroded(mask, DEEP)
    if core.any():
        small = F.interpolate(whole(net, *halved(picture, mask)), scale_factor=2, mode="bilinear", align_corners=False)
        return whole(net, torch.where(core > 0, small[:, :, :h, :w], picture), mask - core)
    pad = (0, -w % CELL, 0, -h % CELL)
    x = given(F.pad(2 * picture - 1, pad), F.pad(mask, pad, value=1.0))
    out = (net(x)[:, :, :h, :w].float() / 2 + 0.5).clamp(0, 1)
    return torch.where(mask > 0, out, picture)


def fill_init(net):
    """For training from scratch: blocks begin near the identity, the output at the pre-fill."""
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, a=SLOPE)
            nn.init.zeros_(m.bias)
    for m in net.modules():
        if isinstance(m, Block):
            m.conv2.weight.data.mul_(0.2)
    nn.init.normal_(net.tail.weight, std=0.0005)
    return net


def fill_of(tensors):
    """The Fill that a file's tensors belong to, with them loaded."""
    def count(prefix):
        return len({k.split(".")[prefix.count(".")] for k in tensors if k.startswith(prefix)})

    levels = count("body.")
    widths = [tensors["head.weight"].shape[0]] + [tensors[f"down.{i}.weight"].shape[0] for i in range(levels - 1)]
    net = Fill(widths, [count(f"body.{i}.") for i in range(levels)], [count(f"up.{i}.body.") for i in range(levels - 1)])
    net.load_state_dict(tensors)
    return net.eval()


def operations(net, height, width):
    """Multiplications and additions for a picture, by counting the convolutions' outputs."""
    total = []

    def hook(module, inputs, output):
        total.append(2 * module.weight.numel() * output.shape[2] * output.shape[3])

    handles = [m.register_forward_hook(hook) for m in net.modules() if isinstance(m, nn.Conv2d)]
    with torch.no_grad():
        net(torch.zeros(1, 4, height, width))
    for h in handles:
        h.remove()
    return sum(total)


if __name__ == "__main__":
    made = Fill()
    print(f"{sum(p.numel() for p in made.parameters())} parameters, "
          f"{operations(made, 768, 1024) / 1e12:.3f} TFLOP for 1024×768")
