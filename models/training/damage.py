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


# --- drawing ---------------------------------------------------------------------------------------------------------


def column(v):
    return v.reshape(-1, 1, 1, 1)


def places(side, device):
    """Pixel coordinates y 1×1×side×1 and x 1×1×1×side."""
    along = torch.arange(side, device=device, dtype=torch.float32)
    return along.reshape(1, 1, -1, 1), along.reshape(1, 1, 1, -1)


def smooth(c, cells, side):
    """Smooth noise N×1×side×side with cells × cells humps; variance about 1."""
    return F.interpolate(c.normal(1, cells, cells), size=(side, side), mode="bicubic", align_corners=False) * 1.2


def fractal(c, cells, side, octaves=4, fall=0.55):
    out = 0
    for i in range(octaves):
        if cells << i <= side:
            out = out + smooth(c, cells << i, side) * fall**i
    return out * math.sqrt(1 - fall**2)


def stamp(planes, plane, y, x, radius, opacity, reach):
    """Draws soft discs into planes P×side×side, the most opaque winning; the rest are flat lists of the discs."""
    side = planes.shape[-1]
    seen = (opacity > 0.02) & (y > -reach) & (x > -reach) & (y < side + reach) & (x < side + reach)
    plane, y, x, radius, opacity = (t[seen] for t in (plane, y, x, radius, opacity))
    o = torch.arange(-reach, reach + 1, device=planes.device)
    py, px = torch.round(y).long()[:, None, None] + o[:, None], torch.round(x).long()[:, None, None] + o
    distance = torch.sqrt((py - y[:, None, None]) ** 2 + (px - x[:, None, None]) ** 2)
    r = radius[:, None, None]
    cover = (r + 0.5 - distance).clamp(0, 1) * (2 * r).clamp(max=1) * opacity[:, None, None]
    inside = (py >= 0) & (px >= 0) & (py < side) & (px < side)
    at = (plane[:, None, None] * side + py.clamp(0, side - 1)) * side + px.clamp(0, side - 1)
    planes.view(-1).scatter_reduce_(0, at.flatten(), (cover * inside).flatten(), "amax")


def line(c, knots, points):
    """Smooth noise along lines: N×points."""
    return F.interpolate(c.normal(1, knots), size=points, mode="linear", align_corners=True)[:, 0]


def curves(c, y, x, angle, length, points, wander, kinks, kink):
    """Lines that wander (radians over the whole) and have kinks (so many, of so many radians): y, x, angle, N×points."""
    turn = line(c, 7, points) * wander[:, None]
    jump = torch.rand(c.n, points, generator=c.generator, device=c.device) < kinks[:, None] / points
    turn = turn + angle[:, None] + torch.cumsum(jump * c.normal(points) * kink[:, None], 1)
    step = (length / points)[:, None]
    return y[:, None] + torch.cumsum(torch.sin(turn) * step, 1), x[:, None] + torch.cumsum(torch.cos(turn) * step, 1), turn


def slots(n, each, generator):
    """A Chance for `each` things a picture, and each one's picture."""
    return Chance(n * each, generator), torch.arange(n, device=generator.device).repeat_interleave(each)


def draw(planes, plane, y, x, radius, opacity, reach):
    """stamp() for lines: plane L, the rest L×points."""
    stamp(planes, *(t.expand_as(y).flatten() for t in (plane[:, None], y, x, radius, opacity)), reach)


