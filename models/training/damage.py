"""Damaged photos for the damage detector, made in batches on the device: whole photos in, and out come the damaged ones,
how opaque the damage is at each pixel, and of which kind.

The order is the world's: the scene (with fine lines of its own: strands, weave, writing, wires), the print (tone, blur,
grain, halftone), the damage, the scan (blur, noise, JPEG). Damage drawn here: scratches, hairs, cracks with branches, nets
of cracks, tears from the border, missing corners, dust, stains, mould, tape, fingerprints, folds; and the real masks of the
pack, of which the last tenth of each folder, by name, is held out.
"""
import io
import math
import os
import tarfile

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from models.training import common
from models.training.degrade import Chance, Tone, blur, jpeg, noise
from models.training.drawing import Painter, column, curves, draw, fractal, limbs, line, places, slots, smooth, stamp
from models.training.lookalikes import (beads, cutouts, discs, flakes, foam, frame, games, glints, lattices, leaves, maps, mesh,
                                        necklaces, rain, skies, sparks, stars, strands, strokes, twigs, whiskers, wires,
                                        writing)
from models.training.networks_damage import KINDS

THIN, CRACK, DUST, STAIN = range(len(KINDS))
NO, YES, IGNORED = 0, 1, 2  # labels; ignored: too faint to see, or a soft edge
FOLDERS = {"hair": THIN, "hair-short": THIN, "lint": THIN, "scratches": THIN, "dirt": DUST, "dots": DUST, "smut": DUST,
           "spots": DUST, "sprinkles": DUST, "stain": STAIN}
MASK_SIDE = 400
WORDS = {"photos": "photo tiles", "extra": "more photo tiles", "flat": "maps and diagrams", "faces512": "faces"}
MASKS_WORDS = "real damage masks (FilmDamageSimulator [MIT])"


def packs(data):
    """The packs that there are to learn from."""
    return tuple(p for p in WORDS if os.path.exists(os.path.join(data, p, "index.json")))


class Masks:
    """The real masks of a split, each in the middle of a square. of[kind]: their numbers. contents: in words, what they are."""

    def __init__(self, data, split, device, limit=0):
        found = {}
        with tarfile.open(os.path.join(data, "damage", "masks.tar")) as tar:
            for member in tar.getmembers():
                folder = os.path.basename(os.path.dirname(member.name))
                if member.isfile() and folder in FOLDERS:
                    found.setdefault(folder, []).append(member)
            chosen = []
            for folder, members in sorted(found.items()):
                members.sort(key=lambda m: m.name)
                first = len(members) - len(members) // 10
                part = members[:first] if split == "train" else members[first:]
                chosen += [(m, FOLDERS[folder]) for m in (part[:limit] if limit else part)]
            out = np.zeros((len(chosen), MASK_SIDE, MASK_SIDE), np.uint8)
            for i, (member, _) in enumerate(chosen):
                with Image.open(io.BytesIO(tar.extractfile(member).read())) as im:
                    a = np.asarray(im.convert("L"))[:MASK_SIDE, :MASK_SIDE]
                top, left = (MASK_SIDE - a.shape[0]) // 2, (MASK_SIDE - a.shape[1]) // 2
                out[i, top:top + a.shape[0], left:left + a.shape[1]] = a
        self.pictures = torch.from_numpy(out).to(device)
        kinds = torch.tensor([k for _, k in chosen])
        self.of = [torch.nonzero(kinds == k)[:, 0].to(device) for k in range(len(KINDS))]
        self.contents = f"{len(chosen)} {MASKS_WORDS}"


class Photos:
    """Clean pictures of 512 px: photo tiles, then faces. hard: how much is marked in each where it has no damage, so that
    those are taken more often; None takes all alike."""

    def __init__(self, data, split, device, limit=0, packs=("photos", "faces512"), offset=0):
        parts = [[e for e in common.read_index(data, p, split) if p != "faces512" or split != "train" or e["src_px"] >= 400]
                 for p in packs]
        parts = [p[offset:offset + limit] if limit else p for p in parts]
        self.pictures = common.load_pictures(data, sum(parts, []), 512, device, 12)
        self.tiles = sum(len(part) for p, part in zip(packs, parts) if p != "faces512")
        self.hard = None
        self.contents = "; ".join(common.contents(f"{WORDS[p]} of 512 px", [e["source"] for e in part])
                                  for p, part in zip(packs, parts))


# --- the print -------------------------------------------------------------------------------------------------------


def print_of(p):
    """Tone, blur, grain and halftone; returns the grain's sigma."""
    c = p.c
    x = Tone(c, 1.3, gray=0.35, sepia=0.2, fade=0.2)(p.x)
    sigma = torch.where(c.flag(0.5), c.log_uniform(0.4, 2.6), torch.full((p.n,), 0.05, device=p.device))
    zero = torch.zeros(p.n, dtype=torch.long, device=p.device)
    x = blur(x, zero, sigma, sigma, 0 * sigma)
    grain = torch.where(c.flag(0.6), c.uniform(0, 1) ** 2 * 0.09, 0 * sigma)
    coarse = F.avg_pool2d(c.normal(1, p.side, p.side), 3, 1, 1) * 3
    fine = c.normal(1, p.side, p.side)
    x = x + torch.where(column(c.flag(0.5)), coarse, fine) * column(grain)
    y, u = places(p.side, p.device)
    angle, pitch = column(c.uniform(0, math.pi / 2)), column(c.uniform(2.5, 7.0))
    a = (y * torch.cos(angle) + u * torch.sin(angle)) * math.pi / pitch
    b = (u * torch.cos(angle) - y * torch.sin(angle)) * math.pi / pitch
    screen = 0.5 + 0.5 * torch.sin(a) * torch.sin(b)
    dots = torch.sigmoid((x - screen) * 6)
    part = column(torch.where(c.flag(0.07), c.uniform(0.2, 0.9), 0 * sigma))
    p.x = (x + (dots - x) * part).clamp(0, 1)
    return grain


