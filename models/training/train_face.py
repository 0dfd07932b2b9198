"""Trains the starter face restorer: python3 -m models.training.train_face --data DIR --out DIR --minutes 8

Reconstruction (L1 at 512 px and smaller, more on eyes and mouth, and on gradients) leads all the way. From 0.45 of the
training on, small conditional discriminators of three scales add adversarial and feature-matching gradients, whose size is
held to a part of the reconstruction's, picture by picture; pictures that came in clean get none. The adversarial part is
steered by the fine detail that mildly degraded faces get back. --start goes on from a model's weights, and may make it wider."""
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

from models.training import common, degrade, faces, gfpgan, measure, widen

NAME = "starter_face"
SHAPE = {"size": 512, "multiplier": 4, "features": 32}
CRITIC_FROM, CRITIC_FULL = 0.45, 0.65  # progress
STEER_EVERY = 25  # steps
KEEP_DB = 36  # a clean face that comes back worse than this counts for more, by its error
SOFT = 0.16  # of the faces are only reduced
GOOD_DB, BAD_DB = 38, 31  # what came in as good as the first is not for the critics; as bad as the second, wholly


class Critic(nn.Module):
    """A patch discriminator that sees a picture beside the input that it was made from. Returns its features and, last,
    its verdicts."""

    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.ModuleList([
            nn.Conv2d(6, width, 4, 2, 1), nn.Conv2d(width, 2 * width, 4, 2, 1),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1), nn.Conv2d(4 * width, 1, 3, 1, 1)])
        for i, layer in enumerate(self.layers):
            nn.init.kaiming_normal_(layer.weight, a=0.2)
            nn.init.zeros_(layer.bias)
            self.register_buffer(f"left{i}", F.normalize(torch.randn(layer.weight.shape[0]), dim=0))

    @torch.no_grad()
    def bound(self, limit=1.5):
        """Takes from each layer's kernel, as a matrix, what its greatest singular value (by one step of the power iteration)
        has over the limit: what keeps the verdicts' slopes, and with them the training, stable. Only that direction is made
        smaller: scaling the whole kernel shrinks the others step by step, until a layer of rank one is left."""
        for i, layer in enumerate(self.layers):
            matrix, left = layer.weight.flatten(1), getattr(self, f"left{i}")
            right = F.normalize(matrix.T @ left, dim=0)
            image = matrix @ right
            left.copy_(F.normalize(image, dim=0))
            excess = (image.norm() - limit).clamp(min=0)
            layer.weight.sub_((excess * torch.outer(left, right)).reshape(layer.weight.shape))

    def forward(self, x, given):
        x = torch.cat([x, given], 1).contiguous(memory_format=torch.channels_last)
        out = []
        for layer in self.layers[:-1]:
            x = F.leaky_relu(layer(x), 0.2)
            out.append(x)
        out.append(self.layers[-1](x))
        return out


class Critics(nn.Module):
    """One for each of the sides 512, 256, 128. adversarial: the size of the gradient of their verdicts, in parts of the
    reconstruction's."""

    def __init__(self, adversarial=0.2):
        super().__init__()
        self.scales = nn.ModuleList(Critic() for _ in range(3))
        self.register_buffer("adversarial", torch.tensor(adversarial))

    def steer(self, short):
        """Asks for more where the results are short of detail, for less where they have too much."""
        self.adversarial.mul_(torch.exp(0.3 * short)).clamp_(0.05, 0.8)

    def forward(self, x, given):
        out = []
        for i, critic in enumerate(self.scales):
            if i:
                x, given = F.avg_pool2d(x, 2), F.avg_pool2d(given, 2)
            out.append(critic(x, given))
        return out


def map_of_weights(device, size=512):
    """1 in the corners, more in the face, most at eyes, nose and mouth of the alignment's template; mean 1."""
    y, x = torch.meshgrid(torch.arange(size, device=device), torch.arange(size, device=device), indexing="ij")

    def bump(cx, cy, sx, sy):
        return torch.exp(-0.5 * (((x - cx) / sx) ** 2 + ((y - cy) / sy) ** 2))

    w = 1 + 0.8 * bump(256, 290, 100, 130) + 1.2 * (bump(193, 240, 32, 22) + bump(319, 240, 32, 22)) \
        + 0.5 * bump(256, 310, 30, 30) + 1.0 * bump(256, 371, 50, 26)
    return (w / w.mean())[None, None]


def each(x):
    """The mean of each picture."""
    return x.mean((1, 2, 3))


def slopes(x):
    return torch.cat([x[:, :, 1:, :-1] - x[:, :, :-1, :-1], x[:, :, :-1, 1:] - x[:, :, :-1, :-1]], 1)


