"""Measures a classical detector of damage, without any network, on the pictures that eval_repair.py measures ours on: top hats.

    python3 -m models.training.eval_classical [--data DIR] [--clean NAME=FOLDER …] [--limit N]

What is narrower than one of three discs and brighter (white top hat) or darker (black top hat) than its surroundings stands
out by so many times the picture's own noise; strong places are seeds, and weaker ones that hang together with them count,
too (hysteresis); specks are left out. The threshold is chosen for the best mean F1 on pictures of other seeds, and for
comparison it is raised until false alarms are as rare as 0.05 % on half of the clean pictures; both favour it. With --limit
10 the best mean F1 is that of thin 0.44, crack 0.77, dust 0.16 and stain 0.20, while 2.0 % of clean photo tiles and 18 % of
drawn pages of text are marked (threshold 64). Telea's and Navier-Stokes' fill are in eval_fill.py and eval_repair.py. The scratch detector of Bringing
Old Photos Back to Life is not in the table, since its weights are nowhere to be had here.
"""
import argparse
import os

import cv2
import numpy as np
import torch
from PIL import Image

from models.training import damage
from models.training.eval_repair import DRAWN, drawn, near
from models.training.networks_damage import KINDS

DISCS = (5, 9, 15)  # px
LEVELS = (6, 8, 11, 15, 20, 27, 36, 48, 64, 90, 128, 180)  # of the noise
WEAK = 0.5  # of the threshold: counts beside a seed
LEAST = 8  # px of a defect


def response(picture):
    """How far a pixel stands out, in units of the noise. picture: 3×h×w, 0..1."""
    gray = (picture * picture.new_tensor([0.299, 0.587, 0.114]).reshape(3, 1, 1)).sum(0).mul(255).byte().numpy()
    best = np.zeros(gray.shape, np.float32)
    for disc in DISCS:
        shape = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (disc, disc))
        for operation in (cv2.MORPH_TOPHAT, cv2.MORPH_BLACKHAT):
            out = cv2.morphologyEx(gray, operation, shape).astype(np.float32)
            best = np.maximum(best, out / max(1.0, 1.4826 * float(np.median(out))))
    return best


def found(stands, threshold):
    """The mask, bool h×w."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats((stands >= WEAK * threshold).astype(np.uint8), connectivity=8)
    seeded = np.zeros(count, bool)
    seeded[np.unique(labels[stands >= threshold])] = True
    seeded &= stats[:, cv2.CC_STAT_AREA] >= LEAST
    seeded[0] = False
    return torch.from_numpy(seeded[labels])


def prints(photos, masks, k, first, count):
    """Pictures with damage of kind k alone, as eval_repair.py makes them from seed 7000 on."""
    for side, some in ((512, count), (1024, max(1, count // 6))):
        generator = torch.Generator().manual_seed(first + 10 * k + side)
        made = damage.make(photos, masks, some, side, generator, damaged=1.0, only=k, decoys=0.5)
        yield from zip(*(made[n] for n in ("picture", "label", "opacity")))


def scores(pictures, thresholds):
    """F1 for each threshold."""
    counts = np.zeros((len(thresholds), 4))
    for picture, label, opacity in pictures:
        stands, true = response(picture), label == damage.YES
        for i, threshold in enumerate(thresholds):
            mine = found(stands, threshold)
            counts[i] += [int(v.sum()) for v in (mine, mine & near(opacity[0] >= 0.05), true, true & near(mine))]
    precision, recall = counts[:, 1] / np.maximum(counts[:, 0], 1), counts[:, 3] / np.maximum(counts[:, 2], 1)
    return 2 * precision * recall / np.maximum(precision + recall, 1e-9)


def clean_pictures(args, photos):
    """name: pictures."""
    sets = {sort: list(drawn(photos, sort, args.limit or 20, torch.Generator().manual_seed(8000 + i)))
            for i, sort in enumerate(DRAWN)}
    for item in args.clean:
        name, _, source = item.rpartition("=")
        files = sorted(f for f in os.listdir(source) if f.lower().endswith((".jpg", ".jpeg", ".png", ".webp")))
        kept = sets[name or os.path.basename(source.rstrip("/"))] = []
        for file in files[::max(1, len(files) // (args.limit or 200))][:args.limit or 200]:
            with Image.open(os.path.join(source, file)) as im:
                im = im.convert("RGB")
            im.thumbnail((1600, 1600))
            kept.append(torch.from_numpy(np.asarray(im).copy()).permute(2, 0, 1).float() / 255)
    return sets


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--clean", nargs="*", default=["../shared/photos", "tiles=../shared/data/photos"],
                        metavar="NAME=FOLDER")
    parser.add_argument("--limit", type=int, default=0, help="only so many pictures of each set")
    args = parser.parse_args()
    photos, masks = damage.Photos(args.data, "val", "cpu", packs=("photos",)), damage.Masks(args.data, "val", "cpu")
    count = args.limit or 14
    choice = {k: list(prints(photos, masks, k, 9000, max(2, count // 2))) for k in range(len(KINDS))}
    best = LEVELS[int(np.mean([scores(p, LEVELS) for p in choice.values()], 0).argmax())]
    sets = clean_pictures(args, photos)
    stands = {name: [response(p) for p in pictures] for name, pictures in sets.items()}
    sample = [s for one in stands.values() for s in one[::2]]
    rare = next((level for level in LEVELS if np.mean([100 * found(s, level).float().mean() for s in sample]) <= 0.05),
                LEVELS[-1])
    for what, threshold in (("best F1", best), ("few false alarms", rare)):
        print(f"top hats, threshold {threshold} ({what})")
        for k, name in enumerate(KINDS):
            print(f"  {name}: F1 {scores(prints(photos, masks, k, 7000, count), [threshold])[0]:.3f}")
        for name, one in stands.items():
            shares = [100 * float(found(s, threshold).float().mean()) for s in one]
            print(f"  false alarms, {name}: {len(shares)} pictures, mean {np.mean(shares):.4f} %, above 0.5 %: "
                  f"{sum(s > 0.5 for s in shares)}, worst {max(shares):.3f} %", flush=True)


if __name__ == "__main__":
    main()