# --- the damage ------------------------------------------------------------------------------------------------------


def thin_lines(p, flag, faint=1.0):
    """Scratches and hairs, each picture's in two colours. faint: a factor of their opacity and width."""
    each, points = 7, int(1.2 * p.side)
    c, owner = slots(p.n, each, p.generator)
    there = (flag[owner] & c.flag(0.45)).float()
    sort = c.index(0.3, 0.35, 0.35)  # straight, bent, hair
    length = torch.where(sort == 2, c.log_uniform(0.05, 0.4), c.log_uniform(0.1, 1.15)) * p.side
    wander = torch.where(sort == 0, c.uniform(0, 0.03), torch.where(sort == 1, c.uniform(0.03, 0.5), c.uniform(0.5, 3.0)))
    upright = (math.pi / 2 + c.uniform(-0.05, 0.05)) * torch.ones_like(there)
    angle = torch.where((sort == 0) & c.flag(0.5), upright, c.uniform(0, 2 * math.pi))
    y, x, _ = curves(c, c.uniform(-0.1, 0.95) * p.side, c.uniform(-0.1, 1.1) * p.side, angle, length, points, wander,
                     0 * there, there)
    radius = faint * c.log_uniform(0.3, 1.6) * (p.side / 512) ** 0.35
    radius = (radius[:, None] * (1 + 0.25 * line(c, 12, points))).clamp(0.25, 3.2)
    gaps = torch.sigmoid(4 * (line(c, 40, points) + torch.where(c.flag(0.35), c.uniform(-0.3, 1.0), there * 0 + 5)[:, None]))
    planes = p.planes(2 * p.n)
    draw(planes, owner + p.n * c.flag(0.3), y, x, radius, gaps * (faint * there * c.uniform(0.4, 1.0))[:, None], 4)
    for half in planes.reshape(2, p.n, 1, p.side, p.side):
        p.paint(half, p.colour(0.6, 0.2), THIN)


def even_lines(p, flag):
    """Scratches as even as if they were drawn: straight or hardly bent, of one width, opaque, most across the picture."""
    each, points = 8, int(1.7 * p.side)
    c, owner = slots(p.n, each, p.generator)
    there = (flag[owner] & (c.uniform(0, 1) < p.c.uniform(0.15, 0.8)[owner])).float()
    length = c.log_uniform(0.3, 1.6) * p.side
    upright = (math.pi / 2 + c.uniform(-0.1, 0.1)) * torch.ones_like(there)
    angle = torch.where(c.flag(0.3), upright, c.uniform(0, 2 * math.pi))
    y, x = (c.uniform(0, 1) * p.side - 0.5 * length * turn for turn in (torch.sin(angle), torch.cos(angle)))
    y, x, _ = curves(c, y, x, angle, length, points, torch.where(c.flag(0.6), 0 * there, c.uniform(0, 0.3)), 0 * there, there)
    radius = (p.c.log_uniform(0.4, 1.6)[owner] * c.uniform(0.8, 1.25) * (p.side / 512) ** 0.35).clamp(0.3, 3.2)
    planes = p.planes(2 * p.n)
    draw(planes, owner + p.n * c.flag(0.3), y, x, radius[:, None], (there * c.uniform(0.6, 1.0))[:, None], 4)
    for half in planes.reshape(2, p.n, 1, p.side, p.side):
        p.paint(half, p.colour(0.65, 0.2), THIN)


def cracks(p, flag):
    """Trunks with kinks, and branches of branches; most show the white paper, with a shadow on one side."""
    each, per, points = 3, 5, int(1.2 * p.side)
    planes = p.planes(p.n)
    c, owner = slots(p.n, each, p.generator)
    there = (flag[owner] & c.flag(0.55)).float()
    length, kinks = c.log_uniform(0.12, 1.15) * p.side, c.uniform(5, 40)
    wide = c.log_uniform(0.4, 3.0) * (p.side / 512) ** 0.5
    y, x, angle = curves(c, c.uniform(0, 1) * p.side, c.uniform(0, 1) * p.side, c.uniform(0, 2 * math.pi), length, points,
                         c.uniform(0, 0.4), kinks, c.uniform(0.1, 0.6))
    limbs(p, planes, c, owner, (y, x, angle), length, kinks, wide, there * c.uniform(0.55, 1.0), (per, 2))
    relief(p, planes[:, None], p.colour(0.72, 0.1), 0.5)


def relief(p, opacity, colour, share):
    """A crack: some with a shadow beside it, then its ground."""
    shift = [int(v) for v in torch.randint(-2, 3, (2,), generator=p.generator, device=p.device)]
    shadow = F.avg_pool2d(torch.roll(opacity, shift, (2, 3)), 3, 1, 1)
    p.paint(shadow * column(p.c.uniform(0.2, 0.7) * p.c.flag(share)), 0.1 * torch.ones_like(colour), CRACK)
    p.paint(opacity, colour, CRACK)