def limbs(p, planes, c, owner, path, length, kinks, wide, strength, counts):
    """Draws lines that branch: trunks along path, on each of them counts[0] branches at most, on these counts[1] …"""
    y, x, angle = path

    def put(c, owner, y, x, wide, strength, taper):
        t = torch.linspace(0, 1, y.shape[1], device=p.device)[None]
        radius = wide[:, None] * (1 + 0.45 * line(c, 24, y.shape[1])) * (1 - taper[:, None] * t)
        draw(planes, owner, y, x, radius.clamp(0.25, 4.5), strength[:, None].expand_as(y), 5)

    put(c, owner, y, x, wide, strength, c.uniform(0, 0.9))
    for count in counts:
        source = torch.arange(len(owner), device=p.device).repeat_interleave(count)
        b = Chance(len(source), p.generator)
        at = (b.uniform(0.05, 0.95) * y.shape[1]).long()
        pick = (source, at)
        turn = angle[pick] + torch.where(b.flag(0.5), 1.0, -1.0) * b.uniform(0.3, 1.4)
        strength = strength[source] * b.flag(0.5).float()
        length, wide = length[source] * b.uniform(0.08, 0.5), wide[source] * b.uniform(0.4, 0.9)
        y, x, angle = curves(b, y[pick], x[pick], turn, length, int(0.5 * p.side), b.uniform(0, 0.4), kinks[source] / 2,
                             b.uniform(0.1, 0.6))
        owner, kinks = owner[source], kinks[source] / 2
        put(b, owner, y, x, wide, strength, b.uniform(0.3, 0.95))


class Painter:
    """Draws on pictures of one batch. paint() mixes a colour in and keeps what it hid and of which kind it was."""

    def __init__(self, picture, generator):
        self.x, self.generator = picture, generator
        self.n, self.side, self.device = picture.shape[0], picture.shape[-1], picture.device
        self.c = Chance(self.n, generator)
        self.opacity = picture.new_zeros(self.n, 1, self.side, self.side)
        self.kind = torch.full_like(self.opacity, -1)
        self.most = torch.zeros_like(self.opacity)

    def planes(self, count):
        return torch.zeros(count, self.side, self.side, device=self.device)

    def paint(self, opacity, colour, kind=None):
        opacity = opacity.clamp(0, 1)
        self.x = self.x + (colour - self.x) * opacity
        if kind is not None:
            self.opacity = 1 - (1 - self.opacity) * (1 - opacity)
            self.kind = torch.where((opacity > self.most) & (opacity > 0.03), float(kind), self.kind)
            self.most = torch.maximum(self.most, opacity)

    def some(self, flag, make):
        """make(Chance of so many) for the pictures of flag; nothing elsewhere."""
        at = torch.nonzero(flag)[:, 0]
        out = torch.zeros(self.n, 1, self.side, self.side, device=self.device)
        if len(at):
            out[at] = make(Chance(len(at), self.generator))
        return out

    def colour(self, bright=0.5, tinted=0.15):
        """A colour a picture: bright with this chance, else dark; some tinted."""
        c = self.c
        level = torch.where(c.flag(bright), 1 - 0.3 * c.uniform(0, 1) ** 2, 0.25 * c.uniform(0, 1) ** 1.5)
        tint = c.normal(3, 1, 1) * column(torch.where(c.flag(tinted), 0.35, 0.03))
        warm = torch.tensor([0.03, 0.0, -0.05], device=self.device).reshape(1, 3, 1, 1) * column(c.uniform(0, 1.5))
        return (column(level) + tint + warm).clamp(0, 1)


# --- the scene's own lines -------------------------------------------------------------------------------------------


def strands(p, share):
    """Hair, fur, grass, grained wood, or with both directions woven cloth, in a part of the picture."""

    def one(c, angle, cells):
        # Noise that is long in one direction, read along a field that bends.
        source = F.interpolate(c.normal(1, cells, 8), size=(cells, 64), mode="bicubic", align_corners=False)
        y, x = places(p.side, p.device)
        y, x = (2 * y / p.side - 1).expand(1, 1, p.side, p.side), (2 * x / p.side - 1).expand(1, 1, p.side, p.side)
        bend = 0.06 * smooth(c, 4, p.side)
        across = (torch.cos(column(angle)) * y - torch.sin(column(angle)) * x) * 0.7 + bend
        along = (torch.sin(column(angle)) * y + torch.cos(column(angle)) * x) * 0.7
        grid = torch.cat([along, across], 1).permute(0, 2, 3, 1)
        return F.grid_sample(source, grid, mode="bilinear", padding_mode="reflection", align_corners=False)

    def make(c):
        angle = c.uniform(0, math.pi)
        cells = int(p.side / (3 + 5 * float(torch.rand((), generator=p.generator, device=p.device))))
        texture = one(c, angle, cells)
        texture = torch.where(column(c.flag(0.35)), 0.6 * (texture + one(c, angle + math.pi / 2, cells)), texture)
        region = torch.sigmoid(6 * (smooth(c, 4, p.side) + column(c.uniform(-0.5, 1.5))))
        return texture * region * column(c.uniform(0.03, 0.22))

    p.x = (p.x + p.some(p.c.flag(share), make)).clamp(0, 1)


