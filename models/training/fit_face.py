"""Fits the face restorer's last layers to training faces by least squares, without a GPU:

    python3 -m models.training.fit_face --model OLD.safetensors --sums build/training/fit --faces 120 --to NEW.safetensors

The decoder's picture is a sum of 1×1 convolutions of modulated features, so the weights whose squared error is least are the
answer of a system of linear equations. What is fitted is the change of the kernels at FROM px and more and of the last bias, held
back by a ridge. A picture counts by one over its mean squared error, so that all gain about as many decibels. Each face leaves
a file of sums in --sums; without --faces those that lie there are solved. What is printed first is the mean PSNR of every
HELD-th face before and after a fit to the others."""
import argparse
import glob
import os

import torch

from models.training import common, degrade, faces, gfpgan

FROM = 64        # px: the least side of the decoder's layers that are fitted
PIXELS = 16384   # of each picture, by chance
KINDS = (*degrade.FACE_STRENGTHS, "any")  # in turn; any: as in training
HELD = 5         # every so manyth face shows what the fit is worth; at last all are fitted to


class Features:
    """What the last convolutions of each size see, at 512 px; leaves nothing in the network."""

    def __init__(self, net):
        self.net, self.seen = net, []
        decoder = net.stylegan_decoder
        self.names = [f"stylegan_decoder.to_rgbs.{i}" for i in range(decoder.levels) if 8 << i >= FROM]
        for i in range(decoder.levels - len(self.names), decoder.levels):
            decoder.to_rgbs[i].register_forward_pre_hook(self.look)

    def look(self, layer, args):
        x, latent, _ = args
        self.seen.append(x * layer.modulated_conv.modulation(latent)[:, :, None, None])

    @torch.no_grad()
    def __call__(self, given, at):
        """The picture and the features F×pixels (a row of ones is the last) of one face 1×3×512×512, -1..1."""
        self.seen = []
        picture, rows = self.net(given), []
        for x in self.seen:
            while x.shape[2] < picture.shape[2]:
                x = gfpgan.double(x)
            rows.append(x.flatten(2)[0, :, at])
        rows.append(torch.ones(1, len(at)))
        return picture, torch.cat(rows)


def worse(truth, kind, generator):
    if kind == "any":
        return degrade.degrade_face(truth, generator, soft=0.16)
    return torch.round(degrade.degrade_face_fixed(truth, generator, kind) * 255) / 255


def gather(args):
    """Makes a file for each face: kind, Gram matrix, products with what is missing, the missing's own square; means over pixels."""
    os.makedirs(args.sums, exist_ok=True)
    torch.manual_seed(args.seed)
    net = gfpgan.from_state(common.load_weights(args.model)).eval()
    features, pack = Features(net), faces.Faces(args.data, torch.device("cpu"))
    for n in range(args.faces):
        kind = KINDS[n % len(KINDS)]
        batch = pack.batch(1)
        truth = batch["truth"]
        given = worse(truth, kind, faces.new_generator(torch.device("cpu")))
        at = torch.randint(0, 512 * 512, (PIXELS,))
        made, x = features(given * 2 - 1, at)
        missing = (truth * 2 - 1 - made).flatten(2)[0, :, at]
        torch.save({"kind": kind, "gram": (x @ x.T / PIXELS), "product": x @ missing.T / PIXELS,
                    "square": missing.square().mean(1).sum()},
                   f"{args.sums}/{args.seed}_{n:04}.pt")
        print(f"{n + 1} of {args.faces}: {kind}, {float(10 * torch.log10(12 / missing.square().mean(1).sum())):.2f} dB",
              flush=True)


def decibels(square):
    return float(10 * torch.log10(12 / square))  # three channels of -1..1


def after(sums, change):
    """The squared error with the change."""
    return sums["square"] - 2 * (sums["product"].double() * change).sum() + (change * (sums["gram"].double() @ change)).sum()


def solve(sums, ridge):
    """The change of all weights, F+1×3; the ridge is in parts of each feature's own energy."""
    gram = sum(s["gram"].double() / s["square"] for s in sums)
    product = sum(s["product"].double() / s["square"] for s in sums)
    return torch.linalg.solve(gram + ridge * torch.diag(gram.diagonal()), product)


def write(args, change, count):
    """The model with the changed weights; everything else as it was."""
    state, said = common.read_safetensors(args.model)
    layers = Features(gfpgan.from_state(state)).names
    at = 0
    for name in layers:
        weight = state[name + ".modulated_conv.weight"]
        rows = weight.shape[2]
        weight += change[at:at + rows].T.reshape(weight.shape).float()
        at += rows
    state[layers[-1] + ".bias"] += change[at].reshape(1, 3, 1, 1).float()
    common.write_safetensors(args.to, state, {
        **said, "commit": args.commit or common.commit(),
        "training": f"{said['training']}; the last layers fitted to {count} faces by least squares"})
    print(f"{args.to}: {os.path.getsize(args.to)} bytes", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the face restorer whose layers are fitted")
    parser.add_argument("--sums", required=True, help="the folder of the faces' sums")
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--faces", type=int, default=0, help="make the sums of so many faces")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ridge", type=float, default=0.3)
    parser.add_argument("--to", default="", help="write the fitted model here")
    parser.add_argument("--commit", default="", help="the training code's commit, for the model's metadata")
    args = parser.parse_args()
    if args.faces:
        gather(args)
    if not args.to:
        return
    sums = [torch.load(f) for f in sorted(glob.glob(f"{args.sums}/*.pt"))]
    change = solve([s for i, s in enumerate(sums) if i % HELD], args.ridge)
    for kind in KINDS:
        rows = [s for s in sums[::HELD] if s["kind"] == kind]
        values = [sum(decibels(v) for v in of) / len(rows) for of in
                  ([s["square"] for s in rows], [after(s, change) for s in rows])]
        print(f"{kind}: {len(rows)} faces that are not fitted to, {values[0]:.3f} -> {values[1]:.3f} dB")
    write(args, solve(sums, args.ridge), len(sums))


if __name__ == "__main__":
    main()
