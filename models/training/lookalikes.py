"""What only looks like damage, drawn into clean pictures: the scene's own fine lines and bright spots, pages, maps, drawings.
Each takes a Painter and the share of the pictures that get it.
"""
import math

import torch
import torch.nn.functional as F

from models.training.degrade import Chance
from models.training.drawing import column, curves, draw, fractal, limbs, line, places, slots, smooth, stamp

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


def writing(p, share=0.0, page=False, where=None):
    """Rows of made-up letters, and lines like handwriting; some on a plain ground, as on a sign or a page. page: small and
    many, over all of the picture, all on a ground through which what is behind it shines. where: in these pictures, on what
    is there (but page's ground)."""
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
    shut = column(p.c.uniform(0.75, 1.0)) if page and where is not None else 0.9
    p.paint(ground * shut, column(torch.where(dark, p.c.uniform(0.6, 1.0), p.c.uniform(0.0, 0.3))))
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


def beads(p, share=0.0, where=None):
    """Strings of pearls, chains, rows of buttons and lamps: discs in a row, most with a light spot."""
    flag = p.c.flag(share) if where is None else where
    c, owner = slots(p.n, 3, p.generator)
    there = (flag[owner] & c.flag(0.6)).float()
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


def necklaces(p, where):
    """Fine chains and cords that hang, some with pearls or pendants, light, dark or of gold; often twice side by side."""
    c, owner = slots(p.n, 4, p.generator)
    there = (where[owner] & c.flag(0.6)).float()
    points, count = int(1.2 * p.side), 40
    scale = (p.side / 512) ** 0.4
    y0, x0 = (p.c.uniform(-0.1, 0.8)[owner] * p.side for _ in range(2))
    y0, x0 = y0 + 0.02 * p.side * c.normal(), x0 + 0.03 * p.side * c.normal()
    wide, deep = p.c.log_uniform(0.1, 0.8)[owner] * p.side * c.uniform(0.8, 1), c.uniform(0.2, 1.6)
    tilt = 0.2 * c.normal()
    t = torch.linspace(0, 1, points, device=p.device)[None]
    bend = torch.where(c.flag(0.5), 1.0, 2.0)[:, None]
    y = y0[:, None] + (deep * wide)[:, None] * (1 - (2 * t - 1).abs() ** bend) + (tilt * wide)[:, None] * t
    x = x0[:, None] + wide[:, None] * t + 0.004 * p.side * line(c, 8, points)
    planes, discs = p.planes(p.n), p.planes(p.n)
    radius = (c.log_uniform(0.3, 1.4) * scale)[:, None]
    links = torch.where(c.flag(0.7)[:, None], 0.5 + 0.5 * torch.sin(t * points / (1 + 2 * radius)), 1.0)  # of a chain
    draw(planes, owner, y, x, radius, (there * c.uniform(0.4, 1.0))[:, None] * links, 4)
    at = torch.linspace(0.02, 0.98, count, device=p.device)[None] + 0.004 * c.normal(count)
    at = (at.clamp(0, 1) * (points - 1)).long()
    rows = torch.arange(len(owner), device=p.device)[:, None]
    size = (c.log_uniform(0.8, 4.0) * scale)[:, None] * (1 + 0.2 * c.normal(count))
    few = torch.where(c.flag(0.5), 0.08, 1.0)
    some = (torch.rand(len(owner), count, generator=p.generator, device=p.device) < few[:, None]) & c.flag(0.6)[:, None]
    draw(discs, owner, y[rows, at], x[rows, at], size.clamp(0.5, 6.0), there[:, None] * some, 7)
    gold = torch.tensor([0.85, 0.68, 0.3], device=p.device).reshape(1, 3, 1, 1)
    for part in (planes, discs):
        p.paint(part[:, None], torch.where(column(p.c.flag(0.3)), gold, p.colour(0.65, 0.1)))


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


# --- weather, sparks, glossy things, games ---------------------------------------------------------------------------