def net_of_cracks(p, flag):
    """The borders of random cells, in a part of the picture."""

    def make(c):
        y, x = places(p.side, p.device)
        pitch = column(c.log_uniform(20, 100) * (p.side / 512) ** 0.5)
        v = (y + 4 * smooth(c, 14, p.side)) / pitch
        u = (x + 4 * smooth(c, 14, p.side)) / pitch
        cells = 96
        table = torch.rand(c.n, 2, cells * cells, generator=p.generator, device=p.device)
        iv, iu = torch.floor(v), torch.floor(u)
        first = torch.full_like(v, 9.0)
        second = first
        for dv in (-1, 0, 1):
            for du in (-1, 0, 1):
                cv, cu = iv + dv, iu + du
                at = ((cv.long() % cells) * cells + cu.long() % cells).reshape(c.n, 1, -1).expand(-1, 2, -1)
                point = torch.gather(table, 2, at).reshape(c.n, 2, p.side, p.side)
                d = torch.sqrt((cv + point[:, :1] - v) ** 2 + (cu + point[:, 1:] - u) ** 2)
                second = torch.minimum(second, torch.maximum(first, d))
                first = torch.minimum(first, d)
        wide = column(c.uniform(0.4, 1.3)) * (1 + 0.4 * smooth(c, 48, p.side))
        edge = (wide + 0.5 - (second - first) * pitch * 0.6).clamp(0, 1)
        region = torch.sigmoid(12 * (smooth(c, 4, p.side) + column(c.uniform(-0.6, 1.2))))
        return edge * region * column(c.uniform(0.5, 1.0))

    relief(p, p.some(flag, make), p.colour(0.65, 0.05), 0.3)


def tears(p, flag):
    """From the border inwards, wide there; ragged and white, the gap sometimes dark."""
    each, points = 2, int(0.7 * p.side)
    c, owner = slots(p.n, each, p.generator)
    there = (flag[owner] & c.flag(0.7)).float()
    edge, at = c.index(1, 1, 1, 1), c.uniform(0.05, 0.95) * p.side
    end = torch.full_like(at, float(p.side))
    y = torch.where(edge < 2, at, torch.where(edge == 2, 0 * at, end))
    x = torch.where(edge >= 2, at, torch.where(edge == 0, 0 * at, end))
    angle = torch.tensor([0, math.pi, math.pi / 2, -math.pi / 2], device=p.device)[edge] + c.uniform(-0.8, 0.8)
    y, x, _ = curves(c, y, x, angle, c.uniform(0.08, 0.55) * p.side, points, c.uniform(0.1, 0.7), c.uniform(5, 30),
                     c.uniform(0.1, 0.6))
    t = torch.linspace(0, 1, points, device=p.device)[None]
    wide = c.uniform(1.5, 6.5)[:, None] * (1 - 0.85 * t) * (1 + 0.3 * line(c, 30, points))
    white, gap = p.planes(p.n), p.planes(p.n)
    draw(white, owner, y, x, wide.clamp(0.4, 7.5), there[:, None], 8)
    draw(gap, owner, y, x, (wide - c.uniform(0.8, 2.5)[:, None]).clamp(0, 7.5), (there * c.flag(0.5))[:, None], 8)
    relief(p, white[:, None], p.colour(0.9, 0.03), 0.3)
    p.paint(gap[:, None], p.colour(0.3, 0.03), CRACK)


def corners(p, flag):
    """One or two corners gone, with a rim of torn paper."""
    y, x = places(p.side, p.device)
    c = p.c
    ragged = 6 * smooth(c, 12, p.side) + 2.5 * smooth(c, 64, p.side)
    gone = torch.full_like(p.opacity, -99.0)
    for _ in range(2):
        v = torch.where(column(c.flag(0.5)), y, p.side - 1 - y)
        u = torch.where(column(c.flag(0.5)), x, p.side - 1 - x)
        lean = column(c.uniform(0.4, 1.2))
        reach = column(p.side * c.log_uniform(0.05, 0.3))
        reach = torch.where(column(c.flag(0.65)), reach, -50 + 0 * reach)
        gone = torch.maximum(gone, reach - v * torch.cos(lean) - u * torch.sin(lean) + ragged)
    there = column(flag)
    rim = column(c.uniform(0.0, 6.0))
    p.paint((gone + rim + 0.5).clamp(0, 1) * there, p.colour(0.95, 0.02), CRACK)
    p.paint((gone + 0.5).clamp(0, 1) * there, p.colour(0.6, 0.02), CRACK)


