"""What every training command shares: reading the packs, seeds, the moving average of the weights, checkpoints that
can be resumed at any step, the log of the losses, the time limit, and the safetensors export.

A training step draws all its random numbers after `seed_step`, which depends on the seed and the step's number alone,
so that a resumed run continues exactly as an unbroken one and no generator's state needs to be kept.
"""
import argparse
import collections
import copy
import hashlib
import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.distributed as distributed
from PIL import Image

PART_BYTES = 16 << 20  # a checkpoint's parts
STATE_BYTES = 192 << 20  # and all of them together


def process_seconds():
    """Seconds since this process started: imports, loading and compilation count in the time limit."""
    try:
        with open("/proc/self/stat", encoding="ascii") as f:
            started = int(f.read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, ValueError, AttributeError):
        return time.perf_counter() - _IMPORTED


_IMPORTED = time.perf_counter()


def arguments(description, batch):
    """The parser with the options that all training commands have."""
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--data", default="../shared/data", help="folder of the training packs")
    p.add_argument("--out", required=True, help="folder of the checkpoint, the log and the exported model")
    p.add_argument("--minutes", type=float, default=8, help="end after this time since the process started")
    p.add_argument("--total-minutes", type=float, default=0,
                   help="what all pieces take together, which the schedules follow; default: this one is the last")
    p.add_argument("--spent", type=float, default=0,
                   help="minutes that earlier pieces took, where their checkpoint is not in --out")
    p.add_argument("--steps", type=int, default=0, help="end at this step instead; the schedules then follow the steps")
    p.add_argument("--batch", type=int, default=batch)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--log-every", type=int, default=50, help="steps a line of the log")
    p.add_argument("--save-seconds", type=float, default=60)
    p.add_argument("--limit", type=int, default=0, help="load only so many pictures of each pack (for a quick try)")
    p.add_argument("--commit", default="", help="the training code's commit, for the model's metadata")
    return p


def setup(args):
    """Threads, matrix precision and the device of a run."""
    if args.device.startswith("cuda"):
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        torch.set_num_threads(2)
    os.makedirs(args.out, exist_ok=True)
    torch.manual_seed(args.seed)
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        distributed.init_process_group("cuda:nccl,cpu:gloo")
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    return torch.device(args.device)


def rank():
    """The process's number among those that train together (RANK, see the README): 0 alone writes files."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def average(tensors):
    """Makes each tensor the mean over all processes that train together."""
    if distributed.is_initialized():
        flat = torch.cat([t.reshape(-1).float() for t in tensors])
        distributed.all_reduce(flat, distributed.ReduceOp.AVG if flat.is_cuda else distributed.ReduceOp.SUM)
        if not flat.is_cuda:
            flat /= distributed.get_world_size()
        for t, part in zip(tensors, flat.split([t.numel() for t in tensors])):
            t.copy_(part.reshape(t.shape))


def average_gradients(module):
    average([p.grad for p in module.parameters() if p.grad is not None])


def told_by_first(*values):
    """Numbers that all processes must agree on, as the first one has them."""
    if not distributed.is_initialized():
        return values
    told = torch.tensor(values, dtype=torch.float64)
    distributed.broadcast(told, 0)
    return tuple(told.tolist())


def seed_step(seed, step, stream=0):
    """Seeds every generator for one step; stream tells repeated tries of a step apart."""
    digest = hashlib.sha256(f"{seed} {step} {stream}{f' {rank()}' if rank() else ''}".encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:7], "little"))


def autocast(device, enabled=True):
    """bfloat16 where the device is a GPU; nothing elsewhere."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled and device.type == "cuda")