def reconstruction(y, truth, fine, weights):
    """A loss a picture: N. fine says how much the truth is worth at 512 px; the smaller sizes count fully."""
    at = {512: (y, truth, weights)}
    for side in (256, 128):
        at[side] = tuple(F.avg_pool2d(v, 512 // side) for v in (y, truth, weights))
    full = each((y - truth).abs() * weights) + 1.0 * each((slopes(y) - slopes(truth)).abs())
    half = each((at[256][0] - at[256][1]).abs() * at[256][2]) \
        + 0.5 * each((slopes(at[256][0]) - slopes(at[256][1])).abs())
    quarter = each((at[128][0] - at[128][1]).abs() * at[128][2])
    return fine * full + 0.5 * half + 0.25 * quarter


def pyramid_loss(pictures, truth):
    """L1 of pictures of different sides against the truth reduced to each."""
    total = 0
    for picture in pictures:
        side = picture.shape[2]
        if side >= 16:
            reduced = truth if side == truth.shape[2] else F.avg_pool2d(truth, truth.shape[2] // side)
            total = total + (picture - reduced).abs().mean()
    return total


@torch.no_grad()
def detail_kept(net, truth, device):
    """The part of the fine detail of faces (0..1) that is there again after a mild degradation and the network."""
    given = degrade.degrade_face_fixed(truth, faces.new_generator(device), "mild") * 2 - 1
    with common.autocast(device):
        made = net(given.contiguous(memory_format=torch.channels_last)).float().clamp(-1, 1)
    return measure.detail(made / 2 + 0.5).mean() / measure.detail(truth).mean()


def detached_gradient(loss, at):
    return torch.autograd.grad(loss, at)[0].float()


def size_of(gradient):
    return gradient.flatten(1).norm(dim=1).reshape(-1, 1, 1, 1)


def fastest(net, given, device):
    """net, or torch.compile's form of it where that is faster here; compiling takes a minute or two."""
    if device.type != "cuda" or not hasattr(torch, "compile"):
        return net

    def timed(run):
        for _ in range(4):
            torch.cuda.synchronize()
            start = time.perf_counter()
            with common.autocast(device):
                y, rgbs, pictures = run(given, pyramids=True)
            (y.float().mean() + sum(p.float().mean() for p in rgbs + pictures)).backward()
            torch.cuda.synchronize()
            taken = time.perf_counter() - start
        net.zero_grad(set_to_none=True)
        return taken

    plain = timed(net)
    try:
        compiled = torch.compile(net, dynamic=False)
        taken = timed(compiled)
    except Exception as e:  # whatever the compiler fails of, training goes on without it
        print(f"not compiled: {str(e)[:300]}", flush=True)
        return net
    print(f"a step's network: {1000 * plain:.0f} ms, compiled {1000 * taken:.0f} ms", flush=True)
    return compiled if taken < plain else net


def ramp(progress, start, end):
    return min(1.0, max(0.0, (progress - start) / (end - start)))


def main():
    parser = common.arguments(__doc__, batch=16)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--critic-lr", type=float, default=3e-4)
    parser.add_argument("--detail", type=float, default=0.62,
                        help="the part of the fine detail of mildly degraded faces that the critics are to bring back")
    parser.add_argument("--matching", type=float, default=0.45,
                        help="the gradient of the features that the critics see, in parts of the reconstruction's")
    parser.add_argument("--start", default="", help="begin with the weights of this model file, as narrow or narrower")
    parser.add_argument("--compile", action="store_true", help="try torch.compile")
    parser.add_argument("--narrow", type=float, default=0.1875, help="width of the network; official: 1")
    parser.add_argument("--export-only", action="store_true", help="write the model of the checkpoint in --out and end")
    args = parser.parse_args()
    if args.export_only:
        common.export(NAME, args.out, args.commit, tensors=gfpgan.export_state)
        return
    device = common.setup(args)
    net = gfpgan.Gfpgan(narrow=args.narrow, noise=False, **SHAPE)
    if args.start:
        widen.widen(net, common.load_weights(args.start), widen.gfpgan_parts)
    net = net.to(device).train()
    for p in net.parameters():
        if p.dim() == 4:  # modulated kernels have five dimensions
            p.data = p.data.contiguous(memory_format=torch.channels_last)
    critics = Critics().to(device, memory_format=torch.channels_last).train()
    optimizer = common.adam(net.parameters(), args.lr)
    critic_optimizer = common.adam(critics.parameters(), args.critic_lr, betas=(0.5, 0.99))
    ema = common.Ema(net, 0.999)
    training = common.Training(args, {"net": net, "critics": critics}, {"net": optimizer, "critics": critic_optimizer},
                               {"net": ema})
    pack = faces.Faces(args.data, device, args.limit)
    print(f"{len(pack.large)} + {len(pack.small)} faces loaded, {common.process_seconds():.0f} s", flush=True)
    training.learn_from(pack.contents)
    weights = map_of_weights(device)
    run = net
    if args.compile:
        example = torch.rand(args.batch, 3, 512, 512, device=device).contiguous(memory_format=torch.channels_last)
        run = fastest(net, example, device)
    plain = os.path.join(args.out, NAME + "_plain.safetensors")

    for step, progress in training.steps():
        common.set_lr(optimizer, common.cosine(progress, step, floor=0.02))
        common.set_lr(critic_optimizer, common.cosine(progress, step, floor=0.1))
        if progress >= CRITIC_FROM and not os.path.exists(plain):
            common.export(NAME + "_plain", args.out, args.commit, training.state(), tensors=gfpgan.export_state)
        batch = pack.batch(args.batch)
        given = degrade.degrade_face(batch["truth"], faces.new_generator(device), soft=SOFT,
                                     worst=1.0 if args.start else 0.6 + 0.4 * ramp(progress, 0, 0.2))
        truth, fine = batch["truth"] * 2 - 1, batch["fine"]
        clean = (given == batch["truth"]).flatten(1).all(1)
        fine = torch.where(clean, torch.ones_like(fine), fine)  # what is there has to stay, however soft
        given = (given * 2 - 1).contiguous(memory_format=torch.channels_last)
        with common.autocast(device):
            y, rgbs, pictures = run(given, pyramids=True)

        # The gradients of all losses on the picture are made first, so that their sizes can be set against each other.
        z = y.detach().requires_grad_()
        losses = reconstruction(z, truth, fine, weights)
        error = each((z.detach() - truth).square()).sqrt() / 2
        before = each((given - truth).square()).sqrt() / 2
        # What comes back no better than it came counts double.
        keep = torch.where(clean, (error / 10 ** (-KEEP_DB / 20)).clamp(1, 4), 1.0 + (error > 0.95 * before).float())
        gradient = detached_gradient((losses * keep).mean(), z)
        psnr = -20 * torch.log10(error + 1e-5)
        # The mean PSNR of what came in clean is psnr_clean / clean.
        values = {"rec": losses.mean(), "psnr": psnr.mean(), "psnr_clean": (psnr * clean).mean(), "clean": clean.float().mean()}
        if progress >= CRITIC_FROM:
            sharp = (fine >= 0.9) & ~clean  # what the finest critic may take as real
            bad = ((GOOD_DB + 20 * torch.log10(before + 1e-5)) / (GOOD_DB - BAD_DB)).clamp(0, 1)
            share = [sharp.float(), (~clean).float(), (~clean).float()]
            critics.requires_grad_(False)
            with common.autocast(device):
                made, real = critics(z, given), critics(truth, given)
            adversarial = sum(-(each(m[-1].float()) * s).mean() for m, s in zip(made, share))
            matching = sum((each((a.float() - b.float()).abs()) * s).mean()
                           for m, r, s in zip(made, real, share) for a, b in zip(m[:-1], r[:-1]))
            strength = ramp(progress, CRITIC_FROM, CRITIC_FULL)
            adversarial_gradient = torch.autograd.grad(adversarial, z, retain_graph=True)[0].float()
            matching_gradient = detached_gradient(matching, z)
            base = size_of(gradient)
            gradient = gradient + strength * critics.adversarial * adversarial_gradient * base / size_of(
                adversarial_gradient).clamp(min=1e-12) * bad[:, None, None, None]
            gradient = gradient + strength * args.matching * matching_gradient * base / size_of(
                matching_gradient).clamp(min=1e-12) * bad[:, None, None, None]
            values.update(adv=adversarial, match=matching, share=critics.adversarial)

        weight = 0.05 + 0.45 * (1 - ramp(progress, 0, 0.5))
        helpers = weight * (pyramid_loss(rgbs[:-1], truth) + 0.5 * pyramid_loss(pictures, truth))
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward([y, helpers], [gradient.to(y.dtype), None])
        common.average_gradients(net)
        values["norm"] = torch.nn.utils.clip_grad_norm_(net.parameters(), 2.0)
        optimizer.step()
        ema.update(step)

        if progress >= CRITIC_FROM:
            critics.requires_grad_(True)
            with common.autocast(device):
                made, real = critics(y.detach(), given), critics(truth, given)
            verdict = sum(((F.relu(1 - r[-1].float()) + F.relu(1 + m[-1].float())).mean((1, 2, 3)) * s).mean()
                          for m, r, s in zip(made, real, share))
            critic_optimizer.zero_grad(set_to_none=True)
            verdict.backward()
            common.average_gradients(critics)
            critic_optimizer.step()
            for critic in critics.scales:
                critic.bound()
            values["critic"] = verdict
        if progress >= CRITIC_FULL and step % STEER_EVERY == 0:
            values["detail"] = detail_kept(net, batch["truth"][batch["fine"] > 0], device)
            common.average([values["detail"]])
            critics.steer(args.detail - values["detail"])
        training.log(values)
    common.export(NAME, args.out, args.commit, training.state(), tensors=gfpgan.export_state)


if __name__ == "__main__":
    main()
