"""ParseNet, the face parser of facexlib (from PSFRGAN, Chen et al. 2021), written from its checkpoints' layout: residual
blocks down, at the bottom and up again, every convolution padded by reflection. The state dict has the official names; this
is also the oracle of the runtime's graph. Input N×3×h×w, RGB, -1..1; outputs: logits of 19 classes, and a picture."""
import torch.nn as nn
import torch.nn.functional as F

CLASSES = 19
OPAQUE = (*range(1, 14), 15)  # what the pipeline pastes
# The starter's classes. Its neck has the nose's number and is pasted, unlike the official neck, 17: no labels of ours find
# the chin's lower edge well enough to blend there, and chins came out half restored.
BACKGROUND, SKIN, HAIR, NECK, CLOTH = 0, 1, 13, 2, 18


class Norm(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.norm = nn.BatchNorm2d(count)

    def forward(self, x):
        return self.norm(x)


class Conv(nn.Module):
    """scale -1 halves by stride, 1 doubles its input by repetition; norm: BatchNorm in place of a bias."""

    def __init__(self, source, target, scale=0, norm=False, active=False):
        super().__init__()
        self.scale, self.active = scale, active
        self.conv2d = nn.Conv2d(source, target, 3, 2 if scale < 0 else 1, bias=not norm)
        self.norm = Norm(target) if norm else None

    def forward(self, x):
        if self.scale > 0:
            x = F.interpolate(x, scale_factor=2, mode="nearest")
        x = self.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"))
        if self.norm is not None:
            x = self.norm(x)
        return F.leaky_relu(x, 0.2) if self.active else x


class Block(nn.Module):
    def __init__(self, source, target, scale=0):
        super().__init__()
        self.shortcut_func = Conv(source, target, scale) if scale or source != target else nn.Identity()
        self.conv1 = Conv(source, target, max(scale, 0), norm=True, active=True)
        self.conv2 = Conv(target, target, min(scale, 0), norm=True)

    def forward(self, x):
        return self.shortcut_func(x) + self.conv2(self.conv1(x))


class ParseNet(nn.Module):
    def __init__(self, base=64, low=32, high=256, depth=10, steps=4, classes=CLASSES, width=None):
        """width: channels after encoder.0, .1, …; by default base·2^i within low..high, as the official one counts."""
        super().__init__()
        w = width or [min(max(base << i, low), high) for i in range(steps + 1)]
        steps = len(w) - 1
        self.encoder = nn.Sequential(Conv(3, w[0]), *(Block(w[i], w[i + 1], -1) for i in range(steps)))
        self.body = nn.Sequential(*(Block(w[-1], w[-1]) for _ in range(depth)))
        self.decoder = nn.Sequential(*(Block(w[steps - i], w[steps - 1 - i], 1) for i in range(steps)))
        self.out_img_conv = Conv(w[0], 3)
        self.out_mask_conv = Conv(w[0], classes)

    def forward(self, x):
        feature = self.encoder(x)
        x = self.decoder(feature + self.body(feature))
        return self.out_mask_conv(x), self.out_img_conv(x)


def from_state(state):
    """The network that a state dict is of, with its tensors."""
    width, steps = [state["encoder.0.conv2d.weight"].shape[0]], 0
    while f"encoder.{steps + 1}.conv1.conv2d.weight" in state:
        steps += 1
        width.append(state[f"encoder.{steps}.conv1.conv2d.weight"].shape[0])
    depth = sum(k.startswith("body.") and k.endswith("conv1.conv2d.weight") for k in state)
    net = ParseNet(depth=depth, width=width, classes=state["out_mask_conv.conv2d.weight"].shape[0])
    missing = net.load_state_dict(state, strict=False)
    if missing.unexpected_keys or [k for k in missing.missing_keys if not k.endswith("num_batches_tracked")]:
        raise ValueError(f"not a ParseNet: {missing}")
    return net
