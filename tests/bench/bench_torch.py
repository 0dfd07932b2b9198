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
    """RRDBNet ×4 with 23 blocks (Wang et al. 2018)."""

    def __init__(self):
        super().__init__()
        self.conv_first = nn.Conv2d(3, 64, 3, 1, 1)
        self.body = nn.Sequential(*(Block() for _ in range(23)))
        self.conv_body, self.conv_up1, self.conv_up2, self.conv_hr = (nn.Conv2d(64, 64, 3, 1, 1) for _ in range(4))
        self.conv_last = nn.Conv2d(64, 3, 3, 1, 1)

    def forward(self, x):
        x = self.conv_first(x)
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


def unit(source, target, kernel, stride=1, active=True):
    layers = [nn.Conv2d(source, target, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(target)]
    return nn.Sequential(*layers, *([nn.ReLU(inplace=True)] if active else []))


class Bottleneck(nn.Module):
    def __init__(self, source, planes, stride):
        super().__init__()
        self.way = nn.Sequential(unit(source, planes, 1), unit(planes, planes, 3, stride),
                                 unit(planes, 4 * planes, 1, active=False))
        self.skip = unit(source, 4 * planes, 1, stride, False) if stride > 1 or source != 4 * planes else nn.Identity()

    def forward(self, x):
        return F.relu(self.way(x) + self.skip(x))


class Ssh(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.three = unit(width, width // 2, 3, active=False)
        self.first, self.five = unit(width, width // 4, 3), unit(width // 4, width // 4, 3, active=False)
        self.second, self.seven = unit(width // 4, width // 4, 3), unit(width // 4, width // 4, 3, active=False)

    def forward(self, x):
        first = self.first(x)
        return F.relu(torch.cat([self.three(x), self.five(first), self.seven(self.second(first))], 1))


class Retinaface(nn.Module):
    """RetinaFace (Deng et al. 2019) on ResNet-50, FPN 256 wide."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(unit(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1))
        source, self.layers = 64, nn.ModuleList()
        for planes, depth in ((64, 3), (128, 4), (256, 6), (512, 3)):
            blocks = []
            for i in range(depth):
                blocks.append(Bottleneck(source, planes, 2 if i == 0 and planes > 64 else 1))
                source = 4 * planes
            self.layers.append(nn.Sequential(*blocks))
        self.lateral = nn.ModuleList(unit(c, 256, 1) for c in (512, 1024, 2048))
        self.merge = nn.ModuleList(unit(256, 256, 3) for _ in range(2))
        self.ssh = nn.ModuleList(Ssh(256) for _ in range(3))
        self.heads = nn.ModuleList(nn.ModuleList(nn.Conv2d(256, n, 1) for n in (4, 8, 20)) for _ in range(3))

    def forward(self, x):
        x, levels = self.stem(x), []
        for layer in self.layers:
            x = layer(x)
            levels.append(x)
        levels = [lateral(level) for lateral, level in zip(self.lateral, levels[1:])]
        for i in (1, 0):
            levels[i] = self.merge[i](levels[i] + F.interpolate(levels[i + 1], size=levels[i].shape[2:]))
        return [head(ssh(level)) for ssh, level, heads in zip(self.ssh, levels, self.heads) for head in heads]


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