def specks(p, flag):
    """Drawn dust: a few hundred discs at most, in twos and threes, in two colours."""
    each = 160
    c, owner = slots(p.n, each, p.generator)
    density = p.c.uniform(0, 1) ** 2
    there = (flag[owner] & (c.uniform(0, 1) < density[owner])).float()
    y, x = c.uniform(0, 1) * p.side, c.uniform(0, 1) * p.side
    bunch = p.c.flag(0.25)[owner]  # in a cloud
    y = torch.where(bunch, ((p.c.uniform(0, 1)[owner] + 0.12 * c.normal()) * p.side), y)
    x = torch.where(bunch, ((p.c.uniform(0, 1)[owner] + 0.12 * c.normal()) * p.side), x)
    radius = 0.45 * torch.exp(c.uniform(0, 1) ** 2 * math.log(12)) * (p.side / 512) ** 0.35
    opacity = there * c.uniform(0.45, 1.0)
    plane = owner + p.n * c.flag(0.35)
    planes = p.planes(2 * p.n)
    for _ in range(3):
        off = radius[:, None] * c.normal(2) * 0.8
        stamp(planes, plane, y + off[:, 0], x + off[:, 1], (radius * c.uniform(0.4, 1.0)).clamp(0.35, 6.0), opacity, 6)
        opacity = opacity * c.flag(0.6)
    for half in planes.reshape(2, p.n, 1, p.side, p.side):
        p.paint(half, p.colour(0.6, 0.1), DUST)


def blots(p, flag):
    """Large spots, 10 to 100 px wide, ragged, some broken up, some with a paler middle; and clouds of the finest specks."""
    each = 4
    c, owner = slots(p.n, each, p.generator)
    at = torch.nonzero(flag[owner] & c.flag(0.5))[:, 0]
    if len(at):
        owner, c = owner[at], Chance(len(at), p.generator)
        patch = 128
        y, x = places(patch, p.device)
        y, x = (y - patch / 2).expand(1, 1, patch, patch), (x - patch / 2).expand(1, 1, patch, patch)
        size = column(c.log_uniform(5, 50) * (p.side / 512) ** 0.5).clamp(max=54)
        turn, long = column(c.uniform(0, math.pi)), column(c.log_uniform(0.5, 1.0))
        v, u = y * torch.cos(turn) - x * torch.sin(turn), y * torch.sin(turn) + x * torch.cos(turn)
        far = torch.sqrt((v / long) ** 2 + u**2) / size
        field = 1 - far + column(c.uniform(0.05, 0.35)) * fractal(c, 6, patch, 4, 0.6)
        made = (field * size * column(c.log_uniform(0.1, 1.5)) + 0.5).clamp(0, 1) * (far < 1.7)
        broken = torch.sigmoid(8 * (smooth(c, 40, patch) + column(c.uniform(-0.4, 2))))
        made = made * torch.where(column(c.flag(0.3)), broken, 1.0)
        made = made * torch.where(column(c.flag(0.2)), 1 - 0.5 * (field * 2).clamp(0, 1), 1.0)
        made = (made * column(c.uniform(0.5, 1.0)))[:, 0]
        along = torch.arange(patch, device=p.device)
        y = (c.uniform(-0.1, 0.95) * p.side).long()[:, None, None] + along[:, None]
        x = (c.uniform(-0.1, 0.95) * p.side).long()[:, None, None] + along
        inside = (y >= 0) & (x >= 0) & (y < p.side) & (x < p.side)
        plane = (owner + p.n * c.flag(0.3))[:, None, None]
        place = (plane * p.side + y.clamp(0, p.side - 1)) * p.side + x.clamp(0, p.side - 1)
        planes = p.planes(2 * p.n)
        planes.view(-1).scatter_reduce_(0, place.flatten(), (made * inside).flatten(), "amax")
        for half in planes.reshape(2, p.n, 1, p.side, p.side):
            p.paint(half, p.colour(0.7, 0.1), DUST)
    each = 400
    c, owner = slots(p.n, each, p.generator)
    there = ((flag & p.c.flag(0.4))[owner] & (c.uniform(0, 1) < p.c.uniform(0.1, 1)[owner])).float()
    wide = p.c.log_uniform(0.02, 0.25)[owner]
    y, x = ((p.c.uniform(0, 1)[owner] + wide * c.normal()) * p.side for _ in range(2))
    radius = p.c.log_uniform(0.35, 1.2)[owner] * c.log_uniform(0.7, 1.8) * (p.side / 512) ** 0.35
    planes = p.planes(p.n)
    stamp(planes, owner, y, x, radius.clamp(0.3, 2.5), there * c.uniform(0.35, 1.0), 3)
    p.paint(planes[:, None], p.colour(0.7, 0.1), DUST)


def real(p, masks, kind, flag, each, patch, low, high):
    """Real masks of a kind, turned, mirrored and scaled by low..high."""
    pool = masks.of[kind]
    c, owner = slots(p.n, each, p.generator)
    owner = owner[flag[owner] & c.flag(0.5)]
    if not len(owner) or not len(pool):
        return
    c = Chance(len(owner), p.generator)
    pick = pool[torch.randint(len(pool), (c.n,), generator=p.generator, device=p.device)]
    source = masks.pictures[pick][:, None].float() / 255
    scale = c.log_uniform(low, high) * (p.side / 512) ** 0.5
    angle, mirror = c.uniform(0, 2 * math.pi), torch.where(c.flag(0.5), 1.0, -1.0)
    size = patch / (scale * MASK_SIDE)
    theta = torch.zeros(c.n, 2, 3, device=p.device)
    theta[:, 0, 0], theta[:, 0, 1] = torch.cos(angle) * size * mirror, -torch.sin(angle) * size
    theta[:, 1, 0], theta[:, 1, 1] = torch.sin(angle) * size * mirror, torch.cos(angle) * size
    # A mask that is much reduced is averaged first, or its fine parts are lost.
    if high * (p.side / 512) ** 0.5 < 0.75:
        source = F.avg_pool2d(source, 2)
    grid = F.affine_grid(theta, (c.n, 1, patch, patch), align_corners=False)
    made = F.grid_sample(source, grid, mode="bilinear", padding_mode="zeros", align_corners=False)[:, 0]
    made = (made * column(c.uniform(0.8, 1.3))[:, 0]).clamp(0, 1)
    along = torch.arange(patch, device=p.device)
    y = (c.uniform(-0.3, 1) * p.side).long()[:, None, None] + along[:, None]
    x = (c.uniform(-0.3, 1) * p.side).long()[:, None, None] + along
    inside = (y >= 0) & (x >= 0) & (y < p.side) & (x < p.side)
    plane = (owner + p.n * c.flag(0.3))[:, None, None]
    at = (plane * p.side + y.clamp(0, p.side - 1)) * p.side + x.clamp(0, p.side - 1)
    planes = p.planes(2 * p.n)
    planes.view(-1).scatter_reduce_(0, at.flatten(), (made * inside).flatten(), "amax")
    for half in planes.reshape(2, p.n, 1, p.side, p.side):
        p.paint(half, p.colour(0.6, 0.1), kind)


