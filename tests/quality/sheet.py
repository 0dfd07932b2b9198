"""A sheet of forty faces of all sizes and kinds, to be looked at at 100 %: as it came, with weight=1, with the default, the
truth.

    python3 tests/quality/sheet.py ./restored [--shared DIR] [--device cpu] [--to build/sheets/faces] [--sides 64,128,256,512]
        [--before PROGRAM]

--before: with another build of the program, in place of weight=1. Each kind of faces.py at each size, another face of the held-back half each time. A page a size; a row has two kinds. What is
used of the restoration stands before each page's rows in the program's output. The pages show the packs' pictures: they are
never committed.
"""
import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402

import faces as known  # noqa: E402
from check_quality import Server  # noqa: E402

GAP = 4


def shown(server, case, before):
    """The four pictures of a face, and what is said of it."""
    truth, given = known.case(*case)
    other, _ = before.restored(given) if before else server.restored(given, weight="1")
    auto, found = server.restored(given)
    mask = known.inside(case[3])
    said = f"face {case[0]}, {round(0.64 * case[3])} px, {case[4]}: " + ", ".join(
        f"{name} {min(60, known.psnr(v, truth, mask)):.2f} dB" for name, v in
        (("as it came", given), ("before" if before else "weight=1", other), ("default", auto)))
    return (given, other, auto, truth), said + (f", {found[0]['used']:.2f} used" if found else ", not found")


def page(rows, side):
    """Four pictures a case, two cases a row."""
    width = 4 * side + 5 * GAP
    out = np.full((-(-len(rows) // 2) * (side + GAP) + GAP, 2 * width, 3), 255, np.uint8)
    for n, row in enumerate(rows):
        y, x = GAP + n // 2 * (side + GAP), n % 2 * width + GAP
        for k, picture in enumerate(row):
            out[y:y + side, x + k * (side + GAP):x + k * (side + GAP) + side] = picture
    return Image.fromarray(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--shared", default=os.environ.get("RESTORED_SHARED", "../shared"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--to", default="build/sheets/faces")
    parser.add_argument("--sides", default="64,128,256,512", help="of the crops around the faces")
    parser.add_argument("--before", help="the program to compare with")
    args = parser.parse_args()
    os.makedirs(args.to, exist_ok=True)
    server = Server(args.program, f"{args.shared}/models", args.device)
    before = Server(args.before, f"{args.shared}/models", args.device) if args.before else None
    try:
        for at, side in enumerate(int(s) for s in args.sides.split(",")):
            faces = known.cases(args.shared, 40, {side: 1}, ("",))
            rows = []
            for n, kind in enumerate(known.KINDS):
                pictures, said = shown(server, (*faces[(at * len(known.KINDS) + n) % len(faces)][:4], kind), before)
                rows.append(pictures)
                print(said, flush=True)
            page(rows, side).save(f"{args.to}/{side}.png")
            print(f"{args.to}/{side}.png", flush=True)
    finally:
        server.stop()
        if before:
            before.stop()


if __name__ == "__main__":
    main()
