"""Fits the table of server/pipeline/strength_net.c: how much of a restoration is nearest to the truth, from what strength.c
measures of picture and restoration.

    python3 -m models.training.fit_strength ./restored [--shared DIR] [--device cpu] [--faces 20] [--sides 64,128]

Takes every other one of the held-back faces, of known truth; tests/quality measures the others. Each is made worse in
many ways and restored with weight=1. Some restorations are then blurred, sharpened or dulled, as other networks would do
it. Needs numpy, PIL and torch; half an hour for all faces on two cores.
"""
import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from PIL import Image

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../tests/quality"))

import faces as known  # noqa: E402

KINDS = (*known.KINDS, "noise5", "noise25", "jpeg60", "jpeg15", "softjpeg", "strongblur")
OTHERS = ("", "blur", "keen", "dull")  # what else could have restored it; "": as it is
CELLS = 16
HIDDEN = 20
SHARE = 0.8  # of the restorations as other networks would do them, in all
JITTER = np.array([0.12] * 9 + [0.04] * 3, np.float32)  # of the inputs, in standard deviations


def cells(parts):
    """The cells within an oval of these half axes, parts of the crop."""
    v, u = (np.mgrid[:CELLS, :CELLS] + 0.5) / CELLS
    return ((((u - 0.5) / parts[0])**2 + ((v - 0.576) / parts[1])**2) < 1).ravel()


WITHIN = cells((0.30, 0.38))
FACE = cells((0.244, 0.322))[WITHIN]


def worse(kind, truth, seed):
    random, image = np.random.default_rng(seed + 1000), truth.astype(np.float32)
    if kind.startswith("noise") and kind != "noise":
        return known.rounded(image + random.normal(0, int(kind[5:]), image.shape))
    if kind.startswith("jpeg") and kind != "jpeg":
        return known.compressed(truth, int(kind[4:]))
    if kind == "softjpeg":
        return known.compressed(known.rounded(known.gaussian(image, 0.9)), 75)
    if kind == "strongblur":
        return known.rounded(known.gaussian(image, max(2, 0.02 * truth.shape[0])) + random.normal(0, 2, image.shape))
    return known.worse(kind, truth, seed)


def another(how, image, scale):
    if how == "blur":
        return known.gaussian(image, 1.5 * scale)
    if how == "keen":
        return np.clip(1.8 * image - 0.8 * known.gaussian(image, 1.2 * scale), 0, 255)
    return known.gaussian(image, 0.8 * scale) * 0.9 + 12 if how == "dull" else image


# ---- what is measured of a case --------------------------------------------------------------------------------------

def pair(by_place):
    """strength_pair."""
    pairs = [(by_place[k] + by_place[(k + 1) & 7]) / 2 for k in range(8)]
    k = int(np.argmax(pairs))
    return pairs[k] / max(sum(by_place[(k + i) & 7] for i in (3, 4, 5, 6)) / 4, 0.01)


def blocks(picture):
    """strength_block."""
    g = picture[..., 1].astype(np.int32)
    across, down = (np.abs(2 * g[1:-1, 1:-1] - a - b) for a, b in ((g[1:-1, :-2], g[1:-1, 2:]), (g[:-2, 1:-1], g[2:, 1:-1])))
    x, y = ((np.arange(1, n - 1) & 7) for n in (g.shape[1], g.shape[0]))
    return (pair([across[:, x == k].mean() for k in range(8)]) + pair([down[y == k].mean() for k in range(8)])) / 2


def under(points, side, reduced):
    """The cell of each px of a picture that was reduced to `reduced` px; CELLS²: it is in none. And how much larger than the
    crop the face is."""
    m = known.similarity(points, known.TEMPLATE)
    y, x = (np.mgrid[:reduced, :reduced] + 0.5) * side / reduced - 0.5
    u, v = ((m[i, 0] * x + m[i, 1] * y + m[i, 2] + 0.5) * CELLS / 512 for i in range(2))
    ok = (u >= 0) & (v >= 0) & (u < CELLS) & (v < CELLS)
    return np.where(ok, np.floor(v) * CELLS + np.floor(u), CELLS**2).astype(int).ravel(), 1 / np.hypot(m[0, 0], m[1, 0])


def mean_of(cell, values):
    count = np.maximum(np.bincount(cell, minlength=CELLS**2 + 1), 1)
    return (np.bincount(cell, values.ravel(), CELLS**2 + 1) / count)[:CELLS**2]


