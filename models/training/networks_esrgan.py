"""ESRGAN's generator as its three releases name it, and ESRGAN+: what most upscalers that people have are. They are the
oracle of the runtime's one implementation, so each has its own modules, with the names of its files.

Sources: Wang et al. 2018 (ESRGAN), 2021 (Real-ESRGAN); Rakotonirina and Rasoanaivo 2020 (ESRGAN+).
"""
import torch
import torch.nn.functional as F
from torch import nn

from models.training.networks_large import Dense


def conv(a, b, kernel=3, bias=True):
    return nn.Conv2d(a, b, kernel, 1, kernel // 2, bias=bias)


def leaky(x):
    return F.leaky_relu(x, 0.2)


class OldDense(nn.Module):
    """conv1.0 … conv5.0, behind the first four an activation; with `plus` conv1x1."""

    def __init__(self, features, growth, plus):
        super().__init__()
        self.conv1x1 = conv(features, growth, 1, bias=False) if plus else None
        for k in range(4):
            self.add_module(f"conv{k + 1}", nn.Sequential(conv(features + k * growth, growth), nn.LeakyReLU(0.2)))
        self.conv5 = nn.Sequential(conv(features + 4 * growth, features))

    def forward(self, x):
        a = self.conv1(x)
        b = self.conv2(torch.cat((x, a), 1))
        if self.conv1x1 is not None:
            b = b + self.conv1x1(x)
        c = self.conv3(torch.cat((x, a, b), 1))
        d = self.conv4(torch.cat((x, a, b, c), 1))
        if self.conv1x1 is not None:
            d = d + b
        return self.conv5(torch.cat((x, a, b, c, d), 1)) * 0.2 + x


class OldBlock(nn.Module):
    def __init__(self, features, growth, plus):
        super().__init__()
        self.RDB1, self.RDB2, self.RDB3 = (OldDense(features, growth, plus) for _ in range(3))

    def forward(self, x):
        return self.RDB3(self.RDB2(self.RDB1(x))) * 0.2 + x


class Shortcut(nn.Module):
    def __init__(self, sub):
        super().__init__()
        self.sub = sub

    def forward(self, x):
        return x + self.sub(x)


class OldEsrgan(nn.Module):
    """ESRGAN's first release, a list in which activations and enlargements have a number, too. `factor`: the picture is
    pixel-unshuffled by it. Scale: 2^ups / factor."""

    def __init__(self, inputs=3, outputs=3, features=4, growth=3, blocks=2, ups=2, factor=1, plus=False):
        super().__init__()
        self.factor = factor
        body = [OldBlock(features, growth, plus) for _ in range(blocks)]
        layers = [conv(inputs * factor**2, features), Shortcut(nn.Sequential(*body, conv(features, features)))]
        for _ in range(ups):
            layers += [nn.Upsample(scale_factor=2, mode="nearest"), conv(features, features), nn.LeakyReLU(0.2)]
        layers += [conv(features, features), nn.LeakyReLU(0.2), conv(features, outputs)]
        self.model = nn.Sequential(*layers)

    def forward(self, x):
        return self.model(F.pixel_unshuffle(x, self.factor) if self.factor > 1 else x)


class TrunkBlock(nn.Module):
    def __init__(self, features, growth):
        super().__init__()
        self.RDB1, self.RDB2, self.RDB3 = (Dense(features, growth) for _ in range(3))

    def forward(self, x):
        return self.RDB3(self.RDB2(self.RDB1(x))) * 0.2 + x


class TrunkEsrgan(nn.Module):
    """ESRGAN's second release, BSRGAN's and RealSR's."""

    def __init__(self, inputs=3, outputs=3, features=4, growth=3, blocks=2, ups=2):
        super().__init__()
        self.ups = ups
        self.conv_first = conv(inputs, features)
        self.RRDB_trunk = nn.Sequential(*(TrunkBlock(features, growth) for _ in range(blocks)))
        self.trunk_conv, self.HRconv, self.conv_last = (conv(features, features), conv(features, features),
                                                        conv(features, outputs))
        for k in range(ups):
            self.add_module(f"upconv{k + 1}", conv(features, features))

    def forward(self, x):
        x = self.conv_first(x)
        x = x + self.trunk_conv(self.RRDB_trunk(x))
        for k in range(self.ups):
            x = leaky(getattr(self, f"upconv{k + 1}")(F.interpolate(x, scale_factor=2, mode="nearest")))
        return self.conv_last(leaky(self.HRconv(x)))
