"""Pictures with holes for the filler, made in batches on the device.

Some pictures are as they are, with a mask that covers the damage wholly. The others are prints whose damage is scanned with
them, most of them aged: it is blurred and compressed over the mask's edge, and the truth is the print without grain, noise
and JPEG. Of most of these the mask is what the damage detector finds, so that it misses parts.
Holes are drawn less often than they are used: each step takes some of a bank, turned, mirrored and shifted. Wide ones are drawn
for each picture. What is deep in a hole is mostly known, blurred: the pipeline fills it at half the size first.
"""
import torch
import torch.nn.functional as F

from models.training import damage
from models.training.damage import column
from models.training.degrade import Chance, Tone, blur, jpeg, noise
from models.training.networks_damage import whole as find
from models.training.networks_fill import eroded

SIDE = 256  # of the pictures that are made
SORTS = ("thin", "crack", "dust", "blob", "wide")  # of the validation's holes
SEEN = 0.02  # opacity from which a pixel counts as damaged


# --- holes -----------------------------------------------------------------------------------------------------------


class Holes(damage.Painter):
    """Keeps how opaque the damage is, and paints nothing."""

    def paint(self, opacity, colour, kind=None):
        if kind is not None:
            self.opacity = 1 - (1 - self.opacity) * (1 - opacity.clamp(0, 1))


def blobs(p, flag):
    """Holes 8 to 70 px wide: short thick strokes and patches with ragged borders."""
    c, owner = damage.slots(p.n, 4, p.generator)
    there = (flag[owner] & c.flag(0.5)).float()
    points = 12
    y, x, _ = damage.curves(c, c.uniform(0.05, 0.95) * p.side, c.uniform(0.05, 0.95) * p.side, c.uniform(0, 6.3),
                            c.log_uniform(4, 90), points, c.uniform(0, 1.5), 0 * there, there)
    radius = c.log_uniform(4, 26)
    planes = p.planes(p.n)
    damage.draw(planes, owner, y, x, (radius[:, None] * (1 + 0.25 * damage.line(c, 5, points))).clamp(2, 30),
                there[:, None], 31)
    ragged = damage.smooth(p.c, 24, p.side) * column(p.c.uniform(0, 1))
    soft = F.avg_pool2d(planes[:, None], 5, 1, 2)
    p.paint((soft + 0.25 * ragged > 0.5).float() * (soft > 0.05), 0, damage.STAIN)


def wide(count, side, generator):
    """What is gone at a corner, along a side, or in a large patch, as a mask N×1×side×side. Holes that end at the picture's
    border are not to be shifted: nothing is known beyond it."""
    c = Chance(count, generator)
    y, x = damage.places(side, generator.device)
    ragged = 6 * damage.smooth(c, 12, side) + 2.5 * damage.smooth(c, 64, side)
    v = torch.where(column(c.flag(0.5)), y, side - 1 - y)
    u = torch.where(column(c.flag(0.5)), x, side - 1 - x)
    lean = column(c.uniform(0.3, 1.25))
    corner = column(c.log_uniform(24, 0.7 * side)) - v * torch.cos(lean) - u * torch.sin(lean)
    strip = column(c.log_uniform(10, 0.4 * side)) - torch.where(column(c.flag(0.5)), v, u)
    turn = column(c.uniform(0, 3.15))
    dy, dx = y - column(c.uniform(0, side)), x - column(c.uniform(0, side))
    along, across = dy * torch.cos(turn) + dx * torch.sin(turn), dx * torch.cos(turn) - dy * torch.sin(turn)
    half = column(c.log_uniform(20, 0.3 * side))
    patch = half - torch.sqrt(along**2 + (across * column(c.log_uniform(0.5, 2))) ** 2)
    sort = column(c.index(0.4, 0.2, 0.4))
    gone = torch.where(sort == 0, corner, torch.where(sort == 1, strip, patch))
    return (gone + ragged * column(c.uniform(0, 1)) > 0).float()


