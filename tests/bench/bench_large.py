#!/usr/bin/env python3
"""How much memory very large results take: makes a picture, has the program enlarge it, and prints the most memory that
the process had at once (its own, and the pages of files that it had in use), its seconds, and the file's size. With
--compare the same is done once more into a folder in memory, where nothing is spilled: the two files must be equal.
Needs Linux and python3.

usage: bench_large.py RESTORED [--folder DIR] [--case WIDTHxHEIGHT:SCALE:EXT]... [--limit MIB] [--compare] [--steps]
                      [-- FLAG_OF_RESTORE...]
--case: the picture, upscale, and the result's format; by default 20000x15000 and 60000x3000 as JPEG and PNG. --limit: exit
1 if a run had more memory. --steps: the ms of each step, and of its network: pictures of several sizes tell which step
grows faster than the pixels. Without flags: --version none --bg_upsampler none --repair false."""
import argparse
import filecmp
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

CASES = ["5000x3750:4:jpg", "5000x3750:4:png", "15000x750:4:jpg", "15000x750:4:png"]


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def write_png(path, width, height):
    """A ramp with noise, row by row: each row is the ramp plus a piece of one long row of noise."""
    choose, pack = random.Random(1), zlib.compressobj(1)
    noise = bytes(choose.randrange(48) for _ in range(3 * width + 4096))
    ramp = int.from_bytes(bytes(x * 200 // (3 * width) for x in range(3 * width)), "little")
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)))
        for _ in range(height):
            at = choose.randrange(4096)
            row = ramp + int.from_bytes(noise[at:at + 3 * width], "little")
            data = pack.compress(b"\0" + row.to_bytes(3 * width, "little"))
            if data:
                file.write(chunk(b"IDAT", data))
        file.write(chunk(b"IDAT", pack.flush()) + chunk(b"IEND", b""))


def watch(pid, peak):
    """The most of each kind, until the process is gone."""
    while True:
        try:
            with open(f"/proc/{pid}/status") as file:
                now = {key: int(value.split()[0]) for key, value in (line.split(":", 1) for line in file if line.startswith(("Rss", "VmHWM")))}
        except (OSError, ValueError, IndexError):
            return
        if not now:
            return
        for key, value in now.items():
            peak[key] = max(peak.get(key, 0), value)
        time.sleep(0.01)


def run(program, picture, out, scale, flags):
    command = [program, "restore", picture, "-o", out, "--upscale", scale, "--input_pixels", "4000MP",
               "--result_pixels", "16000MP", "--json", *flags]
    peak, begin = {}, time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    watcher = threading.Thread(target=watch, args=(process.pid, peak))
    watcher.start()
    try:
        said = process.communicate()[0]
    finally:
        process.kill()  # if the script is ended, too
    watcher.join()
    if process.returncode:
        sys.exit(f"{' '.join(command)}: {said}")
    report = next((json.loads(line) for line in said.splitlines() if line.startswith("{")), {})
    return peak, time.monotonic() - begin, report


def print_steps(report):
    of = report["network_ms"]
    print("  " + ", ".join(f"{step} {ms:.0f}" + (f" ({of[step]:.0f})" if of.get(step) else "")
                           for step, ms in report["timings_ms"].items() if ms >= 1), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--folder", default=".")
    parser.add_argument("--case", action="append")
    parser.add_argument("--limit", type=float)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--steps", action="store_true")
    own = sys.argv[1:sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    flags = sys.argv[sys.argv.index("--") + 1:] if "--" in sys.argv else ["--version", "none", "--bg_upsampler", "none", "--repair", "false"]
    args = parser.parse_args(own)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    worst, program = 0, os.path.abspath(args.program)
    print(f"{'result':>14} {'format':>6} {'peak MiB':>9} {'own':>6} {'files':>6} {'seconds':>8} {'file MB':>8}")
    with tempfile.TemporaryDirectory(dir=args.folder) as folder, tempfile.TemporaryDirectory(dir="/dev/shm" if args.compare else None) as memory:
        for case in args.case or CASES:
            size, scale, ext = case.split(":")
            width, height = map(int, size.split("x"))
            picture, out = os.path.join(folder, "picture.png"), os.path.join(folder, f"result.{ext}")
            write_png(picture, width, height)
            peak, seconds, report = run(program, picture, out, scale, flags)
            mib = {key: value / 1024 for key, value in peak.items()}
            worst = max(worst, mib["VmHWM"])
            print(f"{int(width * float(scale))}x{int(height * float(scale)):<8} {ext:>6} {mib['VmHWM']:9.0f} {mib['RssAnon']:6.0f} "
                  f"{mib['RssFile']:6.0f} {seconds:8.1f} {os.path.getsize(out) / 1e6:8.1f}", flush=True)
            if args.steps:
                print_steps(report)
            if args.compare:
                other = os.path.join(memory, f"result.{ext}")
                peak, seconds, _ = run(program, picture, other, scale, flags)
                same = filecmp.cmp(out, other, shallow=False)
                print(f"{'in memory':>14} {ext:>6} {peak['VmHWM'] / 1024:9.0f} {'':13} {seconds:8.1f} {'the same bytes' if same else 'OTHER BYTES'}", flush=True)
                os.remove(other)
                if not same:
                    sys.exit(1)
            os.remove(out)
    sys.exit(args.limit is not None and worst > args.limit)


main()
