"""The detector and the upsampler, with the official files' tensor names, so that the runtime loads an export unchanged.

RetinaFace (Deng et al. 2020) with a MobileNet of width 0.25, and SRVGGNetCompact (Wang et al. 2021, Real-ESRGAN's small
network). In evaluation mode they are the oracle for the runtime's own implementation.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Activation(nn.Module):
    """LeakyReLU; slope 0 is ReLU. Not in place, so that a residual can be added after it."""

    def __init__(self, slope):
        super().__init__()
        self.slope = slope

    def forward(self, x):
        return F.leaky_relu(x, self.slope) if self.slope else F.relu(x)


def unit(cin, cout, kernel, stride=1, slope=None):
    """Convolution, BatchNorm, and LeakyReLU unless slope is None."""
    layers = [nn.Conv2d(cin, cout, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(cout)]
    if slope is not None:
        layers.append(Activation(slope))
    return nn.Sequential(*layers)


def separable(cin, cout, stride, slope):
    """Depthwise 3×3, then 1×1, each with BatchNorm and LeakyReLU."""
    return nn.Sequential(nn.Conv2d(cin, cin, 3, stride, 1, groups=cin, bias=False), nn.BatchNorm2d(cin),
                         Activation(slope), nn.Conv2d(cin, cout, 1, bias=False), nn.BatchNorm2d(cout),
                         Activation(slope))


class MobileNet(nn.Module):
    """Features at strides 8, 16 and 32 with 8, 16 and 32 times as many channels as the first convolution has: 8 of them is
    width 0.25."""

    def __init__(self, slope, c=8):
        super().__init__()
        self.stage1 = nn.Sequential(unit(3, c, 3, 2, slope), separable(c, 2 * c, 1, slope), separable(2 * c, 4 * c, 2, slope),
                                    separable(4 * c, 4 * c, 1, slope), separable(4 * c, 8 * c, 2, slope),
                                    separable(8 * c, 8 * c, 1, slope))
        self.stage2 = nn.Sequential(separable(8 * c, 16 * c, 2, slope),
                                    *[separable(16 * c, 16 * c, 1, slope) for _ in range(5)])
        self.stage3 = nn.Sequential(separable(16 * c, 32 * c, 2, slope), separable(32 * c, 32 * c, 1, slope))

    def forward(self, x):
        a = self.stage1(x)
        b = self.stage2(a)
        return a, b, self.stage3(b)


class Fpn(nn.Module):
    """Feature pyramid: a lateral 1×1 convolution a level, plus the level above by nearest neighbour, then 3×3."""

    def __init__(self, inputs, width, slope):
        super().__init__()
        self.output1, self.output2, self.output3 = [unit(c, width, 1, 1, slope) for c in inputs]
        self.merge1, self.merge2 = unit(width, width, 3, 1, slope), unit(width, width, 3, 1, slope)

    def forward(self, features):
        a, b, c = self.output1(features[0]), self.output2(features[1]), self.output3(features[2])
        b = self.merge2(b + F.interpolate(c, size=b.shape[2:], mode="nearest"))
        a = self.merge1(a + F.interpolate(b, size=a.shape[2:], mode="nearest"))
        return a, b, c


class Ssh(nn.Module):
    """Context module (Najibi et al. 2017): fields of 3, 5 and 7, side by side."""

    def __init__(self, width, slope):
        super().__init__()
        quarter = width // 4
        self.conv3X3 = unit(width, width // 2, 3)
        self.conv5X5_1 = unit(width, quarter, 3, 1, slope)
        self.conv5X5_2 = unit(quarter, quarter, 3)
        self.conv7X7_2 = unit(quarter, quarter, 3, 1, slope)
        self.conv7x7_3 = unit(quarter, quarter, 3)

    def forward(self, x):
        five = self.conv5X5_1(x)
        return F.relu(torch.cat([self.conv3X3(x), self.conv5X5_2(five), self.conv7x7_3(self.conv7X7_2(five))], 1))


class Head(nn.Module):
    def __init__(self, width, outputs):
        super().__init__()
        self.conv1x1 = nn.Conv2d(width, outputs, 1)

    def forward(self, x):
        return self.conv1x1(x)


class RetinaFace(nn.Module):
    """Input N×3×H×W, BGR minus (104, 117, 123). Output: a map for each of the strides 8, 16, 32, N×32×ceil(H/s)×
    ceil(W/s), channels [anchor][2] class logits, [anchor][4] box, [anchor][10] landmarks, as the runtime's."""

    def __init__(self, slope=0.1, width=64, body=None, inputs=(64, 128, 256)):
        super().__init__()
        self.body = body or MobileNet(slope)
        self.fpn = Fpn(inputs, width, slope)
        self.ssh1, self.ssh2, self.ssh3 = [Ssh(width, slope) for _ in range(3)]
        self.ClassHead = nn.ModuleList([Head(width, 4) for _ in range(3)])
        self.BboxHead = nn.ModuleList([Head(width, 8) for _ in range(3)])
        self.LandmarkHead = nn.ModuleList([Head(width, 20) for _ in range(3)])

    def forward(self, x):
        levels = self.fpn(self.body(x))
        levels = [ssh(level) for ssh, level in zip((self.ssh1, self.ssh2, self.ssh3), levels)]
        kind = self.ClassHead[0].conv1x1.weight.dtype
        with torch.autocast(x.device.type, enabled=False):  # offsets need more than bfloat16's 8 bits
            levels = [f.to(kind) for f in levels]
            return [torch.cat([self.ClassHead[i](f), self.BboxHead[i](f), self.LandmarkHead[i](f)], 1)
                    for i, f in enumerate(levels)]


