#!/usr/bin/env python3
"""Makes docs/figures/tone.jpg: the restored sample, coloured and aged by a known fading, and what tone=auto makes of that.

    make && docs/figures/make_tone.py [--binary ./restored]

The fading is that of a colour print in the light: each dye keeps only a part of its density, the cyan one the least, and
the paper yellows. It prints how far the aged and the corrected picture are from the one before. Needs numpy and PIL."""
import argparse
import io
import pathlib
import subprocess
import tempfile

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = np.array([0.38, 0.52, 0.68])     # of the density of the dyes that absorb red, green and blue
PAPER = np.array([0.03, 0.05, 0.12])   # density that the paper gained
WIDTH = 400


# The parts of the portrait in its order of painting: colour, and an ellipse or a polygon on 400 px.
SKIN = (1.2, 0.97, 0.82)
PARTS = (((0.86, 1.05, 1.08), [(12, 12), (388, 12), (388, 308), (12, 308)]),                                      # wall
         ((0.80, 0.98, 1.45), [(12, 200), (72, 168), (110, 230), (150, 190), (234, 226), (240, 308), (12, 308)]),  # suit
         ((1.55, 0.72, 0.78), [(212, 308), (212, 232), (236, 214), (270, 238), (304, 206), (352, 226), (362, 308)]),  # pullover
         ((1.0, 1.0, 1.0), [(76, 176), (96, 196), (118, 222), (140, 190), (150, 188), (124, 308), (104, 308)]),    # shirt
         ((1.5, 0.75, 0.7), [(110, 222), (126, 222), (132, 308), (104, 308)]),                                     # tie
         (SKIN, [(78, 150), (154, 150), (146, 184), (118, 216), (84, 180)]), (SKIN, (60, 44, 162, 186)),           # he
         (SKIN, [(236, 180), (304, 180), (308, 206), (272, 238), (236, 216)]), (SKIN, (224, 76, 316, 214)))        # she


def coloured(picture):
    """As a photographer would have done with a brush: the brightness stays, each part gets its colour."""
    gray = np.asarray(picture.convert('L'), np.float64)
    low, high = np.quantile(gray, (0.002, 0.998))
    gray = np.clip((gray - low) / (high - low) * 240 + 8, 0, 255)
    tint = np.ones((*gray.shape, 3))
    for colour, shape in PARTS:
        mask = Image.new('L', picture.size)
        draw = ImageDraw.Draw(mask)
        (draw.ellipse if isinstance(shape, tuple) else draw.polygon)(shape, fill=255)
        part = np.asarray(mask.filter(ImageFilter.GaussianBlur(3)), np.float64)[..., None] / 255
        tint += part * (np.array(colour) - tint)
    dark = 1 - (gray / 255)[..., None] ** 3  # paper and highlights stay white
    return np.clip(gray[..., None] * (1 + dark * (tint - 1)), 0, 255)


def faded(a):
    density = -np.log10(np.clip((a / 255) ** 2.2, 0.004, 1))
    return np.round(255 * (10 ** -(density * KEPT + PAPER)) ** (1 / 2.2)).astype(np.uint8)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--binary', default=ROOT / 'restored')
    parser.add_argument('--out', default=ROOT / 'docs/figures/tone.jpg')
    args = parser.parse_args()
    fresh = Image.open(ROOT / 'models/sample_restored.jpg').convert('RGB')
    fresh = fresh.resize((WIDTH, fresh.height * WIDTH // fresh.width), Image.LANCZOS)
    fresh = coloured(fresh)
    aged = Image.fromarray(faded(fresh))
    with tempfile.TemporaryDirectory() as folder:
        before, after = pathlib.Path(folder, 'before.png'), pathlib.Path(folder, 'after.png')
        aged.save(before)
        subprocess.run([args.binary, 'restore', before, '-o', after, '--tone', 'auto', '--version', 'none', '--repair', 'false',
                        '--bg_upsampler', 'none', '-s', '1'], check=True)
        corrected = Image.open(io.BytesIO(after.read_bytes())).convert('RGB')
    for name, picture in (('aged', aged), ('corrected', corrected)):
        off = np.asarray(picture, np.float64) - fresh
        print(f'{name}: {10 * np.log10(255 ** 2 / (off ** 2).mean()):.1f} dB')
    sheet = Image.new('RGB', (2 * WIDTH, aged.height))
    sheet.paste(aged, (0, 0))
    sheet.paste(corrected, (WIDTH, 0))
    sheet.save(args.out, quality=88)


main()
