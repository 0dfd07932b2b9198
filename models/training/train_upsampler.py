"""Trains the starter upsampler, x2: python3 -m models.training.train_upsampler --data DIR --out DIR --minutes 8

First by L1 alone (its average is kept and exported as starter_upsampler_x2_l1), then with a small critic: an adversarial
loss and feature matching, whose gradient is held at a fixed share of L1's.
"""
import math

import torch
import torch.nn.functional as F

from models.training import common, export
from models.training.degrade import Chance, Tone, degrade_scene
from models.training.networks_scene import Critic, Srvgg, srvgg_init

SCALE = 2
FEATURES, CONVS = 64, 24


class Tiles:
    """512 px pictures with true detail on the device, and random patches of them; contents says in words what they are."""

    def __init__(self, data, split, device, limit=0):
        entries = common.read_index(data, "photos", split)
        faces = [e for e in common.read_index(data, "faces512", split) if e["src_px"] >= 512]
        if limit:
            entries, faces = entries[:limit], faces[:limit // 4]
        self.device, self.photos = device, len(entries)
        self.pictures = common.load_pictures(data, entries + faces, 512, device)
        self.contents = "; ".join(common.contents(what, [e["source"] for e in part]) for what, part in
                                  (("photo tiles of 512 px", entries), ("faces of 512 px", faces)))

    @torch.no_grad()
    def textured(self, x, share):
        """Some of the patches get a regular texture: stripes, weave, screens of dots, over the picture or a plain ground,
        with periods from 4.2 px, so that each is still there at half the size; some with film grain."""
        n, _, h, w = x.shape
        c = Chance(n, torch.Generator(device=x.device).manual_seed(int(torch.randint(1 << 62, (1,)))))

        def v(t):
            return t.reshape(-1, 1, 1, 1)

        y = torch.arange(h, device=x.device).reshape(1, 1, h, 1)
        u = torch.arange(w, device=x.device).reshape(1, 1, 1, w)
        angle = c.uniform(0, math.pi)
        angle = torch.where(c.flag(0.3), torch.round(angle / (math.pi / 4)) * math.pi / 4, angle)
        pitch = c.log_uniform(4.2, 20)

        def wave(turn, period):
            phase = 2 * math.pi / period * (u * torch.cos(v(angle + turn)) + y * torch.sin(v(angle + turn)))
            return torch.cos(phase + v(c.uniform(0, 2 * math.pi)))

        first = wave(0.0, v(pitch))
        second = wave(math.pi / 2, v(pitch * torch.where(c.flag(0.7), 1.0, c.uniform(0.7, 1.4))))
        kind = v(c.index(0.3, 0.25, 0.3, 0.15))
        dots = first + second
        flat = torch.where(kind == 0, first, torch.where(kind == 1, dots / 2, torch.where(
            kind == 2, torch.tanh(v(c.uniform(0.8, 3.0)) * (dots + 2 * v(c.flag(0.5)) * (x.mean(1, keepdim=True) - 0.5))),
            (dots + 0.5 * wave(math.pi / 4, v(pitch))) / 2)))
        ground = torch.where(v(c.flag(0.45)), x, v(c.uniform(0.15, 0.85)) + 0.06 * c.normal(3, 1, 1))
        tint = 1 + 0.15 * c.normal(3, 1, 1) * v(c.flag(0.4))
        out = ground + flat * tint * v(c.log_uniform(0.03, 0.35))
        grain = c.normal(1, h, w) * v(torch.where(c.flag(0.25), c.uniform(0, 0.04), torch.zeros(n, device=x.device)))
        return torch.where(v(c.flag(share)), (out + grain).clamp(0, 1), x)

    @torch.no_grad()
    def patches(self, count, side, faces=0.2, textures=0.0):
        """count patches of side px, RGB 0..1; a share of them of faces."""
        d, n = self.device, len(self.pictures)
        c = Chance(count, torch.Generator(device=d).manual_seed(int(torch.randint(1 << 62, (1,)))))
        photo = (c.uniform(0, 1) * self.photos).long().clamp(max=self.photos - 1)
        face = (self.photos + c.uniform(0, 1) * (n - self.photos)).long().clamp(max=n - 1)
        pick = torch.where(c.flag(faces) & (n > self.photos), face, photo)
        along = torch.arange(side, device=d)
        free = self.pictures.shape[-1] - side + 1
        y = (c.uniform(0, 1) * free).long().clamp(max=free - 1)[:, None] + along
        x = (c.uniform(0, 1) * free).long().clamp(max=free - 1)[:, None] + along
        y = torch.where(c.flag(0.2)[:, None], y.flip(1), y)
        x = torch.where(c.flag(0.5)[:, None], x.flip(1), x)
        channels = torch.arange(3, device=d)
        out = self.pictures[pick[:, None, None, None], channels[None, :, None, None], y[:, None, :, None],
                            x[:, None, None, :]].float() / 255
        out = torch.where(c.flag(0.25).reshape(-1, 1, 1, 1), out.transpose(2, 3), out)
        out = Tone(c, 0.5, gray=0.1, sepia=0.03, fade=0.03)(out)
        return self.textured(out, textures) if textures else out


def critic_loss(critic, real, fake):
    """Hinge."""
    return F.relu(1 - critic(real)[0].float()).mean() + F.relu(1 + critic(fake)[0].float()).mean()


def extra_loss(critic, real, fake, matching=4.0):
    """What the critic asks of the output: a better verdict, and activations like those of the true picture."""
    verdict, features = critic(fake)
    with torch.no_grad():
        wanted = critic(real)[1]
    match = sum((a.float() - b.float()).abs().mean() for a, b in zip(features, wanted)) / len(features)
    return -verdict.float().mean() + matching * match, match


def balance(plain, extra, weight, share):
    """The factor that makes extra's gradient at a weight `share` of plain's."""
    a = torch.autograd.grad(plain, weight, retain_graph=True)[0].float().norm()
    b = torch.autograd.grad(extra, weight, retain_graph=True)[0].float().norm()
    return (share * a / (b + 1e-8)).clamp(max=20.0).detach()


def main():
    parser = common.arguments(__doc__, batch=64)
    parser.add_argument("--lr", type=float, default=8e-4)
    parser.add_argument("--side", type=int, default=160, help="of a patch of the true picture, px")
    parser.add_argument("--start", default="", help="begin with the weights of this model file")
    parser.add_argument("--textures", type=float, default=0.25, help="the share of patches with a regular texture")
    parser.add_argument("--features", type=int, default=FEATURES)
    parser.add_argument("--convs", type=int, default=CONVS)
    parser.add_argument("--l1-share", type=float, default=0.7, help="the share of the training before the critic comes")
    parser.add_argument("--critic-share", type=float, default=0.3, help="the critic's gradient relative to L1's")
    args = parser.parse_args()
    device = common.setup(args)
    net = srvgg_init(Srvgg(args.features, args.convs, SCALE))
    if args.start:
        net.load_state_dict(common.load_weights(args.start))
    net = net.to(device, memory_format=torch.channels_last)
    critic = Critic().to(device, memory_format=torch.channels_last)
    optimizer = common.adam(net.parameters(), args.lr)
    critic_optimizer = common.adam(critic.parameters(), 4e-4, betas=(0.5, 0.99))
    average, plain = common.Ema(net, 0.999), common.Ema(net, 0.999)
    training = common.Training(args, {"net": net, "critic": critic}, {"net": optimizer, "critic": critic_optimizer},
                               {"net": average, "plain": plain})
    tiles = Tiles(args.data, "train", device, args.limit)
    print(f"{len(tiles.pictures)} pictures loaded, {common.process_seconds():.0f} s", flush=True)
    training.learn_from(tiles.contents)
    last = net.body[-1].weight
    for step, progress in training.steps():
        first = progress < args.l1_share
        common.set_lr(optimizer, common.cosine(progress / args.l1_share, step, warmup=500) if first else
                      0.25 * common.cosine((progress - args.l1_share) / (1 - args.l1_share), step))
        truth = tiles.patches(args.batch, args.side, textures=args.textures)
        generator = torch.Generator(device=device).manual_seed(int(torch.randint(1 << 62, (1,))))
        given = degrade_scene(truth, generator, SCALE, clean=0.5, light=0.3)
        given = given.contiguous(memory_format=torch.channels_last)
        with common.autocast(device):
            out = net(given)
        loss = (out - truth).abs().mean()
        values = {"l1": loss}
        if not first:
            some = slice(0, None, 2)  # every other one: the batch is in the order of its degradations
            real = truth[some].contiguous(memory_format=torch.channels_last)
            fake = out[some].contiguous(memory_format=torch.channels_last)
            critic.requires_grad_(True)
            with common.autocast(device):
                judged = critic_loss(critic, real, fake.detach())
            critic_optimizer.zero_grad(set_to_none=True)
            judged.backward()
            torch.nn.utils.clip_grad_norm_(critic.parameters(), 10.0)
            critic_optimizer.step()
            critic.requires_grad_(False)
            with common.autocast(device):
                extra, match = extra_loss(critic, real, fake)
            # The critic is a beginner when it comes: its share rises over the first tenth.
            share = args.critic_share * min(1.0, (progress - args.l1_share) / (0.1 * (1 - args.l1_share)))
            factor = balance(loss, extra, last, share)
            loss = loss + factor * extra
            values.update(critic=judged, match=match, factor=factor)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        values["norm"] = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
        average.update(step)
        if first:
            plain.update(step)
        training.log(values)
    export.write(args.out, "upsampler-l1", args.commit)
    export.write(args.out, "upsampler", args.commit)


if __name__ == "__main__":
    main()