def retinaface(slope=0.1, first=8, width=64):
    """On a MobileNet that begins with `first` channels; width is that of the pyramid."""
    return RetinaFace(slope, width, MobileNet(slope, first), (8 * first, 16 * first, 32 * first))


def retinaface_of(tensors, slope=0.1):
    """The RetinaFace on a MobileNet that a file's tensors belong to, with them loaded."""
    net = retinaface(slope, len(tensors["body.stage1.0.0.weight"]), len(tensors["fpn.output1.0.weight"]))
    net.load_state_dict(tensors, strict=False)
    return net.eval()


def detector_init(net, prior=0.01):
    """For training from scratch: a class bias that begins with `prior` as the share of anchors that hold a face."""
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, a=0.1, mode="fan_out" if m.groups == 1 else "fan_in")
    for heads, gain in ((net.ClassHead, 0.01), (net.BboxHead, 0.01), (net.LandmarkHead, 0.01)):
        for head in heads:
            nn.init.normal_(head.conv1x1.weight, std=gain)
            nn.init.zeros_(head.conv1x1.bias)
    odds = float(torch.tensor(prior / (1 - prior)).log())
    for head in net.ClassHead:
        head.conv1x1.bias.data.copy_(torch.tensor([-odds / 2, odds / 2, -odds / 2, odds / 2]))
    return net


class Srvgg(nn.Module):
    """Input N×3×H×W RGB 0..1; output scale times as large: 3×3 convolutions with PReLU at the input's size, a pixel
    shuffle, plus the input by nearest neighbour. convs counts the inner convolutions, as the official num_conv."""

    def __init__(self, features=64, convs=16, scale=2):
        super().__init__()
        self.scale = scale
        layers = [nn.Conv2d(3, features, 3, 1, 1), nn.PReLU(features)]
        for _ in range(convs):
            layers += [nn.Conv2d(features, features, 3, 1, 1), nn.PReLU(features)]
        layers.append(nn.Conv2d(features, 3 * scale * scale, 3, 1, 1))
        self.body = nn.Sequential(*layers)

    def forward(self, x):
        y = x
        for layer in self.body:
            y = layer(y)
        with torch.autocast(x.device.type, enabled=False):
            y, x = (t.to(self.body[0].weight.dtype) for t in (y, x))
            return F.pixel_shuffle(y, self.scale) + F.interpolate(x, scale_factor=self.scale, mode="nearest")


def srvgg_init(net, noise=0.2, slope=0.9):
    """For training from scratch: the inner convolutions begin near the identity, so that a deep plain chain passes its
    gradients as a residual network does, and the last one at zero, so that the output begins as the enlarged input."""
    convs = [m for m in net.body if isinstance(m, nn.Conv2d)]
    for m in net.body:
        if isinstance(m, nn.PReLU):
            nn.init.constant_(m.weight, slope)
    for m in convs:
        nn.init.kaiming_normal_(m.weight, a=slope)
        nn.init.zeros_(m.bias)
    for m in convs[1:-1]:
        m.weight.data.mul_(noise)
        for i in range(m.out_channels):
            m.weight.data[i, i, 1, 1] += 1
    nn.init.normal_(convs[-1].weight, std=1e-3)
    return net


def srvgg_of(tensors):
    """The Srvgg that a file's tensors belong to, with them loaded."""
    last = max(int(k.split(".")[1]) for k in tensors)
    features, outputs = tensors["body.0.weight"].shape[0], tensors[f"body.{last}.weight"].shape[0]
    net = Srvgg(features, last // 2 - 1, round((outputs / 3) ** 0.5))
    net.load_state_dict(tensors)
    return net.eval()


class Critic(nn.Module):
    """A small patch discriminator: a verdict for every 8th pixel from the 50 px or so around it. features() gives the
    inner activations for feature matching."""

    def __init__(self, width=32):
        super().__init__()
        norm = nn.utils.spectral_norm
        self.layers = nn.ModuleList([
            norm(nn.Conv2d(3, width, 3, 1, 1)), norm(nn.Conv2d(width, 2 * width, 4, 2, 1)),
            norm(nn.Conv2d(2 * width, 2 * width, 3, 1, 1)), norm(nn.Conv2d(2 * width, 4 * width, 4, 2, 1)),
            norm(nn.Conv2d(4 * width, 4 * width, 3, 1, 1)), norm(nn.Conv2d(4 * width, 4 * width, 4, 2, 1))])
        self.verdict = nn.Conv2d(4 * width, 1, 3, 1, 1)

    def forward(self, x):
        """(verdicts N×1×h×w, list of activations)"""
        features = []
        x = 4 * (x - 0.5)
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.2)
            features.append(x)
        return self.verdict(x), features