def stains(p, flag):
    """Blots with a darker or paler rim, bleached or brown."""

    def make(c):
        field = fractal(c, 3, p.side, 5) + column(c.uniform(-1.6, -0.5))
        body = torch.sigmoid(field * column(c.log_uniform(6, 60)))
        rim = torch.exp(-(field / column(c.uniform(0.03, 0.12))) ** 2)
        return (body * column(c.uniform(0.1, 0.6)) + rim * column(c.uniform(0, 0.4))) * (body > 0.02)

    colour = p.colour(0.5, 0.3)
    brown = torch.tensor([0.45, 0.3, 0.12], device=p.device).reshape(1, 3, 1, 1)
    p.paint(p.some(flag, make), torch.where(column(p.c.flag(0.6)), brown, colour), STAIN)


def mould(p, flag):
    """Clusters of fuzzy spots."""

    def make(c):
        spots = torch.sigmoid(7 * (fractal(c, 32, p.side, 3, 0.7) - 1.1))
        return spots * torch.sigmoid(8 * (smooth(c, 5, p.side) - 0.4)) * column(c.uniform(0.3, 0.9))

    p.paint(p.some(flag, make), p.colour(0.5, 0.25), STAIN)


def tape(p, flag):
    """A yellowed strip, with sharper ends."""

    def make(c):
        y, x = places(p.side, p.device)
        angle = column(torch.round(c.uniform(0, 4)) * math.pi / 2 + 0.2 * c.normal())
        v, u = y - column(c.uniform(0, 1) * p.side), x - column(c.uniform(0, 1) * p.side)
        across = (v * torch.cos(angle) - u * torch.sin(angle)).abs() - column(c.uniform(0.03, 0.08) * p.side)
        along = (v * torch.sin(angle) + u * torch.cos(angle)).abs() - column(c.uniform(0.1, 0.7) * p.side)
        inside = (0.5 - torch.maximum(across, along + 1.5 * smooth(c, 64, p.side))).clamp(0, 1)
        rim = torch.exp(-(across / 2) ** 2) * inside
        return inside * (column(c.uniform(0.12, 0.45)) * (1 + 0.25 * smooth(c, 12, p.side)) + 0.2 * rim)

    yellow = torch.tensor([0.72, 0.55, 0.22], device=p.device).reshape(1, 3, 1, 1)
    p.paint(p.some(flag, make), torch.where(column(p.c.flag(0.7)), yellow, p.colour(0.8)), STAIN)


def dimmed(p, thick):
    """What thickness N×1×s×s of something brown, yellow, gray or of any colour lets through of each channel."""
    c = p.c
    brown = torch.tensor([0.3, 0.6, 1.2], device=p.device).reshape(1, 3, 1, 1) * torch.exp(0.25 * c.normal(3, 1, 1))
    other = torch.where(column(c.flag(0.5)), 0.7 + 0 * brown, torch.exp(0.6 * c.normal(3, 1, 1)))
    return torch.exp(-thick * torch.where(column(c.flag(0.7)), brown, other))


def veils(p, flag):
    """Tea, water and bleach: blots, splashes and the rings of cups, which dim the picture or make it pale, evenly within a
    sharp or soft edge, with a thin darker rim."""

    def make(c):
        y, x = places(p.side, p.device)
        field = fractal(c, 2, p.side, 5, 0.45) * column(c.uniform(0.4, 1)) + column(c.uniform(-1.4, -0.3))
        v, u = (w - column(c.uniform(0, 1) * p.side) for w in (y, x))
        size = column(c.log_uniform(0.06, 0.3) * p.side)
        far = torch.sqrt(v**2 + u**2) / size + 0.12 * smooth(c, 6, p.side) + 0.015 * smooth(c, 40, p.side)
        ring = column(c.uniform(0.03, 0.15)) - (far - 1).abs() - 0.2 * (smooth(c, 4, p.side) - 1).clamp(min=0)
        shape = column(c.index(0.45, 0.35, 0.2))
        field = torch.where(shape == 0, field, torch.where(shape == 1, 1 - far, 3 * ring))
        edge = column(c.log_uniform(8, 150))
        body = torch.sigmoid(field * edge)
        wide = column(c.log_uniform(0.01, 0.08))
        rim = torch.exp(-((field - wide) / wide) ** 2) * column(c.flag(0.7) * c.uniform(0.2, 1.2))
        within = (1 + 0.3 * fractal(c, 4, p.side, 4)).clamp(min=0.2)
        return (body * within + rim) * (body > 0.02) * column(c.log_uniform(0.2, 1.0))

    light = column(p.c.flag(0.25))
    through = dimmed(p, p.some(flag, make))
    p.veil(torch.where(light, through.flip(1), through), light, STAIN)  # what is bleached turns yellow or red


