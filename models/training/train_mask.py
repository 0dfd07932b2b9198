"""Trains the starter face mask: python3 -m models.training.train_mask --data DIR --out DIR --minutes 8

ParseNet, small, on the labels of masks.py: skin, hair and neck (pasted), cloth and background (not pasted). One picture's
labels err where its background looks like its hair; over the packs these errors have no pattern that a small network could
learn, so it comes out better than what it was taught."""
import os

import torch
import torch.nn.functional as F

from models.training import common, degrade, faces, masks, parsenet

NAME = "starter_parser"
SHAPE = {"base": 8, "low": 8, "high": 48, "depth": 4}
LABELS = "; labels: outline and colour models fitted to each picture"


class Labelled:
    """Faces of both packs at 512 px with labels (uint8, numbers of masks.CLASSES' order) at masks.SIDE; contents says in
    words what was loaded."""

    def __init__(self, data, split, device, limit=0, packs=("faces512", "faces256")):
        pictures, points, loaded = [], [], []
        for pack in packs:
            if not os.path.exists(os.path.join(data, pack, "index.json")):
                print(f"without {pack}: it is not in {data}")
                continue
            entries = common.read_index(data, pack, split)
            if limit:
                entries = entries[::max(1, len(entries) // limit)]
            size = 512 if pack == "faces512" else 256
            loaded.append((f"faces of {size} px", entries))
            part = common.load_pictures(data, entries, size, device, 6)
            if size == 256:
                part = torch.cat([F.interpolate(p.float(), scale_factor=2, mode="bilinear", align_corners=False).round()
                                  .byte() for p in part.split(64)])
            pictures.append(part)
            points += [[[v * 512 / size for v in p] for p in e["landmarks"]] for e in entries]
        self.contents = faces.contents(loaded)
        self.pictures, self.points = torch.cat(pictures), torch.tensor(points, device=device)
        table = torch.zeros(256, dtype=torch.uint8, device=device)
        for i, c in enumerate(masks.CLASSES):
            table[c] = i
        made = [masks.labels(p.float() / 255, q) for p, q in zip(self.pictures.split(16), self.points.split(16))]
        self.labels = table[torch.cat(made).long()]

    def batch(self, n):
        """Pictures N×3×512×512 (0..1) and class numbers of ParseNet N×512×512, mirrored, turned and scaled alike."""
        device = self.pictures.device
        index = torch.randint(0, len(self.pictures), (n,)).to(device)
        x = self.pictures[index].float() / 255
        label = F.one_hot(self.labels[index].long(), len(masks.CLASSES)).permute(0, 3, 1, 2).float()
        angle, scale = (torch.rand(n) * 2 - 1) * 0.2, 1 + (torch.rand(n) * 2 - 1) * 0.12
        mirror = torch.where(torch.rand(n) < 0.5, -1.0, 1.0)
        theta = torch.zeros(n, 2, 3)
        theta[:, 0, 0], theta[:, 0, 1] = torch.cos(angle) * scale * mirror, -torch.sin(angle) * scale
        theta[:, 1, 0], theta[:, 1, 1] = torch.sin(angle) * scale * mirror, torch.cos(angle) * scale
        theta[:, :, 2] = (torch.rand(n, 2) * 2 - 1) * 0.06
        grid = F.affine_grid(theta.to(device), list(x.shape), align_corners=False)
        x = F.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
        label = F.grid_sample(label, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
        table = torch.tensor(masks.CLASSES, device=device)
        return x, table[label.argmax(1)]


def opaque(label):
    """Which pixels are pasted, as the pipeline takes ParseNet's classes."""
    table = torch.zeros(parsenet.CLASSES, dtype=torch.bool, device=label.device)
    table[list(parsenet.OPAQUE)] = True
    return table[label.long()]


def main():
    parser = common.arguments(__doc__, batch=16)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--export-only", action="store_true", help="write the model of the checkpoint in --out and end")
    args = parser.parse_args()
    if args.export_only:
        common.export(NAME, args.out, args.commit)
        return
    device = common.setup(args)
    net = parsenet.ParseNet(**SHAPE).to(device, memory_format=torch.channels_last).train()
    optimizer = common.adam(net.parameters(), args.lr, weight_decay=0.01)
    ema = common.Ema(net, 0.998)
    training = common.Training(args, {"net": net}, {"net": optimizer}, {"net": ema})
    pack = Labelled(args.data, "train", device, args.limit)
    print(f"{len(pack.pictures)} faces loaded and labelled, {common.process_seconds():.0f} s", flush=True)
    training.learn_from(pack.contents + LABELS)
    for step, progress in training.steps():
        common.set_lr(optimizer, common.cosine(progress, step))
        truth, label = pack.batch(args.batch)
        generator = faces.new_generator(device)
        x = degrade.degrade_face(truth, generator, clean=0.3, light=0.4)  # the pipeline parses what has been restored
        x = degrade.Tone(degrade.Chance(args.batch, generator))(x)
        with common.autocast(device):
            logits, picture = net((x * 2 - 1).contiguous(memory_format=torch.channels_last))
        logits = logits.float()
        entropy = F.cross_entropy(logits, label)
        copy = (picture.float() - (truth * 2 - 1)).abs().mean()
        optimizer.zero_grad(set_to_none=True)
        (entropy + 0.05 * copy).backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimizer.step()
        ema.update(step)
        with torch.no_grad():
            mine, theirs = opaque(logits.argmax(1)), opaque(label)
            values = {"entropy": entropy, "copy": copy, "norm": norm,
                      "iou": (mine & theirs).sum() / (mine | theirs).sum().clamp(min=1)}
        training.log(values)
    common.export(NAME, args.out, args.commit, training.state())


if __name__ == "__main__":
    main()
