"""The official files' networks that no starter model is of: RRDBNet, and RetinaFace on ResNet-50. They have the official
tensor names, and are here to be measured by and as the oracle of the runtime's own implementation. `network_of` makes
any of the networks from a file's tensors.
"""
import torch
import torch.nn.functional as F
from torch import nn

from models.training import gfpgan, gfpgan_original, parsenet
from models.training import networks_codebook, networks_restore
from models.training.networks_scene import RetinaFace, retinaface_of, srvgg_of


def leaky(x):
    return F.leaky_relu(x, 0.2, inplace=not torch.is_grad_enabled())


class Dense(nn.Module):
    """Five convolutions, each of all that came before it."""

    def __init__(self, features, growth):
        super().__init__()
        for k in range(5):
            self.add_module(f"conv{k + 1}", nn.Conv2d(features + k * growth, growth if k < 4 else features, 3, 1, 1))

    def forward(self, x):
        seen = [x]
        for k in range(4):
            seen.append(leaky(getattr(self, f"conv{k + 1}")(torch.cat(seen, 1))))
        return self.conv5(torch.cat(seen, 1)) * 0.2 + x


class Block(nn.Module):
    def __init__(self, features, growth):
        super().__init__()
        self.rdb1, self.rdb2, self.rdb3 = (Dense(features, growth) for _ in range(3))

    def forward(self, x):
        return self.rdb3(self.rdb2(self.rdb1(x))) * 0.2 + x


class Rrdbnet(nn.Module):
    """RRDBNet (Wang et al. 2018 and 2021). Input N×3×H×W RGB 0..1; output scale times as large. Scales 2 and 1 are 4
    behind a pixel unshuffle, of which the sides must be multiples."""

    def __init__(self, scale=4, blocks=23, features=64, growth=32):
        super().__init__()
        self.factor = 4 // scale
        self.conv_first = nn.Conv2d(3 * self.factor**2, features, 3, 1, 1)
        self.body = nn.Sequential(*(Block(features, growth) for _ in range(blocks)))
        self.conv_body, self.conv_up1, self.conv_up2, self.conv_hr = (
            nn.Conv2d(features, features, 3, 1, 1) for _ in range(4))
        self.conv_last = nn.Conv2d(features, 3, 3, 1, 1)

    def forward(self, x):
        x = self.conv_first(F.pixel_unshuffle(x, self.factor) if self.factor > 1 else x)
        return self.enlarge(x + self.conv_body(self.body(x)))

    def enlarge(self, x):
        x = leaky(self.conv_up1(F.interpolate(x, scale_factor=2, mode="nearest")))
        x = leaky(self.conv_up2(F.interpolate(x, scale_factor=2, mode="nearest")))
        return self.conv_last(leaky(self.conv_hr(x)))


class Bottleneck(nn.Module):
    def __init__(self, source, planes, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(source, planes, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv3, self.bn3 = nn.Conv2d(planes, 4 * planes, 1, bias=False), nn.BatchNorm2d(4 * planes)
        self.downsample = None
        if stride > 1 or source != 4 * planes:
            self.downsample = nn.Sequential(nn.Conv2d(source, 4 * planes, 1, stride, bias=False),
                                            nn.BatchNorm2d(4 * planes))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + (x if self.downsample is None else self.downsample(x)))


class Resnet50(nn.Module):
    """ResNet-50 (He et al. 2016) with torchvision's names; features at strides 8, 16 and 32."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        source = 64
        for layer, (planes, depth) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
            blocks = []
            for i in range(depth):
                blocks.append(Bottleneck(source, planes, 2 if i == 0 and layer else 1))
                source = 4 * planes
            self.add_module(f"layer{layer + 1}", nn.Sequential(*blocks))

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        a = self.layer2(self.layer1(x))
        b = self.layer3(a)
        return a, b, self.layer4(b)


def retinaface_r50():
    return RetinaFace(0.0, 256, Resnet50(), (512, 1024, 2048))


def loaded(net, tensors):
    """net in evaluation mode with the tensors; BatchNorm's counters may be missing."""
    wrong = net.load_state_dict(tensors, strict=False)
    if wrong.unexpected_keys or [k for k in wrong.missing_keys if not k.endswith("num_batches_tracked")]:
        raise ValueError(f"not tensors of a {type(net).__name__}: {wrong}")
    return net.eval()


def rrdbnet_of(tensors):
    features, inputs = tensors["conv_first.weight"].shape[:2]
    blocks = sum(k.startswith("body.") and k.endswith("rdb1.conv1.weight") for k in tensors)
    growth = tensors["body.0.rdb1.conv1.weight"].shape[0]
    return loaded(Rrdbnet(4 // round((inputs / 3) ** 0.5), blocks, features, growth), tensors)


def network_of(tensors):
    """The network that a file's tensors belong to, with them loaded, in evaluation mode."""
    if "conv_first.weight" in tensors:
        return rrdbnet_of(tensors)
    if "conv_body_first.0.weight" in tensors:
        return gfpgan_original.from_state(tensors)
    if "stylegan_decoder.constant_input.weight" in tensors:
        return gfpgan.from_state(tensors).eval()
    if "out_mask_conv.conv2d.weight" in tensors:
        return parsenet.from_state(tensors).eval()
    if "body.layer1.0.conv1.weight" in tensors:
        return loaded(retinaface_r50(), tensors)
    if "ClassHead.0.conv1x1.weight" in tensors:
        return retinaface_of(tensors)
    if "body.0.weight" in tensors:
        return srvgg_of(tensors)
    other = networks_codebook.network_for(tensors) or networks_restore.network_for(tensors)
    if other:
        return loaded(other, tensors)
    raise ValueError("tensors of no network that is known here: " + ", ".join(list(tensors)[:3]) + ", …")