def strips(p, flag):
    """Clear tape, turned any way, of any length: it dims, is a little hazy, and is darker along its sides; its ends are torn
    or cut."""

    def make(c):
        y, x = places(p.side, p.device)
        angle = column(torch.where(c.flag(0.5), torch.round(c.uniform(0, 4)) * math.pi / 2 + 0.1 * c.normal(),
                                   c.uniform(0, 2 * math.pi)))
        v, u = y - column(c.uniform(0, 1) * p.side), x - column(c.uniform(0, 1) * p.side)
        across = (v * torch.cos(angle) - u * torch.sin(angle)).abs() - column(c.log_uniform(0.02, 0.08) * p.side)
        along = (v * torch.sin(angle) + u * torch.cos(angle)).abs() - column(c.log_uniform(0.06, 0.8) * p.side)
        torn = column(torch.where(c.flag(0.5), c.uniform(0.5, 4), 0)) * (smooth(c, 48, p.side) + smooth(c, 96, p.side))
        inside = (0.5 - torch.maximum(across, along + torn)).clamp(0, 1)
        side = torch.exp(across.clamp(max=0) / column(c.log_uniform(1, 12))) * column(c.flag(0.6) * c.uniform(0, 0.8))
        return inside * (1 + 0.2 * fractal(c, 6, p.side, 3) + side).clamp(min=0.2) * column(c.log_uniform(0.12, 0.7))

    thick = p.some(flag, make)
    haze = thick * column(p.c.flag(0.6) * p.c.uniform(0, 0.4))
    p.veil(dimmed(p, thick), torch.zeros_like(haze) > 0, STAIN)
    p.paint(haze, p.colour(0.8), STAIN)


def fingerprints(p, flag):
    def make(c):
        y, x = places(p.side, p.device)
        v, u = y - column(c.uniform(0.1, 0.9) * p.side), x - column(c.uniform(0.1, 0.9) * p.side)
        size = column(c.uniform(0.06, 0.14) * p.side)
        r = torch.sqrt(v**2 * 0.6 + u**2) + 6 * smooth(c, 10, p.side)
        ridges = 0.5 + 0.5 * torch.sin(r * 2 * math.pi / (size / column(c.uniform(7, 12))))
        shape = torch.sigmoid(8 * (1 - torch.sqrt((v / 1.3)**2 + u**2) / size))
        return ridges * shape * torch.sigmoid(3 * (smooth(c, 16, p.side) + 0.8)) * column(c.uniform(0.2, 0.55))

    p.paint(p.some(flag, make), p.colour(0.6, 0.1), STAIN)


def folds(p, flag):
    """A line through the whole print, lit on one flank and dark on the other; the emulsion is worn off along it."""
    parts = {}

    def make(c):
        y, x = places(p.side, p.device)
        angle = column(torch.where(c.flag(0.6), torch.round(c.uniform(0, 1)) * math.pi / 2 + 0.03 * c.normal(),
                                   c.uniform(0, math.pi)))
        v, u = y - column(c.uniform(0.15, 0.85) * p.side), x - column(c.uniform(0.15, 0.85) * p.side)
        d = v * torch.cos(angle) - u * torch.sin(angle) + 1.2 * smooth(c, 8, p.side)
        scale = p.side / 512
        lit = torch.exp(-d.abs() / (column(c.log_uniform(1.5, 9)) * scale)) * (d > 0)
        dark = torch.exp(-d.abs() / (column(c.log_uniform(1.5, 9)) * scale)) * (d <= 0)
        parts["dark"] = dark * column(c.uniform(0.15, 0.6))
        worn = (column(c.uniform(0.3, 1.8) * scale**0.5) * (1 + 0.5 * smooth(c, 64, p.side)) + 0.5 - d.abs()).clamp(0, 1)
        parts["worn"] = worn * torch.sigmoid(6 * (fractal(c, 24, p.side, 3) + column(c.uniform(-1.2, 1.5))))
        return lit * column(c.uniform(0.15, 0.6))

    lit = p.some(flag, make)
    if parts:
        dark, worn = p.some(flag, lambda c: parts["dark"]), p.some(flag, lambda c: parts["worn"])
        p.paint(dark, 0.05, STAIN)
        p.paint(lit, 0.97, STAIN)
        p.paint(worn, p.colour(0.85, 0.03), STAIN)


# How often a damaged picture has each sort; `only` takes those of one kind, more often.
SORTS = (("stains", STAIN, 0.12), ("mould", STAIN, 0.06), ("tape", STAIN, 0.05), ("fingerprints", STAIN, 0.05),
         ("folds", STAIN, 0.18), ("net", CRACK, 0.06), ("cracks", CRACK, 0.40), ("tears", CRACK, 0.10),
         ("corners", CRACK, 0.03), ("thin", THIN, 0.5), ("faint", THIN, 0.4), ("real thin", THIN, 0.4),
         ("specks", DUST, 0.42), ("real dust", DUST, 0.35), ("real stain", STAIN, 0.06), ("blots", DUST, 0.25),
         ("even", THIN, 0.3))
