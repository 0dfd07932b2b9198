"""Drawing on batches of pictures, on their device: noise, lines, discs, and the Painter that keeps what it has hidden."""
import math

import torch
import torch.nn.functional as F

from models.training.degrade import Chance

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
    """Draws on pictures of one batch. paint() mixes a colour in and veil() dims; what they hid is kept, and of which kind it
    was."""

    def __init__(self, picture, generator):
        self.x, self.generator = picture, generator
        self.n, self.side, self.device = picture.shape[0], picture.shape[-1], picture.device
        self.c = Chance(self.n, generator)
        self.opacity = picture.new_zeros(self.n, 1, self.side, self.side)
        self.kind = torch.full_like(self.opacity, -1)
        self.most = torch.zeros_like(self.opacity)
        self.varied = False  # colour() also gives middle tones, and colours without any tint

    def planes(self, count):
        return torch.zeros(count, self.side, self.side, device=self.device)

    def paint(self, opacity, colour, kind=None):
        opacity = opacity.clamp(0, 1)
        self.x = self.x + (colour - self.x) * opacity
        if kind is not None:
            self.hide(opacity, kind)

    def veil(self, through, light, kind):
        """Takes light away, as tea does: of each colour the share `through` is left; or darkness, where light is set."""
        self.x = torch.where(light, 1 - (1 - self.x) * through, self.x * through)
        self.hide(1 - through.amin(1, keepdim=True), kind)

    def hide(self, opacity, kind):
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
        if self.varied:
            level = torch.where(c.flag(0.12), c.uniform(0.25, 0.7), level)
            tint, warm = (torch.where(column(c.flag(0.3)), 0 * t, t) for t in (tint, warm))
        return (column(level) + tint + warm).clamp(0, 1)
