#!/usr/bin/env python3
"""How much memory a server keeps after pictures of many sizes: starts one, sends it COUNT pictures of COUNT sizes one
after the other, waits until it is idle, and prints its resident memory and what the device holds at the start, at the
peak, after the last picture, and idle. Needs Linux, python3 and the program alone.

usage: bench_memory.py RESTORED [--device ID] [--count 200] [--keep 5] [--least 200] [--most 800] [--seed 1]
                       [--photos DIR [--least-mp 0.2] [--most-mp 3]] [--option NAME=VALUE]... [--limit MIB] [--peak MIB]
                       [-- SERVER_FLAG...]
--photos: the photos of a folder in turns, as JPEGs of COUNT areas between those of --least-mp and --most-mp megapixels,
in place of pieces of the sample (needs PIL).
--keep is the server's keep_seconds; --option goes with every request, one that is given several times with its values in
turns; --limit: exit 1 if more than so many MiB are left above the start, on the host or on the device; --peak: if the
process ever had more."""
import argparse
import io
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib

MIB = 1 << 20


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, rows):
    head = struct.pack(">IIBBBBB", width, len(rows), 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) +
            chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows), 1)) + chunk(b"IEND", b""))


def unpng(data):
    """Width and rows of an RGB PNG of 8 bits."""
    at, parts = 8, []
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            width, height = struct.unpack(">II", data[at + 8:at + 16])
        elif kind == b"IDAT":
            parts.append(data[at + 8:at + 8 + size])
        at += size + 12
    raw, rows, above = zlib.decompress(b"".join(parts)), [], bytes(3 * width)
    for y in range(height):
        line = raw[y * (3 * width + 1):(y + 1) * (3 * width + 1)]
        rule, row = line[0], bytearray(line[1:])
        for i in range(len(row) if rule else 0):
            a = row[i - 3] if i > 2 else 0
            b, c = above[i], above[i - 3] if i > 2 else 0
            pa, pb, pc = abs(b - c), abs(a - c), abs(a + b - 2 * c)
            paeth = a if pa <= pb and pa <= pc else b if pb <= pc else c
            row[i] = row[i] + (a, b, (a + b) // 2, paeth)[rule - 1] & 255
        above = bytes(row)
        rows.append(above)
    return width, rows


def pictures(sample, count, least, most, seed):
    """Pieces of the sample, mirrored where it is too small, of `count` sizes."""
    width, rows = sample
    choose, seen = random.Random(seed), set()
    wide = [row + b"".join(row[3 * x:3 * x + 3] for x in range(width - 1, -1, -1)) for row in rows]
    tall = wide + wide[::-1]
    repeat_x, repeat_y = most // (2 * width) + 1, most // len(tall) + 1
    tall = [row * repeat_x for row in tall] * repeat_y
    while len(seen) < count:
        size = choose.randint(least, most), choose.randint(least, most)
        if size not in seen:
            seen.add(size)
            yield size, png(size[0], [row[:3 * size[0]] for row in tall[:size[1]]])


def photos(folder, count, least, most, seed):
    """The folder's photos in turns, resized to `count` areas, of which half are near the least."""
    from PIL import Image
    choose, all_of, seen = random.Random(seed), [], set()
    for name in sorted(os.listdir(folder)):
        if name.rsplit(".", 1)[-1] in ("jpg", "jpeg", "png", "webp"):
            all_of.append(Image.open(os.path.join(folder, name)).convert("RGB"))
    while len(seen) < count:
        photo = all_of[len(seen) % len(all_of)]
        factor = math.sqrt(1e6 * least * (most / least)**choose.random()**4 / (photo.width * photo.height))
        size = round(photo.width * factor), round(photo.height * factor)
        if size not in seen:
            seen.add(size)
            file = io.BytesIO()
            photo.resize(size, Image.LANCZOS).save(file, "jpeg", quality=90)
            yield size, file.getvalue()


def status(pid, name):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name + ":"))


