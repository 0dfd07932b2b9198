"""Our networks and PyTorch's in turns, in one run: bench_torch.py RESTORED cpu|gpu [OPTION]... [-- OPTION OF restored bench]...

Both have the same random weights, of the official shapes, and the same input, on the device already; a median of medians.
On a GPU ours runs in fp16 and PyTorch in fp16 twice: as the projects that people run today ship it (eager, NCHW, StyleGAN2's
convolutions grouped), and compiled (torch.compile, channels last; in a CUDA graph where that is faster). What chooses
entries of a codebook runs in fp32 in PyTorch, as its projects run it: as PyTorch ships that (convolutions in TF32, whose
numbers have the 10 bits of fp16), and, as the case NAME@fp32, with TF32 switched off. On a CPU: fp32, eager and compiled
(before PyTorch 2: TorchScript, frozen, for oneDNN).
Each of PyTorch's networks has a process, and all of them get ready at once. Prints markdown: the times and the most
device memory of each side, weights included; then how our outputs differ from PyTorch's in fp32, and how PyTorch's own do as it
was timed; of those with a codebook, also how many entries it then chose otherwise.
"""
import argparse
import glob
import itertools
import json
import os
import platform
import select
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import roofline  # noqa: E402

# name, pictures, width, height
CASES = {"gpu": (("rrdbnet_x4", 1, 512, 512), ("srvgg_x4_32", 1, 512, 512), ("gfpgan", 1, 512, 512), ("gfpgan", 8, 512, 512),
                 ("retinaface_r50", 1, 1920, 1080), ("parsenet", 1, 512, 512), ("span_x4", 1, 512, 512), ("plksr_x4", 1, 256, 256),
                 ("cugan_x2", 1, 512, 512), ("dncnn", 1, 512, 512), ("drunet", 1, 512, 512), ("fbcnn", 1, 512, 512),
                 ("gfpgan_v1", 1, 512, 512), ("restoreformer", 1, 512, 512), ("restoreformer_plus", 1, 512, 512),
                 ("codeformer", 1, 512, 512), ("restoreformer@fp32", 1, 512, 512), ("restoreformer_plus@fp32", 1, 512, 512),
                 ("codeformer@fp32", 1, 512, 512)),
         "cpu": (("srvgg_x4_32", 1, 128, 128), ("rrdbnet_x4", 1, 128, 128), ("gfpgan", 1, 512, 512),
                 ("retinaface_mobilenet", 1, 640, 640), ("retinaface_r50", 1, 640, 640), ("parsenet", 1, 512, 512),
                 ("span_x4", 1, 128, 128), ("plksr_x4", 1, 64, 64), ("cugan_x2", 1, 128, 128), ("dncnn", 1, 128, 128),
                 ("drunet", 1, 128, 128), ("fbcnn", 1, 128, 128), ("gfpgan_v1", 1, 512, 512),
                 ("restoreformer", 1, 512, 512), ("restoreformer_plus", 1, 512, 512), ("codeformer", 1, 512, 512))}
FORMS = ("shipped", "compiled")
FP32 = ("restoreformer", "restoreformer_plus", "codeformer")  # as their projects run them; ours up to the codebook


# --- PyTorch's side: a process that gets one network ready and then does what it is told to, a line at a time ----------

def grouped(convolution, x, latent, gain=1.0):
    """gfpgan.ModulatedConv as it is shipped: kernels of each picture's own, all in one convolution with a group a picture."""
    import torch
    import torch.nn.functional as F
    n, channels, h, w = x.shape
    kernel, style = convolution.kernel, convolution.modulation(latent)
    weight = convolution.weight * style[:, None, :, None, None]
    if convolution.demodulate:
        weight = weight * torch.rsqrt(weight.square().sum((2, 3, 4)) + 1e-8)[:, :, None, None, None]
    out = F.conv2d(x.reshape(1, n * channels, h, w), weight.reshape(-1, channels, kernel, kernel), padding=kernel // 2,
                   groups=n)
    return out.reshape(n, -1, h, w) * gain


def as_shipped(net):
    import types
    import torch
    from models.training.gfpgan import Gfpgan, ModulatedConv
    if isinstance(net, Gfpgan):
        net.stylegan_decoder.layout = torch.contiguous_format
        for module in net.modules():
            if isinstance(module, ModulatedConv):
                module.forward = types.MethodType(grouped, module)
    return net