def fastest(device, net, run, rounds=4):
    """The memory format and whether to use bfloat16 with which run(copy of net, format, bfloat16) is fastest on this
    GPU: depthwise convolutions differ tenfold between them. Takes some seconds."""
    best = (math.inf, torch.channels_last, True)
    if device.type != "cuda":
        return best[1:]
    for half in (True, False):
        for layout in (torch.channels_last, torch.contiguous_format):
            trial = copy.deepcopy(net).to(memory_format=layout)
            for _ in range(rounds + 1):
                torch.cuda.synchronize()
                start = time.perf_counter()
                run(trial, layout, half)
                torch.cuda.synchronize()
                taken = time.perf_counter() - start
                best = min(best, (taken, layout, half), key=lambda t: t[0])
            print(f"{layout}, bfloat16 {half}: {1000 * taken:.1f} ms", flush=True)
    torch.cuda.empty_cache()
    return best[1:]


# --- the packs -------------------------------------------------------------------------------------------------------


def read_index(data, pack, split):
    """The entries of a pack's index (photos, faces512, faces256, detect) of one split, in the index's order."""
    name = "labels.json" if pack == "detect" else "index.json"
    with open(os.path.join(data, pack, name), encoding="utf-8") as f:
        return [e for e in json.load(f) if e["split"] == split]


def read_picture(path, size=None):
    """An RGB picture as a uint8 array {3, h, w}; with a size, resized to that square."""
    with Image.open(path) as im:
        im = im.convert("RGB")
        if size and im.size != (size, size):
            im = im.resize((size, size), Image.LANCZOS if im.size[0] > size else Image.BICUBIC)
        return np.ascontiguousarray(np.asarray(im).transpose(2, 0, 1))


def load_pictures(data, entries, size, device, workers=4):
    """The entries' pictures as one uint8 tensor {n, 3, size, size} on the device."""
    out = torch.empty((len(entries), 3, size, size), dtype=torch.uint8)

    def one(i):
        out[i] = torch.from_numpy(read_picture(os.path.join(data, entries[i]["file"]), size))

    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(one, range(len(entries))):
            pass
    return out.to(device)


# The sources as the packs' README states them.
LICENCES = {"congress": "public domain", "interfaces": "CC0", "budgie": "CC0", "elementary": "CC0", "pdimages": "CC0",
            "kodak": "unrestricted", "sfhqt2i": "MIT, synthetic", "wordpress": "CC0", "openstax": "CC BY 4.0",
            "pexels": "CC0"}


def contents(what, sources):
    """A model card's words for what was loaded, from the source of each: "3 tiles (2 budgie [CC0], 1 kodak [unrestricted])".
    """
    counts = collections.Counter(sources)
    parts = [f"{n} {source} [{LICENCES[source]}]" for source, n in counts.most_common()]
    return f"{sum(counts.values())} {what}" + (f" ({', '.join(parts)})" if parts else "")


# --- weights ---------------------------------------------------------------------------------------------------------


class Ema:
    """The moving average of a network's parameters and buffers. Early on it averages over fewer steps."""

    def __init__(self, module, decay=0.999):
        self.decay = decay
        state = module.state_dict()
        self.tensors = {k: v.detach().clone() for k, v in state.items()}
        names = [k for k, v in state.items() if v.is_floating_point()]
        self.pairs = [self.tensors[k] for k in names], [state[k].detach() for k in names]

    @torch.no_grad()
    def update(self, step):
        decay = min(self.decay, (1 + step) / (10 + step))
        mine, theirs = self.pairs
        torch._foreach_mul_(mine, decay)
        torch._foreach_add_(mine, theirs, alpha=1 - decay)

    def copy_to(self, module):
        module.load_state_dict(self.tensors)


def cosine(progress, step, warmup=200, floor=0.01):
    """A learning rate's factor: linear warm-up by steps, then half a cosine down to the floor by progress."""
    rise = min(1.0, (step + 1) / warmup)
    return rise * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, max(0.0, progress)))))


def set_lr(optimizer, factor):
    for group in optimizer.param_groups:
        group.setdefault("initial_lr", group["lr"])
        group["lr"] = group["initial_lr"] * factor


def adam(parameters, lr, betas=(0.9, 0.99), weight_decay=0.0):
    """AdamW, in the form with the fewest kernel launches that the device has. Vectors (biases, norms, slopes) do not
    decay."""
    parameters = list(parameters)
    groups = [{"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
              {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0}]
    extra = {"fused": True} if parameters[0].is_cuda else {}
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=lr, betas=betas, **extra)


