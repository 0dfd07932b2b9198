"""Measures the face detector beside the public checkpoint, through the same network definition.

    python3 -m models.training.eval_detector --model FILE [--public FILE] [--data DIR] [--photos DIR] [--sheet PNG]
    python3 -m models.training.eval_detector --model FILE --without-people DIR

On the validation scenes, at several scales: average precision at IoU 0.5 for faces of 32 px or more (smaller and ignored
ones count neither way), recall and false faces at the default threshold, and the error of the landmarks as a share of the
distance of the eyes, over the faces that both find; and how many of the half profiles, of the faces of 24 to 32 px and of
those at the picture's edge are found. On a folder of photos: every face found, for the eye to judge. With --without-people
only the false faces of that folder's pictures (without_people.py).
"""
import argparse
import json
import os

import numpy as np
import torch
from PIL import Image, ImageDraw

from models.training import common, detector
from models.training.networks_scene import retinaface_of
from models.training.tally import SMALLEST, THRESHOLD, Tally, overlaps

PUBLIC = {"slope": 0.0, "min_sizes": ((10, 20), (32, 64), (128, 256))}


def load(path, slope, device):
    return retinaface_of(common.load_weights(path), slope).to(device)


def scene(data, entry, scale):
    picture = common.read_picture(os.path.join(data, entry["file"]))
    if scale != 1:
        side = round(picture.shape[2] * scale)
        picture = common.read_picture(os.path.join(data, entry["file"]), side)
    boxes = np.array([f["box"] for f in entry["faces"]], np.float32).reshape(-1, 4)
    points = np.array([f["landmarks5"] for f in entry["faces"]], np.float32).reshape(-1, 5, 2)
    boxes, points = (boxes + 0.5) * scale - 0.5, (points + 0.5) * scale - 0.5
    size = (boxes[:, 2:] - boxes[:, :2]).max(1) if len(boxes) else np.zeros(0)
    counts = np.array([not f["ignore"] for f in entry["faces"]], bool) & (size >= SMALLEST)
    return picture, boxes, points, counts


def kinds(entry):
    """For each face of a scene the hard kinds it is of; a half profile has its nose beside the middle of eyes and mouth by 0.3
    of their distance or more."""
    out = []
    for f in entry["faces"]:
        size = max(f["box"][2] - f["box"][0], f["box"][3] - f["box"][1])
        p = np.array(f["landmarks5"], float)
        across, down = p[1] - p[0] + p[4] - p[3], (p[3] + p[4] - p[0] - p[1]) / 2
        beside = abs((p[2] - p[[0, 1, 3, 4]].mean(0)) @ across) / max(np.hypot(*across) * np.hypot(*down), 1e-6)
        of = {"half profiles": size >= SMALLEST and beside >= 0.3, "24 to 32 px": 24 <= size < SMALLEST,
              "cut by the edge": size >= SMALLEST and f["vis"] < 0.95}
        out.append([] if f["ignore"] else [k for k, v in of.items() if v])
    return out


def tally_kinds(counts, entry, boxes, found):
    for box, names in zip(boxes, kinds(entry)):
        hit = len(found) and overlaps(box, found[found[:, 0] > THRESHOLD][:, 1:5]).max(initial=0) >= 0.5
        for name in names:
            got, of = counts.get(name, (0, 0))
            counts[name] = got + bool(hit), of + 1


def validate(nets, data, scale, limit=0):
    """A table row a network: {name: {...}}."""
    entries = common.read_index(data, "detect", "val")
    entries = entries[:limit] if limit else entries
    tallies, hard = {name: Tally() for name in nets}, {name: {} for name in nets}
    for i, entry in enumerate(entries):
        picture, boxes, points, counts = scene(data, entry, scale)
        for name, (net, sizes) in nets.items():
            found = detector.detect(net, picture, sizes, 0.02)
            tallies[name].add(i, found, boxes, points, counts)
            if scale == 1:
                tally_kinds(hard[name], entry, boxes, found)
    common_faces = set.intersection(*[set(t.points) for t in tallies.values()])
    out = {}
    for name, t in tallies.items():
        errors = np.array([t.points[k] for k in sorted(common_faces)] or [0.0])
        recall, false = t.at(THRESHOLD)
        out[name] = {"ap50": round(t.precision(), 4), "recall": round(recall, 4), "false": false, "faces": t.wanted,
                     "landmarks": round(float(errors.mean()), 4), "landmarks_median": round(float(np.median(errors)), 4),
                     "best_threshold": t.best(), **{k: f"{got} of {of}" for k, (got, of) in hard[name].items()}}
    return out