def holes(masks, count, side, generator, only=None):
    """The opacity of damage N×1×side×side; only: of one of SORTS, as the validation has it, and else all but wide ones."""
    if only == "wide":
        return wide(count, side, generator)
    p = Holes(torch.zeros(count, 1, side, side, device=generator.device), generator)
    c = p.c

    def has(sort, share):
        return c.flag(share if only is None else float(sort == only))

    if only is None:
        damage.net_of_cracks(p, c.flag(0.05))
        damage.tears(p, c.flag(0.08))
        damage.corners(p, c.flag(0.04))
        damage.thin_lines(p, c.flag(0.25))
        damage.specks(p, c.flag(0.22))
        damage.real(p, masks, damage.STAIN, c.flag(0.08), 2, 200, 0.4, 1.0)
    damage.cracks(p, has("crack", 0.35))
    damage.real(p, masks, damage.THIN, has("thin", 0.35), 5, min(side, 288), 0.6, 1.5)
    damage.real(p, masks, damage.DUST, has("dust", 0.3), 6, 160, 0.4, 1.3)
    blobs(p, has("blob", 0.16))
    return p.opacity


def grown(mask, radius):
    """Masks grown by radius px (N, 0 to 3)."""
    out = mask
    for r in (1, 2, 3):
        out = torch.where(column(radius >= r), F.max_pool2d(mask, 2 * r + 1, 1, r), out)
    return out


class Bank:
    """Opacities that were drawn, 8 bits each; a part of them is drawn anew whenever some are taken."""

    def __init__(self, masks, size, generator, part=64):
        self.masks, self.part, self.at = masks, part, 0
        self.planes = torch.cat([self.draw(min(part, size - i), generator) for i in range(0, size, part)])

    def draw(self, count, generator):
        return (holes(self.masks, count, SIDE, generator)[:, 0] * 255).to(torch.uint8)

    def take(self, count, generator):
        fresh = self.draw(self.part, generator)
        at = (self.at + torch.arange(self.part, device=fresh.device)) % len(self.planes)
        self.planes[at] = fresh
        self.at = (self.at + self.part) % len(self.planes)
        c = Chance(count, generator)
        pick = (c.uniform(0, 1) * len(self.planes)).long().clamp(max=len(self.planes) - 1)
        along = torch.arange(SIDE, device=fresh.device)
        y = (along + (c.uniform(0, 1) * SIDE).long()[:, None]) % SIDE
        x = (along + (c.uniform(0, 1) * SIDE).long()[:, None]) % SIDE
        y, x = torch.where(c.flag(0.5)[:, None], y.flip(1), y), torch.where(c.flag(0.5)[:, None], x.flip(1), x)
        out = self.planes[pick[:, None, None], y[:, :, None], x[:, None, :]].float()[:, None] / 255
        return torch.where(column(c.flag(0.5)), out.transpose(2, 3), out)


# --- pictures --------------------------------------------------------------------------------------------------------


def windows(pictures, count, generator):
    """count clean pictures of SIDE px: half of them at the pack's scale, half reduced up to twofold."""
    c = Chance(count, generator)
    device, full = generator.device, pictures.shape[-1]
    pick = (c.uniform(0, 1) * len(pictures)).long().clamp(max=len(pictures) - 1)
    mirror = torch.where(c.flag(0.5), -1.0, 1.0)
    half = count // 2
    along = torch.arange(SIDE, device=device)
    y = (c.uniform(0, 1) * (full - SIDE + 1)).long().clamp(max=full - SIDE)[:half, None] + along
    x = (c.uniform(0, 1) * (full - SIDE + 1)).long().clamp(max=full - SIDE)[:half, None] + along
    x = torch.where(mirror[:half, None] < 0, x.flip(1), x)
    plane = torch.arange(3, device=device)[None, :, None, None]
    native = pictures[pick[:half, None, None, None], plane, y[:, None, :, None], x[:, None, None, :]].float() / 255
    part = c.uniform(0.5, 1.0)[half:]
    theta = torch.zeros(count - half, 2, 3, device=device)
    theta[:, 0, 0], theta[:, 1, 1] = part * mirror[half:], part
    theta[:, 0, 2], theta[:, 1, 2] = c.uniform(-1, 1)[half:] * (1 - part), c.uniform(-1, 1)[half:] * (1 - part)
    grid = F.affine_grid(theta, (count - half, 3, 2 * SIDE, 2 * SIDE), align_corners=False)
    reduced = F.grid_sample(pictures[pick[half:]].float() / 255, grid, mode="bilinear", padding_mode="reflection",
                            align_corners=False)
    out = torch.cat([native, F.avg_pool2d(reduced, 2)]).clamp(0, 1)
    out = torch.where(column(c.flag(0.2)), out.transpose(2, 3), out)
    return out[torch.randperm(count, generator=generator, device=device)]