def load_optimizer(optimizer, state):
    """Loads a state; its tensors take the parameters' memory layout, which the fused form relies on."""
    optimizer.load_state_dict(state)
    for p, values in optimizer.state.items():
        for k, v in values.items():
            if torch.is_tensor(v) and v.shape == p.shape and v.stride() != p.stride():
                values[k] = torch.empty_like(p).copy_(v)


# --- checkpoints -----------------------------------------------------------------------------------------------------


def save_state(folder, state):
    """Writes a nested dict of tensors and numbers as parts of at most 16 MiB. state.json, which names the parts, is
    replaced last, so that an interrupted save leaves the one before it in force."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    blob = buffer.getvalue()
    if len(blob) > STATE_BYTES:
        raise ValueError(f"the checkpoint has {len(blob)} bytes, allowed are {STATE_BYTES}: use a smaller network")
    parts = [blob[i:i + PART_BYTES] for i in range(0, len(blob), PART_BYTES)]
    names = [f"state-{state['step']:07d}-{i}.part" for i in range(len(parts))]
    for name, part in zip(names, parts):
        with open(os.path.join(folder, name + ".tmp"), "wb") as f:
            f.write(part)
        os.replace(os.path.join(folder, name + ".tmp"), os.path.join(folder, name))
    index = {"step": state["step"], "parts": names, "sha256": hashlib.sha256(blob).hexdigest()}
    with open(os.path.join(folder, "state.json.tmp"), "w", encoding="ascii") as f:
        json.dump(index, f)
    os.replace(os.path.join(folder, "state.json.tmp"), os.path.join(folder, "state.json"))
    for name in os.listdir(folder):
        if name.startswith("state-") and name not in names:
            os.remove(os.path.join(folder, name))


def load_state(folder, device="cpu"):
    """The checkpoint of a folder; None when it has none. A damaged one is an error."""
    path = os.path.join(folder, "state.json")
    if not os.path.exists(path):
        return None
    with open(path, encoding="ascii") as f:
        index = json.load(f)
    blob = b""
    for name in index["parts"]:
        with open(os.path.join(folder, name), "rb") as f:
            blob += f.read()
    if hashlib.sha256(blob).hexdigest() != index["sha256"]:
        raise ValueError(f"{path}: the checkpoint's parts are damaged")
    return torch.load(io.BytesIO(blob), map_location=device)


class Log:
    """Means of the losses, one JSON object a line of log.jsonl. Values stay on the device until it is written."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "log.jsonl")
        self.sums = {}

    def add(self, values):
        for k, v in values.items():
            v = v.detach().float() if torch.is_tensor(v) else torch.tensor(float(v))
            total, count = self.sums.get(k, (0, 0))
            self.sums[k] = total + v, count + 1

    def flush(self, first):
        """Writes the means since the last line, after `first`; returns them."""
        means = {k: float(total) / count for k, (total, count) in self.sums.items()}
        self.sums = {}
        line = {k: round(v, 4) for k, v in first.items()}
        line.update({k: float(f"{v:.5g}") for k, v in means.items()})
        if rank():
            return means
        with open(self.path, "a", encoding="ascii") as f:
            f.write(json.dumps(line) + "\n")
        print(" ".join(f"{k} {v}" for k, v in line.items()), flush=True)
        return means