def reduced(path, longest=2048):
    """A photo as the pipeline's detector sees it."""
    with Image.open(path) as im:
        im = im.convert("RGBA").convert("RGB")
        if max(im.size) > longest:
            f = longest / max(im.size)
            im = im.resize((round(im.size[0] * f), round(im.size[1] * f)), Image.BOX)
        return np.ascontiguousarray(np.asarray(im).transpose(2, 0, 1))


def look(nets, folder, sheet):
    """Prints the faces of each photo; draws them on a sheet: one row a photo, one column a network."""
    rows = []
    for file in sorted(os.listdir(folder)):
        if not file.lower().endswith((".jpg", ".jpeg", ".png")):
            continue
        picture = reduced(os.path.join(folder, file))
        row = []
        for name, (net, sizes) in nets.items():
            found = detector.detect(net, picture, sizes, 0.3)
            text = [f"{r[0]:.3f} at {r[1]:.0f},{r[2]:.0f} {r[3] - r[1]:.0f}x{r[4] - r[2]:.0f}" for r in found]
            print(f"{file} {name}: " + (", ".join(text) or "none"))
            im = Image.fromarray(picture.transpose(1, 2, 0))
            draw = ImageDraw.Draw(im)
            width = max(2, max(im.size) // 200)
            for r in found:
                draw.rectangle(r[1:5].tolist(), outline=(0, 255, 0) if r[0] > THRESHOLD else (255, 160, 0), width=width)
                for x, y in r[5:].reshape(5, 2):
                    draw.ellipse((x - width, y - width, x + width, y + width), fill=(255, 0, 0))
            im.thumbnail((400, 300))
            row.append(im)
        rows.append(row)
    if sheet and rows:
        page = Image.new("RGB", (410 * len(rows[0]), 310 * len(rows)))
        for y, row in enumerate(rows):
            for x, im in enumerate(row):
                page.paste(im, (410 * x, 310 * y))
        os.makedirs(os.path.dirname(sheet) or ".", exist_ok=True)
        page.save(sheet)
        print(sheet)


def false_faces(nets, folder):
    """Counts what each network takes for a face on pictures without people, and names it."""
    files = [f for f in sorted(os.listdir(folder)) if f.lower().endswith((".jpg", ".jpeg", ".png"))]
    found = {name: [] for name in nets}
    for file in files:
        picture = reduced(os.path.join(folder, file))
        for name, (net, sizes) in nets.items():
            for row in detector.detect(net, picture, sizes, 0.5):
                found[name].append((float(row[0]), file, float((row[3:5] - row[1:3]).max())))
    for name, rows in found.items():
        rows.sort(reverse=True)
        print(f"{name}: {sum(r[0] > THRESHOLD for r in rows)} false faces on {len(files)} pictures without people, "
              f"{len(rows)} with a score above 0.5: " + ", ".join(f"{s:.3f} {f} {px:.0f} px" for s, f, px in rows[:12]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/starter/starter_detector.safetensors")
    parser.add_argument("--public", default="../shared/models/detection_mobilenet0.25_biubug6.pth")
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--photos", default="../shared/photos")
    parser.add_argument("--without-people", default="", metavar="DIR")
    parser.add_argument("--sheet", default="build/sheets/detector.png")
    parser.add_argument("--scales", default="1,2,0.5")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    nets = {"starter": (load(args.model, 0.1, args.device), detector.MIN_SIZES)}
    if os.path.exists(args.public):
        nets["public"] = (load(args.public, PUBLIC["slope"], args.device), PUBLIC["min_sizes"])
    if args.without_people:
        false_faces(nets, args.without_people)
        return
    for scale in [float(s) for s in args.scales.split(",") if s]:
        for name, row in validate(nets, args.data, scale, args.limit).items():
            print(f"scale {scale:g} {name}: {json.dumps(row)}", flush=True)
    if os.path.isdir(args.photos):
        look(nets, args.photos, args.sheet)


if __name__ == "__main__":
    main()