def writing(p, share, page=False, where=None):
    """Rows of made-up letters, and lines like handwriting; some on a plain ground, as on a sign or a page. page: small and
    many, over all of the picture, all on a ground. where: in these pictures, on what is there."""
    flag = p.c.flag(share) if where is None else where
    at = torch.nonzero(flag)[:, 0]
    m = len(at)
    if not m:
        return
    rows, letters, samples = (26, 44, 24) if page else (6, 22, 36)
    c = Chance(m, p.generator)
    planes = p.planes(p.n)
    size = c.log_uniform(*((7, 16) if page else (7, 30))) * (p.side / 512) ** 0.5
    corner_y, corner_x, tilt = c.uniform(-0.05, 0.7) * p.side, c.uniform(-0.05, 0.5) * p.side, c.uniform(-0.12, 0.12)
    # Letters: paths over a lattice of 3×4 points, from an alphabet of 40.
    alphabet = torch.randint(0, 12, (40, 4), generator=p.generator, device=p.device)
    paths = alphabet[torch.randint(0, 40, (m, rows, letters), generator=p.generator, device=p.device)]
    knots = torch.stack([paths // 3 / 3.0, paths % 3 / 2.0 * 0.6], -1).reshape(-1, 4, 2).transpose(1, 2)
    ink = F.interpolate(knots, size=samples, mode="linear", align_corners=True).reshape(m, rows, letters, 2, samples)
    row = torch.arange(rows, device=p.device).reshape(1, rows, 1, 1) * 1.7
    letter = torch.arange(letters, device=p.device).reshape(1, 1, letters, 1) * 0.85
    v, u = ink[..., 0, :] + row, ink[..., 1, :] + letter
    # Handwriting: loops that move on.
    t = torch.linspace(0, 1, letters * samples, device=p.device).reshape(1, 1, letters, samples)
    wide = torch.rand(m, rows, 4, 1, 1, generator=p.generator, device=p.device)
    loops = 2 * math.pi * t * letters
    v2 = row + 0.4 + 0.35 * torch.sin(loops * (0.8 + 0.4 * wide[:, :, 0]))
    v2 = v2 + 0.25 * torch.sin(loops * (0.2 + 0.5 * wide[:, :, 1]))
    u2 = t * letters * 0.85 + 0.3 * torch.cos(loops * (0.8 + 0.4 * wide[:, :, 2])) + 0 * v2
    hand = column(c.flag(0.4))
    v, u = torch.where(hand, v2, v), torch.where(hand, u2, u)
    blank = torch.rand(m, rows, letters, 1, generator=p.generator, device=p.device) < 0.15
    s, a = column(size), column(tilt)
    y = column(corner_y) + s * (v * torch.cos(a) + u * torch.sin(a))
    x = column(corner_x) + s * (u * torch.cos(a) - v * torch.sin(a))
    radius = column((size * c.uniform(0.04, 0.09)).clamp(0.4, 2.2)).expand_as(y)
    opacity = torch.where(blank, 0.0, 1.0) * column(c.uniform(0.6, 1.0)) * torch.ones_like(y)
    plane = at.reshape(-1, 1, 1, 1).expand_as(y)
    stamp(planes, *(q.flatten() for q in (plane, y, x, radius, opacity)), 3)
    ground = column(flag & p.c.flag(1.0 if page else 0.4 if where is None else 0.0)) * torch.ones_like(p.opacity)
    dark = p.c.flag(0.7)
    p.paint(ground * 0.9, column(torch.where(dark, p.c.uniform(0.6, 1.0), p.c.uniform(0.0, 0.3))))
    p.paint(planes[:, None], column(torch.where(dark, p.c.uniform(0.0, 0.25), p.c.uniform(0.75, 1.0))))


def wires(p, share):
    """Cables before the sky, railings, rims: long even lines that are as soft as the picture, mostly dark."""
    c, owner = slots(p.n, 3, p.generator)
    there = (p.c.flag(share)[owner] & c.flag(0.7)).float()
    points = int(1.3 * p.side)
    y, x, _ = curves(c, c.uniform(0, 1) * p.side, c.uniform(-0.3, 0.1) * p.side, c.uniform(-0.6, 0.6),
                     torch.full_like(there, 1.5 * p.side), points, c.uniform(0, 0.15), 0 * there, there)
    planes = p.planes(p.n)
    draw(planes, owner, y, x, c.uniform(0.6, 2.2)[:, None], (there * c.uniform(0.7, 1.0))[:, None], 3)
    p.paint(planes[:, None], column(torch.where(p.c.flag(0.85), p.c.uniform(0, 0.3), p.c.uniform(0.7, 1.0))))


def twigs(p, share):
    """Bare branches, dark before what is bright."""
    c, owner = slots(p.n, 3, p.generator)
    there = (p.c.flag(share)[owner] & c.flag(0.7)).float()
    length, kinks, wide = c.uniform(0.5, 1.4) * p.side, c.uniform(0, 12), c.log_uniform(0.6, 4.5) * (p.side / 512) ** 0.5
    path = curves(c, c.uniform(-0.1, 1.1) * p.side, c.uniform(-0.1, 1.1) * p.side, c.uniform(0, 2 * math.pi), length,
                  int(1.2 * p.side), c.uniform(0, 0.6), kinks, c.uniform(0.1, 0.5))
    planes = p.planes(p.n)
    limbs(p, planes, c, owner, path, length, kinks, wide, there * c.uniform(0.7, 1.0), (10, 4))
    sky = torch.sigmoid(20 * (F.avg_pool2d(p.x.mean(1, keepdim=True), 25, 1, 12) - 0.5))
    p.paint(planes[:, None] * sky, column(p.c.uniform(0, 0.3)))


def beads(p, share):
    """Strings of pearls, chains, rows of buttons and lamps: discs in a row, most with a light spot."""
    c, owner = slots(p.n, 3, p.generator)
    there = (p.c.flag(share)[owner] & c.flag(0.6)).float()
    count = 48
    radius = c.log_uniform(0.8, 6.0) * (p.side / 512) ** 0.5
    y, x, _ = curves(c, c.uniform(0, 1) * p.side, c.uniform(0, 1) * p.side, c.uniform(0, 2 * math.pi),
                     count * radius * c.log_uniform(1.6, 6), count, c.uniform(0, 1.6), 0 * there, there)
    size = (radius[:, None] * (1 + 0.15 * line(c, 24, count))).clamp(0.4, 7.5)
    planes, spots = p.planes(p.n), p.planes(p.n)
    draw(planes, owner, y, x, size, (there * c.uniform(0.7, 1.0))[:, None], 8)
    draw(spots, owner, y - 0.35 * size, x - 0.3 * size, 0.35 * size, (there * c.flag(0.7))[:, None], 4)
    p.paint(planes[:, None], p.colour(0.6, 0.3))
    p.paint(spots[:, None], 0.97)


def lattices(p, share):
    """Masonry, railings, blinds, panes, stripes: lines at even distances, in a part of the picture."""

    def make(c):
        y, x = places(p.side, p.device)
        scale = (p.side / 512) ** 0.5
        angle = column(0.12 * c.normal() + torch.where(c.flag(0.25), c.uniform(0, math.pi), 0 * c.uniform(0, 1)))
        wobble = column(c.uniform(0, 1) ** 2 * 2.5)
        v = y * torch.cos(angle) - x * torch.sin(angle) + wobble * smooth(c, 24, p.side)
        u = y * torch.sin(angle) + x * torch.cos(angle) + wobble * smooth(c, 24, p.side)
        high, long = column(c.log_uniform(7, 90) * scale), column(c.log_uniform(1.0, 4.0))
        row = torch.floor(v / high)
        across = (v / high - row - 0.5).abs()
        shift = column(torch.where(c.flag(0.7), 0.5, 0.0)) * (row % 2)
        place = u / (high * long) + shift + 0.1 * torch.sin(37 * row)
        along = (place - torch.floor(place) - 0.5).abs()
        wide = column(c.log_uniform(0.4, 3.0) * scale) * (1 + 0.3 * smooth(c, 32, p.side))
        line_ = wide + 0.5 - (0.5 - across) * high
        joint = torch.where(column(c.flag(0.65)), wide + 0.5 - (0.5 - along) * high * long, -torch.ones_like(line_))
        region = torch.sigmoid(8 * (smooth(c, 3, p.side) + column(c.uniform(-0.3, 1.5))))
        return torch.maximum(line_, joint).clamp(0, 1) * region * column(c.uniform(0.3, 1.0))

    p.paint(p.some(p.c.flag(share), make), p.colour(0.5, 0.05))


def strokes(p, share):
    """Drawings: many lines of one dark pen on paper."""
    flag = p.c.flag(share)
    c, owner = slots(p.n, 40, p.generator)
    there = (flag[owner] & c.flag(0.8)).float()
    points = int(0.7 * p.side)
    y, x, _ = curves(c, c.uniform(0, 1) * p.side, c.uniform(0, 1) * p.side, c.uniform(0, 2 * math.pi),
                     c.log_uniform(0.03, 0.7) * p.side, points, c.uniform(0, 1) ** 2 * 4, c.uniform(0, 6), c.uniform(0, 2))
    planes = p.planes(p.n)
    wide = (p.c.log_uniform(0.4, 2.0) * (p.side / 512) ** 0.5)[owner]
    draw(planes, owner, y, x, (wide[:, None] * (1 + 0.2 * line(c, 12, points))).clamp(0.3, 3.0),
         (there * p.c.uniform(0.5, 1.0)[owner])[:, None], 4)
    p.paint(column(flag) * torch.ones_like(p.opacity) * 0.93, column(p.c.uniform(0.65, 1.0)))
    p.paint(planes[:, None], column(p.c.uniform(0.0, 0.4)))


def skies(p, share):
    """A pale sky from above, or in a corner, down to a ragged line of trees or roofs; snow or a sheet from below."""
    flag = p.c.flag(share)

    def make(c):
        y, x = places(p.side, p.device)
        v = torch.where(column(c.flag(0.8)), y, p.side - 1 - y)
        ragged = fractal(c, 5, p.side, 6, 0.65) * column(c.log_uniform(1, 40)) * (p.side / 512)
        reach = column(c.uniform(-0.15, 0.6)) * p.side + column(c.uniform(-1, 1)) * (x - p.side / 2)
        return ((reach + ragged - v) * column(c.log_uniform(0.15, 1)) + 0.5).clamp(0, 1)

    y, _ = places(p.side, p.device)
    tint = torch.tensor([-0.06, -0.02, 0.0], device=p.device).reshape(1, 3, 1, 1) * column(p.c.uniform(0, 1) ** 2 * 2)
    colour = column(1 - 0.2 * p.c.uniform(0, 1) ** 2) + tint - column(p.c.uniform(-0.1, 0.1)) * y / p.side
    p.paint(p.some(flag, make), colour.clamp(0, 1))


def cutouts(p, share):
    """Leaves, fur or lace cut out on a plain ground: the picture in ragged patches, and one colour between them."""

    def make(c):
        cells = 4 << int(torch.randint(0, 4, (1,), generator=p.generator, device=p.device))
        field = fractal(c, cells, p.side, 4, 0.7) + 1.5 * smooth(c, 3, p.side) + column(c.uniform(-1.2, 0.6))
        return torch.sigmoid(field * column(c.log_uniform(6, 60)))

    p.paint(p.some(p.c.flag(share), make), p.colour(0.75, 0.2))


HUES = ((0.9, 0.75, 0.15), (0.85, 0.45, 0.1), (0.4, 0.6, 0.15), (0.85, 0.3, 0.25), (0.9, 0.6, 0.7), (0.6, 0.5, 0.4))


def leaves(p, share):
    """Leaves, petals, pebbles: small patches of two hues, in clumps, lit unevenly."""
    each = 220
    flag = p.c.flag(share)
    c, owner = slots(p.n, each, p.generator)
    dense = p.c.uniform(0.1, 1)
    there = (flag[owner] & (c.uniform(0, 1) < dense[owner])).float()
    spread = p.c.log_uniform(0.05, 0.5)[owner]
    y, x = ((p.c.uniform(0, 1)[owner] + spread * c.normal()) * p.side for _ in range(2))
    radius = p.c.log_uniform(2, 6)[owner] * c.uniform(0.6, 1.3) * (p.side / 512) ** 0.5
    angle, planes = c.uniform(0, 2 * math.pi), p.planes(2 * p.n)
    plane = owner + p.n * c.flag(0.5)
    for part, wide in ((-1.1, 0.6), (0.0, 1.0), (1.1, 0.6)):
        stamp(planes, plane, y + part * radius * torch.sin(angle), x + part * radius * torch.cos(angle),
              (radius * wide).clamp(0.4, 7.5), there * c.uniform(0.75, 1), 8)
    hues = torch.tensor(HUES, device=p.device)
    for half in planes.reshape(2, p.n, 1, p.side, p.side):
        pick = p.c.index(*[1.0] * len(HUES))
        light = column(p.c.uniform(0.5, 1.1)) * (1 + 0.15 * smooth(p.c, 64, p.side))
        p.paint(half, (hues[pick].reshape(p.n, 3, 1, 1) * light).clamp(0, 1))


def isolines(field, wide):
    """Lines, wide px to each side, where the field is a whole number."""
    slope = torch.sqrt(sum(g**2 for g in torch.gradient(field, dim=(2, 3)))).clamp(min=1e-4)
    return (wide + 0.5 - (field - torch.round(field)).abs() / slope).clamp(0, 1)


def areas(c, photo, generator):
    """The ground of maps: areas of a few flat colours (land and sea, heights, states) with lines between some of them, on
    paper or with a little of the photo for relief."""
    side, scale = photo.shape[-1], (photo.shape[-1] / 512) ** 0.5
    cells = 2 << int(torch.randint(0, 3, (1,), generator=generator, device=c.device))
    field = fractal(c, cells, side, 5, 0.55) * column(c.log_uniform(0.4, 4)) + column(c.uniform(0, 1))
    other = fractal(c, cells, side, 5, 0.5) * column(c.log_uniform(0.6, 3) * c.flag(0.5)) + 0.5
    number = (torch.floor(field) + 3 * torch.floor(other)).long() % 7
    spread = column(c.uniform(0, 1) ** 2 * 0.4)[:, 0]
    table = (column(c.uniform(0.35, 1.0))[:, 0] + spread * c.normal(3, 7)).clamp(0, 1)
    x = torch.gather(table, 2, number.reshape(c.n, 1, -1).expand(-1, 3, -1)).reshape(photo.shape)
    x = x + (photo - x) * column(c.flag(0.25) * c.uniform(0.05, 0.5))
    wide = column(c.uniform(-0.1, 1.3) * scale)
    drawn = torch.maximum(isolines(field, wide), isolines(other, wide) * (other != 0.5)) * column(c.flag(0.8))
    ink = column(torch.where(c.flag(0.7), c.uniform(0, 0.4), c.uniform(0.8, 1))) + 0.1 * c.normal(3, 1, 1)
    return (x + (ink - x) * drawn * column(c.uniform(0.4, 1))).clamp(0, 1)


def boxes(p, flag):
    """Rectangles, filled or with an outline: windows on a screen, bars, tables."""
    y, x = places(p.side, p.device)
    for _ in range(5):
        c = p.c
        v, u = y - column(c.uniform(0, 1) * p.side), x - column(c.uniform(0, 1) * p.side)
        inside = -torch.maximum(v.abs() - column(c.log_uniform(0.01, 0.4) * p.side),
                                u.abs() - column(c.log_uniform(0.01, 0.4) * p.side))
        wide = column(c.uniform(0.5, 3))
        body = (inside + 0.5).clamp(0, 1) * column(flag & c.flag(0.5))
        rim = torch.minimum((inside + wide).clamp(0, 1), (wide - inside).clamp(0, 1)) * column(flag & c.flag(0.5))
        p.paint(body, p.colour(0.6, 0.6))
        p.paint(rim, p.colour(0.3, 0.3))


def maps(p, share):
    """Maps and diagrams: flat areas, borders, rivers that branch, roads and curves, a grid, circles, boxes, names."""
    flag = p.c.flag(share)
    at = torch.nonzero(flag)[:, 0]
    if not len(at):
        return
    made = torch.zeros_like(p.x)
    made[at] = areas(Chance(len(at), p.generator), p.x[at], p.generator)
    p.x = torch.where(column(flag), made, p.x)
    boxes(p, flag & p.c.flag(0.25))
    scale = (p.side / 512) ** 0.5
    c, owner = slots(p.n, 3, p.generator)
    there = ((flag & p.c.flag(0.7))[owner] & c.flag(0.6)).float()
    length, kinks, wide = c.log_uniform(0.15, 1.3) * p.side, c.uniform(3, 40), c.log_uniform(0.4, 2.4) * scale
    path = curves(c, c.uniform(0, 1) * p.side, c.uniform(0, 1) * p.side, c.uniform(0, 2 * math.pi), length,
                  int(1.2 * p.side), c.uniform(0, 2), kinks, c.uniform(0.1, 0.6))
    planes = p.planes(p.n)
    limbs(p, planes, c, owner, path, length, kinks, wide, there * c.uniform(0.6, 1.0), (5, 2))
    blue = torch.tensor([0.35, 0.6, 0.85], device=p.device).reshape(1, 3, 1, 1)
    p.paint(planes[:, None], torch.where(column(p.c.flag(0.5)), blue, p.colour(0.5, 0.4)))
    c, owner = slots(p.n, 8, p.generator)
    there = ((flag & p.c.flag(0.6))[owner] & c.flag(0.5)).float()
    y, x, _ = curves(c, c.uniform(-0.1, 1.1) * p.side, c.uniform(-0.2, 0.9) * p.side, c.uniform(-1.6, 1.6),
                     c.log_uniform(0.1, 1.5) * p.side, int(1.3 * p.side), c.uniform(0, 1) ** 2 * 2, c.uniform(0, 6),
                     0.4 * there)
    planes, dots = p.planes(2 * p.n), p.planes(p.n)
    wide = (p.c.log_uniform(0.4, 2.2) * scale)[owner]
    draw(planes, owner + p.n * c.flag(0.4), y, x, wide[:, None], there[:, None], 4)
    stamp(dots, owner, y[:, 0], x[:, 0], (wide * c.uniform(1, 3.5)).clamp(0.5, 7.5), there * c.flag(0.6), 8)
    for half in planes.reshape(2, p.n, 1, p.side, p.side):
        p.paint(half, p.colour(0.4, 0.5))
    p.paint(dots[:, None], p.colour(0.3, 0.4))
    y, x = places(p.side, p.device)
    pitch, shift = column(p.c.log_uniform(0.06, 0.4) * p.side), column(p.c.uniform(0, 1))
    grid = torch.maximum(isolines(y / pitch + shift + 0 * x, 0.3), isolines(x / pitch + shift + 0 * y, 0.3))
    p.paint(grid * column(flag & p.c.flag(0.25)) * column(p.c.uniform(0.2, 0.9)), p.colour(0.4, 0.1))
    for _ in range(2):
        writing(p, 0, where=flag & p.c.flag(0.5))


def frame(p, share):
    """The border of a print, or the edge of a scan: straight, and none of it damage."""
    y, x = places(p.side, p.device)
    wide = [column(p.side * p.c.uniform(-0.03, 0.09)) for _ in range(4)]
    tilt = column(p.c.uniform(-0.02, 0.02))
    v, u = y + tilt * x, x - tilt * y
    beyond = torch.maximum(torch.maximum(wide[0] - v, v - (p.side - wide[1])),
                           torch.maximum(wide[2] - u, u - (p.side - wide[3])))
    paper = torch.where(p.c.flag(0.8), p.c.uniform(0.75, 1.0), p.c.uniform(0.0, 0.2))
    warm = torch.tensor([0.0, -0.03, -0.1], device=p.device).reshape(1, 3, 1, 1) * column(p.c.uniform(0, 1))
    p.paint((beyond + 0.5).clamp(0, 1) * column(p.c.flag(share)), (column(paper) + warm).clamp(0, 1))


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
         ("corners", CRACK, 0.03), ("thin", THIN, 0.45), ("faint", THIN, 0.3), ("real thin", THIN, 0.35),
         ("specks", DUST, 0.42), ("real dust", DUST, 0.35), ("real stain", STAIN, 0.06))
WHOLE = 0.2  # and, where it is asked for, a real mask of lines at about its own size, or one of dust
TEST_SORTS = {THIN: ("thin", "real thin"), CRACK: ("cracks", "tears", "net"), DUST: ("specks", "real dust"),
              STAIN: ("stains", "folds", "mould")}


def harm(p, masks, damaged, only=None, entire=False):
    """All the damage, on the pictures of `damaged`. entire: also whole real masks at about their own size."""
    c = p.c
    has = {}
    if only is None:
        for name, _, share in SORTS:
            has[name] = damaged & c.flag(share)
    else:
        names = TEST_SORTS[only]
        which = c.index(*[1.0] * len(names))
        for name, _, _ in SORTS:
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
        for kind in (THIN, DUST):
            real(p, masks, kind, damaged & c.flag(WHOLE), 2, MASK_SIDE, 0.6, 1.3)


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
         bare=0.0):
    """count pictures of side px as a dict: picture N×3×s×s, opacity N×1×s×s, label and kind N×s×s (kind -1 where there is
    none), clean (the print as it was scanned, without damage), pick (its number among the photos), harmed. decoys, more:
    how often there is what only looks like damage. plain: the share of those without damage that stay the photo they are.
    bare: the share of all that are neither printed nor blurred by a scanner, as digital pictures are."""
    x, pick = windows(photos, count, side, generator, whole=0.6 if bare else 0.3)
    p = Painter(x, generator)
    if more:
        lattices(p, 0.07 * more)
        beads(p, 0.05 * more)
        twigs(p, 0.07 * more)
        strokes(p, 0.06 * more)
        writing(p, 0.05 * more, page=True)
        skies(p, 0.07 * more)
        cutouts(p, 0.05 * more)
        leaves(p, 0.07 * more)
        maps(p, 0.08 * more)
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
    difference = (picture - clean).abs().amax(1, keepdim=True)
    least = column(0.05 + 1.2 * torch.maximum(speckle, grain))
    yes = ((opacity >= 0.4) & (difference >= least)) | ((opacity >= 0.1) & (difference >= least + 0.03))
    label = torch.where(yes, YES, torch.where(opacity < 0.05, NO, IGNORED))[:, 0]
    picture = noise(picture, c, speckle, 0 * speckle, c.flag(0.5)).clamp(0, 1)
    coded = jpeg(picture, torch.round(100 - c.uniform(0, 1) ** 1.5 * 62), c.flag(0.7))
    picture = torch.where(column(c.flag(0.7)), coded, torch.round(picture * 255) / 255)
    kind = p.kind[:, 0].long()
    # A blur spreads the damage over pixels that had none: they take a neighbour's kind.
    kind = torch.where(kind < 0, F.max_pool2d(p.kind, 5, 1, 2)[:, 0].long(), kind)
    return {"picture": picture, "clean": clean, "opacity": opacity, "label": label, "kind": kind, "pick": pick,
            "harmed": harmed}
