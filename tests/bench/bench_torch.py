"""The networks of `restored bench` in PyTorch, timed the same way: bench_torch.py cpu|gpu|default

Weights are random, of the official shapes; inputs and outputs stay on the device. On a GPU: fp16, eager as peers ship it
and compiled; on a CPU: fp32. Prints a markdown table; what cannot run here says why."""
import os
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def leaky(x):
    return F.leaky_relu(x, 0.2)


class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        for k in range(5):
            self.add_module(f"conv{k + 1}", nn.Conv2d(64 + 32 * k, 32 if k < 4 else 64, 3, 1, 1))

    def forward(self, x):
        seen = [x]
        for k in range(4):
            seen.append(leaky(getattr(self, f"conv{k + 1}")(torch.cat(seen, 1))))
        return x + 0.2 * self.conv5(torch.cat(seen, 1))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.rdb1, self.rdb2, self.rdb3 = Dense(), Dense(), Dense()

    def forward(self, x):
        return x + 0.2 * self.rdb3(self.rdb2(self.rdb1(x)))


class Rrdbnet(nn.Module):
    """RRDBNet ×4 or ×2 with 23 blocks (Wang et al. 2018); ×2 is ×4 behind a pixel unshuffle."""

    def __init__(self, scale=4):
        super().__init__()
        self.factor = 4 // scale
        self.conv_first = nn.Conv2d(3 * self.factor**2, 64, 3, 1, 1)
        self.body = nn.Sequential(*(Block() for _ in range(23)))
        self.conv_body, self.conv_up1, self.conv_up2, self.conv_hr = (nn.Conv2d(64, 64, 3, 1, 1) for _ in range(4))
        self.conv_last = nn.Conv2d(64, 3, 3, 1, 1)

    def forward(self, x):
        x = self.conv_first(F.pixel_unshuffle(x, self.factor))
        x = x + self.conv_body(self.body(x))
        x = leaky(self.conv_up1(F.interpolate(x, scale_factor=2.0)))
        x = leaky(self.conv_up2(F.interpolate(x, scale_factor=2.0)))
        return self.conv_last(leaky(self.conv_hr(x)))


class Srvgg(nn.Module):
    """SRVGGNetCompact ×4 with 32 convolutions between the first and the last."""

    def __init__(self):
        super().__init__()
        layers = []
        for k in range(33):
            layers += [nn.Conv2d(64 if k else 3, 64, 3, 1, 1), nn.PReLU(64)]
        self.body = nn.Sequential(*layers, nn.Conv2d(64, 48, 3, 1, 1))

    def forward(self, x):
        return F.pixel_shuffle(self.body(x), 4) + F.interpolate(x, scale_factor=4.0)


