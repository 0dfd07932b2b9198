"""Trains the filler of damage: python3 -m models.training.train_fill --data DIR --out DIR --minutes 8

Each minute it prints the PSNR of held-out holes, filled by the network's average, by the pre-fill, and by OpenCV where that is
installed, and exports the model.
"""
import json
import os
import shutil

import numpy as np
import torch
import torch.nn.functional as F

from models.training import common, damage, fill
from models.training.networks_damage import damage_of
from models.training.networks_fill import Fill, fill_init, given, pull_push

NAME = "starter_fill"
AHEAD = 6  # batches made at a time: many small kernels
RING = 5  # beside a hole, in a square of this side, the pipeline blends


def differences(x):
    return x[:, :, 1:] - x[:, :, :-1], x[:, :, :, 1:] - x[:, :, :, :-1]


def losses(out, truth, mask):
    """L1, squared error, and L1 of differences between neighbours, in holes; each picture's holes weigh the same whatever
    their number. The last: beside holes, where the pipeline may blend."""
    def mean(error, weight):
        return ((error * weight).sum((1, 2, 3)) / (3 * weight.sum((1, 2, 3)) + 300)).mean()

    off = out - truth
    one, two = mean(off.abs(), mask), mean(off**2, mask)
    steps = 0
    whole = truth + off * mask  # what is pasted
    for a, b, m in zip(differences(whole), differences(truth), ((1, 0), (0, 1))):
        near = torch.maximum(mask[:, :, m[0]:, m[1]:], mask[:, :, :mask.shape[2] - m[0], :mask.shape[3] - m[1]])
        steps = steps + mean((a - b).abs(), near)
    ring = F.max_pool2d(mask, RING, 1, RING // 2) - mask
    return one, two, steps, mean(off.abs(), ring)


def opencv(held, device):
    """Telea's and Navier-Stokes' fill of the validation: {name: {sort: pictures}}."""
    try:
        import cv2
    except ImportError:
        return {}
    out = {}
    for name, method in (("telea", cv2.INPAINT_TELEA), ("ns", cv2.INPAINT_NS)):
        out[name] = {}
        for sort, (picture, mask) in held.items():
            images = (picture * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
            masks = (mask[:, 0] * 255).byte().cpu().numpy()
            filled = np.stack([cv2.inpaint(np.ascontiguousarray(i[:, :, ::-1]), m, 5, method)[:, :, ::-1]
                               for i, m in zip(images, masks)])
            out[name][sort] = torch.from_numpy(filled.copy()).permute(0, 3, 1, 2).float().to(device) / 255
    return out


class Judge:
    """The held-out pictures, and what others make of them."""

    def __init__(self, photos, masks, device, each):
        self.device = device
        self.held = fill.validation(photos, masks, torch.Generator(device=device).manual_seed(3), each)
        self.inputs = {sort: given(2 * p - 1, m) for sort, (p, m) in self.held.items()}
        others = {"pull_push": {s: pull_push(p, m) for s, (p, m) in self.held.items()}, **opencv(self.held, device)}
        self.others = {name: {s: fill.psnr(x, *self.held[s]) for s, x in by.items()} for name, by in others.items()}

    @torch.no_grad()
    def __call__(self, net):
        """Prints the PSNR of the holes, by sort; returns it."""
        mine = {}
        for sort, (picture, mask) in self.held.items():
            with common.autocast(self.device):
                out = torch.cat([net(x) for x in self.inputs[sort].split(32)])
            mine[sort] = fill.psnr((out.float() / 2 + 0.5).clamp(0, 1), picture, mask)
        for name, by in {**self.others, "network": mine}.items():
            print(f"  {name:10}" + "".join(f" {s} {v:6.2f}" for s, v in by.items()), flush=True)
        return mine


def new_generator(device):
    return torch.Generator(device=device).manual_seed(int(torch.randint(1 << 62, (1,))))


def main():
    parser = common.arguments(__doc__, batch=64)
    parser.add_argument("--detector", default="models/starter/starter_damage.safetensors", help="whose masks it learns from")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--start", default="", help="without a checkpoint: begin with the weights of this model file")
    parser.add_argument("--bank", type=int, default=4096, help="opacities of damage that are kept")
    parser.add_argument("--copy", default="", help="folder to which the model and the log are copied each minute")
    parser.add_argument("--export-only", action="store_true", help="write the model of the checkpoint in --out and end")
    args = parser.parse_args()
    if args.export_only:
        common.export(NAME, args.out, args.commit)
        return
    device = common.setup(args)
    net = fill_init(Fill())
    if args.start:
        net.load_state_dict(common.load_weights(args.start))
    net = net.to(device, memory_format=torch.channels_last).train()
    optimizer = common.adam(net.parameters(), args.lr, weight_decay=0.01)
    ema = common.Ema(net, 0.999)
    training = common.Training(args, {"net": net}, {"net": optimizer}, {"net": ema})
    average = Fill().to(device, memory_format=torch.channels_last).eval()
    detector = damage_of(common.load_weights(args.detector)).to(device, memory_format=torch.channels_last)
    photos = damage.Photos(args.data, "train", device, args.limit, damage.packs(args.data))
    masks = damage.Masks(args.data, "train", device, args.limit)
    training.learn_from(f"{photos.contents}; {masks.contents}")
    judge = Judge(damage.Photos(args.data, "val", device, args.limit, ("photos",)),
                  damage.Masks(args.data, "val", device, args.limit), device, 4 if args.limit else 32)
    common.seed_step(args.seed, training.step, -1)
    bank = fill.Bank(masks, args.bank, new_generator(device), min(64, args.bank))
    print(f"{len(photos.pictures)} pictures, {len(masks.pictures)} masks, {common.process_seconds():.0f} s", flush=True)
    made, judged = None, common.process_seconds()

    def report():
        ema.copy_to(average)
        values = judge(average)
        with open(os.path.join(args.out, "psnr.jsonl"), "a", encoding="ascii") as f:
            f.write(json.dumps({"step": training.step, **{k: round(v, 3) for k, v in values.items()}}) + "\n")
        common.export(NAME, args.out, args.commit, training.state())
        for name in (f"{NAME}.safetensors", "log.jsonl", "psnr.jsonl"):
            if args.copy and os.path.exists(os.path.join(args.out, name)):
                shutil.copy(os.path.join(args.out, name), os.path.join(args.copy, name))

    for step, progress in training.steps():
        common.set_lr(optimizer, common.cosine(progress, step, warmup=300))
        part = step % AHEAD
        if made is None or part == 0:
            common.seed_step(args.seed, step - part, training.stream)
            made = fill.make(photos.pictures, bank, AHEAD * args.batch, new_generator(device), detector)
            order = torch.randperm(AHEAD * args.batch, device=device).reshape(AHEAD, -1)
        picture, truth, mask = (made[k][order[part]] for k in ("picture", "truth", "mask"))
        x = given(picture, mask).contiguous(memory_format=torch.channels_last)
        with common.autocast(device):
            out = net(x)
        one, two, steps, ring = losses(out.float(), truth, mask)
        optimizer.zero_grad(set_to_none=True)
        (one + 2.5 * two + 0.25 * steps + 0.3 * ring).backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        ema.update(step)
        training.log({"l1": one, "l2": two, "steps": steps, "ring": ring, "norm": norm})
        if common.process_seconds() - judged > 60:
            report()
            judged = common.process_seconds()
    report()


if __name__ == "__main__":
    main()