DIMMED = (("veils", STAIN, 0.12), ("strips", STAIN, 0.08))  # where it is asked for, too
WHOLE = 0.4  # and, where it is asked for, a real mask of lines at about its own size, or one of dust
TEST_SORTS = {THIN: ("thin", "real thin"), CRACK: ("cracks", "tears", "net"), DUST: ("specks", "real dust"),
              STAIN: ("stains", "folds", "mould")}


# Most worn prints have a hair and nothing else: a faint line must be found without other damage that speaks for it. So many
# pictures have one kind alone, this often each.
ALONE, ALONE_KINDS = 0.5, (0.38, 0.24, 0.25, 0.13)


def harm(p, masks, damaged, only=None, entire=False):
    """All the damage, on the pictures of `damaged`. entire: also whole real masks at about their own size, and pictures with
    one kind alone."""
    c = p.c
    has = {}
    alone = torch.full_like(damaged, False)
    kind = torch.full((p.n,), -1, device=p.device)
    if entire:
        alone, kind = c.flag(ALONE), c.index(*ALONE_KINDS)
    if only is None:
        for name, its, share in SORTS + (DIMMED if entire else ()):
            has[name] = damaged & torch.where(alone, (kind == its) & c.flag(0.3 + share), c.flag(share))
    else:
        names = TEST_SORTS[only]
        which = c.index(*[1.0] * len(names))
        for name, _, _ in SORTS + DIMMED:
            has[name] = damaged & (which == names.index(name)) if name in names else damaged & False
    stains(p, has["stains"])
    mould(p, has["mould"])
    real(p, masks, STAIN, has["real stain"], 2, 200, 0.3, 0.9)
    tape(p, has["tape"])
    fingerprints(p, has["fingerprints"])
    folds(p, has["folds"])
    net_of_cracks(p, has["net"])
    cracks(p, has["cracks"])
    tears(p, has["tears"])
    corners(p, has["corners"])
    thin_lines(p, has["thin"])
    if only is None:
        thin_lines(p, has["faint"], 0.6)
    real(p, masks, THIN, has["real thin"], 5, 288, 0.3, 1.1)
    specks(p, has["specks"])
    real(p, masks, DUST, has["real dust"], 8, 160, 0.25, 0.7)
    if entire:
        blots(p, has["blots"])
        even_lines(p, has["even"])
        veils(p, has["veils"])
        strips(p, has["strips"])
        for its in (THIN, DUST):
            real(p, masks, its, damaged & (~alone | (kind == its)) & c.flag(WHOLE), 2, MASK_SIDE, 0.6, 1.3)


def gray_of(x):
    """Pictures N×3×h×w without their colours (the luma of BT.601)."""
    weights = torch.tensor([0.299, 0.587, 0.114], device=x.device)[:, None, None]
    return (x * weights).sum(-3, keepdim=True).expand_as(x)


# --- all of it -------------------------------------------------------------------------------------------------------