def get(url, path, data=None):
    with urllib.request.urlopen(urllib.request.Request(url + path, data=data), timeout=3600) as reply:
        return reply.read()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("restored")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--keep", type=int, default=5)
    parser.add_argument("--least", type=int, default=200)
    parser.add_argument("--most", type=int, default=800)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--photos")
    parser.add_argument("--least-mp", type=float, default=0.2)
    parser.add_argument("--most-mp", type=float, default=3)
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--limit", type=float)
    parser.add_argument("--peak", type=float)
    argv, flags = sys.argv[1:], []
    if "--" in argv:
        flags = argv[argv.index("--") + 1:]
        argv = argv[:argv.index("--")]
    args = parser.parse_args(argv)
    log = tempfile.NamedTemporaryFile("w+", suffix=".log")
    state = tempfile.TemporaryDirectory()
    server = subprocess.Popen([os.path.abspath(args.restored), "serve", "--listen", "127.0.0.1:0", "--device",
                               args.device, "--keep-seconds", str(args.keep), "--state-dir", state.name, *flags],
                              stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        line = server.stdout.readline().split()
        if not line:
            sys.exit("the server did not start:\n" + open(log.name).read())
        url, rows, seconds = line[-1].rstrip("/"), [], []

        def device():
            found = json.loads(get(url, "/v1/devices"))["devices"]
            return next((d for d in found if d["id"] == args.device), found[0])

        def note(when):
            memory = device().get("memory", {})
            rows.append((when, status(server.pid, "VmRSS"), memory.get("used", 0)))

        while True:
            try:
                get(url, "/readyz")
                break
            except urllib.error.HTTPError:  # 503: not yet
                if server.poll() is not None:
                    sys.exit("the server ended:\n" + open(log.name).read())
                time.sleep(0.2)
        time.sleep(args.keep + 2)
        note("start")
        options = {}
        for option in args.option:
            name, value = option.split("=", 1)
            options.setdefault(name, []).append(value)
        if args.photos:
            made = list(photos(args.photos, args.count, args.least_mp, args.most_mp, args.seed))
            what = f"{args.count} photos of {args.count} sizes, {args.least_mp:g} to {args.most_mp:g} megapixels"
        else:
            plain = "?upscale=1&bg_upsampler=none&version=none&faces=none&ext=png"
            sample = unpng(get(url, "/v1/restore" + plain, get(url, "/sample.jpg")))
            made = pictures(sample, args.count, args.least, args.most, args.seed)
            what = f"{args.count} pictures of {args.count} sizes, {args.least} to {args.most} px a side"
        begun = os.times().elapsed
        for i, (_, data) in enumerate(made):
            query = urllib.parse.urlencode({name: values[i % len(values)] for name, values in options.items()})
            sent = time.monotonic()
            get(url, "/v1/restore?" + query, data)
            seconds.append(time.monotonic() - sent)
        note("after the last picture")
        peak, held_peak = status(server.pid, "VmHWM"), device().get("memory", {}).get("peak", 0)
        time.sleep(2 * args.keep + 3)
        note("idle")
        print(f"{what}, on {device()['id']} "
              f"({device()['name']}), keep_seconds {args.keep}, {os.times().elapsed - begun:.0f} s, "
              f"{sorted(seconds)[len(seconds) // 2]:.2f} s a picture (median)\n")
        print("| MiB | process, resident | device, used |\n|---|---|---|")
        for when, resident, held in [rows[0], ("peak", peak, held_peak), *rows[1:]]:
            print(f"| {when} | {resident / MIB:.0f} | {held / MIB:.0f} |")
        left = [(rows[-1][i] - rows[0][i]) / MIB for i in (1, 2)]
        print(f"\nidle above the start: process {left[0]:.0f} MiB, device {left[1]:.0f} MiB")
        return args.limit is not None and max(left) > args.limit or args.peak is not None and peak > args.peak * MIB
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    sys.exit(main())