def compiled(net, x):
    """The compiled network. RRDBNet's blocks are alike: compiled one for all, they are ready in a tenth of the time."""
    import torch
    from models.training.networks_large import Rrdbnet
    if not hasattr(torch, "compile"):
        return torch.jit.optimize_for_inference(torch.jit.trace(net, x, check_trace=False))
    if not isinstance(net, Rrdbnet):
        return torch.compile(net, dynamic=False)
    for block in net.body:
        block.compile(dynamic=False)
    net.enlarge = torch.compile(net.enlarge, dynamic=False)
    return net


class Worker:
    def __init__(self, form, network, folder, gpu):
        import numpy as np
        import torch
        from models.training import common, networks_large
        network, _, exact = network.partition("@")
        if exact:
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
            torch.set_float32_matmul_precision("highest")
        self.torch, self.form, self.network, self.folder = torch, form, network, folder
        self.gpu, self.half = gpu, gpu and network not in FP32
        while not os.path.exists(f"{folder}/{network}.safetensors"):  # the other side is writing it
            time.sleep(0.05)
        torch.set_grad_enabled(False)
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        net = networks_large.network_of(common.load_weights(f"{folder}/{network}.safetensors"))
        x = torch.from_numpy(np.load(f"{folder}/{network}.in.npy"))
        if self.gpu:
            layout = torch.channels_last if form == "compiled" else torch.contiguous_format
            net, x = (as_shipped(net) if form == "shipped" else net), x.to("cuda", memory_format=layout)
            net = net.to("cuda")
            if self.half:
                net, x = net.half(), x.half()
            for tensor in net.parameters():
                if tensor.dim() == 4:  # StyleGAN2's kernels have 5 dimensions, of which the first is 1
                    tensor.data = tensor.data.contiguous(memory_format=layout)
        self.own = torch.cuda.memory_allocated() if self.gpu else 0
        self.run = lambda: net(x)
        if form == "compiled":
            net = compiled(net, x)
            # Others get ready on the same GPU: what cuDNN finds fast now is not to be kept. It keeps what it found by
            # all of a convolution's settings, of which this is one.
            torch.backends.cudnn.deterministic = True
            self.run()
            torch.backends.cudnn.deterministic = False
        self.best = None

    def name(self):
        torch = self.torch
        return {"torch": torch.__version__, "device": torch.cuda.get_device_name() if self.gpu else
                f"CPU, {torch.get_num_threads()} threads"}

    def once(self, run):
        if not self.gpu:
            start = time.perf_counter()
            run()
            return (time.perf_counter() - start) * 1e3
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        self.torch.cuda.synchronize()
        return start.elapsed_time(end)

    def median(self, run):
        """Of single runs, after a warm-up that ends right before them."""
        begin = time.perf_counter()
        while time.perf_counter() - begin < 0.15:
            self.once(run)
        times, begin = [], time.perf_counter()
        while len(times) < (10 if self.gpu else 3) or (len(times) < 200 and time.perf_counter() - begin < 0.4):
            times.append(self.once(run))
        return statistics.median(times)

    def graph(self):
        """The run as a CUDA graph, which has no launches to wait for."""
        torch = self.torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.kept = self.run()
        return graph.replay

    def first(self):
        """Chooses algorithms, looks at the outputs, and finds out the most memory of a run and the fastest way of it."""
        torch = self.torch
        torch.backends.cudnn.benchmark = True
        tensors = [self.run()]
        while any(not torch.is_tensor(t) for t in tensors):
            tensors = [u for t in tensors for u in ([t] if torch.is_tensor(t) else t)]
        if not all(torch.isfinite(t).all() for t in tensors):
            raise ArithmeticError("the output is not finite")
        del tensors
        self.memory, ways = 0, {"": self.run}
        if self.gpu:
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            self.run()
            torch.cuda.synchronize()
            self.memory = self.own + torch.cuda.max_memory_allocated() - before
        if self.form == "compiled" and self.gpu:
            try:
                ways["graph"] = self.graph()
            except RuntimeError as error:
                print(f"no CUDA graph: {error}", file=sys.stderr)
        self.how = min(ways, key=lambda way: self.median(ways[way])) if len(ways) > 1 else ""
        self.best = ways[self.how]

    def time(self):
        if self.best is None:
            self.first()
        return {"ms": self.median(self.best), "memory": self.memory, "how": self.how}

    def check(self):
        """What is to be said of our outputs, which are in the folder beside the inputs."""
        import numpy as np
        import compare_torch
        self.torch.backends.cudnn.benchmark = False
        theirs, chosen = self.choices(self.run)
        theirs = [t.float().cpu().numpy() for t in compare_torch.tensors_of(theirs)]
        device = compare_torch.exact(self.gpu)
        wanted, exact = self.choices(lambda: compare_torch.expected(self.folder, self.network, device))
        got = [np.load(f"{self.folder}/{self.network}.out{i}.npy") for i in range(len(wanted))]
        mean, worst, labels, good = compare_torch.judge(self.network, "fp16" if self.gpu else "fp32", got, wanted)
        own_mean, own_worst = compare_torch.errors(theirs, wanted)
        entries = [sum(int((a != b).sum()) for a, b in zip(chosen, exact)), sum(a.numel() for a in exact)]
        return {"mean": mean, "max": worst, "labels": labels, "good": bool(good), "own_mean": own_mean, "own_max": own_worst,
                "entries": entries if self.network in FP32 else None}

    def choices(self, run):
        """What run() gives, and the entries that it chooses of codebooks: all that argmin and argmax give."""
        kept, tensor = [], self.torch.Tensor
        least, most = tensor.argmin, tensor.argmax
        tensor.argmin = lambda *args: kept.append(least(*args)) or kept[-1]
        tensor.argmax = lambda *args: kept.append(most(*args)) or kept[-1]
        try:
            return run(), kept
        finally:
            tensor.argmin, tensor.argmax = least, most