def plain_walls(x, c):
    """Pictures without any detail, most of them light, as walls and skies are: there a wrong colour is seen most."""
    blurred = F.interpolate(F.avg_pool2d(x, 32), scale_factor=32, mode="bicubic", align_corners=False)
    colour = (column(c.uniform(0.1, 1.15)) + 0.04 * c.normal(3, 1, 1)).clamp(0, 1)
    return torch.lerp(blurred, colour, column(c.uniform(0.3, 1))).clamp(0, 1)


def known_core(picture, truth, mask, c):
    """What is deep in holes, which the pipeline fills at a smaller size first: the picture with that in it, the mask without.
    It is blurred, and its colour is somewhat wrong."""
    depth = column(c.index(1, 1, 1, 1))
    core = torch.zeros_like(mask)
    for i, by in enumerate((12, 18, 24, 32)):
        core = torch.where(depth == i, eroded(mask, by), core)
    core = core * column(c.flag(0.75)).float()
    coarse, size = truth, column(c.index(2, 1, 1))
    for i, by in enumerate((2, 4, 8)):
        blurred = F.interpolate(F.avg_pool2d(truth, by), scale_factor=by, mode="bilinear", align_corners=False)
        coarse = torch.where(size == i, blurred, coarse)
    off = 0.02 * c.normal(3, 1, 1) + 0.03 * F.interpolate(c.normal(3, 4, 4), truth.shape[-1:] * 2, mode="bicubic")
    coarse = (coarse + off * column(c.uniform(0, 1))).clamp(0, 1)
    return torch.where(core > 0, coarse, picture), mask - core


def scanned(x, opacity, threshold, generator, plain=0.3):
    """Prints with damage, scanned: the picture, the truth, the mask of what is more opaque than the threshold. plain: the
    share of photos that are as they are under their damage."""
    n = len(x)
    c = Chance(n, generator)
    zero = torch.zeros(n, dtype=torch.long, device=x.device)
    p = damage.Painter(x, generator)
    aged = ~c.flag(plain)
    truth = torch.where(column(aged), Tone(c, 1.3, gray=0.35, sepia=0.2, fade=0.2)(x), x)
    grain = torch.where(aged & c.flag(0.6), c.uniform(0, 1) ** 2 * 0.08, 0.0 * c.uniform(0, 1))
    coarse = F.avg_pool2d(c.normal(1, SIDE, SIDE), 3, 1, 1) * 3
    grainy = truth + torch.where(column(c.flag(0.5)), coarse, c.normal(1, SIDE, SIDE)) * column(grain)
    damaged = grainy + (p.colour(0.6, 0.15) - grainy) * opacity
    sigma = torch.where(aged & c.flag(0.7), c.log_uniform(0.25, 1.1), torch.full((n,), 0.05, device=x.device))
    both = blur(torch.cat([damaged, truth, opacity], 1), zero, sigma, sigma, 0 * sigma)
    damaged, truth, opacity = both[:, :3], both[:, 3:6].clamp(0, 1), both[:, 6:]
    speckle = torch.where(aged & c.flag(0.4), c.uniform(0, 1) ** 2 * 0.04, 0.0 * c.uniform(0, 1))
    damaged = noise(damaged, c, speckle, 0 * speckle, c.flag(0.5)).clamp(0, 1)
    coded = jpeg(damaged, torch.round(100 - c.uniform(0, 1) ** 1.5 * 60), c.flag(0.7))
    damaged = torch.where(column(aged & c.flag(0.6)), coded, damaged)
    return damaged, truth, (opacity > threshold).float()