def windows(photos, count, side, generator, faces=0.25, whole=0.3):
    """count clean pictures of side px: windows of the pack's, mirrored, a few of them turned a little; and which they are.
    whole: the share of those that are not cut and enlarged."""
    device = generator.device
    c, total = Chance(count, generator), len(photos.pictures)
    tile = (c.uniform(0, 1) * photos.tiles).long().clamp(max=max(photos.tiles - 1, 0))
    face = (photos.tiles + c.uniform(0, 1) * (total - photos.tiles)).long().clamp(max=total - 1)
    face_only = torch.full((count,), photos.tiles == 0, device=device)
    pick = torch.where((c.flag(faces) & (total > photos.tiles)) | face_only, face, tile)
    if photos.hard is not None:
        often = 0.4 + (photos.hard / photos.hard.mean().clamp(min=1e-6)).clamp(max=6)
        again = torch.multinomial(often, count, replacement=True, generator=generator)
        pick = torch.where(c.flag(0.6), again, pick)
    part = torch.where(c.flag(whole), torch.ones(count, device=device), c.uniform(0.6, 1.0))
    angle = torch.where(c.flag(0.3), 0.05 * c.normal(), torch.zeros(count, device=device))
    mirror = torch.where(c.flag(0.5), -1.0, 1.0)
    theta = torch.zeros(count, 2, 3, device=device)
    theta[:, 0, 0], theta[:, 0, 1] = torch.cos(angle) * part * mirror, -torch.sin(angle) * part
    theta[:, 1, 0], theta[:, 1, 1] = torch.sin(angle) * part * mirror, torch.cos(angle) * part
    theta[:, 0, 2], theta[:, 1, 2] = c.uniform(-1, 1) * (1 - part), c.uniform(-1, 1) * (1 - part)
    large = max(side, 512)
    grid = F.affine_grid(theta, (count, 3, large, large), align_corners=False)
    x = F.grid_sample(photos.pictures[pick].float() / 255, grid, mode="bicubic", padding_mode="reflection",
                      align_corners=False).clamp(0, 1)
    return F.avg_pool2d(x, large // side) if large > side else x, pick


@torch.no_grad()
def make(photos, masks, count, side, generator, damaged=0.7, only=None, decoys=1.0, more=0.0, plain=0.0,
         bare=0.0, gray=0.0, toned=0.0):
    """count pictures of side px as a dict: picture N×3×s×s, opacity N×1×s×s, label and kind N×s×s (kind -1 where there is
    none), clean (the print as it was scanned, without damage), pick (its number among the photos), harmed, kept (a digital
    picture: neither printed nor blurred by a scanner). decoys, more: how often there is what
    only looks like damage. plain: the share of those without damage that stay the photo they are. bare: the share of all that
    are neither printed nor blurred by a scanner, as digital pictures are. gray: the share of all that are scanned without
    colour, the damage too. toned: the share of these that have one tone throughout."""
    x, pick = windows(photos, count, side, generator, whole=0.6 if bare else 0.3)
    p = Painter(x, generator)
    p.varied = bare > 0
    if more:
        lattices(p, 0.07 * more)
        beads(p, 0.05 * more)
        twigs(p, 0.07 * more)
        strokes(p, 0.06 * more)
        writing(p, 0.05 * more, page=True)
        shows = p.c.flag(0.05 * more)  # pages that something shines through
        necklaces(p, p.c.flag(0.025 * more) | shows & p.c.flag(0.6))
        beads(p, where=shows & p.c.flag(0.4))
        writing(p, page=True, where=shows)
        skies(p, 0.07 * more)
        cutouts(p, 0.05 * more)
        leaves(p, 0.07 * more)
        maps(p, 0.08 * more)
        games(p, 0.03 * more)
        foam(p, 0.04 * more)
        glints(p, 0.05 * more)
        mesh(p, 0.05 * more)
        whiskers(p, 0.04 * more)
        sparks(p, 0.03 * more)
        flakes(p, 0.05 * more)
        rain(p, 0.03 * more)
        stars(p, 0.03 * more)
        discs(p, 0.03 * more)
    frame(p, 0.12 * decoys)
    strands(p, 0.12 * decoys)
    writing(p, 0.08 * decoys)
    wires(p, 0.03 * decoys)
    scene = p.x
    grain = print_of(p)
    harmed = p.c.flag(damaged)
    kept = torch.zeros_like(harmed)  # has had neither print nor scan
    if bare:
        kept = p.c.flag(bare)
        p.x = torch.where(column(kept), scene, p.x)
    if plain:
        photo = ~harmed & p.c.flag(plain)
        p.x, kept = torch.where(column(photo), x, p.x), kept | photo
    grain = torch.where(kept, 0 * grain, grain)
    clean = p.x
    harm(p, masks, harmed, only, entire=bare > 0)
    c = p.c
    # The scan, of the damaged print and of the clean one.
    sigma = torch.where(c.flag(0.6), c.log_uniform(0.25, 1.1), torch.full((count,), 0.05, device=p.device))
    before = p.x, clean, p.opacity
    zero = torch.zeros(count, dtype=torch.long, device=p.device)
    both = blur(torch.cat([p.x, clean, p.opacity], 1), zero, sigma, sigma, 0 * sigma)
    picture, clean, opacity = both[:, :3], both[:, 3:6], both[:, 6:].clamp(0, 1)
    speckle = torch.where(c.flag(0.4), c.uniform(0, 1) ** 2 * 0.04, torch.zeros(count, device=p.device))
    if plain or bare:
        scanned = picture, clean, opacity
        picture, clean, opacity = (torch.where(column(kept), a, b) for a, b in zip(before, scanned))
        speckle = torch.where(kept & c.flag(0.8), 0 * speckle, speckle)
    colourless = has_tone = column(torch.zeros_like(harmed))
    if gray:
        colourless = column(c.flag(gray))
        picture, clean = (torch.where(colourless, gray_of(v), v) for v in (picture, clean))
    if toned:
        has_tone = colourless & column(c.flag(toned))
        tone = torch.exp(0.2 * c.normal(3, 1, 1))
        picture, clean = (torch.where(has_tone, v.clamp(0, 1) ** tone, v) for v in (picture, clean))
    difference = (picture - clean).abs().amax(1, keepdim=True)
    least = column(0.05 + 1.2 * torch.maximum(speckle, grain))
    yes = ((opacity >= 0.4) & (difference >= least)) | ((opacity >= 0.1) & (difference >= least + 0.03))
    label = torch.where(yes, YES, torch.where(opacity < 0.05, NO, IGNORED))[:, 0]
    picture = noise(picture, c, speckle, 0 * speckle, c.flag(0.5)).clamp(0, 1)
    coded = jpeg(picture, torch.round(100 - c.uniform(0, 1) ** 1.5 * 62), c.flag(0.7))
    picture = torch.where(column(c.flag(0.7)), coded, torch.round(picture * 255) / 255)
    picture = torch.where(colourless & ~has_tone, torch.round(gray_of(picture) * 255) / 255, picture)
    kind = p.kind[:, 0].long()
    # A blur spreads the damage over pixels that had none: they take a neighbour's kind.
    kind = torch.where(kind < 0, F.max_pool2d(p.kind, 5, 1, 2)[:, 0].long(), kind)
    return {"picture": picture, "clean": clean, "opacity": opacity, "label": label, "kind": kind, "pick": pick,
            "harmed": harmed, "kept": kept}
