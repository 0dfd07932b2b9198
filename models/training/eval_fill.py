"""Measures the filler on pictures and masks that it has not learnt from, beside Telea's and Navier–Stokes' fill (OpenCV's).

    python3 -m models.training.eval_fill --model FILE [--data DIR] [--detector FILE] [--sheets DIR] [--rounds 2]

Each round puts a held-out real mask, drawn cracks or wide holes on each held-out photo tile of 512 px: opacity times a light
gray. PSNR of the filled pixels, all pictures together, where the mask is what was drawn, grown by 1 px; with --detector also
where it is what that model finds (at THRESHOLD, grown by 2 px).
"""
import argparse
import os

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from models.training import common, damage, fill
from models.training.networks_damage import damage_of
from models.training.networks_damage import whole as find
from models.training.networks_fill import fill_of, pull_push, whole

LIGHT = 0.85
THRESHOLD = 0.8
RADIUS = 5  # OpenCV's


def opencv(picture, mask, method):
    image = (picture[0] * 255).round().byte().permute(1, 2, 0).numpy()
    out = cv2.inpaint(np.ascontiguousarray(image[:, :, ::-1]), (mask[0, 0] * 255).byte().numpy(), RADIUS, method)
    return torch.from_numpy(out[:, :, ::-1].copy()).permute(2, 0, 1)[None].float() / 255


def opacities(masks, side, sort, count, generator):
    """N×1×side×side; real masks at their own size, anywhere in the picture."""
    if sort in ("crack", "blob", "wide"):
        return fill.holes(masks, count, side, generator, sort)
    pool = masks.of[damage.THIN if sort == "thin" else damage.DUST]
    out = torch.zeros(count, 1, side, side)
    for i in range(count):
        mask = masks.pictures[pool[torch.randint(len(pool), (1,), generator=generator)]].float() / 255
        y, x = (int(v) for v in torch.randint(0, side - mask.shape[-1] + 1, (2,), generator=generator))
        out[i, 0, y:y + mask.shape[1], x:x + mask.shape[2]] = mask[0]
    return out


def table(name, rows):
    """Each method's PSNR over the damaged pixels of all rows, and its mean gain over the better of OpenCV's two."""
    total = {m: sum(r[m] for r in rows) / sum(r["count"] for r in rows) for m in rows[0] if m != "count"}
    level = {m: -10 * np.log10(max(e, 1e-10)) for m, e in total.items()}
    best = max(level["telea"], level["ns"])
    wins = np.mean([r["network"] < min(r["telea"], r["ns"]) for r in rows if r["count"]])
    better = np.mean([r["network"] < r["alone"] for r in rows if r["count"]])
    print(f"{name:16}" + " ".join(f"{m} {v:6.2f}" for m, v in level.items()) + f"  gain {level['network'] - best:+.2f}, "
          f"better than both on {100 * wins:.0f} %, than left alone on {100 * better:.0f} %", flush=True)


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--detector", default="")
    parser.add_argument("--sheets", default="")
    parser.add_argument("--sorts", nargs="+", default=fill.SORTS, choices=fill.SORTS)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--limit", type=int, default=0, help="only so many pictures a round")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    photos = damage.Photos(args.data, "val", "cpu", packs=("photos",)).pictures
    masks = damage.Masks(args.data, "val", "cpu")
    net = fill_of(common.load_weights(args.model)).to(args.device)
    detector = damage_of(common.load_weights(args.detector)).to(args.device) if args.detector else None
    count, worst = args.limit or len(photos), 0.0
    for sort in args.sorts:
        true_rows, found_rows, sheet = [], [], []
        for turn in range(args.rounds):
            generator = torch.Generator().manual_seed(100 + turn)
            for i, opacity in enumerate(opacities(masks, photos.shape[-1], sort, count, generator).split(1)):
                truth = photos[i % len(photos)][None].float() / 255
                damaged = truth + (LIGHT - truth) * opacity
                damaged = (damaged * 255).round() / 255
                drawn = F.max_pool2d((opacity > fill.SEEN).float(), 3, 1, 1)
                if not drawn.any():
                    continue
                tries = [(true_rows, drawn)]
                if detector:
                    odds = torch.sigmoid(find(detector, damaged.to(args.device))[:, :1]).cpu()
                    tries.append((found_rows, F.max_pool2d((odds > THRESHOLD).float(), 5, 1, 2)))
                for rows, mask in tries:
                    made = {"alone": damaged, "pull_push": pull_push(damaged, mask),
                            "telea": opencv(damaged, mask, cv2.INPAINT_TELEA), "ns": opencv(damaged, mask, cv2.INPAINT_NS),
                            "network": (whole(net, *(t.to(args.device) for t in (damaged, mask))).cpu() * 255).round() / 255}
                    rows.append({"count": 3 * float(mask.sum()),
                                 **{m: float(((v - truth) ** 2 * mask).sum()) for m, v in made.items()}})
                    worst = max(worst, float((made["network"] - made["pull_push"]).abs().max()))
                    if args.sheets and turn == 0 and rows is true_rows and i % 4 == 0:
                        sheet.append(torch.cat([damaged[0], made["telea"][0], made["network"][0], truth[0]], 2))
        table(sort, true_rows)
        if found_rows:
            table(sort + ", found", found_rows)
        if sheet:
            os.makedirs(args.sheets, exist_ok=True)
            pixels = (torch.cat(sheet, 1) * 255).round().byte().permute(1, 2, 0).numpy()
            Image.fromarray(pixels).save(os.path.join(args.sheets, f"fill_{sort}.png"))
    print(f"the network moves the pre-fill by at most {worst:.2f}")


if __name__ == "__main__":
    main()
