"""Measures the repair as the built program does it: its own detector, rules, masks and filler, beside OpenCV's two fills.

    python3 -m models.training.eval_repair --program ./restored [--data DIR] [--clean NAME=FOLDER …] [--limit N] [--work DIR]

Photos, faces and masks are held out, the generator's seeds are others than the training's. Prints, in this order:
- what is found of damage by kind (repair=auto and true): precision of the filled pixels and recall of the damaged ones, each
  within 2 px, and F1. The mask that the program saves is grown by a pixel; that is taken away again;
- false alarms of repair=auto: what is marked of clean pictures. drawings, pages, hair and cloth are drawn;
- PSNR of the filled pixels on tiles with held-out masks (opacity times a light gray), for the true mask grown by 1 px, and
  for the one that repair=auto finds; Telea's and Navier–Stokes' fill get the same masks;
- of how many damaged pictures the whole is nearer to the truth after repair=auto than before it; of the tiles also after
  repair=true;
- the same of whole pictures with all kinds of damage, as the generator mixes them.
--sheets DIR writes seven pictures of each sort of tiles there, before and after repair=auto and as they were, at 100 %.
--gray takes the colours from all pictures, as a scan without colour does.
--model FILE puts that detector in place of the built-in one, --filler FILE that filler.
"""
import argparse
import os
import shutil
import subprocess
import tempfile

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from models.training import damage
from models.training.eval_fill import LIGHT, opacities, opencv, table
from models.training.fill import SEEN
from models.training.networks_damage import KINDS

SORTS = ("thin", "crack", "dust", "blob", "wide")  # of the tiles' masks
ASKED = "repair=true"
PARTS = ("found", "clean", "fill", "mixed")
MIXED_SIDES = (512, 1024)
DRAWN = ("drawings", "pages", "hair", "cloth")