def flakes(p, share=0.0, where=None):
    """Falling snow, plankton, bubbles: pale discs of many sizes, the near ones out of focus; some drawn out by the wind."""
    each = 180
    flag = p.c.flag(share) if where is None else where
    c, owner = slots(p.n, each, p.generator)
    dense = p.c.uniform(0.35, 1)  # a few flakes alone could be dust
    there = (flag[owner] & (c.uniform(0, 1) < dense[owner])).float()
    radius = (p.c.log_uniform(0.6, 2.5)[owner] * c.log_uniform(0.5, 4) * (p.side / 512) ** 0.4).clamp(0.4, 7.0)
    y, x = c.uniform(0, 1) * p.side, c.uniform(0, 1) * p.side
    angle, long = p.c.uniform(0, math.pi)[owner], (p.c.flag(0.4) * p.c.uniform(0, 2.5))[owner] * radius
    planes = p.planes(3 * p.n)
    plane = owner + p.n * ((radius > 1.5).long() + (radius > 3.5).long())
    for part in (-1.0, 0.0, 1.0):
        stamp(planes, plane, y + part * long * torch.sin(angle), x + part * long * torch.cos(angle), radius,
              there * c.uniform(0.5, 1.0), 8)
    colour = column(1 - 0.25 * p.c.uniform(0, 1) ** 2)
    for part, wide in zip(planes.reshape(3, p.n, 1, p.side, p.side), (3, 3, 7)):
        p.paint(F.avg_pool2d(part, wide, 1, wide // 2), colour)


def stars(p, share):
    """A night sky over a ragged horizon: dark, somewhat paler below, with many points of one size, few of them bright."""
    flag = p.c.flag(share)
    c = p.c
    y, _ = places(p.side, p.device)
    reach = column(c.uniform(0.3, 1.3)) * p.side
    dark, paler = column(0.25 * c.uniform(0, 1) ** 2), column(0.3 * c.uniform(0, 1) ** 2)
    blue = torch.tensor([-0.03, 0.0, 0.06], device=p.device).reshape(1, 3, 1, 1) * column(c.uniform(-0.5, 1.5))

    def make(k):
        ragged = fractal(k, 5, p.side, 6, 0.65) * column(k.log_uniform(1, 60)) * (p.side / 512)
        return (reach[flag] + ragged - y + 0.5).clamp(0, 1)

    sky = p.some(flag, make)
    glow = fractal(c, 4, p.side, 4) * column(0.06 * c.uniform(0, 1) * c.flag(0.5))
    p.paint(sky, (dark + paler * (y / p.side) ** 2 + blue + glow).clamp(0, 1))
    each = 220
    k, owner = slots(p.n, each, p.generator)
    there = (flag[owner] & (k.uniform(0, 1) < c.uniform(0.15, 1)[owner])).float()
    bright = torch.exp(-k.uniform(0, 1) * c.uniform(0.5, 3)[owner])
    radius = (c.log_uniform(0.45, 1.4)[owner] * (0.7 + 0.6 * bright) * (p.side / 512) ** 0.35).clamp(0.35, 2.5)
    planes = p.planes(p.n)
    stamp(planes, owner, k.uniform(0, 1) * p.side, k.uniform(0, 1) * p.side, radius, there * bright, 4)
    tint = 0.08 * c.normal(3, 1, 1) * column(c.flag(0.4))
    p.paint(F.avg_pool2d(planes[:, None], 3, 1, 1) * sky, (1 + tint).clamp(0, 1))
    p.paint(planes[:, None] * sky * column(c.flag(0.6)), (1 + tint).clamp(0, 1))


def rain(p, share):
    """Short pale streaks of one direction, seen through."""
    flag = p.c.flag(share)
    each, points = 60, int(0.12 * p.side)
    c, owner = slots(p.n, each, p.generator)
    there = (flag[owner] & (c.uniform(0, 1) < p.c.uniform(0.4, 1)[owner])).float()
    angle = (math.pi / 2 + p.c.uniform(-0.6, 0.6))[owner] + 0.03 * c.normal()
    length = p.c.log_uniform(0.02, 0.12)[owner] * p.side * c.uniform(0.5, 1)
    y, x, _ = curves(c, c.uniform(-0.1, 1) * p.side, c.uniform(0, 1) * p.side, angle, length, points, 0 * there, 0 * there,
                     there)
    planes = p.planes(p.n)
    radius = (p.c.log_uniform(0.35, 1.2) * (p.side / 512) ** 0.4)[owner]
    draw(planes, owner, y, x, radius[:, None], (there * (p.c.uniform(0.2, 0.8)[owner] * c.uniform(0.5, 1)))[:, None], 3)
    p.paint(planes[:, None], column(p.c.uniform(0.75, 1)))


def discs(p, share):
    """The moon, lamps, dots of a diagram: even discs and rings with sharp edges, on a ground of one colour."""
    flag = p.c.flag(share)

    def make(c):
        y, x = places(p.side, p.device)
        out = torch.zeros(c.n, 1, p.side, p.side, device=p.device)
        for _ in range(4):
            v, u = y - column(c.uniform(0.1, 0.9) * p.side), x - column(c.uniform(0.1, 0.9) * p.side)
            radius = column(c.log_uniform(3, 70) * (p.side / 512))
            off = torch.sqrt(v**2 + u**2) - radius
            off = torch.where(column(c.flag(0.25)), off.abs() - 0.15 * radius, off)
            out = torch.maximum(column(c.flag(0.5).float()) * (0.5 - off).clamp(0, 1), out)
        return out

    p.paint(column(flag.float()), p.colour(0.3, 0.3))
    p.paint(p.some(flag, make), p.colour(0.7, 0.3))


def sparks(p, share):
    """Streaks of fire out of one point, and fireworks: bent, thin at their ends, warm, with a pale core."""
    flag = p.c.flag(share)
    each, points = 40, int(0.5 * p.side)
    c, owner = slots(p.n, each, p.generator)
    there = (flag[owner] & (c.uniform(0, 1) < p.c.uniform(0.2, 1)[owner])).float()
    angle = p.c.uniform(0, 2 * math.pi)[owner] + p.c.log_uniform(0.15, 3)[owner] * c.normal()
    length, begin = (p.c.log_uniform(0.05, 0.5)[owner] * p.side * c.uniform(0.2, 1) for _ in range(2))
    y = p.c.uniform(0, 1)[owner] * p.side + begin * torch.sin(angle)
    x = p.c.uniform(0, 1)[owner] * p.side + begin * torch.cos(angle)
    y, x, _ = curves(c, y, x, angle, length, points, p.c.uniform(0, 0.5)[owner], 0 * there, there)
    taper = torch.sin(torch.linspace(0.15, math.pi - 0.1, points, device=p.device))[None]
    radius = (p.c.log_uniform(0.5, 1.8) * (p.side / 512) ** 0.4)[owner][:, None] * taper
    glow, core = p.planes(p.n), p.planes(p.n)
    draw(glow, owner, y, x, (radius + 0.4).clamp(0.3, 3.0), (there * c.uniform(0.4, 1))[:, None] * taper, 4)
    draw(core, owner, y, x, (0.6 * radius).clamp(0.25, 2.0), (there * c.uniform(0.4, 1))[:, None] * taper, 3)
    warm = torch.tensor([1.0, 0.65, 0.2], device=p.device).reshape(1, 3, 1, 1)
    p.paint(glow[:, None], torch.where(column(p.c.flag(0.7)), warm, p.colour(0.9, 0.6)))
    p.paint(core[:, None], torch.tensor([1.0, 0.95, 0.8], device=p.device).reshape(1, 3, 1, 1))


def foam(p, share):
    """Surf, lather, cracked ice from afar: white lace, and drops beside it."""

    def make(c):
        cells = 6 << int(torch.randint(0, 4, (1,), generator=p.generator, device=p.device))
        field = fractal(c, cells, p.side, 4, 0.6)
        lace = torch.exp(-(field / column(c.uniform(0.06, 0.25))) ** 2)
        drops = torch.sigmoid(9 * (smooth(c, min(p.side // 5, 160), p.side) - column(c.uniform(1.2, 2.2))))
        region = torch.sigmoid(8 * (fractal(c, 3, p.side, 3) + column(c.uniform(-1.2, 0.4))))
        return torch.maximum(lace, drops) * region * column(c.uniform(0.4, 1))

    p.paint(p.some(p.c.flag(share), make), column(1 - 0.2 * p.c.uniform(0, 1) ** 2))


def glints(p, share):
    """Fruit, leather, wet stones, metal: a body of one hue, and highlights that its pores break into specks."""
    flag = p.c.flag(share)
    y, x = places(p.side, p.device)
    hues = torch.tensor(HUES, device=p.device)
    for _ in range(3):
        c = p.c
        at = [column(c.uniform(0, 1) * p.side) for _ in range(2)]
        size = column(c.log_uniform(0.06, 0.4) * p.side)
        r = torch.sqrt((y - at[0]) ** 2 + (x - at[1]) ** 2) / size
        there = flag & c.flag(0.7)
        hue = hues[c.index(*[1.0] * len(HUES))].reshape(p.n, 3, 1, 1) * (1.1 - 0.5 * r.clamp(0, 1) ** 2)
        p.paint(((1 - r) * size + 0.5).clamp(0, 1) * column(there & c.flag(0.6)) * 0.9, hue.clamp(0, 1))
        away = [column(0.5 * c.normal()) * size for _ in range(2)]
        wide = size * column(c.uniform(0.1, 0.5))
        blob = torch.exp(-((y - at[0] - away[0]) ** 2 + (x - at[1] - away[1]) ** 2) / (2 * wide**2))

        def make(k):
            cells = int(p.side / float(2.5 + 7 * torch.rand((), generator=p.generator, device=p.device)))
            grain = smooth(k, cells, p.side)
            strength = column(k.log_uniform(0.05, 0.5))
            return torch.sigmoid((blob[there] + strength * grain - column(k.uniform(0.6, 1.1))) * column(k.log_uniform(8, 60)))

        p.paint(p.some(there, make) * column(c.uniform(0.5, 1)), column(1 - 0.15 * c.uniform(0, 1)))


def whiskers(p, share):
    """Whiskers, lashes, spines, blades: fans of bent lines out of one place, thin at their ends."""
    flag = p.c.flag(share)
    each, points = 24, int(0.6 * p.side)
    c, owner = slots(p.n, each, p.generator)
    fan = torch.arange(p.n * each, device=p.device) % 2
    there = (flag[owner] & c.flag(0.6)).float()
    first, second = p.c.uniform(0, 2 * math.pi), p.c.uniform(0, 2 * math.pi)
    angle = torch.where(fan == 0, first[owner], second[owner]) + p.c.uniform(0.15, 0.5)[owner] * c.normal()
    apart = p.c.uniform(0.01, 0.05)[owner] * p.side
    y = (p.c.uniform(0.1, 0.9) * p.side)[owner] + apart * (c.normal() + 3 * fan)
    x = (p.c.uniform(0.1, 0.9) * p.side)[owner] + apart * (c.normal() + 3 * fan)
    length = p.c.log_uniform(0.06, 0.5)[owner] * p.side * c.uniform(0.4, 1)
    y, x, _ = curves(c, y, x, angle, length, points, c.uniform(0.02, 0.35), 0 * there, there)
    taper = torch.linspace(1, 0.25, points, device=p.device)[None]
    radius = (p.c.log_uniform(0.4, 1.7) * (p.side / 512) ** 0.4)[owner][:, None] * taper
    planes = p.planes(p.n)
    draw(planes, owner, y, x, radius.clamp(0.25, 3.0), (there * c.uniform(0.4, 1))[:, None] * torch.ones_like(y), 4)
    p.paint(planes[:, None], p.colour(0.65, 0.1))


def mesh(p, share):
    """Wire netting, sieves, combs, grilles, knitwear: one or two families of even lines, some of them waved."""

    def make(c):
        y, x = places(p.side, p.device)
        turn, half = column(c.uniform(0, math.pi)), column(c.uniform(0.3, math.pi / 4 + 0.01))
        pitch = column(c.log_uniform(4, 50) * (p.side / 512) ** 0.5)
        wide = column(c.uniform(0.08, 0.3)) * pitch.clamp(max=10) * 0.5
        bend = column(c.uniform(0, 1) ** 2 * 4) * smooth(c, 6, p.side)
        wave = column(c.flag(0.3) * c.uniform(0.05, 0.3)) * pitch
        both = column(c.flag(0.6))
        out = 0
        for side in (-1, 1):
            angle = turn + side * half
            v = y * torch.cos(angle) - x * torch.sin(angle) + bend
            u = y * torch.sin(angle) + x * torch.cos(angle)
            v = (v + wave * torch.sin(2 * math.pi * u / pitch)) / pitch
            lines = (wide + 0.5 - (v - torch.round(v)).abs() * pitch).clamp(0, 1)
            out = torch.maximum(lines, out * both) if side > 0 else lines
        region = torch.sigmoid(10 * (smooth(c, 3, p.side) + column(c.uniform(-0.3, 1.5))))
        return out * region * column(c.uniform(0.25, 1.0))

    p.paint(p.some(p.c.flag(share), make), p.colour(0.5, 0.1))


def games(p, share):
    """Computer games: few tones, square pixels, outlines, boxes with names; over some of them drawn snow."""
    flag = p.c.flag(share)
    at = torch.nonzero(flag)[:, 0]
    if not len(at):
        return
    x, c = p.x[at], Chance(len(at), p.generator)
    cell = 1 << int(torch.randint(0, 3, (1,), generator=p.generator, device=p.device))
    if cell > 1:
        x = F.interpolate(F.avg_pool2d(x, cell), scale_factor=cell, mode="nearest")
    levels = column(torch.round(c.uniform(3, 12)))
    x = torch.where(column(c.flag(0.8)), torch.round(x * levels) / levels, x)
    gray = F.pad(x.mean(1, keepdim=True), (0, 1, 0, 1), mode="replicate")
    edge = (gray[:, :, 1:, :-1] - gray[:, :, :-1, :-1]).abs() + (gray[:, :, :-1, 1:] - gray[:, :, :-1, :-1]).abs()
    x = x * (1 - (edge > 0.15).float() * column(c.flag(0.4) * c.uniform(0.3, 1)))
    full = p.x.clone()
    full[at] = x
    p.x = full
    boxes(p, flag & p.c.flag(0.6))
    writing(p, 0, where=flag & p.c.flag(0.5))
    flakes(p, where=flag & p.c.flag(0.5))