def inputs(given, made, points):
    """What strength_net is given, of the cells within the face."""
    side = given.shape[0]
    cell, scale = under(points, side, side)
    step = max(1, scale / 2)
    lumas = [v.astype(np.float32) @ known.LUMA for v in (given, made)]
    if step > 1.01:
        small = int(side / step)
        lumas = [np.asarray(Image.fromarray(v).resize((small, small), Image.BOX)) for v in lumas]
        cell, _ = under(points, side, small)
    a, b = (v - known.gaussian(v, 2 * max(1, scale / step)) for v in lumas)
    d, count = a - b, np.bincount(cell, minlength=CELLS**2 + 1)[:CELLS**2][WITHIN]
    beside = np.zeros_like(d)
    beside[:, 1:] += d[:, 1:] * d[:, :-1] / 2
    beside[1:] += d[1:] * d[:-1] / 2
    A, B, D, C, U = (mean_of(cell, v)[WITHIN] for v in (a * a, b * b, d * d, beside, np.abs(d)))
    face = FACE & (count > 0)
    n, mean, quiet = face.sum(), D[face].mean(), np.sort(D[face])[face.sum() // 4]
    times = 0.5 + 2 * scale + 0.3 * scale**2
    limit = np.full(CELLS**2 + 1, 1.0)
    limit[:-1][WITHIN] = np.maximum(times**2 * (B + quiet), 6.25 * U**2)
    inside = np.zeros(CELLS**2 + 1, bool)
    inside[:-1][WITHIN] = face
    square, most = (d * d).ravel()[inside[cell]], limit[cell][inside[cell]]
    likely = np.minimum(1, most / np.maximum(square, 1e-6))
    even = 1 - 0.95 * np.sqrt(n / count[face].sum())
    alike = [(C * count)[k].sum() / ((D * count)[k].sum() + 0.05) for k in (face & (D <= quiet), face)]
    whole = [min(quiet / (mean + 0.05) / max(even, 0.5), 1.5), np.clip((A - B)[face].mean() / (mean + 0.05), -1.5, 3),
             np.log(mean + 0.05), np.log(quiet + 0.05), np.log(np.clip(blocks(given), 0.5, 4)), np.log(scale), *alike,
             1 - (square * likely**2).sum() / max(square.sum(), 1e-6)]
    own = [np.clip((A - B) / (D + 0.5), -1.5, 3), np.log((D + 0.5) / (mean + 0.5)), np.log((B + 0.5) / (mean + 0.5))]
    return np.concatenate([np.repeat([whole], len(A), 0), np.stack(own, 1)], 1)


def outcomes(truth, given, made, points):
    """By cell, the sums of which the errors and the detail of every mixture are made."""
    side = given.shape[0]
    cell, _ = under(points, side, side)
    truth, given, made = (v.astype(np.float32) for v in (truth, given, made))
    error, change, mask = given - truth, made - given, known.inside(side)
    before, more = known.laplacian(given), known.laplacian(change)
    products = [(error * error).mean(-1), (error * change).mean(-1), (change * change).mean(-1), before * before, before * more,
                more * more]
    return np.array([np.bincount(cell, (v * mask).ravel(), CELLS**2 + 1)[:CELLS**2][WITHIN] for v in (np.ones((side, side)), *products)])


def measured(item):
    folder, name, points = item
    number, side, kind = name.split("_")
    truth, given, made = (known.read(f"{folder}/{f}.png") for f in (f"truth/{number}_{side}", f"in/{name}", f"out/restored_imgs/{name}"))
    rows = []
    for how in OTHERS[:None if int(side) > 64 else 1]:
        other = another(how, made.astype(np.float32), max(1, int(side) / 512))
        rows.append((f"{side} {kind}", how != "", kind in known.SHARP, inputs(given, other, points), outcomes(truth, given, other, points)))
    return rows


# ---- cases -----------------------------------------------------------------------------------------------------------

def make(item):
    folder, number, face, tile, side = item
    truth = known.resized(known.read(face), side, side, Image.BOX if side <= 512 else Image.BICUBIC)
    truth = known.textured(truth, known.read(tile)) if side > 512 else truth
    Image.fromarray(truth).save(f"{folder}/truth/{number}_{side}.png", compress_level=1)
    for kind in KINDS:
        Image.fromarray(worse(kind, truth, number)).save(f"{folder}/in/{number}_{side}_{kind}.png", compress_level=1)


def collect(args, folder, pool):
    for name in ("truth", "in"):
        os.makedirs(f"{folder}/{name}")
    sides = [int(s) for s in args.sides.split(",")]
    items = [(folder, number, face, tile, side) for number, face, tile, side, _ in
             known.cases(args.shared, args.faces, sides, ("sharp",), 0)]
    pool.map(make, items)
    done = subprocess.run([args.program, "restore", f"{folder}/in", "-o", f"{folder}/out", "--json", "--ext", "png", "--upscale", "1",
                           "--bg_upsampler", "none", "--version", "starter", "--detector", "starter", "--weight", "1",
                           "--device", args.device], stdout=subprocess.PIPE, text=True, check=True,
                          env={**os.environ, "RESTORED_CONFIG": "/dev/null"})
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    found = [(os.path.basename(r["file"])[:-4], [f["landmarks"] for f in r["faces"] if f["action"] == "restored"]) for r in reports]
    rows = [row for rows in pool.map(measured, [(folder, name, points[0]) for name, points in found if points]) for row in rows]
    return [np.array([row[i] for row in rows]) for i in range(5)]


# ---- fit -------------------------------------------------------------------------------------------------------------

def between(used):
    """What interpolation between the cells' middles makes of a cell's mean."""
    whole = used.mean(1, keepdim=True).repeat(1, CELLS**2)
    whole[:, torch.tensor(WITHIN)] = used
    wide = torch.nn.functional.pad(whole.reshape(-1, 1, CELLS, CELLS), (1, 1, 1, 1), "replicate")
    line = torch.tensor([0.125, 0.75, 0.125])
    return torch.nn.functional.conv2d(wide, (line[:, None] * line)[None, None]).reshape(-1, CELLS**2)[:, torch.tensor(WITHIN)]


def loss(used, sums, sharp, weight):
    """dB below the better of picture and restoration; of sharp pictures, the detail that is lost."""
    def mixed(first, u):
        return (sums[:, first] + 2 * sums[:, first + 1] * u + sums[:, first + 2] * u * u).sum(1)

    used = between(used)
    none, whole = torch.zeros_like(used), torch.ones_like(used)
    error = [mixed(1, u) / sums[:, 0].sum(1) + 0.08 for u in (none, whole, used)]  # 0.08: of rounding to 8 bit
    below = 10 * torch.log10(error[2] / torch.minimum(error[0], error[1]))
    detail = torch.sqrt(mixed(4, used).clamp(min=0) / mixed(4, none))
    each = torch.where(sharp, 200 * torch.relu(0.985 - detail) + 6 * used.mean(1), below + 8 * torch.relu(below + 0.02))
    return (each * weight).sum() / weight.sum()


def fit(keys, others, sharp, given, sums, steps):
    torch.manual_seed(0)
    count = dict(zip(*np.unique(keys, return_counts=True)))
    weight = np.array([count[key]**-0.5 for key in keys])
    weight[others] *= SHARE * weight[~others].sum() / weight[others].sum()
    middle, spread = given.mean((0, 1)), given.std((0, 1)) + 1e-6
    x = torch.tensor((given - middle) / spread, dtype=torch.float32)
    sums, sharp, weight, jitter = (torch.tensor(v) for v in (sums.astype(np.float32), sharp, weight, JITTER))
    hidden, last = torch.nn.Linear(x.shape[2], HIDDEN), torch.nn.Linear(HIDDEN, 1)
    optimizer = torch.optim.AdamW([*hidden.parameters(), *last.parameters()], lr=0.03, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(steps):
        optimizer.zero_grad()
        moved = x + jitter * torch.randn(len(x), 1, x.shape[2])
        value = loss(torch.sigmoid(2 * last(torch.tanh(hidden(moved)))[..., 0]), sums, sharp, weight)
        value.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 49:
            print(f"{step + 1} of {steps}: {value:.4f}", file=sys.stderr, flush=True)
    weights = hidden.weight.detach().numpy() / spread
    rows = zip(weights, hidden.bias.detach().numpy() - weights @ middle, 2 * last.weight.detach().numpy()[0])
    return [[*row, bias, of] for row, bias, of in rows], 2 * float(last.bias)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--shared", default=os.environ.get("RESTORED_SHARED", "../shared"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--faces", type=int, default=20)
    parser.add_argument("--sides", default=",".join(map(str, known.SIDES)))
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, multiprocessing.Pool() as pool:
        table, bias = fit(*collect(args, folder, pool), args.steps)
    for row in table:
        print("    {" + ", ".join(f"{v:.4g}" for v in row) + "},")
    print(f"bias {bias:.4g}")


if __name__ == "__main__":
    main()