def found(detector, picture, mask, generator):
    """The masks that the detector makes of pictures 0..1, as sure of it as repair's rules are or more or less so; `mask`
    where it finds less than half of that."""
    c = Chance(len(picture), generator)
    with torch.autocast(picture.device.type, dtype=torch.bfloat16, enabled=picture.is_cuda):
        odds = torch.cat([find(detector, part)[:, :1] for part in picture.split(64)])
    seen = (odds.float() > column(c.uniform(-1.5, 2.5))).float()
    enough = (seen * mask).sum((1, 2, 3)) >= 0.5 * mask.sum((1, 2, 3))
    return torch.where(column(enough), seen, mask)


@torch.no_grad()
def make(pictures, bank, count, generator, detector=None, old=0.6, looked=0.7):
    """count pictures of SIDE px as a dict: picture (RGB -1..1, damaged or not under the mask), mask, truth (-1..1). The last
    ones, a share `old` of them, are scanned prints; the last of these, a share `looked`, have the detector's masks."""
    x = windows(pictures, count, generator)
    opacity = bank.take(count, generator)
    c = Chance(count, generator)
    x = torch.where(column(c.flag(0.08)), plain_walls(x, c), x)
    opacity = torch.maximum(opacity, wide(count, SIDE, generator) * column(c.flag(0.3)).float())
    threshold = column(c.uniform(SEEN, 0.3))
    first = count - int(old * count)
    fresh = x[:first]
    fresh = torch.where(column(c.flag(0.5)[:first]), Tone(Chance(first, generator), 0.7, gray=0.2, sepia=0.06, fade=0.06)(
        fresh), fresh)
    radius = c.index(0.2, 0.45, 0.25, 0.1)
    picture, truth, mask = scanned(x[first:], opacity[first:], threshold[first:], generator)
    last = int(looked * len(mask)) if detector else 0
    if last:
        mask = torch.cat([mask[:-last], found(detector, picture[-last:], mask[-last:], generator)])
        radius[-last:] = Chance(last, generator).index(0.1, 0.7, 0.2)
    picture, truth = torch.cat([fresh, picture]), torch.cat([fresh, truth])
    mask = grown(torch.cat([(opacity[:first] > threshold[:first]).float(), mask]), radius)
    picture, mask = known_core(picture, truth, mask, c)
    # Beyond the picture's border everything is a hole.
    y, u = damage.places(SIDE, x.device)
    beyond = column(SIDE - c.flag(0.06) * c.uniform(1, 100))
    mask = torch.maximum(mask, ((y >= beyond) | (u >= beyond)).float() * column(c.flag(0.5)))
    return {"picture": 2 * picture - 1, "truth": 2 * truth - 1, "mask": mask}


@torch.no_grad()
def validation(photos, masks, generator, each=16):
    """Held-out pictures 0..1 with held-out masks: a dict of (picture N×3×s×s, mask) by sort of hole. The same numbers give
    the same pictures."""
    out = {}
    n, full = len(photos.pictures), photos.pictures.shape[-1]
    for sort in SORTS:
        c = Chance(each, generator)
        y, x = ((c.uniform(0, 1) * (full - SIDE)).long() for _ in range(2))
        picture = torch.stack([photos.pictures[i % n, :, y[i]:y[i] + SIDE, x[i]:x[i] + SIDE] for i in range(each)])
        opacity = holes(masks, each, SIDE, generator, sort)
        mask = F.max_pool2d((opacity > SEEN).float(), 3, 1, 1)
        out[sort] = picture.float() / 255, mask
    return out


def psnr(a, b, mask):
    """Of the masked pixels of all the pictures together."""
    error = ((a.float() - b.float()) ** 2 * mask).sum() / (3 * mask.sum()).clamp(min=1)
    return float(-10 * torch.log10(error.clamp(min=1e-10)))
