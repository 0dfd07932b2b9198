"""Measures a face restorer on held-out faces: python3 -m models.training.eval_face --model FILE --data DIR

Three strengths of degradation (PSNR, SSIM, fine detail, landmarks against the truth), faces that are only reduced (which the
restoration must not make worse), sharp faces against themselves, and
contact sheets in --to, which must not be committed: they show the packs' faces. With --program also the greatest difference
between the built program's result and this definition's."""
import argparse
import os

import torch

from models.training import common, degrade, gfpgan, measure


PARTS = (*degrade.FACE_STRENGTHS, "soft", "sharp")
SOFT = (96, 164, 256, 328, 400)  # px, sides of faces that are only reduced


@torch.no_grad()
def restore(net, x, batch=8):
    """As the pipeline does it: clamped; pictures 0..1."""
    out = [net(part * 2 - 1).float().clamp(-1, 1) / 2 + 0.5 for part in x.split(batch)]
    return torch.cat(out)


def mean(values):
    values = [v for v in values if v is not None]
    return sum(values) / len(values) if values else float("nan")


def landmark_errors(find, pictures, truths):
    out = []
    for x, truth in zip(pictures, truths):
        points = find(x) if truth is not None else None
        out.append(None if points is None or truth is None else measure.distance(points, truth))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--to", default="build/training")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--detector", default="../shared/models/detection_mobilenet0.25_biubug6.pth")
    parser.add_argument("--limit", type=int, default=0, help="so many faces, evenly spread")
    parser.add_argument("--program", default="", help="the built program, to compare with")
    parser.add_argument("--parts", default=",".join(PARTS), help="some of them, with commas between")
    args = parser.parse_args()
    entries = common.read_index(args.data, "faces512", "val")
    if args.limit:
        entries = entries[::max(1, len(entries) // args.limit)][:args.limit]
    truth = common.load_pictures(args.data, entries, 512, args.device).float() / 255
    net = gfpgan.from_state(common.load_weights(args.model)).to(args.device).eval()
    find = measure.Landmarks(args.detector, args.device) if os.path.exists(args.detector) else None
    if not find:
        print(f"no landmarks: there is no {args.detector}")
    known = [find(x) for x in truth] if find else []
    chosen = torch.linspace(0, len(entries) - 1, min(16, len(entries))).round().long().tolist()
    print(f"{len(entries)} held-out faces; points are found on {sum(k is not None for k in known)}")
    print("strength    PSNR in -> out   SSIM in -> out     detail in -> out (truth)  points in -> out   not found")
    parts = args.parts.split(",")
    for strength in (s for s in degrade.FACE_STRENGTHS if s in parts):
        generator = torch.Generator(args.device).manual_seed(1)
        given = torch.cat([degrade.degrade_face_fixed(x, generator, strength) for x in truth.split(8)])
        given = torch.round(given * 255) / 255
        made = restore(net, given)
        line = [float(f(x, truth).mean()) for f in (measure.psnr, measure.ssim) for x in (given, made)]
        fine = [float(measure.detail(x).mean() * 255) for x in (given, made, truth)]
        points, lost = [float("nan")] * 2, [0, 0]
        if find:
            errors = [landmark_errors(find, x, known) for x in (given, made)]
            lost = [sum(e is None and k is not None for e, k in zip(es, known)) for es in errors]
            both = [(a, b) for a, b in zip(*errors) if a is not None and b is not None]
            points = [mean([p[i] for p in both]) for i in range(2)]
        print(f"{strength:8}    {line[0]:.2f} -> {line[1]:.2f}   {line[2]:.4f} -> {line[3]:.4f}   "
              f"{fine[0]:.2f} -> {fine[1]:.2f} ({fine[2]:.2f})      {points[0]:.4f} -> {points[1]:.4f}   "
              f"{lost[0]} -> {lost[1]}")
        rows, n = [], max(1, len(chosen) // 2)
        for half in (chosen[:n], chosen[n:2 * n]):
            rows += [[v[i] for i in half] for v in (given, made, truth)] if half else []
        measure.sheet(os.path.join(args.to, f"face_{strength}.jpg"), rows)
        if strength == "medium" and args.program:
            at = os.path.join(args.to, "program")
            os.makedirs(at, exist_ok=True)
            measure.save(at + "/in.png", given[0])
            measure.program(args.program, args.model, at + "/in.png", at + "/out.png", "--aligned", "--compat", "--version",
                            os.path.splitext(os.path.basename(args.model))[0])
            apart = (measure.load(at + "/out.png") - made[0].cpu()).abs().max() * 255
            print(f"the program's result differs by at most {float(apart):.2f} of 255 (0.5 is rounding)")
    for side in SOFT if "soft" in parts else ():
        small = torch.nn.functional.interpolate(truth, size=(side, side), mode="bicubic", align_corners=False, antialias=True)
        given = torch.nn.functional.interpolate(torch.round(small.clamp(0, 1) * 255) / 255, size=(512, 512), mode="bilinear",
                                                align_corners=False)
        before, after = measure.psnr(given, truth), measure.psnr(restore(net, given), truth)
        print(f"only reduced to {side} px: PSNR {float(before.mean()):.2f} -> {float(after.mean()):.2f}, better on "
              f"{int((after >= before).sum())} of {len(entries)}, the worst by {float((after - before).min()):+.2f}")
    if "sharp" not in parts:
        return
    made = restore(net, truth)
    same = measure.psnr(made, truth)
    by = {s: same[[i for i, e in enumerate(entries) if e["source"] == s]].mean()
          for s in sorted({e["source"] for e in entries})}
    print(f"sharp faces against themselves: PSNR {float(same.mean()):.2f}, least {float(same.min()):.2f}, "
          f"{int((same >= 32).sum())} of {len(entries)} at 32 dB or more; "
          + ", ".join(f"{s} {float(v):.2f}" for s, v in by.items()))
    rows = [[v[i] for i in chosen[:4]] for v in (truth, made)]
    measure.sheet(os.path.join(args.to, "face_sharp.jpg"), rows, 512)


if __name__ == "__main__":
    main()
