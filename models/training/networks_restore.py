"""Networks that people have files of, beside ESRGAN: those that keep a picture's size (DnCNN, DRUNet, FBCNN) and SPAN.
They are the oracle of the runtime's, with the names of their authors' files.

Sources: Zhang et al. 2017 (DnCNN), 2018 (FFDNet, whose noise map FDnCNN has), 2021 (DRUNet); Jiang et al. 2021 (FBCNN);
Wan et al. 2024 (SPAN). DnCNN, DRUNet and FBCNN have the blocks of KAIR.
"""
import torch
import torch.nn.functional as F
from torch import nn


def conv(a, b, kernel=3, bias=True, stride=1, pad=None):
    return nn.Conv2d(a, b, kernel, stride, kernel // 2 if pad is None else pad, bias=bias)


class DnCnn(nn.Module):
    """level: FDnCNN, which is told the noise level and gives the picture."""

    def __init__(self, channels=3, features=4, convs=8, norm=False, level=False):
        super().__init__()
        layers = [conv(channels + level, features), nn.ReLU()]
        for _ in range(convs - 2):
            layers += [conv(features, features)] + [nn.BatchNorm2d(features, eps=1e-4)] * norm + [nn.ReLU()]
        if norm:  # each its own
            layers = [nn.BatchNorm2d(features, eps=1e-4) if isinstance(m, nn.BatchNorm2d) else m for m in layers]
        self.model, self.level = nn.Sequential(*layers, conv(features, channels)), level

    def forward(self, x):
        return self.model(with_level(x)) if self.level else x - self.model(x)


def with_level(x, level=15 / 255):
    return torch.cat((x, torch.full_like(x[:, :1], level)), 1)


class Res(nn.Module):
    def __init__(self, features, bias):
        super().__init__()
        self.res = nn.Sequential(conv(features, features, bias=bias), nn.ReLU(), conv(features, features, bias=bias))

    def forward(self, x, gamma=None, beta=None):
        y = self.res(x)
        if gamma is not None:
            y = gamma[:, :, None, None] * y + beta[:, :, None, None]
        return x + y


class UnetParts(nn.Module):
    """What DRUNet and FBCNN share: the way down, and the layers of the way up."""

    def __init__(self, inputs, channels, widths, blocks, bias):
        super().__init__()
        self.blocks = blocks
        self.m_head, self.m_tail = conv(inputs, widths[0], bias=bias), conv(widths[0], channels, bias=bias)
        for k in range(1, 4):
            a, b = widths[k - 1], widths[k]
            self.add_module(f"m_down{k}", nn.Sequential(*(Res(a, bias) for _ in range(blocks)),
                                                        conv(a, b, 2, bias, 2, 0)))
            self.add_module(f"m_up{k}", nn.ModuleList([nn.ConvTranspose2d(b, a, 2, 2, bias=bias),
                                                       *(Res(a, bias) for _ in range(blocks))]))

    def down(self, x):
        xs = [self.m_head(x)]
        for k in range(1, 4):
            xs.append(getattr(self, f"m_down{k}")(xs[-1]))
        return xs

    def up(self, x, xs, factors=None):
        for k in range(3, 0, -1):
            first, *rest = getattr(self, f"m_up{k}")
            x = first(x + xs[k])
            for block in rest:
                x = block(x, *(factors[k] if factors else ()))
        return self.m_tail(x + xs[0])


class DrUnet(UnetParts):
    def __init__(self, channels=3, widths=(2, 3, 4, 5), blocks=1, level=15 / 255):
        super().__init__(channels + 1, channels, widths, blocks, False)
        self.m_body, self.level = nn.Sequential(*(Res(widths[3], False) for _ in range(blocks))), level

    def forward(self, x):
        xs = self.down(with_level(x, self.level))
        return self.up(self.m_body(xs[3]), xs)


class FbCnn(UnetParts):
    def __init__(self, channels=3, widths=(2, 3, 4, 5), blocks=1, wide=6, told=None):
        super().__init__(channels, channels, widths, blocks, True)
        self.told = told  # 1 - quality / 100, or None: it is found
        def several():
            return (Res(widths[3], True) for _ in range(blocks))
        self.m_body_encoder, self.m_body_decoder = nn.Sequential(*several()), nn.Sequential(*several())
        self.qf_pred = nn.Sequential(*several(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[3], wide),
                                     nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 1), nn.Sigmoid())
        self.qf_embed = nn.Sequential(nn.Linear(1, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(),
                                      nn.Linear(wide, wide), nn.ReLU())
        for k in range(1, 4):
            self.add_module(f"to_gamma_{k}", nn.Sequential(nn.Linear(wide, widths[k - 1]), nn.Sigmoid()))
            self.add_module(f"to_beta_{k}", nn.Sequential(nn.Linear(wide, widths[k - 1]), nn.Tanh()))

    def forward(self, x):
        h, w = x.shape[2:]
        xs = self.down(F.pad(x, (0, -w % 8, 0, -h % 8), "replicate"))
        x = self.m_body_encoder(xs[3])
        q = self.qf_embed(self.qf_pred(x) if self.told is None else torch.full_like(x[:, :1, 0, 0], self.told))
        factors = {k: (getattr(self, f"to_gamma_{k}")(q), getattr(self, f"to_beta_{k}")(q)) for k in range(1, 4)}
        return self.up(self.m_body_decoder(x), xs, factors)[:, :, :h, :w]


class Conv3Xc(nn.Module):
    """As it is trained: not folded. eval_conv is in the files, of whatever state of the weights."""

    def __init__(self, a, b, gain=2):
        super().__init__()
        self.sk = conv(a, b, 1)
        self.conv = nn.Sequential(conv(a, a * gain, 1), conv(a * gain, b * gain, pad=0), conv(b * gain, b, 1))
        self.eval_conv = conv(a, b)

    def forward(self, x):
        return self.conv(F.pad(x, (1, 1, 1, 1))) + self.sk(x)


class Spab(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.c1_r, self.c2_r, self.c3_r = (Conv3Xc(features, features) for _ in range(3))

    def forward(self, x):
        first = F.silu(self.c1_r(x))
        third = self.c3_r(F.silu(self.c2_r(first)))
        return (third + x) * (torch.sigmoid(third) - 0.5), first


class Span(nn.Module):
    def __init__(self, scale=2, features=4, norm=True):
        super().__init__()
        self.scale = scale
        if not norm:
            self.register_buffer("no_norm", torch.zeros(1))
        self.conv_1 = Conv3Xc(3, features)
        for k in range(1, 7):
            self.add_module(f"block_{k}", Spab(features))
        self.conv_2 = Conv3Xc(features, features)
        self.conv_cat = conv(4 * features, features, 1)
        self.upsampler = nn.Sequential(conv(features, 3 * scale**2))

    def forward(self, x):
        if not hasattr(self, "no_norm"):
            x = (x - torch.tensor([0.4488, 0.4371, 0.4040]).reshape(1, 3, 1, 1).type_as(x)) * 255
        feature = self.conv_1(x)
        first, _ = self.block_1(feature)
        x = first
        for k in range(2, 7):
            x, activated = getattr(self, f"block_{k}")(x)
        x = self.conv_cat(torch.cat((feature, self.conv_2(x), first, activated), 1))
        return F.pixel_shuffle(self.upsampler(x), self.scale)


class CuganPair(nn.Module):
    def __init__(self, a, b, c, gated):
        super().__init__()
        self.conv = nn.Sequential(conv(a, b, pad=0), nn.LeakyReLU(0.1), conv(b, c, pad=0), nn.LeakyReLU(0.1))
        self.seblock = None
        if gated:
            self.seblock = nn.Module()
            self.seblock.conv1, self.seblock.conv2 = conv(c, max(c // 8, 1), 1), conv(max(c // 8, 1), c, 1)

    def forward(self, x):
        x = self.conv(x)
        if self.seblock is None:
            return x
        y = self.seblock.conv2(F.relu(self.seblock.conv1(x.mean((2, 3), keepdim=True))))
        return x * torch.sigmoid(y)


def bent(x):
    return F.leaky_relu(x, 0.1)


def crop(x, by):
    return x[:, :, by:-by, by:-by]


class CuganFirst(nn.Module):
    def __init__(self, a, out, f, scale, gated=True):
        super().__init__()
        self.conv1, self.conv1_down = CuganPair(a, f, 2 * f, False), conv(2 * f, 2 * f, 2, True, 2, 0)
        self.conv2, self.conv2_up = CuganPair(2 * f, 4 * f, 2 * f, gated), nn.ConvTranspose2d(2 * f, 2 * f, 2, 2)
        self.conv3 = conv(2 * f, 2 * f, pad=0)
        self.conv_bottom = nn.ConvTranspose2d(2 * f, out, *((5, 3, 2) if scale == 3 else (4, 2, 3)))

    def forward(self, x):
        x = self.conv1(x)
        y = bent(self.conv2_up(self.conv2(bent(self.conv1_down(x)))))
        return self.conv_bottom(bent(self.conv3(crop(x, 4) + y)))


class CuganSecond(nn.Module):
    def __init__(self, a, out, f, gated=True):
        super().__init__()
        self.conv1, self.conv1_down = CuganPair(a, f, 2 * f, False), conv(2 * f, 2 * f, 2, True, 2, 0)
        self.conv2, self.conv2_down = CuganPair(2 * f, 2 * f, 4 * f, gated), conv(4 * f, 4 * f, 2, True, 2, 0)
        self.conv3, self.conv3_up = CuganPair(4 * f, 8 * f, 4 * f, gated), nn.ConvTranspose2d(4 * f, 4 * f, 2, 2)
        self.conv4, self.conv4_up = CuganPair(4 * f, 2 * f, 2 * f, gated), nn.ConvTranspose2d(2 * f, 2 * f, 2, 2)
        self.conv5, self.conv_bottom = conv(2 * f, 2 * f, pad=0), conv(2 * f, out, pad=0)

    def forward(self, x):
        x = self.conv1(x)
        y = self.conv2(bent(self.conv1_down(x)))
        z = bent(self.conv3_up(self.conv3(bent(self.conv2_down(y)))))
        z = bent(self.conv4_up(self.conv4(crop(y, 4) + z)))
        return self.conv_bottom(bent(self.conv5(crop(x, 16) + z)))


class Cugan(nn.Module):
    """Real-CUGAN. Not gated: its "nose" files."""

    def __init__(self, scale, f=2, pro=False, gated=True):
        super().__init__()
        self.scale = scale
        if pro:
            self.register_buffer("pro", torch.zeros(1))
        middle = 2 * f if scale == 4 else 3
        self.unet1, self.unet2 = CuganFirst(3, middle, f, scale, gated), CuganSecond(middle, middle, f, gated)
        if scale == 4:
            self.conv_final = conv(middle, 12, pad=0)

    def forward(self, x):
        pro = hasattr(self, "pro")
        given = x * 0.7 + 0.15 if pro else x
        pad, multiple, (h, w) = {2: 18, 3: 14, 4: 19}[self.scale], 4 if self.scale == 3 else 2, x.shape[2:]
        # by reflection about the picture itself; pictures too small for that repeat their edge in the runtime
        sides = (pad, pad + -w % multiple, pad, pad + -h % multiple)
        y = self.unet1(F.pad(given, sides, "replicate" if max(h, w) <= pad else "reflect"))
        y = self.unet2(y) + crop(y, 20)
        if self.scale == 4:
            y = F.pixel_shuffle(crop(self.conv_final(y), 1), 2)[:, :, :4 * h, :4 * w]
            y = y + F.interpolate(given, scale_factor=4, mode="nearest")
        y = y[:, :, :self.scale * h, :self.scale * w]
        return (y - 0.15) / 0.7 if pro else y


class LayerNorm(nn.Module):
    """Over the channels of each pixel."""

    def __init__(self, features):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))

    def forward(self, x):
        y = F.layer_norm(x.movedim(1, -1), x.shape[1:2], self.weight, self.bias, 1e-6)
        return y.movedim(-1, 1)


class PlkBlock(nn.Module):
    def __init__(self, features, kernel, part, gate, layer):
        super().__init__()
        self.channel_mixer = nn.Sequential(conv(features, 2 * features), nn.Mish(), conv(2 * features, features))
        self.lk, self.attn = nn.Module(), None
        self.lk.conv = conv(part, part, kernel)
        if gate:
            self.attn = nn.Module()
            self.attn.f = nn.Sequential(conv(features, features))
        self.refine = conv(features, features, 1)
        self.layer_norm = LayerNorm(features) if layer else None
        self.norm = None if layer else nn.GroupNorm(4, features)
        self.part = part

    def forward(self, x):
        y = self.channel_mixer(self.layer_norm(x) if self.layer_norm else x)
        y = torch.cat((self.lk.conv(y[:, :self.part]), y[:, self.part:]), 1)
        if self.attn:
            y = y * torch.sigmoid(self.attn.f(y))
        y = self.refine(y)
        return x + (self.norm(y) if self.norm else y)


class DySample(nn.Module):
    """Reads between pixels, at places that it finds; each group of channels has its own."""

    def __init__(self, features, scale):
        super().__init__()
        self.scale, self.groups = scale, 3 if scale % 2 else 4
        places = 2 * self.groups * scale**2
        self.offset, self.scope = conv(features, places, 1), conv(features, places, 1, bias=False)
        self.end_conv = conv(features, 3, 1) if scale > 1 else None
        steps = (torch.arange(scale) - (scale - 1) / 2) / scale
        across = steps.reshape(1, 1, 1, scale).expand(1, self.groups, scale, scale)
        down = steps.reshape(1, 1, scale, 1).expand(1, self.groups, scale, scale)
        self.register_buffer("init_pos", torch.cat((across, down)).reshape(1, -1, 1, 1).contiguous())

    def forward(self, x):
        n, c, h, w = x.shape
        s, g = self.scale, self.groups
        shift = self.offset(x) * torch.sigmoid(self.scope(x)) * 0.5 + self.init_pos
        shift = F.pixel_shuffle(shift.reshape(n, 2 * g * s * s, h, w), s).reshape(n, 2, g, s * h, s * w)
        column = torch.arange(w).repeat_interleave(s).type_as(x) + 0.5
        row = torch.arange(h).repeat_interleave(s).type_as(x).reshape(-1, 1) + 0.5
        grid = torch.stack((2 * (shift[:, 0] + column) / w - 1, 2 * (shift[:, 1] + row) / h - 1), -1)
        y = F.grid_sample(x.reshape(n * g, c // g, h, w), grid.reshape(n * g, s * h, s * w, 2), "bilinear", "border",
                          align_corners=False).reshape(n, c, s * h, s * w)
        return self.end_conv(y) if self.end_conv else y


class RealPlksr(nn.Module):
    def __init__(self, scale=2, features=8, blocks=2, kernel=17, part=2, gate=True, layer=False, dysample=False):
        super().__init__()
        self.scale, deep = scale, 3 * scale**2
        self.feats = nn.Sequential(conv(3, features), *(PlkBlock(features, kernel, part, gate, layer)
                                                        for _ in range(blocks)), nn.Identity(), conv(features, deep))
        self.to_img = DySample(deep, scale) if dysample else nn.PixelShuffle(scale)

    def forward(self, x):
        return self.to_img(self.feats(x) + x.repeat_interleave(self.scale**2, 1))


def network_for(tensors):
    """The network of this file that tensors of official shapes belong to, or None."""
    if "conv_1.sk.weight" in tensors:
        return Span(round((tensors["upsampler.0.weight"].shape[0] / 3) ** 0.5), tensors["conv_1.sk.weight"].shape[0],
                    "no_norm" not in tensors)
    if "feats.1.lk.conv.weight" in tensors:
        last = max(int(k.split(".")[1]) for k in tensors if k.startswith("feats."))
        part, _, kernel, _ = tensors["feats.1.lk.conv.weight"].shape
        return RealPlksr(round((tensors[f"feats.{last}.weight"].shape[0] / 3) ** 0.5), tensors["feats.0.weight"].shape[0],
                         last - 2, kernel, part, "feats.1.attn.f.0.weight" in tensors,
                         "feats.1.layer_norm.weight" in tensors, "to_img.init_pos" in tensors)
    if "unet1.conv_bottom.weight" in tensors:
        scale = 4 if "conv_final.weight" in tensors else tensors["unet1.conv_bottom.weight"].shape[2] // 2 + (
            tensors["unet1.conv_bottom.weight"].shape[2] % 2)
        return Cugan(scale, tensors["unet1.conv1.conv.0.weight"].shape[0], "pro" in tensors)
    if "m_head.weight" in tensors:
        widths = [tensors["m_head.weight"].shape[0]] + [tensors[f"m_up{k}.0.weight"].shape[0] for k in (1, 2, 3)]
        body = "m_body_encoder" if "m_body_encoder.0.res.0.weight" in tensors else "m_body"
        blocks = sum(k.startswith(body + ".") and k.endswith("res.0.weight") for k in tensors)
        channels = tensors["m_tail.weight"].shape[0]
        if body == "m_body":
            return DrUnet(channels, widths, blocks)
        return FbCnn(channels, widths, blocks, tensors["qf_embed.2.weight"].shape[0])
    if "model.0.weight" in tensors:
        norm = "model.3.running_mean" in tensors
        last = max(int(k.split(".")[1]) for k in tensors)
        features, inputs = tensors["model.0.weight"].shape[:2]
        channels = tensors[f"model.{last}.weight"].shape[0]
        return DnCnn(channels, features, last // 3 + 2 if norm else last // 2 + 1, norm, inputs > channels)
    return None
