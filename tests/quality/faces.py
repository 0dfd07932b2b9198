#!/usr/bin/env python3
"""Faces of known truth, made worse by known factors, restored, and measured against the truth.

    tests/quality/faces.py ./restored ../shared [--faces N] [--sides 128,256] [--background NAME] [--work FOLDER]

Prints a table: for each size of a face's crop and each kind of damage what the default (weight=auto) does beside
weight=1, which puts every face's restoration in its place, and faces=none. Then the figures that must hold; exit status
1 if one does not. The faces are the held-back ones of the training pack. Needs numpy and PIL.

Detail is the standard deviation of the Laplacian within the face, at the picture's own size. PSNR is of the same place,
against the truth. Points are the mean distance between the landmarks that the detector finds in the result and in the
truth, in eye distances. The edge is the most by which a row near the crop's border has more high-pass energy than
without the face.
"""
import argparse
import io
import json
import os
import shutil
import subprocess
import sys

import numpy as np
from PIL import Image

TEMPLATE = np.array([[192.98138, 239.94708], [318.90277, 240.1936], [256.63416, 314.01935], [201.26117, 371.41043],
                     [313.08905, 371.15118]])
SIDES = {64: 1, 128: 1, 256: 1, 512: 1, 1024: 4, 1536: 12}  # of the crop around a face; every how manyth face has it
KINDS = ("sharp", "soft", "fine", "good", "blur", "noise", "grain", "jpeg", "mixed", "old")
SHARP = ("sharp", "fine", "good")  # those that are worth keeping
LUMA = np.array([0.299, 0.587, 0.114], np.float32)


def gaussian(image, sigma):
    """Edges repeat."""
    radius = max(1, int(3 * sigma + 0.5))
    kernel = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2).astype(np.float32)
    kernel /= kernel.sum()
    for axis in (0, 1):
        pad = [(0, 0)] * image.ndim
        pad[axis] = (radius, radius)
        wide, out = np.pad(image, pad, "edge"), np.zeros_like(image)
        for k, weight in enumerate(kernel):
            at = [slice(None)] * image.ndim
            at[axis] = slice(k, k + image.shape[axis])
            out += weight * wide[tuple(at)]
        image = out
    return image


def compressed(image, quality):
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file).convert("RGB"))


def rounded(image):
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


def resized(image, width, height, how=Image.BOX):
    return np.asarray(Image.fromarray(image).resize((width, height), how))