class Training:
    """The frame around a training loop:

        training = Training(args, {"model": net, "critic": critic}, {"model": opt, …}, {"model": ema})
        training.learn_from(contents("faces of 512 px", …))
        for step, progress in training.steps():
            …                                   # random numbers are seeded for this step
            training.log({"loss": loss, …})
        # here: the last checkpoint is written

    Resumes from the checkpoint in args.out. Saves at the start, every args.save_seconds and at the end. When a logged
    loss or a weight is not finite it goes back to the last checkpoint and takes other random numbers. progress is the
    share of all training done, 0 to 1: by steps with --steps, else by time, where earlier pieces count with the time
    they took. It is a step's only clock: what changes during training follows it.
    """

    def __init__(self, args, modules, optimizers, emas):
        self.args, self.modules, self.optimizers, self.emas = args, modules, optimizers, emas
        self.step, self.spent, self.stream, self.values = 0, 60 * args.spent, 0, None
        self.record = Log(args.out)
        self.stopped = False
        self.data, self.origin = [], "from random weights"
        if getattr(args, "start", ""):
            told = read_safetensors(args.start)[1]
            self.data = [told["data"]] if told.get("data") else []
            self.origin = "after " + told.get("training", "others")
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, self.stop)
        state = load_state(args.out, "cpu")
        if state:
            self.restore(state)
            print(f"resumed at step {self.step}", flush=True)
        self.before = self.spent

    def learn_from(self, text):
        """Keeps in the checkpoint what this piece has loaded; pieces with different data are told apart."""
        if not self.data or self.data[-1] != text:
            self.data.append(text)

    def stop(self, number, frame):
        """A signal ends the piece as its time limit does: with a checkpoint."""
        self.stopped = True

    def state(self):
        return {"step": self.step, "spent": self.before + process_seconds() if not self.args.steps else 0.0,
                "stream": self.stream, "data": self.data, "origin": self.origin,
                "modules": {k: m.state_dict() for k, m in self.modules.items()},
                "optimizers": {k: o.state_dict() for k, o in self.optimizers.items()},
                "emas": {k: e.tensors for k, e in self.emas.items()}}

    def restore(self, state):
        self.step, self.spent, self.stream = state["step"], state["spent"], state["stream"]
        self.data = list(state.get("data", []))
        self.origin = state.get("origin", self.origin)
        for k, m in self.modules.items():
            m.load_state_dict(state["modules"][k])
        for k, o in self.optimizers.items():
            load_optimizer(o, state["optimizers"][k])
        for k, e in self.emas.items():
            for name, tensor in state["emas"][k].items():
                e.tensors[name].copy_(tensor)

    def progress(self):
        if self.args.steps:
            return self.step / self.args.steps
        total = 60 * self.args.total_minutes or self.before + 60 * self.args.minutes
        return min(1.0, (self.before + process_seconds()) / total)

    def finished(self):
        if self.args.steps and self.step >= self.args.steps:
            return True
        return self.stopped or process_seconds() >= 60 * self.args.minutes

    def log(self, values):
        self.record.add(values)

    def finite(self):
        tensors = [p for m in self.modules.values() for p in m.state_dict().values() if p.is_floating_point()]
        return bool(torch.stack([torch.isfinite(t).all() for t in tensors]).all())

    def check(self):
        """Writes a line of the log; on a loss or weight that is not finite goes back to the last checkpoint."""
        means = self.record.flush({"step": self.step, "seconds": self.before + process_seconds(),
                                   "progress": self.progress()})
        # A gradient that is not finite is so in every process, since they share its mean.
        if told_by_first(all(math.isfinite(v) for v in means.values()) and self.finite())[0]:
            return True
        stream = self.stream + 1
        if stream > 20:
            raise FloatingPointError(f"step {self.step}: not finite again and again; lower the learning rate")
        self.restore(load_state(self.args.out, "cpu"))
        self.stream = stream
        print(f"not finite: back to step {self.step}", flush=True)
        return False

    def save(self):
        if rank() == 0:
            save_state(self.args.out, self.state())

    def steps(self):
        average([torch.zeros(1)])  # all processes have read the checkpoint that the first one is about to replace
        self.save()
        saved = time.perf_counter()
        good = self.step
        while True:
            progress, finished = told_by_first(self.progress(), self.finished())
            if finished:
                break
            seed_step(self.args.seed, self.step, self.stream)
            yield self.step, progress
            self.step += 1
            if (self.step - good) % self.args.log_every == 0 and self.record.sums:
                self.check()
                if time.perf_counter() - saved >= self.args.save_seconds:
                    self.save()
                    saved = time.perf_counter()
        if not self.record.sums or self.check():
            self.save()
        print(f"ended at step {self.step}, {process_seconds():.0f} s", flush=True)