def save(picture, path):
    """A picture 3×h×w, 0..1."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Image.fromarray((picture * 255).round().clamp(0, 255).byte().permute(1, 2, 0).numpy()).save(path)


def load(path):
    with Image.open(path) as im:
        return torch.from_numpy(np.asarray(im.convert("RGB")).copy()).permute(2, 0, 1).float() / 255


def load_mask(path, like):
    """h×w, bool; a file that is missing: nothing was filled."""
    if not os.path.exists(path):
        return torch.zeros(like.shape[1:], dtype=torch.bool)
    with Image.open(path) as im:
        return torch.from_numpy(np.asarray(im.convert("L")) >= 128)


class Program:
    """The program on folders of PNGs."""

    def __init__(self, args):
        self.command = [args.program, "restore"]
        self.options = ["--version", "none", "--bg_upsampler", "none", "--upscale", "1", "--ext", "png", "--save_mask",
                        "--faces", "none"]
        self.environment = {**os.environ, "RESTORED_CONFIG": "/dev/null"}
        models = os.path.join(args.work, "models")
        os.makedirs(models, exist_ok=True)
        for name, file in (("starter_damage", args.model), ("starter_fill", args.filler)):
            if file:
                shutil.copy(file, os.path.join(models, name + ".safetensors"))
        self.options += ["--models", models] + (["--device", args.device] if args.device else [])

    def __call__(self, inputs, out, *options):
        shutil.rmtree(out, ignore_errors=True)
        subprocess.run([*self.command, inputs, "-o", out, *self.options, *options], env=self.environment, check=True,
                       stdout=subprocess.DEVNULL)

    @staticmethod
    def result(out, name, like):
        """The repaired picture, and what was filled."""
        return load(f"{out}/restored_imgs/{name}.png"), load_mask(f"{out}/masks/{name}.png", like)


def near(mask, radius=2):
    return F.max_pool2d(mask[None, None].float(), 2 * radius + 1, 1, radius)[0, 0] > 0


def shrunk(mask):
    """Without the pixel by which it was grown."""
    return ~near(~mask, 1)


def level(a, b):
    return -10 * np.log10(max(float(((a - b) ** 2).mean()), 1e-10))


def detection(program, args, photos, masks, wholes):
    """The generator's damage, by kind."""
    for k, name in enumerate(KINDS):
        folder, kept = f"{args.work}/found_{name}", []
        for side, count in ((512, args.limit or 14), (1024, (args.limit or 8) // 4)):
            generator = torch.Generator().manual_seed(7000 + 10 * k + side)
            for _ in range(count):
                made = damage.make(photos, masks, 1, side, generator, damaged=1.0, only=k, decoys=0.5, gray=float(args.gray))
                kept.append([made[n][0] for n in ("picture", "clean", "label", "opacity")])
        for i, (picture, *_) in enumerate(kept):
            save(picture, f"{folder}/{i:03d}.png")
        for repair in ("auto", "true"):
            counts = np.zeros(4)
            program(folder, folder + "_out", "--repair", repair)
            for i, (picture, clean, label, opacity) in enumerate(kept):
                after, mine = program.result(folder + "_out", f"{i:03d}", picture)
                mine, true = shrunk(mine), label == damage.YES
                counts += [int(v.sum()) for v in (mine, mine & near(opacity[0] >= 0.05), true, true & near(mine))]
                if repair == "auto":
                    wholes.setdefault(f"prints, {name}", []).append(level(after, clean) - level(picture, clean))
            precision, recall = counts[1] / max(counts[0], 1), counts[3] / max(counts[2], 1)
            f1 = 2 * precision * recall / max(precision + recall, 1e-9)
            print(f"repair={repair}, {name}: F1 {f1:.3f}, precision {precision:.3f}, recall {recall:.3f}, "
                  f"{len(kept)} pictures", flush=True)


def drawn(photos, sort, count, generator):
    """Clean pictures of what looks like damage."""
    x, _ = damage.windows(photos, count, 512, generator)
    p = damage.Painter(x, generator)
    if sort == "drawings":
        damage.strokes(p, 1.0)
    elif sort == "pages":
        damage.writing(p, 1.0, page=True)
    else:
        damage.strands(p, 1.0)
        if sort == "cloth":
            damage.lattices(p, 0.5)
    return p.x


def alarms(program, args, photos):
    """False alarms on clean pictures."""
    sets = {}
    for i, sort in enumerate(DRAWN):
        folder = sets[sort] = f"{args.work}/clean_{sort}"
        for j, picture in enumerate(drawn(photos, sort, args.limit or 20, torch.Generator().manual_seed(8000 + i))):
            picture = damage.gray_of(picture) if args.gray else picture
            save(picture, f"{folder}/{j:03d}.png")
    for item in args.clean:
        name, _, source = item.rpartition("=")
        folder = sets[name or os.path.basename(source.rstrip("/"))] = f"{args.work}/clean_{len(sets)}"
        files = sorted(f for f in os.listdir(source) if f.lower().endswith((".jpg", ".jpeg", ".png", ".webp")))
        step = max(1, len(files) // (args.limit or 200))
        for j, file in enumerate(files[::step][:args.limit or 200]):
            with Image.open(os.path.join(source, file)) as im:
                im = (im.convert("L") if args.gray else im).convert("RGB")
            im.thumbnail((args.longest, args.longest))
            os.makedirs(folder, exist_ok=True)
            im.save(f"{folder}/{j:03d}_{os.path.splitext(file)[0][:40]}.png")
    for name, folder in sets.items():
        program(folder, folder + "_out", "--repair", "auto")
        shares = {}
        for file in sorted(os.listdir(folder)):
            stem = os.path.splitext(file)[0]
            with Image.open(f"{folder}/{file}") as im:
                pixels = im.size[0] * im.size[1]
            path = f"{folder}_out/masks/{stem}.png"
            shares[stem] = 100 * float(load_mask(path, None).sum()) / pixels if os.path.exists(path) else 0.0
        worst = sorted(shares.items(), key=lambda e: -e[1])[:3]
        print(f"false alarms, {name}: {len(shares)} pictures, mean {np.mean(list(shares.values())):.4f} %, above 0.5 %: "
              f"{sum(v > 0.5 for v in shares.values())}, worst " + ", ".join(f"{n} {v:.3f} %" for n, v in worst), flush=True)


def filling(program, args, tiles, masks, wholes):
    """The filled pixels' PSNR, true and found masks."""
    for sort in SORTS:
        count = args.limit or len(tiles)
        folder, truths, drawn_ = f"{args.work}/fill_{sort}", [], []
        for i, opacity in enumerate(opacities(masks, tiles.shape[-1], sort, count, torch.Generator().manual_seed(100))):
            truth = tiles[i % len(tiles)].float() / 255
            truth = damage.gray_of(truth) if args.gray else truth
            truths.append(truth)
            drawn_.append(F.max_pool2d((opacity[None] > SEEN).float(), 3, 1, 1)[0])
            save(truth + (LIGHT - truth) * opacity, f"{folder}/{i:03d}.png")
            save(drawn_[-1].expand(3, -1, -1), f"{folder}_mask/{i:03d}.png")
        whole = sort not in ("blob", "wide")  # plain patches are no damage that is to be found
        if whole:
            program(folder, folder + "_out", "--repair", "auto")
            program(folder, folder + "_all", "--repair", "true")
        rows, shown = {"true": [], "found": []}, []
        for i, (truth, mask) in enumerate(zip(truths, drawn_)):
            damaged = load(f"{folder}/{i:03d}.png")
            program(f"{folder}/{i:03d}.png", folder + "_true", "--repair", "false", "--mask", f"{folder}_mask/{i:03d}.png")
            tries = [("true", program.result(folder + "_true", f"{i:03d}", truth)[0], mask)]
            if whole:
                after, mine = program.result(folder + "_out", f"{i:03d}", truth)
                everything = program.result(folder + "_all", f"{i:03d}", truth)[0]
                wholes.setdefault(f"tiles, {sort}", []).append(level(after, truth) - level(damaged, truth))
                wholes.setdefault(f"tiles, {sort}, {ASKED}", []).append(level(everything, truth) - level(damaged, truth))
                tries.append(("found", after, mine[None].float()))
                shown.append(torch.cat([damaged, after, truth], 2))
            for name, filled, part in tries:
                if not part.any():
                    continue
                made = {"alone": damaged, "telea": opencv(damaged[None], part[None], cv2.INPAINT_TELEA)[0],
                        "ns": opencv(damaged[None], part[None], cv2.INPAINT_NS)[0], "network": filled}
                rows[name].append({"count": 3 * float(part.sum()),
                                   **{m: float(((v - truth) ** 2 * part).sum()) for m, v in made.items()}})
        if args.sheets and shown:
            save(torch.cat(shown[::3], 1), f"{args.sheets}/repair_{sort}.png")
        for name, part in rows.items():
            if part:
                table(f"{sort}, {name} mask", part)


def mixed(program, args, photos, masks, wholes):
    """Whole pictures, damaged in any way; those on which nothing can be seen do not count."""
    for side in MIXED_SIDES:
        folder, truths, generator = f"{args.work}/mixed_{side}", {}, torch.Generator().manual_seed(9300 + side)
        for i in range(args.limit or 96):
            made = damage.make(photos, masks, 1, side, generator, damaged=1.0, decoys=0.5, gray=float(args.gray))
            save(made["picture"][0], f"{folder}/{i:03d}.png")
            if (made["label"] == damage.YES).any():
                truths[f"{i:03d}"] = (made["clean"][0] * 255).round().byte()
        for repair in ("auto", "true"):
            program(folder, f"{folder}_{repair}", "--repair", repair)
            gains = wholes.setdefault(f"{side} px{f', {ASKED}' if repair == 'true' else ''}", [])
            for name, truth in truths.items():
                after = program.result(f"{folder}_{repair}", name, truth)[0]
                gains.append(level(after, truth / 255) - level(load(f"{folder}/{name}.png"), truth / 255))


def report(what, wholes):
    """How many came nearer, by sort and in all."""
    for name, gains in wholes.items():
        gains = np.array(gains)
        print(f"{what}, {name}: nearer to the truth {100 * (gains > 0).mean():.0f} %, the same "
              f"{100 * (gains == 0).mean():.0f} %, {gains.mean():+.2f} dB, the worst {gains.min():+.2f} dB", flush=True)
    for asked in (False, True):
        parts = [np.array(g) for name, g in wholes.items() if name.endswith(ASKED) == asked]
        if parts:
            gains = np.concatenate(parts)
            print(f"{what}, all {len(gains)}{f', {ASKED}' if asked else ''}: nearer to the truth "
                  f"{100 * (gains > 0).mean():.1f} %, farther from it {100 * (gains < 0).mean():.1f} %", flush=True)


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="./restored")
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--clean", nargs="*", default=["../shared/photos", "tiles=../shared/data/photos"],
                        metavar="NAME=FOLDER", help="folders of clean photos, 200 of each")
    parser.add_argument("--longest", type=int, default=1600, help="clean photos are reduced to this")
    parser.add_argument("--model", default="")
    parser.add_argument("--filler", default="")
    parser.add_argument("--device", default="")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--limit", type=int, default=0, help="only so many pictures of each set")
    parser.add_argument("--gray", action="store_true", help="all pictures without colour")
    parser.add_argument("--sheets", default="")
    parser.add_argument("--work", default="", help="keep the pictures here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        args.work = args.work or scratch
        program, wholes = Program(args), {}
        photos, masks = damage.Photos(args.data, "val", "cpu", packs=("photos",)), damage.Masks(args.data, "val", "cpu")
        if "found" in args.parts:
            detection(program, args, photos, masks, wholes)
        if "clean" in args.parts:
            alarms(program, args, photos)
        if "fill" in args.parts:
            filling(program, args, photos.pictures, masks, wholes)
        report("whole picture", wholes)
        if "mixed" in args.parts:
            wholes = {}
            mixed(program, args, photos, masks, wholes)
            report("mixed damage", wholes)


if __name__ == "__main__":
    main()
