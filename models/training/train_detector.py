"""Trains the starter face detector: python3 -m models.training.train_detector --data DIR --out DIR --minutes 8"""
import torch

from models.training import common, detector, export, widen
from models.training.networks_scene import detector_init, retinaface
from models.training.scenes import SIDE, Scenes

WEIGHTS = {"cls": 2.0, "box": 1.0, "points": 0.5}


def trial(net, layout, half, device, batch):
    """A step's network part, to be timed."""
    x = torch.zeros((batch, 3, SIDE, SIDE), device=device).contiguous(memory_format=layout)
    with common.autocast(device, half):
        maps = net(x)
    sum(m.mean() for m in maps).backward()


def main():
    parser = common.arguments(__doc__, batch=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--start", default="", help="begin with the weights of this model file, as wide or narrower")
    parser.add_argument("--first", type=int, default=8, help="channels of the first convolution, which all others of the body "
                        "follow; 8 is mobilenet0.25")
    parser.add_argument("--width", type=int, default=64, help="channels of the pyramid")
    args = parser.parse_args()
    device = common.setup(args)
    net = detector_init(retinaface(first=args.first, width=args.width))
    if args.start:
        widen.widen(net, common.load_weights(args.start), widen.retinaface_parts)
    net = net.to(device).train()
    layout, half = common.fastest(device, net, lambda n, f, h: trial(n, f, h, device, args.batch))
    net = net.to(memory_format=layout)
    optimizer = common.adam(net.parameters(), args.lr, weight_decay=0.02)
    ema = common.Ema(net, 0.999)
    training = common.Training(args, {"net": net}, {"net": optimizer}, {"net": ema})
    scenes = Scenes(args.data, "train", device, args.limit)
    print(f"{len(scenes.pictures)} scenes loaded, {common.process_seconds():.0f} s", flush=True)
    training.learn_from(scenes.contents + "; the scenes' backgrounds: budgie, elementary, pdimages (CC0), kodak; labels: a "
                        "public RetinaFace mobilenet0.25 (MIT)")
    priors = detector.anchors(SIDE, SIDE, device=device)
    for step, progress in training.steps():
        common.set_lr(optimizer, common.cosine(progress, step))
        x, faces, state, counted = scenes.batch(args.batch)
        x = detector.network_input(x).contiguous(memory_format=layout)
        with common.autocast(device, half):
            maps = net(x)
        losses = detector.loss(maps, faces, state, counted, priors)
        total = sum(WEIGHTS[k] * v for k, v in losses.items())
        optimizer.zero_grad(set_to_none=True)
        total.backward()
        common.average_gradients(net)
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        optimizer.step()
        ema.update(step)
        training.log({"loss": total, **losses, "norm": norm})
    export.write(args.out, "detector", args.commit)


if __name__ == "__main__":
    main()
