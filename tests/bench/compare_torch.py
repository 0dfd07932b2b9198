"""The networks of the official shapes on a device of ours beside PyTorch in fp32: the same weights, which are random but
keep activations as large as a trained network's, and the same picture-like input.

    python3 tests/bench/compare_torch.py ./restored [--device cpu] [--precision fp16] [--networks gfpgan,parsenet]

Prints a markdown table of the errors relative to the output's range; exit status 1 where one is larger than it may be.
Sizes are those that the networks are measured at where PyTorch has a GPU, else small ones. --stages prints what each part
of a network gives, in PyTorch.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

try:
    import numpy as np
    import torch
except ImportError as missing:
    sys.exit(f"compare_torch: {sys.executable} has no {missing.name}: PYTHON=… names one that has")

from models.training import common  # noqa: E402
from models.training.networks_large import network_of  # noqa: E402

# Each: pictures, width and height as measured on a GPU; the same for a CPU.
SIZES = {
    "rrdbnet_x4": ((1, 512, 512), (1, 72, 56)),
    "rrdbnet_x2": ((1, 1024, 1024), (1, 104, 72)),
    "srvgg_x4_32": ((1, 512, 512), (1, 104, 72)),
    "gfpgan": ((8, 512, 512), (1, 512, 512)),
    "gfpgan_v1": ((1, 512, 512), (1, 512, 512)),
    "retinaface_r50": ((1, 1920, 1080), (1, 328, 216)),
    "retinaface_mobilenet": ((1, 1920, 1080), (1, 328, 216)),
    "parsenet": ((1, 512, 512), (1, 192, 128)),
    "restoreformer": ((1, 512, 512), (1, 512, 512)),
    "restoreformer_plus": ((1, 512, 512), (1, 512, 512)),
    "codeformer": ((1, 512, 512), (1, 512, 512)),
    "span_x4": ((1, 512, 512), (1, 104, 72)),
    "plksr_x4": ((1, 256, 256), (1, 56, 40)),
    "cugan_x2": ((1, 512, 512), (1, 104, 72)),
    "dncnn": ((1, 512, 512), (1, 104, 72)),
    "drunet": ((1, 512, 512), (1, 104, 72)),
    "fbcnn": ((1, 512, 512), (1, 104, 72)),
}
# The largest errors in fp16, mean and max, in parts of the output's range; of fp32 the max is 1e-4 (tests/golden/test_full.c).
FP16 = {"rrdbnet_x4": (6e-4, 8e-3), "rrdbnet_x2": (6e-4, 8e-3), "srvgg_x4_32": (6e-4, 8e-3), "gfpgan": (1.6e-3, 2e-2),
        "retinaface_r50": (1e-3, 1e-2), "retinaface_mobilenet": (1e-3, 1e-2)}
FP16_OTHERS = (1e-3, 1e-2)
LABELS = {"fp16": 0.996, "fp32": 0.9997}  # of a parser: the share of pixels with the same class


def run(program, network, size, folder, *options):
    """One network's result of `restored bench`, which leaves weights, input and outputs in the folder."""
    n, w, h = size
    command = [program, "bench", "--model", network, "--size", f"{w}x{h}", "--batch", str(n), "--keep", str(folder),
               "--json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise ChildProcessError(f"{' '.join(command)}: exit status {done.returncode}")
    return json.loads(done.stdout)["networks"][0]


def tensors_of(result):
    return [result] if torch.is_tensor(result) else [t for part in result for t in tensors_of(part)]


def exact(gpu):
    """fp32 that is: no TF32 anywhere."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    return torch.device("cuda" if gpu else "cpu")


@torch.no_grad()
def expected(folder, network, device, stages=False):
    """PyTorch's outputs on what run() left, picture by picture, as arrays."""
    net = network_of(common.load_weights(f"{folder}/{network}.safetensors")).to(device)
    if stages:
        watch(net)
    x = torch.from_numpy(np.load(f"{folder}/{network}.in.npy"))
    rows = [[t.float().cpu() for t in tensors_of(net(picture[None].to(device)))] for picture in x]
    return [torch.cat(parts).numpy() for parts in zip(*rows)]


def watch(net):
    """Prints mean, deviation and largest magnitude of what the parts give, two levels deep."""
    def hook(name):
        def show(module, inputs, output):
            for t in tensors_of(output):
                print(f"    {name:32} {str(tuple(t.shape)):24} {t.mean():8.3f} ± {t.std():7.3f}  largest {t.abs().max():8.2f}")
        return show
    for name, module in net.named_modules():
        if name and name.count(".") < 2 and not isinstance(module, torch.nn.ModuleList):
            module.register_forward_hook(hook(name))


def errors(got, wanted):
    """(mean, max) over all outputs, each in parts of its own range; NaN counts as infinite."""
    means, worst = [], 0.0
    for a, b in zip(got, wanted):
        if a.shape != b.shape:
            raise ValueError(f"{a.shape} instead of {b.shape}")
        e = np.abs(a.astype(np.float64) - b) / max(float(b.max()) - float(b.min()), 1e-30)
        e = np.nan_to_num(e, nan=np.inf)
        means.append(e.mean())
        worst = max(worst, float(e.max()))
    return float(max(means)), worst


def judge(network, precision, got, wanted):
    """(mean error, max error, share of equal labels or None, whether all is as it must be)."""
    mean, worst = errors(got, wanted)
    if network == "parsenet":
        labels = float((got[0].argmax(1) == wanted[0].argmax(1)).mean())
        good = labels >= LABELS[precision] and np.isfinite(worst) and (precision == "fp16" or worst <= 1e-4)
        return mean, worst, labels, good
    most_mean, most = FP16.get(network, FP16_OTHERS) if precision == "fp16" else (1e-4, 1e-4)
    return mean, worst, None, mean <= most_mean and worst <= most


def compare(program, network, size, folder, device, options, stages=False):
    """A row of the table, and whether it is good."""
    ours = run(program, network, size, folder, "--runs", "1", *options)
    wanted = expected(folder, network, device, stages)
    got = [np.load(f"{folder}/{network}.out{i}.npy") for i in range(len(wanted))]
    mean, worst, labels, good = judge(network, ours["precision"], got, wanted)
    n, w, h = size
    spread = f"{wanted[0].mean():.2f} ± {wanted[0].std():.2f}"
    return (f"| {network} | {n}×{w}×{h} | {ours['device']['id']}, {ours['precision']} | {mean:.1e} | {worst:.1e} | "
            f"{'–' if labels is None else f'{100 * labels:.2f} %'} | {spread} | {'yes' if good else '**no**'} |"), good


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("program", nargs="?", default="./restored")
    options.add_argument("--device", default="auto")
    options.add_argument("--precision", default="auto")
    options.add_argument("--networks", default=",".join(SIZES))
    options.add_argument("--size", default="", help="WxH, of all of them")
    options.add_argument("--folder", default="build/bench/torch")
    options.add_argument("--stages", action="store_true")
    args = options.parse_args()
    gpu = torch.cuda.is_available()
    device = exact(gpu)
    print(f"Beside PyTorch {torch.__version__} in fp32 on {torch.cuda.get_device_name() if gpu else 'its CPU'}; errors in "
          "parts of the output's range\n")
    print("| network | input | device | mean error | max error | equal labels | output | as it must be |\n"
          "|---|---|---|---|---|---|---|---|")
    bad = 0
    for network in args.networks.split(","):
        size = SIZES[network][0 if gpu else 1]
        if args.size:
            size = (1, *map(int, args.size.split("x")))
        line, good = compare(args.program, network, size, args.folder, device,
                             ["--device", args.device, "--precision", args.precision], args.stages)
        print(line, flush=True)
        bad += not good
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
