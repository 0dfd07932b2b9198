"""The damage detector: a U-Net at the picture's own size, and a small network that sees the whole picture at 256 px.

All of it is convolutions of 3×3 and 1×1 (stride 1 or 2) with bias, LeakyReLU, additions, and bilinear or nearest
enlargement, which the runtime has.

Run in tiles: `context` once for the picture, then `forward` for each tile. A tile's place and size are multiples of CELL;
the context is enlarged bilinearly to one value for each CELL × CELL px of the whole picture and cut as the tile is. An
output pixel depends on nothing of the picture's own size farther than HALO px from it, so tiles that overlap by HALO give
what the whole picture gives.
"""
import torch
import torch.nn.functional as F
from torch import nn

CELL = 8
HALO = 112
CONTEXT_SIDE = 256  # the longer side of the reduced picture; smaller pictures stay as they are
KINDS = ("thin", "crack", "dust", "stain")  # thin line, crack or tear, dust or spot, stain or fold
SLOPE = 0.1


def act(x):
    return F.leaky_relu(x, SLOPE)


def conv(cin, cout, kernel=3, stride=1):
    return nn.Conv2d(cin, cout, kernel, stride, kernel // 2)


class Block(nn.Module):
    """act(x + conv(act(conv(x))))"""

    def __init__(self, width):
        super().__init__()
        self.conv1, self.conv2 = conv(width, width), conv(width, width)

    def forward(self, x):
        return act(x + self.conv2(act(self.conv1(x))))


def blocks(width, count):
    return nn.Sequential(*[Block(width) for _ in range(count)])


class Up(nn.Module):
    """A 1×1 convolution, enlarged twofold by nearest neighbour, plus what the way down had there, then blocks."""

    def __init__(self, cin, cout, count):
        super().__init__()
        self.lateral, self.body = conv(cin, cout, 1), blocks(cout, count)

    def forward(self, x, skip):
        x = F.interpolate(self.lateral(x), scale_factor=2, mode="nearest")
        return self.body(act(x[:, :, :skip.shape[2], :skip.shape[3]] + skip))


class Context(nn.Module):
    """N×3×h×w (the whole picture, at most CONTEXT_SIDE px) to N×width×ceil(h/4)×ceil(w/4)."""

    def __init__(self, width):
        super().__init__()
        self.down1, self.down2 = conv(3, 16, 3, 2), conv(16, 32, 3, 2)
        self.down3, self.down4 = conv(32, 64, 3, 2), conv(64, 96, 3, 2)
        self.bottom = blocks(96, 1)
        self.up3, self.up2 = Up(96, 64, 1), Up(64, 32, 1)
        self.last = conv(32, width, 1)

    def forward(self, x):
        two = act(self.down2(act(self.down1(x - 0.5))))
        three = act(self.down3(two))
        four = self.bottom(act(self.down4(three)))
        return self.last(self.up2(self.up3(four, three), two))


class Damage(nn.Module):
    """forward(x, context): x N×3×h×w RGB 0..1, sides divisible by CELL; context N×32×h/CELL×w/CELL. Returns logits
    N×5×h×w: damage, then one for each of KINDS."""

    def __init__(self, widths=(16, 48, 80, 128), counts=(2, 2, 3), context=32):
        super().__init__()
        a, b, c, d = widths
        self.whole = Context(context)
        self.first, self.second = conv(3, a), conv(a, a)
        self.down1, self.body1 = conv(a, b, 3, 2), blocks(b, counts[0])
        self.down2, self.body2 = conv(b, c, 3, 2), blocks(c, counts[1])
        self.down3, self.join, self.body3 = conv(c, d, 3, 2), conv(context, d, 1), blocks(d, counts[2])
        self.up2, self.up1 = Up(d, c, 1), Up(c, b, 2)
        self.lateral = conv(b, a, 1)
        self.third, self.last = conv(a, a), conv(a, 1 + len(KINDS))

    def context(self, picture):
        """The features of whole pictures, at the size that they come in."""
        side = max(picture.shape[2:])
        if side > CONTEXT_SIDE:
            size = [max(1, round(s * CONTEXT_SIDE / side)) for s in picture.shape[2:]]
            picture = F.interpolate(picture, size=size, mode="area")
        return self.whole(picture)

    def forward(self, x, context):
        full = act(self.second(act(self.first(x - 0.5))))
        half = self.body1(act(self.down1(full)))
        quarter = self.body2(act(self.down2(half)))
        deep = self.body3(act(self.down3(quarter) + self.join(context.to(quarter.dtype))))
        y = self.up1(self.up2(deep, quarter), half)
        y = act(F.interpolate(self.lateral(y), scale_factor=2, mode="nearest") + full)
        return self.last(act(self.third(y)))


def spread(context, height, width):
    """The context of a picture of height × width px (divisible by CELL): a value for each cell."""
    return F.interpolate(context.float(), size=(height // CELL, width // CELL), mode="bilinear", align_corners=False)


def whole(net, picture):
    """Logits of pictures N×3×h×w in one piece; their sides are filled up to multiples of CELL."""
    h, w = picture.shape[2:]
    big = F.pad(picture, (0, -w % CELL, 0, -h % CELL), mode="replicate")
    return net(big, spread(net.context(big), *big.shape[2:]))[:, :, :h, :w]


def damage_init(net, prior=0.02):
    """For training from scratch: blocks begin near the identity, the output at `prior` everywhere."""
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, a=SLOPE)
            nn.init.zeros_(m.bias)
    for m in net.modules():
        if isinstance(m, Block):
            m.conv2.weight.data.mul_(0.2)
    nn.init.normal_(net.last.weight, std=0.01)
    net.last.bias.data[0] = float(torch.tensor(prior / (1 - prior)).log())
    return net


def damage_of(tensors):
    """The Damage that a file's tensors belong to, with them loaded."""
    widths = [tensors[f"{n}.weight"].shape[0] for n in ("first", "down1", "down2", "down3")]
    counts = [1 + max(int(k.split(".")[1]) for k in tensors if k.startswith(f"body{i}.")) for i in (1, 2, 3)]
    net = Damage(widths, counts, tensors["join.weight"].shape[1])
    net.load_state_dict(tensors)
    return net.eval()


def operations(net, height, width):
    """Multiplications and additions for a picture, by counting the convolutions' outputs."""
    total = []

    def hook(module, inputs, output):
        total.append(2 * module.weight.numel() * output.shape[2] * output.shape[3])

    handles = [m.register_forward_hook(hook) for m in net.modules() if isinstance(m, nn.Conv2d)]
    with torch.no_grad():
        whole(net, torch.zeros(1, 3, height, width))
    for h in handles:
        h.remove()
    return sum(total)


if __name__ == "__main__":
    made = Damage()
    print(f"{sum(p.numel() for p in made.parameters())} parameters, "
          f"{operations(made, 768, 1024) / 1e12:.3f} TFLOP for 1024×768")
