"""Measures the upsampler on the validation photos: PSNR and SSIM beside bicubic, and sheets of crops.

    python3 -m models.training.eval_upsampler --model FILE [FILE…] [--other FILE] [--data DIR] [--sheets DIR]

Degradations of the 512 px truth: none (bicubic reduction by 2), mild (blur, reduction, a little noise, JPEG quality 90),
strong (more of each; for the eye, as no enlargement can be near the truth). All seeded. Sheets, in the build folder: for
every picture the crop with the most detail, as bicubic, each model, the other network (reduced to x2) and the truth.
"""
import argparse
import io
import json
import os

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageFilter

from models.training import common
from models.training.networks_scene import srvgg_of

# sigma of the blur in px of the truth, sigma of the noise of 255, JPEG quality
DEGRADATIONS = {"none": (0, 0, 0), "mild": (0.8, 2.0, 90), "strong": (1.8, 8.0, 60)}
BORDER = 4  # px of the truth that count for nothing
CROP = 128


def degrade(truth, kind, seed):
    """An RGB image at half size."""
    blur, noise, quality = DEGRADATIONS[kind]
    im = truth.filter(ImageFilter.GaussianBlur(blur)) if blur else truth
    im = im.resize((truth.width // 2, truth.height // 2), Image.BICUBIC)
    if noise:
        x = np.asarray(im).astype(np.float32) + np.random.RandomState(seed).normal(0, noise, (im.height, im.width, 3))
        im = Image.fromarray(np.clip(np.round(x), 0, 255).astype(np.uint8))
    if quality:
        file = io.BytesIO()
        im.save(file, "JPEG", quality=quality)
        im = Image.open(file).convert("RGB")
    return im


@torch.no_grad()
def enlarge(net, im, device):
    """im by the network, 8 bit, at twice its size."""
    x = torch.from_numpy(np.asarray(im).transpose(2, 0, 1).copy()).float().to(device)[None] / 255
    y = net(x).clamp(0, 1)
    if net.scale != 2:
        y = F.avg_pool2d(y, net.scale // 2)
    return Image.fromarray((y[0] * 255).round().byte().cpu().numpy().transpose(1, 2, 0))


def inner(im):
    return np.asarray(im).astype(np.float64)[BORDER:-BORDER, BORDER:-BORDER]


def psnr(a, b):
    return float(10 * np.log10(255**2 / max(1e-9, ((inner(a) - inner(b)) ** 2).mean())))


def ssim(a, b):
    """Wang et al. 2004, Gaussian window 11 px sigma 1.5, on luma."""
    weights = np.array([0.299, 0.587, 0.114])
    x, y = [torch.from_numpy(inner(i) @ weights)[None, None] for i in (a, b)]
    k = torch.exp(-((torch.arange(11, dtype=torch.float64) - 5) ** 2) / (2 * 1.5**2))
    k = k / k.sum()

    def mean(v):
        return F.conv2d(F.conv2d(v, k.reshape(1, 1, 1, 11)), k.reshape(1, 1, 11, 1))

    mx, my = mean(x), mean(y)
    vx, vy, vxy = mean(x * x) - mx**2, mean(y * y) - my**2, mean(x * y) - mx * my
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    return float((((2 * mx * my + c1) * (2 * vxy + c2)) / ((mx**2 + my**2 + c1) * (vx + vy + c2))).mean())


def busiest(im):
    """The top left corner of the crop with the most fine detail."""
    x = np.asarray(im.convert("L")).astype(np.float32)
    fine = np.abs(np.diff(x, axis=0))[:, :-1] + np.abs(np.diff(x, axis=1))[:-1]
    best, at = -1.0, (0, 0)
    for top in range(0, x.shape[0] - CROP + 1, CROP // 2):
        for left in range(0, x.shape[1] - CROP + 1, CROP // 2):
            value = fine[top:top + CROP - 1, left:left + CROP - 1].mean()
            if value > best:
                best, at = value, (left, top)
    return at


def sheet(path, rows):
    """Rows of equal crops, each drawn at twice its size."""
    page = Image.new("RGB", (len(rows[0]) * (2 * CROP + 4), len(rows) * (2 * CROP + 4)))
    for y, row in enumerate(rows):
        for x, im in enumerate(row):
            page.paste(im.resize((2 * CROP, 2 * CROP), Image.NEAREST), (x * (2 * CROP + 4), y * (2 * CROP + 4)))
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    page.save(path)
    print(path, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", default=["models/starter/starter_upsampler_x2.safetensors"])
    parser.add_argument("--other", default="../shared/models/realesr-animevideov3.pth")
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--photos", default="../shared/photos", help="a folder of photos to enlarge a crop of each")
    parser.add_argument("--sheets", default="build/sheets")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    nets = {os.path.basename(f): srvgg_of(common.load_weights(f)).to(args.device)
            for f in args.model + ([args.other] if os.path.exists(args.other) else [])}
    entries = common.read_index(args.data, "photos", "val")
    entries = entries[:args.limit] if args.limit else entries
    for kind in DEGRADATIONS:
        rows, scores = [], {name: [] for name in ["bicubic", *nets]}
        for i, entry in enumerate(entries):
            truth = Image.fromarray(common.read_picture(os.path.join(args.data, entry["file"])).transpose(1, 2, 0))
            small = degrade(truth, kind, i)
            results = {"bicubic": small.resize(truth.size, Image.BICUBIC)}
            results.update({name: enlarge(net, small, args.device) for name, net in nets.items()})
            for name, im in results.items():
                scores[name].append((psnr(im, truth), ssim(im, truth)))
            left, top = busiest(truth)
            box = (left, top, left + CROP, top + CROP)
            rows.append([im.crop(box) for im in [*results.values(), truth]])
        base = np.array(scores["bicubic"])
        for name, values in scores.items():
            v = np.array(values)
            row = {"psnr": round(v[:, 0].mean(), 3), "ssim": round(v[:, 1].mean(), 4),
                   "gain": round((v - base)[:, 0].mean(), 3), "worst_gain": round((v - base)[:, 0].min(), 3)}
            print(f"{kind} {name}: {json.dumps(row)}", flush=True)
        sheet(os.path.join(args.sheets, f"upsampler_{kind}.png"), rows)
    if os.path.isdir(args.photos):
        rows = []
        for file in sorted(os.listdir(args.photos)):
            if file.lower().endswith((".jpg", ".jpeg", ".png")):
                im = Image.fromarray(common.read_picture(os.path.join(args.photos, file)).transpose(1, 2, 0))
                left, top = busiest(im)
                small = im.crop((left, top, left + CROP, top + CROP))
                box = (0, 0, CROP, CROP) if CROP * 2 > 256 else (CROP // 2, CROP // 2, 3 * CROP // 2, 3 * CROP // 2)
                results = [small.resize((2 * CROP, 2 * CROP), Image.BICUBIC)]
                results += [enlarge(net, small, args.device) for net in nets.values()]
                rows.append([r.crop(box) for r in results])
        sheet(os.path.join(args.sheets, "upsampler_photos.png"), rows)


if __name__ == "__main__":
    main()
