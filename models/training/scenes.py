"""The detector's pictures: scenes of the pack, cut, scaled, turned, flipped, put together and aged on the device, in batches.

A picture of SIDE px is one scene's window enlarged up to ZOOM times, or a panel of 2×2 or 4×4 windows that are reduced,
so that faces of all sizes come up and no picture has an empty border. Faces turned aside come more often, some are cut by
the picture's edge, wear sunglasses, rims or hats that are drawn, and some windows without a face get a toy's or a knot's.
"""
import math
import os

import torch
import torch.nn.functional as F

from models.training import common
from models.training.degrade import Chance, Tone, jpeg, noise, random_blur

SIDE = 640
ZOOM = 2.2
SMALLEST = 18.0  # px; a smaller face is ignored
FACES = 48  # of a picture; the largest stay
PROFILE = 0.2  # from how far the nose is beside the middle a face counts as turned aside; see turned()
FLIPPED = (1, 0, 2, 4, 3)  # landmarks after a flip: left is what is left in the picture


def pack_faces(entries):
    """Boxes and landmarks of scenes (N×M×14) and states N×M; see detector.py."""
    most = max([len(e["faces"]) for e in entries] + [1])
    faces, state = torch.zeros(len(entries), most, 14), torch.zeros(len(entries), most, dtype=torch.long)
    for i, e in enumerate(entries):
        for k, f in enumerate(e["faces"]):
            faces[i, k] = torch.tensor(f["box"] + [c for p in f["landmarks5"] for c in p])
            state[i, k] = 2 if f["ignore"] else 1
    return faces, state


def turned(faces):
    """How far noses are beside the middle of eyes and mouth, in parts of their distance (faces …×14)."""
    p = faces[..., 4:].reshape(*faces.shape[:-1], 5, 2)
    across = p[..., 1, :] - p[..., 0, :] + p[..., 4, :] - p[..., 3, :]
    height = ((p[..., 3, :] + p[..., 4, :] - p[..., 0, :] - p[..., 1, :]) / 2).norm(dim=-1)
    off = ((p[..., 2, :] - p[..., [0, 1, 3, 4], :].mean(-2)) * across).sum(-1) / across.norm(dim=-1).clamp(min=1e-6)
    return off.abs() / height.clamp(min=1e-6)