class Bottleneck(nn.Module):
    def __init__(self, source, planes, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(source, planes, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv3, self.bn3 = nn.Conv2d(planes, 4 * planes, 1, bias=False), nn.BatchNorm2d(4 * planes)
        if stride > 1 or source != 4 * planes:
            self.downsample = nn.Sequential(nn.Conv2d(source, 4 * planes, 1, stride, bias=False),
                                            nn.BatchNorm2d(4 * planes))
        else:
            self.downsample = nn.Identity()

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.downsample(x))


class Resnet(nn.Module):
    """ResNet-50 (He et al. 2016); features at strides 8, 16 and 32."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        source = 64
        for k, (planes, depth) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
            blocks = []
            for i in range(depth):
                blocks.append(Bottleneck(source, planes, 2 if i == 0 and k else 1))
                source = 4 * planes
            self.add_module(f"layer{k + 1}", nn.Sequential(*blocks))

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        a = self.layer2(self.layer1(x))
        b = self.layer3(a)
        return a, b, self.layer4(b)


class Retinaface(nn.Module):
    """RetinaFace (Deng et al. 2019) on ResNet-50, FPN 256 wide; the official names. A map of each stride: classes,
    boxes, landmarks."""

    def __init__(self):
        super().__init__()
        from models.training.networks_scene import Fpn, Head, Ssh
        self.body = Resnet()
        self.fpn = Fpn((512, 1024, 2048), 256, 0)
        self.ssh1, self.ssh2, self.ssh3 = (Ssh(256, 0) for _ in range(3))
        for name, outputs in (("ClassHead", 4), ("BboxHead", 8), ("LandmarkHead", 20)):
            self.add_module(name, nn.ModuleList(Head(256, outputs) for _ in range(3)))

    def forward(self, x):
        levels = [ssh(level) for ssh, level in zip((self.ssh1, self.ssh2, self.ssh3), self.fpn(self.body(x)))]
        return [torch.cat([head[i](level) for head in (self.ClassHead, self.BboxHead, self.LandmarkHead)], 1)
                for i, level in enumerate(levels)]


def gfpgan():
    from models.training.gfpgan import Gfpgan
    return Gfpgan()


def parsenet():
    from models.training.parsenet import ParseNet
    return ParseNet()


CPU = (("srvgg_x4_32", Srvgg, 1, 128, 128), ("rrdbnet_x4", Rrdbnet, 1, 128, 128), ("gfpgan", gfpgan, 1, 512, 512),
       ("retinaface_r50", Retinaface, 1, 640, 640), ("parsenet", parsenet, 1, 512, 512))
GPU = (("rrdbnet_x4", Rrdbnet, 1, 512, 512), ("srvgg_x4_32", Srvgg, 1, 512, 512), ("gfpgan", gfpgan, 1, 512, 512),
       ("gfpgan", gfpgan, 8, 512, 512), ("retinaface_r50", Retinaface, 1, 1080, 1920), ("parsenet", parsenet, 1, 512, 512))


def tensors(result):
    return [result] if torch.is_tensor(result) else [t for part in result if part is not None for t in tensors(part)]


def measure(run, gpu):
    """Median ms of single runs, after a warm-up that ends right before them."""
    def once():
        if not gpu:
            start = time.perf_counter()
            run()
            return (time.perf_counter() - start) * 1e3
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end)

    if not all(torch.isfinite(t).all() for t in tensors(run())):
        raise ArithmeticError("the output is not finite")
    begin = time.perf_counter()
    while time.perf_counter() - begin < 0.2:
        once()
    times, begin = [], time.perf_counter()
    while len(times) < 5 or (time.perf_counter() - begin < 3 and len(times) < 200):
        times.append(once())
    return statistics.median(times)


def column(run, gpu):
    """Its time and, on a GPU, the most memory that tensors had at once, weights included."""
    if not gpu:
        return f" {measure(run, gpu):.2f} |"
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    ms = measure(run, gpu)
    return f" {ms:.2f} | {torch.cuda.max_memory_allocated() / 2**20:.0f} |"


def main(kind):
    gpu = kind != "cpu" and torch.cuda.is_available()
    if kind == "gpu" and not gpu:
        print("PyTorch: it sees no GPU here")
        return
    torch.manual_seed(1)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.backends.cudnn.benchmark = True
    device, dtype = ("cuda", torch.float16) if gpu else ("cpu", torch.float32)
    name = torch.cuda.get_device_name() if gpu else f"CPU, {torch.get_num_threads()} threads"
    print(f"PyTorch {torch.__version__}, {name}, {'fp16' if gpu else 'fp32'}\n")
    print("| network | input | eager ms |" + (" device MiB | compiled ms | device MiB |" if gpu else "") +
          "\n|---|---|---|" + ("---|---|---|" if gpu else ""))
    for network, make, n, h, w in GPU if gpu else CPU:
        line = f"| {network} | {n}×{w}×{h} |"
        try:
            net = make().eval().to(device, dtype)
        except ImportError as error:
            print(f"{line} not here: {error} |")
            continue
        x = torch.rand(n, 3, h, w, device=device, dtype=dtype)
        with torch.inference_mode():
            line += column(lambda: net(x), gpu)
            if gpu:
                try:
                    compiled = torch.compile(net)
                    line += column(lambda: compiled(x), gpu)
                except Exception as error:  # a compiler has many ways to fail
                    line += f" {type(error).__name__} | |"
        print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "default")