def work(kind, form, network, folder):
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what others print goes to the log
    worker = None
    for line in itertools.chain(["name"], iter(sys.stdin.readline, "")):
        try:
            worker = worker or Worker(form, network, folder, kind == "gpu")
            reply = getattr(worker, line.strip())()
        except Exception as error:  # a compiler has many ways to fail
            import traceback
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:100]}
        print(json.dumps(reply), file=replies, flush=True)


# --- our side ---------------------------------------------------------------------------------------------------------

class Case:
    """One network at one size: our runs and the processes of PyTorch's."""

    def __init__(self, args, network, n, w, h):
        self.args, self.n = args, n
        self.asked, network = network, network.partition("@")[0]
        self.network = network
        self.input = f"{n}×{w}×{h}"
        self.folder = f"{args.folder}/{self.asked}-{n}"
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        self.command = [args.program, "bench", "--model", network, "--size", f"{w}x{h}", "--batch", str(n), "--keep",
                        self.folder, "--json", *(["--device", "cpu"] if args.kind == "cpu" else ["--precision", "fp16"])]
        # A cache of its own: what is found fast while others get ready must not stay in the user's.
        self.environment = {**os.environ, "XDG_CACHE_HOME": os.path.abspath(self.folder + "/cache")}
        self.workers, self.names, self.times = {}, {}, {}
        self.cold = self.ours = None

    def start(self):
        """Begins to get everything ready."""
        self.cold = subprocess.Popen([*self.command, "--runs", "1", *self.args.rest], env=self.environment, stdout=subprocess.DEVNULL)
        for form in FORMS:
            with open(f"{self.folder}/{form}.log", "w", encoding="utf-8") as log:
                self.workers[form] = subprocess.Popen(
                    [sys.executable, os.path.abspath(__file__), "--work", self.args.kind, form, self.asked, self.folder],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)

    def ready(self, deadline):
        """Waits; what is not ready then is stopped and says why."""
        if self.cold.wait():
            raise ChildProcessError(f"{' '.join(self.command)}: exit status {self.cold.returncode}")
        for form, worker in self.workers.items():
            if select.select([worker.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
                self.names[form] = self.reply(form)
            else:
                worker.kill()
                self.names[form] = {"error": f"not ready in {self.args.prepare:.0f} s"}
        for file in glob.glob(f"{self.folder}/cache/restored/*.tiles"):
            os.remove(file)  # they were measured while others ran

    def reply(self, form):
        line = self.workers[form].stdout.readline()
        return json.loads(line) if line else {"error": f"its process ended: {self.folder}/{form}.log"}

    def ask(self, form, what):
        if "error" in self.names[form]:
            return self.names[form]
        self.workers[form].stdin.write(what + "\n")
        self.workers[form].stdin.flush()
        return self.reply(form)

    def turn(self):
        done = subprocess.run([*self.command, "--runs", str(self.args.runs), *self.args.rest], env=self.environment,
                              stdout=subprocess.PIPE, check=True)
        self.ours = json.loads(done.stdout)["networks"][0]
        device = self.ours["device_ms"]
        self.times.setdefault("ours", []).append((device or self.ours["ms"])["median"])
        for form in self.workers:
            reply = self.ask(form, "time")
            self.names[form] = {**self.names[form], **reply}
            if "ms" in reply:
                self.times.setdefault(form, []).append(reply["ms"])

    def median(self, side):
        return statistics.median(self.times[side]) if side in self.times else None

    def end(self):
        for process in (self.cold, *self.workers.values()):
            if process:
                process.kill()
                process.wait()

    def row(self):
        ours = self.median("ours")
        line = f"| {self.asked} | {self.input} | {ours:.2f} | {2 * self.ours['gmac'] / ours:.1f} |"
        memory = self.ours["memory"]["device_peak"]
        line += f" {memory / 2**20:.0f} |"
        for form in self.workers:
            said, ms = self.names[form], self.median(form)
            if ms is None:
                line += f" {said['error']} | | |"
            else:
                how = f" ({said['how']})" if said["how"] else ""
                line += f" {ms:.2f}{how} | {ms / ours:.1f}× | "
                line += f"{said['memory'] / 2**20:.0f} |" if self.args.kind == "gpu" else "|"
        return line

    def agreement(self):
        said = self.ask("shipped", "check")
        if "error" in said:
            return f"| {self.asked} | {self.input} | {said['error']} | | | | | |", False
        labels = "–" if said["labels"] is None else f"{100 * said['labels']:.2f} %"
        entries = f"{said['entries'][0]} of {said['entries'][1]}" if said["entries"] else "–"
        return (f"| {self.asked} | {self.input} | {said['mean']:.1e} | {said['max']:.1e} | {labels} | "
                f"{'yes' if said['good'] else '**no**'} | {said['own_mean']:.1e}, {said['own_max']:.1e} | {entries} |"), said["good"]


def heading(case):
    device = case.ours["device"]
    name = next((n for n in case.names.values() if "torch" in n), None)
    torch = f"PyTorch {name['torch']}, {name['device']}" if name else "PyTorch did not start"
    columns = "".join(f" PyTorch {form}, ms | ours is faster by | MiB |" for form in case.workers)
    return (f"{device['name']}, {device['driver']}, {case.ours['precision']}; {torch}; {platform.system()} "
            f"{platform.release()}\n\n| network | input | ours, ms | TFLOP/s | MiB |{columns}\n" +
            "|---" * (5 + 3 * len(case.workers)) + "|")


def measure(args, cases, agreements):
    """Prints the table, fills the other's lines; whether all outputs are as they must be."""
    good, begin = True, time.monotonic()
    if args.kind == "gpu":
        for case in cases:
            case.start()
        for case in cases:
            case.ready(begin + args.prepare)
        print(f"ready after {time.monotonic() - begin:.0f} s", file=sys.stderr)
    for case in cases:
        if args.kind == "cpu":  # one after the other: they share the cores
            case.start()
            case.ready(time.monotonic() + args.prepare)
        for _ in range(args.rounds):
            case.turn()
        if case is cases[0]:
            print(heading(case))
        print(case.row(), flush=True)
        line, fine = case.agreement()
        agreements.append(line)
        good = good and fine
        case.end()
    return good


def main():
    if sys.argv[1:2] == ["--work"]:
        return work(*sys.argv[2:6])
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("program")
    options.add_argument("kind", choices=["cpu", "gpu"])
    options.add_argument("--cases", default="", help="other ones: NAME:PICTURES:WIDTH:HEIGHT with commas between")
    options.add_argument("--rounds", type=int, default=0, help="turns of each [3 on a GPU, 1 on a CPU]")
    options.add_argument("--runs", type=int, default=15, help="of ours in a round")
    options.add_argument("--prepare", type=float, default=300, help="seconds that PyTorch has to compile in")
    options.add_argument("--folder", default="build/bench/torch")
    options.add_argument("--tflops", type=float, default=0, help="what the device can do, for the table of --layers")
    options.add_argument("--gbs", type=float, default=0)
    ends = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = options.parse_args(sys.argv[1:ends])
    args.rest = sys.argv[ends + 1:]
    args.rounds = args.rounds or (3 if args.kind == "gpu" else 1)
    wanted = [case.split(":") for case in args.cases.split(",") if case] or CASES[args.kind]
    cases = [Case(args, name, *map(int, size)) for name, *size in wanted]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what is known by then is printed all the same
    agreements, good = [], True
    try:
        good = measure(args, cases, agreements)
    finally:
        for case in cases:
            case.end()
        print("\nOur outputs beside PyTorch's in fp32, errors in parts of the output's range:\n\n"
              "| network | input | mean error | max error | equal labels | as it must be | of PyTorch as timed: mean, max | "
              "its other entries |\n|---|---|---|---|---|---|---|---|\n" +
              "\n".join(agreements))
        done = [case.ours for case in cases if case.ours and case.ours.get("layers")]
        if done:
            print("\nOurs by layers, of all these networks:\n\n" + roofline.table(done, args.tflops, args.gbs))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
