#!/usr/bin/env python3
"""How far CMYK pictures are from themselves after `bg_upsampler=none upscale=1`: CIEDE2000 by libvips, which reads both
files with the profile in them. The table of docs/performance.md, "Colours of inks". Pictures are separated by ImageMagick;
"alone" is the same file decoded and written again by libjpeg through PIL, without the program. The last rows are all
combinations of inks in steps of a fourteenth as a TIFF; a colour is inside the smaller gamut if sRGB has it and the
profile's own tables give it back (relative colorimetric there and back, less than 1 apart).
Needs imagemagick, libvips-tools, libgs9-common (the profile), python3-numpy and python3-pil.

usage: bench_inks.py RESTORED PICTURE... [--profile FILE] [--quality N]..."""
import argparse
import os
import subprocess
import tempfile

import numpy
from PIL import Image

PROFILE = "/usr/share/color/icc/ghostscript/default_cmyk.icc"
SRGB = "/usr/share/color/icc/ghostscript/srgb.icc"
TO_SRGB = numpy.array([[3.1338561, -1.6168667, -0.4906146], [-0.9787684, 1.9161415, 0.0334540],
                       [0.0719453, -0.2289914, 1.4052427]])  # light from XYZ at D50: the inverse of sRGB's colorants


def vips(*words):
    subprocess.run(["vips", *words], check=True)


def lab(name, intent="perceptual"):
    vips("icc_import", name, name + ".v", "--pcs", "lab", "--embedded", "--intent", intent)
    return name + ".v"


def numbers(name):
    vips("rawsave", name, name + ".raw")
    return numpy.fromfile(name + ".raw", numpy.float32)


def apart(one, other):
    vips("dE00", one, other, "apart.v")
    return numbers("apart.v")


def restore(program, name, out, quality=95):
    subprocess.run([program, "restore", name, "-o", out, "--version", "none", "--bg_upsampler", "none", "--repair", "false",
                    "--upscale", "1", "--quality", str(quality)], check=True, stdout=subprocess.DEVNULL)
    return out


def alone(name, out, quality):
    picture = Image.open(name)
    picture.save(out, quality=quality, subsampling=0, icc_profile=picture.info["icc_profile"])
    return out


def row(what, d, size=0):
    print(f"{what:44} {len(d):7} {d.mean():6.3f} {numpy.percentile(d, 99):6.2f} {d.max():6.2f} {100 * (d > 1).mean():8.4f} {size or '':>8}",
          flush=True)


def in_srgb(colours):
    """Whether sRGB has them; colours: Lab, D50."""
    y = (colours[:, 0] + 16) / 116
    f = numpy.stack([y + colours[:, 1] / 500, y, y - colours[:, 2] / 200], 1)
    xyz = numpy.where(f > 6 / 29, f ** 3, 3 * (6 / 29) ** 2 * (f - 4 / 29)) * [0.9642, 1, 0.8249]
    light = xyz @ TO_SRGB.T
    return ((light > -0.0005) & (light < 1.0005)).all(1)


def photos(args):
    for number, picture in enumerate(args.pictures):
        tiff, jpeg = f"{number}.tif", f"{number}.jpg"
        subprocess.run(["convert", picture, "-strip", "-resize", "600x600", "-profile", SRGB, "-profile", args.profile, "-compress", "none", tiff], check=True)
        subprocess.run(["convert", tiff, "-quality", "95", "-sampling-factor", "1x1", jpeg], check=True)
        before = {tiff: lab(tiff), jpeg: lab(jpeg)}
        row(f"{os.path.basename(picture)} TIFF", apart(before[tiff], lab(restore(args.program, tiff, "out.tif"))))
        for quality in args.quality or [100, 95, 90]:
            out = restore(args.program, jpeg, "out.jpg", quality)
            row(f"  JPEG {quality}", apart(before[jpeg], lab(out)), os.path.getsize(out))
            out = alone(jpeg, "alone.jpg", quality)
            row(f"  JPEG {quality} alone", apart(before[jpeg], lab(out)), os.path.getsize(out))


def combinations(args):
    steps = numpy.linspace(0, 255, 15).round().astype(numpy.uint8)
    inks = numpy.stack(numpy.meshgrid(steps, steps, steps, steps, indexing="ij"), -1).reshape(225, 225, 4)
    with open(args.profile, "rb") as file:
        Image.fromarray(inks, "CMYK").save("inks.tif", icc_profile=file.read())
    total = inks.reshape(-1, 4).astype(int).sum(1) / 2.55
    before = lab("inks.tif")
    d = apart(before, lab(restore(args.program, "inks.tif", "out.tif")))
    vips("icc_export", before, "own.tif", "--output-profile", args.profile, "--intent", "relative", "--depth", "16")
    inside = in_srgb(numbers(before).reshape(-1, 3)) & (apart(before, lab("own.tif", "relative")) < 1)
    for most in (200, 300, 400):
        row(f"inks to {most} %, inside the smaller gamut", d[inside & (total <= most)])
        row(f"inks to {most} %, outside", d[~inside & (total <= most)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("pictures", nargs="+", type=os.path.abspath)
    parser.add_argument("--profile", default=PROFILE)
    parser.add_argument("--quality", action="append", type=int)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        print(f"{'':44} {'pixels':>7} {'mean':>6} {'99 %':>6} {'most':>6} {'% > 1':>8} {'bytes':>8}")
        photos(args)
        combinations(args)
        os.chdir("/")


if __name__ == "__main__":
    main()
