"""Measures the damage detector on pictures and masks that it has not learnt from.

    python3 -m models.training.eval_damage --model FILE [--data DIR] [--sheets DIR] [--photos DIR …] [--table]

The threshold is chosen on held-out faces and, where there is the pack `extra`, its held-out photos: the best mean F1 of thin
lines, cracks and dust with at most ALARMS of the pixels of clean pictures marked. The test is on held-out photo tiles with
held-out real masks; --table prints its figures at all thresholds. F1: of the pixels found, those within
2 px of any damage; of the damaged pixels, those within 2 px of one found. Sheets: damaged, truth, found.
"""
import argparse
import json
import os

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from models.training import common, damage
from models.training.networks_damage import KINDS, damage_of, whole

THRESHOLDS = [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 0.995,
              0.998]
ALARMS = 0.0005
SIZES = ((256, 32), (512, 32), (1024, 8))  # side and count of each kind's pictures
COLOURS = torch.tensor([[255, 60, 60], [60, 255, 60], [80, 80, 255], [255, 255, 0]], dtype=torch.uint8)


@torch.no_grad()
def found(net, picture):
    """Probabilities N×h×w and kinds N×h×w, a few pictures at a time."""
    out = [whole(net, p) for p in picture.split(max(1, (1 << 23) // (picture.shape[2] * picture.shape[3])))]
    logits = torch.cat(out).float()
    return torch.sigmoid(logits[:, 0]), logits[:, 1:].argmax(1)


def wide(mask):
    """A mask N×h×w (bool) grown by 2 px."""
    return F.max_pool2d(mask[:, None].float(), 5, 1, 2)[:, 0] > 0


def matches(probability, label, opacity):
    """Counts a threshold: pixels found, of these right, pixels damaged, of these found."""
    true, any_ = label == damage.YES, wide(opacity[:, 0] >= 0.05)
    rows = []
    for t in THRESHOLDS:
        mine = probability > t
        rows.append([mine.sum(), (mine & any_).sum(), true.sum(), (true & wide(mine)).sum()])
    return torch.tensor(rows, dtype=torch.float64)


def f1(rows):
    precision, recall = rows[:, 1] / rows[:, 0].clamp(min=1), rows[:, 3] / rows[:, 2].clamp(min=1)
    return 2 * precision * recall / (precision + recall).clamp(min=1e-9), precision, recall


def score(net, photos, masks, device, seed):
    """Counts by kind, the share of right kinds, and by threshold the false alarms of clean pictures (a row a picture)."""
    counts, right = {}, {}
    for k, name in enumerate(KINDS):
        counts[name], good, all_ = 0, 0, 0
        for side, count in SIZES:
            generator = torch.Generator(device=device).manual_seed(seed + 10 * k + side)
            made = damage.make(photos, masks, count, side, generator, damaged=1.0, only=k, decoys=0.5)
            probability, kind = found(net, made["picture"])
            counts[name] = counts[name] + matches(probability, made["label"], made["opacity"])
            true = (made["label"] == damage.YES) & (made["kind"] == k)
            good, all_ = good + (true & (kind == k)).sum(), all_ + true.sum()
        right[name] = float(good / all_.clamp(min=1))
    alarms = []
    for side, count in SIZES:
        generator = torch.Generator(device=device).manual_seed(seed + 5 + side)
        made = damage.make(photos, masks, 2 * count, side, generator, damaged=0.0)
        alarms.append(false_alarms(found(net, made["picture"])[0]))
    alarms.append(false_alarms(found(net, photos.pictures.float() / 255)[0]))
    return counts, right, torch.cat(alarms)


def false_alarms(probability):
    return torch.stack([(probability > t).float().mean((1, 2)) for t in THRESHOLDS], 1).cpu()


def mean_f1(counts):
    return sum(f1(counts[k])[0] for k in ("thin", "crack", "dust")) / 3


def choose(counts, alarms):
    """The threshold's number. alarms: of several sets of clean pictures; where none will do, the least of the worst set."""
    worst = torch.stack([a.mean(0) for a in alarms]).amax(0)
    mean = mean_f1(counts)
    return int(torch.where(worst <= ALARMS, mean, -worst).argmax())


def sheet(net, photos, masks, device, threshold, path, side=512, rows=10):
    generator = torch.Generator(device=device).manual_seed(99)
    made = damage.make(photos, masks, rows, side, generator, damaged=0.9)
    probability, kind = found(net, made["picture"])
    lines = []
    for i in range(rows):
        picture = (made["picture"][i] * 255).byte().permute(1, 2, 0).cpu().numpy()
        parts = [picture]
        truth = made["label"][i] == damage.YES, made["kind"][i].clamp(min=0)
        for mask, kinds in (truth, (probability[i] > threshold, kind[i])):
            parts.append((COLOURS[kinds.cpu()] * mask[..., None].cpu()).numpy())
        lines.append(np.concatenate(parts, 1))
    half = rows // 2
    page = np.concatenate([np.concatenate(lines[:half]), np.concatenate(lines[half:2 * half])], 1)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    Image.fromarray(page).save(path, quality=85)
    print(path, flush=True)


def folder_alarms(net, folder, threshold, device, most=1600):
    """The share marked of each picture in a folder, which may have true damage."""
    out = {}
    for file in sorted(os.listdir(folder)):
        if file.lower().endswith((".jpg", ".jpeg", ".png")):
            im = Image.fromarray(common.read_picture(os.path.join(folder, file)).transpose(1, 2, 0))
            im.thumbnail((most, most))
            x = torch.from_numpy(np.asarray(im).transpose(2, 0, 1).copy()).float().to(device)[None] / 255
            out[file] = round(100 * float((found(net, x)[0] > threshold).float().mean()), 4)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--photos", nargs="*", default=["../shared/photos"],
                        help="folders of photos, to see how much of each is marked")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--sheets", default="build/sheets")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    device = torch.device(args.device)
    net = damage_of(common.load_weights(args.model)).to(device)
    faces = damage.Photos(args.data, "val", device, args.limit, packs=("faces512",))
    counts, _, alarms = score(net, faces, damage.Masks(args.data, "train", device, args.limit or 60), device, 1000)
    sets = [alarms]
    if os.path.exists(os.path.join(args.data, "extra", "index.json")):
        more = damage.Photos(args.data, "val", device, args.limit, packs=("extra",))
        sets.append(torch.cat([false_alarms(found(net, p.float() / 255)[0]) for p in more.pictures.split(16)]))
    i = choose(counts, sets)
    print(f"threshold {THRESHOLDS[i]}, on the faces: " + ", ".join(f"{k} {float(f1(c)[0][i]):.3f}" for k, c in counts.items())
          + ", clean " + " and ".join(f"{100 * float(a.mean(0)[i]):.4f} %" for a in sets), flush=True)
    tiles = damage.Photos(args.data, "val", device, args.limit, packs=("photos",))
    masks = damage.Masks(args.data, "val", device, args.limit)
    counts, right, alarms = score(net, tiles, masks, device, 2000)
    for k, c in counts.items():
        both, precision, recall = f1(c)
        best = int(both.argmax())
        print(json.dumps({"kind": k, "f1": round(float(both[i]), 3), "precision": round(float(precision[i]), 3),
                          "recall": round(float(recall[i]), 3), "kind_right": round(right[k], 3),
                          "best_f1": round(float(both[best]), 3), "at": THRESHOLDS[best]}), flush=True)
    plain = len(tiles.pictures)
    for what, a in (("clean prints", alarms[:-plain]), ("clean photos", alarms[-plain:])):
        a = 100 * a[:, i]
        print(json.dumps({"what": what, "marked_percent": round(float(a.mean()), 4), "worst": round(float(a.max()), 3),
                          "pictures": len(a)}), flush=True)
    if args.table:
        for j, t in enumerate(THRESHOLDS):
            prints, photos = (100 * a[:, j] for a in (alarms[:-plain], alarms[-plain:]))
            print(f"{t}: " + ", ".join(f"{k} {float(f1(c)[0][j]):.3f}" for k, c in counts.items())
                  + f"; prints {prints.mean():.4f} {prints.max():.3f}, photos {photos.mean():.4f} {photos.max():.3f} %; "
                  + ", ".join(f"{100 * float(a.mean(0)[j]):.4f} {100 * float(a.max(0)[0][j]):.3f} %" for a in sets), flush=True)
    for folder in args.photos:
        if os.path.isdir(folder):
            shares = folder_alarms(net, folder, THRESHOLDS[i], device)
            print(f"{folder}: mean {sum(shares.values()) / max(1, len(shares)):.4f} %, worst {max(shares.values()):.3f} %: "
                  + json.dumps(shares), flush=True)
    sheet(net, tiles, masks, device, THRESHOLDS[i], os.path.join(args.sheets, "damage.jpg"))


if __name__ == "__main__":
    main()
