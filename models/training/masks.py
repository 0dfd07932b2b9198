"""Labels for the face mask, computed from the pictures and their five points; nothing is drawn by hand.

Each class (skin, hair, neck, cloth, background) begins as a soft region of a face seen from the front, placed by the eyes and
the mouth corners. The regions' colours are counted into one histogram a class and picture; the next regions are the first
ones times what the histograms say of each pixel's colour, smoothed along the picture's own edges (a guided filter, He et al.
2010). A few rounds of this fit the outline of skin and hair. All in torch and batched, so that the packs take seconds on a
GPU."""
import torch
import torch.nn.functional as F

from models.training import parsenet

CLASSES = (parsenet.BACKGROUND, parsenet.SKIN, parsenet.HAIR, parsenet.NECK, parsenet.CLOTH)
SIDE = 256  # what the labels are computed at
BINS = 16


def place(points, size):
    """Coordinates of every pixel in the face's own frame: origin between the eyes, t downwards, 1 at the mouth, s to the
    right in the same unit. points: N×5×2 in pixels of size×size. Returns s, t (N×1×size×size) and the nose's s (N)."""
    eyes, mouth = points[:, :2].mean(1), points[:, 3:].mean(1)
    down = mouth - eyes
    length = down.square().sum(1)
    right = torch.stack([down[:, 1], -down[:, 0]], 1)
    at = torch.arange(size, device=points.device, dtype=torch.float32)
    y, x = torch.meshgrid(at, at, indexing="ij")
    offset = torch.stack([x, y], -1)[None] - eyes[:, None, None]
    s = (offset * right[:, None, None]).sum(-1) / length[:, None, None]
    t = (offset * down[:, None, None]).sum(-1) / length[:, None, None]
    nose = ((points[:, 2] - eyes) * right).sum(1) / length
    return s[:, None], t[:, None], nose


def regions(points, size):
    """How likely each class is at each pixel before the picture is looked at: N×5×size×size."""
    s, t, nose = place(points, size)
    turn = nose.clamp(-0.6, 0.6)[:, None, None, None]
    s = s + 0.35 * turn  # of a turned face more lies on the side that the nose points away from

    def step(v, soft):
        return torch.sigmoid(v / soft)

    # An ellipse from the hairline to the chin, narrower below the mouth
    wide = 1.0 - 0.22 * (t - 0.6).clamp(0, 1)
    r = torch.sqrt((s / wide) ** 2 + ((t - 0.38) / 1.24) ** 2 + 1e-6)
    skin = step(1 - r, 0.06)
    below = step(t - 1.45, 0.08)
    neck = (1 - skin) * below * step(0.8 - s.abs(), 0.12) * 0.8
    cloth = (1 - skin) * step(t - 1.75 + 0.25 * (s.abs() - 0.8).clamp(min=0), 0.12)
    around = torch.exp(-(((r - 1.2) / 0.3) ** 2))
    long = step(s.abs() - 0.8, 0.1) * step(1.6 - s.abs(), 0.15) * step(2 - t, 0.2)
    # Before a face in profile there is no hair.
    before = 1 - (turn.abs() / 0.4).clamp(max=0.95) * step(s * torch.sign(turn), 0.15)
    hair = (1 - skin) * before * (around * step(0.9 - t, 0.25) + 0.25 * long)
    background = 0.03 + (1 - skin) * step(r - 1.45, 0.12) * step(1.9 - t, 0.2) + 0.15 * (1 - skin)
    p = torch.cat([background, skin, hair, neck, cloth], 1) + 0.004
    return p / p.sum(1, keepdim=True)


def colours(x):
    """The histogram's cell of each pixel: luma and two stretched colour differences. x: N×3×h×w, 0..1."""
    r, g, b = x[:, 0], x[:, 1], x[:, 2]
    luma = 0.299 * r + 0.587 * g + 0.114 * b
    parts = torch.stack([luma, 0.5 + 1.6 * (b - luma) * 0.56, 0.5 + 1.6 * (r - luma) * 0.71], 1)
    cell = (parts * BINS).long().clamp(0, BINS - 1)
    return (cell[:, 0] * BINS + cell[:, 1]) * BINS + cell[:, 2]


def mean(x, radius):
    """Means over windows of 2·radius+1, by fewer pixels at the border."""
    k = 2 * radius + 1
    x = F.avg_pool2d(x, (k, 1), 1, (radius, 0), count_include_pad=False)
    return F.avg_pool2d(x, (1, k), 1, (0, radius), count_include_pad=False)


def guided(p, guide, radius, epsilon):
    """p (N×K×h×w) smoothed where the guide (N×1×h×w) is smooth, kept where it has an edge."""
    m, average = mean(guide, radius), mean(p, radius)
    slope = (mean(guide * p, radius) - m * average) / (mean(guide * guide, radius) - m * m + epsilon)
    return mean(slope, radius) * guide + mean(average - slope * m, radius)


@torch.no_grad()
def probabilities(x, points, rounds=5):
    """x: N×3×SIDE×SIDE, 0..1; points in its pixels. N×5×SIDE×SIDE in the order of CLASSES."""
    prior = regions(points, x.shape[2])
    n, k = prior.shape[:2]
    cell = colours(x).reshape(n, 1, -1).expand(n, k, -1)
    guide = (x * torch.tensor([0.299, 0.587, 0.114], device=x.device).reshape(1, 3, 1, 1)).sum(1, keepdim=True)
    p = prior
    for _ in range(rounds):
        count = torch.zeros(n, k, BINS**3, device=x.device).scatter_add_(2, cell, (p * p).reshape(n, k, -1))
        cube = count.reshape(n * k, 1, BINS, BINS, BINS)
        for _ in range(2):  # neighbouring cells count too
            cube = F.avg_pool3d(cube, 3, 1, 1)
        count = cube.reshape(n, k, -1)
        count = count / count.sum(2, keepdim=True).clamp(min=1) + 2e-5
        likelihood = count.gather(2, cell).reshape(prior.shape)
        # Skin and neck have one colour: what parts them is the chin's place alone.
        both = torch.maximum(likelihood[:, 1], likelihood[:, 3])
        likelihood = torch.stack([likelihood[:, 0], both, likelihood[:, 2], both, likelihood[:, 4]], 1)
        # Eyes, brows and lips are no skin in colour; inside the face its place decides.
        p = prior * likelihood ** (0.7 * (1 - prior[:, 1:2] ** 4))
        p = p / p.sum(1, keepdim=True)
        p = guided(p, guide, 4, 1e-3).clamp(min=1e-4)
        p = p / p.sum(1, keepdim=True)
    return p


def labels(x, points):
    """Class numbers N×SIDE×SIDE (uint8) of pictures N×3×h×w, 0..1, with points in their pixels. Sums, not the likeliest
    class alone, decide what is pasted: skin, hair and neck against the rest."""
    points = points * (SIDE / x.shape[2])
    if x.shape[2] != SIDE:
        x = F.interpolate(x, size=(SIDE, SIDE), mode="area")
    p = probabilities(x, points)
    pasted = p[:, 1:4].sum(1) > 0.5
    inner, outer = p[:, 1:4].argmax(1), p[:, [0, 4]].argmax(1)
    table = torch.tensor(CLASSES, device=x.device, dtype=torch.uint8)
    return torch.where(pasted, table[1:4][inner], table[[0, 4]][outer])
