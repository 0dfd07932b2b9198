"""The detector's pictures: scenes of the pack, cut, scaled, flipped, put together and aged on the device, in batches.

A picture of SIDE px is one scene's window enlarged up to ZOOM times, or a panel of 2×2 or 4×4 windows that are reduced,
so that faces of all sizes come up and no picture has an empty border.
"""
import torch
import torch.nn.functional as F

from models.training import common
from models.training.degrade import Chance, Tone, jpeg, noise, random_blur

SIDE = 640
ZOOM = 2.2
SMALLEST = 18.0  # px; a smaller face is ignored
FACES = 48  # of a picture; the largest stay
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
            extra = extra[:limit // 4] if limit else extra
            pictures = torch.cat([pictures, common.load_pictures(data, extra, SIDE, device)])
            self.contents += "; " + common.contents("photo tiles without faces", [e["source"] for e in extra])
            m = self.faces.shape[1]
            self.faces = torch.cat([self.faces, torch.zeros(len(extra), m, 14, device=device)])
            self.state = torch.cat([self.state, torch.zeros(len(extra), m, dtype=torch.long, device=device)])
        self.pictures = pictures
        self.half = torch.cat([F.avg_pool2d(p.float(), 2).round().to(torch.uint8) for p in pictures.split(64)])

    def windows(self, count, cell, low, high, half):
        """count windows of cell px at scales low..high: pictures (0..255), faces, states, whether landmarks count."""
        d = self.device
        c = Chance(count, torch.Generator(device=d).manual_seed(int(torch.randint(1 << 62, (1,)))))
        pick = torch.randint(len(self.pictures), (count,), generator=c.generator, device=d)
        faces, state = self.faces[pick] + 0.5, self.state[pick]  # from pixel centres to the picture's corner
        scale = c.log_uniform(low, high)
        stretch = torch.exp(c.uniform(-0.08, 0.08))
        window = torch.stack([cell / (scale * stretch), cell / (scale / stretch)], -1).clamp(max=SIDE)
        scale = cell / window
        # Half of the windows hold a face of the scene, where it has one; the others lie anywhere.
        weight = torch.where(state > 0, torch.rand(state.shape, generator=c.generator, device=d), torch.zeros(()).to(d))
        chosen = weight.argmax(1)
        centre = (faces[torch.arange(count, device=d), chosen][:, :4].reshape(-1, 2, 2)).mean(1)
        place = torch.stack([c.uniform(0, 1), c.uniform(0, 1)], -1)
        free = place * (SIDE - window)
        aimed = torch.minimum((centre - place * window).clamp(min=0), SIDE - window)
        origin = torch.where((c.flag(0.5) & (state > 0).any(1))[:, None], aimed, free)
        flip = c.flag(0.5)

        sign = torch.where(flip, -1.0, 1.0)
        theta = torch.zeros(count, 2, 3, device=d)
        theta[:, 0, 0], theta[:, 1, 1] = sign * window[:, 0] / SIDE, window[:, 1] / SIDE
        theta[:, :, 2] = (2 * origin + window) / SIDE - 1
        source = (self.half if half else self.pictures)[pick].float()
        grid = F.affine_grid(theta, (count, 3, cell, cell), align_corners=False)
        x = F.grid_sample(source, grid, mode="bilinear", padding_mode="reflection", align_corners=False)

        points = (faces.reshape(count, -1, 7, 2) - origin[:, None, None]) * scale[:, None, None]
        mirrored = torch.stack([cell - points[..., 0], points[..., 1]], -1)
        box = torch.stack([mirrored[:, :, 1, 0], mirrored[:, :, 0, 1], mirrored[:, :, 0, 0], mirrored[:, :, 1, 1]], -1)
        mirrored = torch.cat([box.reshape(count, -1, 2, 2), mirrored[:, :, 2:][:, :, FLIPPED]], 2)
        points = torch.where(flip[:, None, None, None], mirrored, points)
        whole = (points[:, :, 1] - points[:, :, 0]).clamp(min=1e-3)
        seen = points[:, :, :2].clamp(0, cell)
        size = seen[:, :, 1] - seen[:, :, 0]
        share = size.prod(-1) / whole.prod(-1)
        inside = ((points[:, :, 2:] > 0) & (points[:, :, 2:] < cell)).flatten(2).all(2)
        good = (state == 1) & (share >= 0.6) & (size.max(-1)[0] >= SMALLEST)
        state = torch.where(good, 1, torch.where((state > 0) & (share > 0.05), 2, 0))
        faces = torch.cat([seen.flatten(2), points[:, :, 2:].flatten(2)], 2) - 0.5
        # Some of the windows without a face become cut-outs on white or another plain ground, as pictures with alpha are.
        luma = F.avg_pool2d(x.mean(1, keepdim=True), 5, 1, 2)
        ground = (luma > c.uniform(60, 200).reshape(-1, 1, 1, 1)) & (c.flag(0.25) & (state == 0).all(1))[:, None, None, None]
        shade = torch.where(c.flag(0.6), torch.full((count,), 255.0, device=d), c.uniform(0, 255)).reshape(-1, 1, 1, 1)
        x = torch.where(ground, shade, x)
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
        few, some = count // 8, 3 * count // 8
        groups = [self.panel(n, cells, low, high) for n, cells, low, high in
                  ((count - some - few, 1, 1.0, ZOOM), (some, 2, 0.5, 1.1), (few, 4, 0.25, 0.5)) if n]
        x, faces, state, counted = [torch.cat(parts) for parts in zip(*groups)]
        order = torch.randperm(count).to(self.device)  # so that the slices below meet every kind of picture
        x, faces, state, counted = x[order], faces[order], state[order], counted[order]
        return age(x / 255) * 255, faces, state, counted


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
        c = Chance(half, generator)
        x[n - half:] = jpeg(x[n - half:], torch.round(c.uniform(25, 95)), c.flag(0.8))
    return x.clamp(0, 1)
