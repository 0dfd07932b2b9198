"""Measures a face mask on held-out faces: python3 -m models.training.eval_mask --model FILE --data DIR

Its overlap with the labels (which are no truth: see masks.py), how far face and background differ where each mask
passes from one to the other (less is less of an edge), and a sheet in --to, not to be committed: face, labels, network's
classes, a sharp face pasted into a degraded picture by the pipeline's square mask and by the network's."""
import argparse
import os

import torch
import torch.nn.functional as F

from models.training import common, degrade, masks, measure, parsenet
from models.training.train_mask import Labelled, opaque

COLOURS = {parsenet.SKIN: (1.0, 0.75, 0.6), parsenet.HAIR: (0.7, 0.4, 0.1), parsenet.NECK: (0.1, 0.7, 0.2),
           parsenet.CLOTH: (0.6, 0.1, 0.7)}


def gauss(x, sigma, radius):
    at = torch.arange(-radius, radius + 1, device=x.device, dtype=torch.float32)
    g = torch.exp(-0.5 * (at / sigma) ** 2)
    g = (g / g.sum()).reshape(1, 1, 1, -1)
    x = F.conv2d(F.pad(x, (radius, radius, 0, 0), mode="reflect"), g)
    return F.conv2d(F.pad(x, (0, 0, radius, radius), mode="reflect"), g.transpose(2, 3))


def soft(pasted):
    """The pipeline's blend mask of classes N×512×512: blurred twice, the outermost 10 px empty."""
    m = gauss(gauss(pasted.float()[:, None], 11, 50), 11, 50)
    inside = torch.zeros_like(m)
    inside[:, :, 10:-10, 10:-10] = 1
    return m * inside


def square(n, device):
    """The pipeline's square mask, at 512 px."""
    m = torch.zeros(n, 1, 512, 512, device=device)
    m[:, :, 27:-27, 27:-27] = 1
    return gauss(m, 8, 25)


def edge(mask, face, background):
    """The mean difference of face and background, each pixel weighted with how steep the mask is there; of 255."""
    steep = (mask[:, :, 1:, :-1] - mask[:, :, :-1, :-1]).abs() + (mask[:, :, :-1, 1:] - mask[:, :, :-1, :-1]).abs()
    apart = (face - background).abs().mean(1, keepdim=True)[:, :, :-1, :-1]
    return 255 * (steep * apart).sum((1, 2, 3)) / steep.sum((1, 2, 3)).clamp(min=1e-6)


def tinted(x, label):
    colour = torch.tensor([COLOURS.get(i, (0.1, 0.1, 0.6)) for i in range(parsenet.CLASSES)], device=x.device)
    return 0.5 * x + 0.5 * colour[label.long()].permute(0, 3, 1, 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--to", default="build/training")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--limit", type=int, default=0, help="so many faces, evenly spread")
    args = parser.parse_args()
    pack = Labelled(args.data, "val", args.device, args.limit, ("faces512",))
    net = parsenet.from_state(common.load_weights(args.model)).to(args.device).eval()
    table = torch.tensor(masks.CLASSES, device=args.device)
    ious, counts, edges, rows = [], [], {"square": [], "network": []}, []
    shown = set(torch.linspace(0, len(pack.pictures) - 1, min(12, len(pack.pictures))).round().long().tolist())
    for i in range(len(pack.pictures)):
        x = pack.pictures[i:i + 1].float() / 255
        taught = table[F.interpolate(pack.labels[i:i + 1, None].float(), size=(512, 512), mode="nearest")[:, 0].long()]
        with torch.no_grad():
            label = net(x * 2 - 1)[0].argmax(1)
        mine, theirs = opaque(label), opaque(taught)
        ious.append(float((mine & theirs).sum() / (mine | theirs).sum().clamp(min=1)))
        counts.append(float(mine.float().mean()))
        bad = degrade.degrade_face_fixed(x, torch.Generator(args.device).manual_seed(1), "medium")
        blends = {"square": square(1, args.device), "network": soft(mine)}
        pasted = {}
        for name, m in blends.items():
            edges[name].append(float(edge(m, x, bad)))
            pasted[name] = m * x + (1 - m) * bad
        if i in shown:
            rows.append([x[0], tinted(x, taught)[0], tinted(x, label)[0], pasted["square"][0], pasted["network"][0]])

    def mean(v):
        return sum(v) / len(v)

    print(f"{len(ious)} held-out faces: overlap with the labels (IoU) {mean(ious):.4f}, least {min(ious):.4f}; "
          f"{100 * mean(counts):.0f} % of the picture is pasted")
    print(f"face and background differ where the mask passes between them: square {mean(edges['square']):.2f}, "
          f"network {mean(edges['network']):.2f} of 255")
    for k in range(0, len(rows), 4):
        measure.sheet(os.path.join(args.to, f"mask_{k // 4}.jpg"), rows[k:k + 4], 384)


if __name__ == "__main__":
    main()
