"""Faces of known truth, made worse by known factors, and what is measured of their restorations: for check_quality.py.

Detail is the standard deviation of the Laplacian within the face, at the picture's own size. PSNR is of the same place,
against the truth. The edge is the most by which a row near the crop's border has more high-pass energy than without the
face.
"""
import io
import json
import os

import numpy as np
from PIL import Image

TEMPLATE = np.array([[192.98138, 239.94708], [318.90277, 240.1936], [256.63416, 314.01935], [201.26117, 371.41043],
                     [313.08905, 371.15118]])
# Of the crop around a face; every how manyth face has it.
SIDES = {64: 1, 128: 1, 256: 1, 512: 1, 1024: 4, 1536: 12, 3072: 20}
KINDS = ("sharp", "soft", "fine", "good", "blur", "noise", "grain", "jpeg", "mixed", "old")
SHARP = ("sharp", "fine", "good")  # those that are worth keeping
# dB of 20 faces by the program and the models before weight=auto, repair and the present face network (commit b7bda58): the
# default is not below them. A face that it did not find counts as it came. They are of these very pictures: who changes
# textured() measures those above 512 again. sheet.py --before makes both beside each other.
BEFORE = {"soft": {64: 33.73, 128: 34.60, 256: 34.90, 512: 36.33, 1024: 32.69, 1536: 32.46, 3072: 35.96},
          "blur": {64: 27.51, 128: 31.72, 256: 30.17, 512: 28.90, 1024: 27.93, 1536: 26.81, 3072: 26.93},
          "noise": {64: 32.18, 128: 33.31, 256: 34.00, 512: 34.28, 1024: 32.30, 1536: 31.53, 3072: 27.64},
          "grain": {64: 29.52, 128: 30.57, 256: 31.05, 512: 31.64, 1024: 30.55, 1536: 30.20, 3072: 30.59},
          "jpeg": {64: 28.18, 128: 30.48, 256: 32.04, 512: 33.45, 1024: 32.06, 1536: 32.25, 3072: 34.20},
          "mixed": {64: 28.53, 128: 30.93, 256: 31.68, 512: 30.90, 1024: 29.53, 1536: 28.46, 3072: 29.07},
          "old": {64: 23.23, 128: 26.72, 256: 26.49, 512: 27.58, 1024: 27.06, 1536: 23.81, 3072: 25.09}}
LUMA = np.array([0.299, 0.587, 0.114], np.float32)


def read(path):
    return np.asarray(Image.open(path).convert("RGB"))


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
    """A face larger than the crop has detail that the crop cannot hold: fine structure of a sharp photo stands for it,
    mirrored where it ends: an edge of it would be a line, which repair=auto fills."""
    height, width = truth.shape[:2]
    tile = tile[8:-8, 8:-8]  # some have a frame
    repeated = np.tile(np.vstack([np.hstack([tile, tile[:, ::-1]]), np.hstack([tile, tile[:, ::-1]])[::-1]]),
                       (-(-height // tile.shape[0]), -(-width // tile.shape[1]), 1))[:height, :width]
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


def cases(shared, faces, sides, kinds, half=1):
    """(number, face, tile, side, kind) of each, for case(). half 0: those that weight=auto was fitted to."""
    with open(f"{shared}/data/faces512/index.json") as file:
        index = [e for e in json.load(file) if e["split"] == "val" and e["src_px"] >= 460 and e["fit_err"] < 15]
    tiles = sorted(f for f in os.listdir(f"{shared}/data/photos") if f.startswith("kodak"))
    index = index[half::2]
    index = index[:: max(1, len(index) // faces)][:faces]
    return [(number, f"{shared}/data/{entry['file']}", f"{shared}/data/photos/{tiles[number % len(tiles)]}", side, kind)
            for side in sorted(sides, reverse=True) for number, entry in enumerate(index) if number % SIDES[side] == 0
            for kind in kinds]


def case(number, face, tile, side, kind):
    """The truth and the picture."""
    truth = resized(read(face), side, side, Image.BOX if side <= 512 else Image.BICUBIC)
    truth = textured(truth, read(tile)) if side > 512 else truth
    return truth, worse(kind, truth, number)


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