# --- export ----------------------------------------------------------------------------------------------------------


def commit():
    """The checkout's commit, with a + when it has changes; "unknown" outside of one."""
    here = os.path.dirname(os.path.abspath(__file__))
    try:
        head = subprocess.run(["git", "-C", here, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        dirty = subprocess.run(["git", "-C", here, "status", "--porcelain", "-uno"], capture_output=True, text=True,
                               check=True)
        return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def card(name, state, commit_=""):
    """A model file's metadata, from the checkpoint it is made of."""
    if not state.get("data"):
        raise ValueError("the checkpoint does not say what it has learnt from: set it with "
                         "python3 -m models.training.export --rewrite")
    return {"name": name, "licence": "MIT", "commit": commit_ or commit(), "data": "; then ".join(state["data"]),
            "training": f"{state['step']} steps {state.get('origin', 'from random weights')}"}


def replace_metadata(path, changes):
    """Writes a safetensors file again with some of its metadata changed (texts by name); the tensors' bytes stay."""
    with open(path, "rb") as f:
        blob = f.read()
    length = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8:8 + length])
    header["__metadata__"] = {**header.get("__metadata__", {}), **changes}
    write_file(path, header, blob[8 + length:])


def write_file(path, header, data):
    """A safetensors file of a header and the tensors' bytes."""
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".tmp", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + data)
    os.replace(path + ".tmp", path)


def write_safetensors(path, tensors, metadata, exact=()):
    """Writes a dict of tensors: matrices and kernels as float16, vectors (biases, slopes, BatchNorm's statistics, a
    few KB in all) and those named in `exact` as float32. Integer tensors, BatchNorm's counters, are left out. metadata:
    texts by name."""
    header = {"__metadata__": {k: str(v) for k, v in metadata.items()}}
    blobs, at = [], 0
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            continue
        array = tensor.detach().float().cpu().contiguous().numpy()
        kind = "F16" if array.ndim >= 2 and name not in exact else "F32"
        array = array.astype("<f2" if kind == "F16" else "<f4")
        if not np.isfinite(array).all():
            raise ValueError(f"{name}: values that are not finite as {kind}")
        blob = array.tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    write_file(path, header, b"".join(blobs))


def export(name, folder, commit="", state=None, tensors=lambda weights: weights):
    """Writes the averaged weights of the checkpoint in folder. tensors: makes the official layout of them."""
    if rank():
        return
    state = state or load_state(folder)
    path = os.path.join(folder, name + ".safetensors")
    write_safetensors(path, tensors(state["emas"]["net"]), card(name, state, commit))
    print(f"{path}: {os.path.getsize(path)} bytes", flush=True)


def read_safetensors(path):
    """A safetensors file as (dict of float32 tensors, metadata)."""
    kinds = {"F16": "<f2", "F32": "<f4"}
    with open(path, "rb") as f:
        blob = f.read()
    length = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8:8 + length])
    metadata = header.pop("__metadata__", {})
    out = {}
    for name, e in header.items():
        begin, end = e["data_offsets"]
        array = np.frombuffer(blob[8 + length + begin:8 + length + end], kinds[e["dtype"]])
        out[name] = torch.from_numpy(array.reshape(e["shape"]).astype(np.float32))
    return out, metadata


def load_weights(path):
    """A model's tensors from safetensors, or from a .pth file's params_ema, params or bare dict, among others."""
    if path.endswith(".safetensors"):
        return read_safetensors(path)[0]
    state = torch.load(path, map_location="cpu")
    for key in ("params_ema", "params", "state_dict", "model_state"):
        if key in state:
            state = state[key]
            break
    return {k[7:] if k.startswith("module.") else k: v.float() if v.is_floating_point() else v
            for k, v in state.items()}


def fail(text):
    print(text, file=sys.stderr)
    sys.exit(1)