class Scenes:
    """The pictures at full and half size on the device, and their faces; contents says in words what they are."""

    def __init__(self, data, split, device, limit=0, negatives=True):
        entries = common.read_index(data, "detect", split)
        entries = entries[:limit] if limit else entries
        self.device = device
        self.faces, self.state = [t.to(device) for t in pack_faces(entries)]
        pictures = common.load_pictures(data, entries, SIDE, device)
        # A face's source by its name there: congress_…, interfaces_…, t2i_… (SFHQ-T2I)
        sources = [f["src"].split("_")[0].replace("t2i", "sfhqt2i") for e in entries for f in e["faces"]]
        self.contents = f"{len(entries)} scenes of 640 px with " + common.contents("faces", sources)
        if negatives:
            # Landscapes and towns without people; the sources left out have portraits among them.
            extra = [e for e in common.read_index(data, "photos", split)
                     if e["source"] in ("budgie", "elementary", "pdimages")]
            if os.path.exists(os.path.join(data, "extra", "index.json")):
                extra += [e for e in common.read_index(data, "extra", split)
                          if e["source"] in ("budgie", "elementary", "pdimages")]
            if os.path.exists(os.path.join(data, "negatives", "index.json")):
                hard = common.read_index(data, "negatives", split)
                common.LICENCES.update({e["source"]: e["licence"] for e in hard})
                extra = hard + extra
            extra = extra[:limit // 4] if limit else extra
            pictures = torch.cat([pictures, common.load_pictures(data, extra, SIDE, device)])
            self.contents += "; " + common.contents("photo tiles without faces", [e["source"] for e in extra])
            m = self.faces.shape[1]
            self.faces = torch.cat([self.faces, torch.zeros(len(extra), m, 14, device=device)])
            self.state = torch.cat([self.state, torch.zeros(len(extra), m, dtype=torch.long, device=device)])
        self.pictures = pictures
        self.aside = (self.state == 1) & (turned(self.faces) > PROFILE)
        self.often = 1.0 + 2.0 * self.aside.any(1).float()
        if negatives:
            # Pictures without faces are a third of all windows that come from anywhere, however many there are.
            none = torch.arange(len(self.often), device=device) >= len(entries)
            self.often[none] = 0.5 * self.often[~none].sum() / none.sum().clamp(min=1)
        self.half = torch.cat([F.avg_pool2d(p.float(), 2).round().to(torch.uint8) for p in pictures.split(64)])

    def windows(self, count, cell, low, high, half):
        """count windows of cell px at scales low..high: pictures (0..255), faces, states, whether landmarks count."""
        d = self.device
        c = Chance(count, torch.Generator(device=d).manual_seed(int(torch.randint(1 << 62, (1,)))))
        pick = torch.multinomial(self.often, count, replacement=True, generator=c.generator)
        faces, state = self.faces[pick] + 0.5, self.state[pick]  # from pixel centres to the picture's corner
        scale = c.log_uniform(low, high)
        stretch = torch.exp(c.uniform(-0.08, 0.08))
        window = torch.stack([cell / (scale * stretch), cell / (scale / stretch)], -1).clamp(max=SIDE)
        scale = cell / window
        # Half of the windows hold a face of the scene, where it has one; the others lie anywhere.
        weight = torch.where(state > 0, torch.rand(state.shape, generator=c.generator, device=d), torch.zeros(()).to(d))
        chosen = (weight + self.aside[pick] * c.flag(0.5)[:, None]).argmax(1)
        rows = torch.arange(count, device=d)
        box = faces[rows, chosen][:, :4].reshape(-1, 2, 2)
        centre = box.mean(1)
        place = torch.stack([c.uniform(0, 1), c.uniform(0, 1)], -1)
        free = place * (SIDE - window)
        aimed = torch.minimum((centre - place * window).clamp(min=0), SIDE - window)
        any_ = (state > 0).any(1)
        origin = torch.where((c.flag(0.5) & any_)[:, None], aimed, free)
        # Some of these lie across the window's edge, with up to half of the face beyond it.
        cut = centre + c.uniform(-0.9, 0.3)[:, None] * (box[:, 1] - box[:, 0]) / 2
        edge = c.index(1, 1, 1, 1)
        cut = torch.where(((edge == 0) | (edge == 2))[:, None], cut, 2 * centre - cut - window)
        along = torch.stack([edge < 2, edge >= 2], -1) & (c.flag(0.12) & any_)[:, None]
        origin = torch.where(along, torch.minimum(cut.clamp(min=0), SIDE - window), origin)
        flip = c.flag(0.5)
        lean = c.index(0.72, 0.18, 0.10)
        angle = torch.where(lean == 0, 0 * c.uniform(0, 1), torch.where(lean == 1, 0.4 * c.normal(), c.uniform(-math.pi, math.pi)))

        # An output pixel q from the window's middle shows what lies at R(angle) (sign qx, qy) / scale from it in the scene.
        sign = torch.where(flip, -1.0, 1.0)
        cos, sin = torch.cos(angle), torch.sin(angle)
        theta = torch.zeros(count, 2, 3, device=d)
        theta[:, 0, 0], theta[:, 0, 1] = sign * cos * window[:, 0] / SIDE, -sin * window[:, 0] / SIDE
        theta[:, 1, 0], theta[:, 1, 1] = sign * sin * window[:, 1] / SIDE, cos * window[:, 1] / SIDE
        theta[:, :, 2] = (2 * origin + window) / SIDE - 1
        source = (self.half if half else self.pictures)[pick].float()
        grid = F.affine_grid(theta, (count, 3, cell, cell), align_corners=False)
        x = F.grid_sample(source, grid, mode="bilinear", padding_mode="border", align_corners=False)

        scaled = (faces.reshape(count, -1, 7, 2) - (origin + window / 2)[:, None, None]) * scale[:, None, None]
        half_size = (scaled[:, :, 1] - scaled[:, :, 0]) / 2
        spots = torch.cat([scaled[:, :, :2].mean(2, keepdim=True), scaled[:, :, 2:]], 2)  # the box's middle, the landmarks
        cos, sin = cos[:, None, None], sin[:, None, None]
        spots = torch.stack([sign[:, None, None] * (cos * spots[..., 0] + sin * spots[..., 1]),
                             cos * spots[..., 1] - sin * spots[..., 0]], -1) + cell / 2
        spots = torch.cat([spots[:, :, :1], torch.where(flip[:, None, None, None], spots[:, :, 1:][:, :, FLIPPED],
                                                        spots[:, :, 1:])], 2)
        # A turned box is that of the turned ellipse in it.
        w, h = half_size[..., 0], half_size[..., 1]
        cos, sin = cos[..., 0], sin[..., 0]
        half_size = torch.stack([torch.sqrt((w * cos) ** 2 + (h * sin) ** 2), torch.sqrt((w * sin) ** 2 + (h * cos) ** 2)], -1)
        middle = spots[:, :, 0]
        points = torch.cat([(middle - half_size)[:, :, None], (middle + half_size)[:, :, None], spots[:, :, 1:]], 2)
        whole = (points[:, :, 1] - points[:, :, 0]).clamp(min=1e-3)
        seen = points[:, :, :2].clamp(0, cell)
        size = seen[:, :, 1] - seen[:, :, 0]
        share = size.prod(-1) / whole.prod(-1)
        inside = ((points[:, :, 2:] > 0) & (points[:, :, 2:] < cell)).flatten(2).all(2)
        good = (state == 1) & (share >= 0.5) & (size.max(-1)[0] >= SMALLEST)
        state = torch.where(good, 1, torch.where((state > 0) & (share > 0.05), 2, 0))
        faces = torch.cat([seen.flatten(2), points[:, :, 2:].flatten(2)], 2) - 0.5
        # Some of the windows without a face become cut-outs on white or another plain ground, as pictures with alpha are.
        luma = F.avg_pool2d(x.mean(1, keepdim=True), 5, 1, 2)
        ground = (luma > c.uniform(60, 200).reshape(-1, 1, 1, 1)) & (c.flag(0.25) & (state == 0).all(1))[:, None, None, None]
        shade = torch.where(c.flag(0.6), torch.full((count,), 255.0, device=d), c.uniform(0, 255)).reshape(-1, 1, 1, 1)
        x = torch.where(ground, shade, x)
        x = toys(x, c, c.flag(0.35) & ~any_)
        x = dressed(x, c, faces[rows, chosen][:, 4:].reshape(-1, 5, 2) + 0.5, good[rows, chosen])
        return x, faces, state, good & inside & (share > 0.9)

    def panel(self, count, cells, low, high):
        """count pictures of cells×cells windows."""
        cell = SIDE // cells
        x, faces, state, counted = self.windows(count * cells * cells, cell, low, high, half=high <= 0.5)
        x = x.reshape(count, cells, cells, 3, cell, cell).permute(0, 3, 1, 4, 2, 5).reshape(count, 3, SIDE, SIDE)
        at = torch.arange(cells * cells, device=self.device)
        shift = torch.stack([at % cells, at // cells], -1).float() * cell
        faces = faces.reshape(count, cells * cells, -1, 7, 2) + shift[None, :, None, None]
        faces, state, counted = faces.reshape(count, -1, 14), state.reshape(count, -1), counted.reshape(count, -1)
        if state.shape[1] > FACES:
            area = (faces[..., 2:4] - faces[..., :2]).prod(-1) + 1e9 * (state == 1)
            best = torch.topk(torch.where(state > 0, area, torch.zeros_like(area)), FACES, dim=1)[1]
            faces = torch.gather(faces, 1, best[..., None].expand(-1, -1, 14))
            state, counted = torch.gather(state, 1, best), torch.gather(counted, 1, best)
        missing = FACES - state.shape[1]
        return x, F.pad(faces, (0, 0, 0, missing)), F.pad(state, (0, missing)), F.pad(counted, (0, missing))

    @torch.no_grad()
    def batch(self, count):
        """count pictures (RGB 0..255), faces, states, whether landmarks count."""
        few, some = count // 5, 3 * count // 8
        groups = [self.panel(n, cells, low, high) for n, cells, low, high in
                  ((count - some - few, 1, 1.0, ZOOM), (some, 2, 0.5, 1.1), (few, 4, 0.25, 0.5)) if n]
        x, faces, state, counted = [torch.cat(parts) for parts in zip(*groups)]
        order = torch.randperm(count).to(self.device)  # so that the slices below meet every kind of picture
        x, faces, state, counted = x[order], faces[order], state[order], counted[order]
        return age(x / 255) * 255, faces, state, counted


def face_places(x, left, right):
    """Where each pixel lies in the system of two eyes (N×2): along their line from the middle and up from it, in parts of
    their distance; N×1×h×w each."""
    h, w = x.shape[2:]
    y = torch.arange(h, device=x.device).reshape(1, 1, h, 1) + 0.5
    u = torch.arange(w, device=x.device).reshape(1, 1, 1, w) + 0.5
    middle, along = (left + right) / 2, right - left
    size = along.norm(dim=1).clamp(min=1e-3)
    a, b = along[:, 0] / size**2, along[:, 1] / size**2
    a, b, size = (v.reshape(-1, 1, 1, 1) for v in (a, b, size))
    dx, dy = u - middle[:, 0].reshape(-1, 1, 1, 1), y - middle[:, 1].reshape(-1, 1, 1, 1)
    return dx * a + dy * b, dx * b - dy * a, size


def colours(c, dark):
    """A colour a picture, 0..255: dark ones with this chance."""
    level = torch.where(c.flag(dark), c.uniform(0, 60), c.uniform(40, 255))
    return (level.reshape(-1, 1, 1, 1) + 25 * c.normal(3, 1, 1)).clamp(0, 255)


def dressed(x, c, points, there):
    """Some of the faces get sunglasses, rims or a hat."""
    kind = torch.where(there, c.index(0.8, 0.07, 0.06, 0.07), torch.zeros(c.n, dtype=torch.long, device=x.device))
    if not (kind > 0).any():
        return x

    def v(t):
        return t.reshape(-1, 1, 1, 1)

    along, up, size = face_places(x, points[:, 0], points[:, 1])
    wide, high = v(c.uniform(0.32, 0.5)), v(c.uniform(0.22, 0.4))
    corner = v(c.uniform(2, 5))
    lens = (((along.abs() - 0.5) / wide).abs() ** corner + ((up + 0.05) / high).abs() ** corner) ** (1 / corner)
    soft = 1.5 / (size * high)  # a pixel and a half
    inside = ((1 - lens) / soft + 0.5).clamp(0, 1)
    bridge = ((0.045 - (up - 0.05).abs()) * size + 0.5).clamp(0, 1) * (along.abs() < 0.5)
    rim = (v(c.uniform(0.04, 0.12)) / soft * 0.5 + 0.5 - (1 - lens).abs() / soft).clamp(0, 1)
    brim = v(c.uniform(0.45, 0.8)) + v(0.1 * c.normal()) * along
    hat = ((up - brim) * size + 0.5).clamp(0, 1) * (((v(c.uniform(1.0, 1.7)) - along.abs()) * size).clamp(0, 1)) * \
        (((v(c.uniform(1.3, 2.4)) - up) * size).clamp(0, 1))
    k = v(kind)
    cover = torch.where(k == 1, torch.maximum(inside, bridge) * v(c.uniform(0.6, 1.0)), torch.where(
        k == 2, torch.maximum(rim, bridge) * v(c.uniform(0.6, 1.0)), torch.where(k == 3, hat, torch.zeros_like(hat))))
    colour = torch.where(k == 3, colours(c, 0.4), colours(c, 0.8))
    return x + (colour - x) * cover


def toys(x, c, there):
    """What looks like a face and is none: rings of a knot, and discs with two dots and a stroke."""
    cell = x.shape[3]
    left = torch.stack([c.uniform(0.1, 0.9), c.uniform(0.1, 0.9)], -1) * cell
    angle, size = c.uniform(0, 2 * math.pi), c.log_uniform(0.02, 0.3) * cell
    right = left + torch.stack([torch.cos(angle), torch.sin(angle)], -1) * size[:, None]
    along, up, size = face_places(x, left, right)

    def v(t):
        return t.reshape(-1, 1, 1, 1)

    def disc(at, high, radius, flat=1.0):
        d = torch.sqrt((along - v(at)) ** 2 + ((up - v(high)) / flat) ** 2)
        return ((v(radius) - d) * size + 0.5).clamp(0, 1)

    knot = v(c.flag(0.4))
    r = torch.sqrt((along / v(c.uniform(0.7, 1.3))) ** 2 + (up + 0.5) ** 2)
    rings = 0.5 + 0.5 * torch.cos(2 * math.pi * r * v(c.uniform(1.5, 5)) + v(c.uniform(0, 6.3)))
    rings = rings * torch.sigmoid(8 * (v(c.uniform(0.7, 1.6)) - r)) * v(c.uniform(0.2, 0.9))
    half = 0 * angle + 0.5
    ground = disc(0.1 * c.normal(), -half + 0.1 * c.normal(), c.uniform(0.8, 1.6), 1.2) * v(c.flag(0.7))
    dots = torch.maximum(disc(-half, 0 * half, c.uniform(0.08, 0.28)), disc(half, 0 * half, c.uniform(0.08, 0.28)))
    bend = v(c.uniform(-0.6, 0.6)) * along**2
    mouth = ((0.08 - (up + v(c.uniform(0.7, 1.2)) + bend).abs()) * size + 0.5).clamp(0, 1) * (along.abs() < v(c.uniform(0.1, 0.6)))
    mouth = mouth * v(c.flag(0.7))
    first, second = colours(c, 0.1), colours(c, 0.7)
    some = v(there).float()
    x = x + (first - x) * ground * some * (~knot)
    return x + (second - x) * torch.where(knot, rings, torch.maximum(dots, mouth)) * some


def age(x):
    """Old, small and badly kept pictures: tone for all, then blur, noise and JPEG for slices of the batch."""
    n, d = x.shape[0], x.device
    generator = torch.Generator(device=d).manual_seed(int(torch.randint(1 << 62, (1,))))
    x = Tone(Chance(n, generator), 1.2, gray=0.2, sepia=0.06, fade=0.08)(x)
    third, half = n // 3, n // 2
    if third:
        x[:third] = random_blur(x[:third], Chance(third, generator), 0.4, 3.0)
        c = Chance(third, generator)
        start = third // 2
        x[start:start + third] = noise(x[start:start + third], c, c.uniform(0, 0.07), c.uniform(0, 0.08), c.flag(0.4))
        few = max(1, n // 10)
        c = Chance(few, generator)
        x[third:third + few] = printed(x[third:third + few], c)
        c = Chance(half, generator)
        x[n - half:] = jpeg(x[n - half:], torch.round(c.uniform(25, 95)), c.flag(0.8))
    return x.clamp(0, 1)


def printed(x, c):
    """As old newspapers print: a screen of dots."""
    y = torch.arange(x.shape[2], device=x.device).reshape(1, 1, -1, 1)
    u = torch.arange(x.shape[3], device=x.device).reshape(1, 1, 1, -1)
    angle, pitch = (v.reshape(-1, 1, 1, 1) for v in (c.uniform(0, math.pi / 2), c.uniform(2.5, 6.0)))
    a = (y * torch.cos(angle) + u * torch.sin(angle)) * math.pi / pitch
    b = (u * torch.cos(angle) - y * torch.sin(angle)) * math.pi / pitch
    dots = torch.sigmoid((x - 0.5 - 0.5 * torch.sin(a) * torch.sin(b)) * 6)
    return x + (dots - x) * c.uniform(0.2, 0.9).reshape(-1, 1, 1, 1)