def textured(truth, tile):
    """A face larger than the crop has detail that the crop cannot hold: fine structure of a sharp photo stands for
    it."""
    height, width = truth.shape[:2]
    repeated = np.tile(tile, (-(-height // tile.shape[0]), -(-width // tile.shape[1]), 1))[:height, :width]
    fine = (repeated - gaussian(repeated.astype(np.float32), 1.5)) @ LUMA
    return rounded(truth + 5 * (fine / fine.std())[..., None])


def worse(kind, truth, seed):
    """The picture of this kind of damage, as it comes out of a file."""
    random, side = np.random.default_rng(seed), truth.shape[0]
    image = truth.astype(np.float32)
    if kind == "soft":  # slightly out of focus
        image = gaussian(image, 0.7) + random.normal(0, 0.5, image.shape)
    elif kind == "fine":  # a good camera's noise
        image = image + random.normal(0, 2, image.shape)
    elif kind == "good":
        return compressed(truth, 88)
    elif kind == "blur":
        image = gaussian(image, max(1.2, 0.008 * side)) + random.normal(0, 1, image.shape)
    elif kind == "noise":
        image = image + random.normal(0, 12, image.shape)
    elif kind == "grain":  # the same in all channels, as wide as film's
        grain = gaussian(random.normal(0, 1, image.shape[:2]).astype(np.float32), 0.8)
        image = image + 9 * (grain / grain.std())[..., None]
    elif kind == "jpeg":
        return compressed(truth, 30)
    elif kind in ("mixed", "old"):  # old: scratched, too
        image = gaussian(image, max(0.8, 0.004 * side)) + random.normal(0, 7, image.shape)
        for _ in range(0 if kind == "mixed" else 1 if side < 256 else 3):
            x = random.integers(side // 4, 3 * side // 4) + random.uniform(-0.2, 0.2) * np.arange(side)
            for y, at in enumerate(np.rint(x).astype(int)):
                image[y, max(at, 0):max(at, 0) + max(1, side // 400)] = 225
        return compressed(rounded(image), 75)
    return rounded(image)


def cases(shared, faces, sides, kinds):
    """(name, side, kind, truth, landmarks in it, picture) of each."""
    with open(f"{shared}/data/faces512/index.json") as file:
        index = [e for e in json.load(file) if e["split"] == "val" and e["src_px"] >= 460 and e["fit_err"] < 15]
    tiles = sorted(f for f in os.listdir(f"{shared}/data/photos") if f.startswith("kodak"))
    index = index[:: max(1, len(index) // faces)][:faces]
    for number, entry in enumerate(index):
        whole = np.asarray(Image.open(f"{shared}/data/{entry['file']}").convert("RGB"))
        tile = np.asarray(Image.open(f"{shared}/data/photos/{tiles[number % len(tiles)]}").convert("RGB"))
        for side in sides:
            if number % SIDES[side]:
                continue
            truth = resized(whole, side, side, Image.BOX if side <= 512 else Image.BICUBIC)
            truth = textured(truth, tile) if side > 512 else truth
            for kind in kinds:
                name = f"{number:02}_{side}_{kind}"
                landmarks = (np.array(entry["landmarks"]) + 0.5) * side / 512 - 0.5
                yield name, side, kind, truth, landmarks, worse(kind, truth, number)


def run(program, folder, out, options):
    """The reports by name."""
    command = [program, "restore", folder, "-o", out, "--json", "--ext", "png", "--upscale", "1", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    return {os.path.splitext(os.path.basename(r["file"]))[0]: r for r in reports}


def laplacian(image):
    y = image.astype(np.float32) @ LUMA
    out = np.zeros_like(y)
    out[1:-1, 1:-1] = y[:-2, 1:-1] + y[2:, 1:-1] + y[1:-1, :-2] + y[1:-1, 2:] - 4 * y[1:-1, 1:-1]
    return out


def inside(side):
    """Where the face is in an aligned crop."""
    y, x = (np.mgrid[:side, :side] + 0.5) * 512 / side
    return ((x - 256) / 125) ** 2 + ((y - 295) / 165) ** 2 < 1


def detail(image, mask):
    return laplacian(image)[mask].std()


def psnr(image, truth, mask):
    error = (image.astype(np.float32) - truth.astype(np.float32))[mask]
    return 10 * np.log10(255**2 / max(1e-9, (error**2).mean()))


def surrounded(image):
    """The crop with half as much again around it, mirrored."""
    pad = image.shape[0] // 4
    return np.pad(image, ((pad, pad), (pad, pad), (0, 0)), "reflect")


def edge(result, without, affine):
    """The most by which a row or column near the crop's border has more high-pass energy than without the face."""
    size, worst = 512, -1.0
    inverse = np.linalg.inv(np.vstack([affine, [0, 0, 1]]))[:2]
    along = np.arange(64, size - 64)
    energy = [laplacian(image) ** 2 for image in (result, without)]
    for at in range(-2, 20):
        for x, y in ((along, size - 1 - at), (along, at), (at, along), (size - 1 - at, along)):
            x, y = np.rint(inverse @ np.array([x + 0 * y, y + 0 * x, np.ones(len(along))])).astype(int)
            ok = (x >= 0) & (y >= 0) & (x < result.shape[1]) & (y < result.shape[0])
            if ok.sum() > 100:
                worst = max(worst, energy[0][y[ok], x[ok]].mean() / energy[1][y[ok], x[ok]].mean() - 1)
    return worst


def similarity(points, target):
    """The least squares turn, scale and shift."""
    a, b = np.zeros((10, 4)), np.zeros(10)
    for i, ((x, y), (u, v)) in enumerate(zip(points, target)):
        a[2 * i], a[2 * i + 1] = (x, -y, 1, 0), (y, x, 0, 1)
        b[2 * i], b[2 * i + 1] = u, v
    c, s, tx, ty = np.linalg.lstsq(a, b, rcond=None)[0]
    return np.array([[c, -s, tx], [s, c, ty]])


def landmarks(program, folder):
    """What the detector finds, by name."""
    reports = run(program, folder, folder + "_seen", ["--faces", "none", "--bg_upsampler", "none"])
    return {name: np.array(r["faces"][0]["landmarks"]) for name, r in reports.items() if r["faces"]}


def apart(points, truth):
    eyes = np.hypot(*(truth[1] - truth[0]))
    return np.hypot(*(points - truth).T).mean() / eyes


def read(path):
    return np.asarray(Image.open(path).convert("RGB"))


def measured(args, sides, kinds):
    """By (side, kind) a row for each face."""
    work, table = args.work, {}
    for folder in ("in", "truth"):
        os.makedirs(f"{work}/{folder}", exist_ok=True)
    known = {}
    for name, side, kind, truth, _, picture in cases(args.shared, args.faces, sides, kinds):
        known[name] = (side, kind)
        Image.fromarray(picture).save(f"{work}/in/{name}.png")
        Image.fromarray(truth).save(f"{work}/truth/{name}.png")
    common = ["--bg_upsampler", args.background]
    none = run(args.program, f"{work}/in", f"{work}/none", [*common, "--faces", "none"])
    whole = run(args.program, f"{work}/in", f"{work}/whole", [*common, "--weight", "1"])
    auto = run(args.program, f"{work}/in", f"{work}/auto", common)
    points = {what: landmarks(args.program, f"{work}/{what}") for what in ("truth",)}
    points |= {what: landmarks(args.program, f"{work}/{what}/restored_imgs") for what in ("whole", "auto")}
    for name, (side, kind) in known.items():
        mask = inside(side)
        truth = read(f"{work}/truth/{name}.png")
        pictures = [read(f"{work}/{what}/restored_imgs/{name}.png") for what in ("none", "whole", "auto")]
        faces = auto[name]["faces"]
        if not faces or not whole[name]["faces"]:
            continue
        seen = [points[what].get(name) for what in ("truth", "whole", "auto")]
        moved = [apart(p, seen[0]) if p is not None and seen[0] is not None else np.nan for p in seen[1:]]
        row = [detail(p, mask) for p in [read(f"{work}/in/{name}.png"), *pictures[1:]]]
        row += [min(60, psnr(p, truth, mask)) for p in pictures] + moved
        row += [faces[0].get("used") or 0, faces[0].get("change") or 0]
        table.setdefault((side, kind), []).append(row)
    return table


def edges(args):
    """At the crop's border, of portraits that go on around it."""
    work, worst = args.work, []
    os.makedirs(f"{work}/edge", exist_ok=True)
    for name, _, _, _, _, picture in cases(args.shared, args.portraits, (512,), ("blur",)):
        Image.fromarray(surrounded(picture)).save(f"{work}/edge/{name}.png")
    for name, report in run(args.program, f"{work}/edge", f"{work}/edge_out", ["--bg_upsampler", "none"]).items():
        if report["faces"]:
            affine = similarity(report["faces"][0]["landmarks"], TEMPLATE)
            worst.append(edge(read(f"{work}/edge_out/restored_imgs/{name}.png"), read(f"{work}/edge/{name}.png"), affine))
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("shared")
    parser.add_argument("--faces", type=int, default=24, help="how many people")
    parser.add_argument("--portraits", type=int, default=50, help="how many for the edge; 0: none")
    parser.add_argument("--sides", default=",".join(map(str, SIDES)))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--background", default="none", help="the upscaler, to be measured with it")
    parser.add_argument("--work", default="build/quality/faces")
    args = parser.parse_args()
    shutil.rmtree(args.work, ignore_errors=True)
    table = measured(args, [int(side) for side in args.sides.split(",")], args.kinds.split(","))
    broken = []

    def must(holds, what):
        if not holds:
            broken.append(what)

    print("crop   kind   faces  detail: in, weight=1, auto (least of the better)  PSNR: none, weight=1, auto  "
          "points: weight=1, auto  used  change")
    for (side, kind), rows in table.items():
        a = np.array(rows)
        best = a[:, :2].max(1)
        least = (a[:, 2] / best).min()
        m = np.nanmean(a, 0)
        print(f"{side:5}  {kind:6} {len(rows):5}  {m[0]:6.2f} {m[1]:6.2f} {m[2]:6.2f} ({least:.2f})"
              f"        {m[3]:6.2f} {m[4]:6.2f} {m[5]:6.2f}        {m[6]:.4f} {m[7]:.4f}   {m[8]:.2f}  {m[9]:.3f}")
        if kind in SHARP:
            must(least >= 0.95, f"{side} {kind}: detail is {least:.2f} of the better of input and restoration")
        else:
            if kind not in ("soft", "old"):  # a soft one may be kept; scratches are not told from detail
                must(m[5] >= m[4] - 0.05, f"{side} {kind}: {m[5]:.2f} dB, with weight=1 {m[4]:.2f}")
            must(m[5] > m[3] - 0.05, f"{side} {kind}: {m[5]:.2f} dB, with faces=none {m[3]:.2f}")
    every = np.array([row for rows in table.values() for row in rows])
    print(f"landmarks: mean {np.nanmean(every[:, 7]):.4f} of the eyes' distance, with weight=1 {np.nanmean(every[:, 6]):.4f}")
    must(np.nanmean(every[:, 7]) <= 0.017, "landmarks move by more than 0.017 of the eyes' distance")
    if args.portraits:
        worst = edges(args)
        print(f"edge: at most {100 * max(worst):.1f} % more energy, of {len(worst)} portraits")
        must(max(worst) < 0.1, "a line at the crop's edge")
    for what in broken:
        print("does not hold:", what)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
