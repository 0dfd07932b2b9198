"""Batches of aligned faces for the restorer: the packs on the device, weighted by source, moved, mirrored and toned."""
import math
import os

import torch
import torch.nn.functional as F

from models.training import common, degrade

# Each source's share of the 512 px faces in a batch: congress is the largest one with true 512 px detail and the least
# varied, sfhqt2i has the variety and softer, synthetic detail.
SHARES = {"congress": 0.36, "interfaces": 0.12, "sfhqt2i": 0.52}
SMALL_SHARE = 0.16  # of a batch that comes from the 256 px pack
TRUE_PX = 480  # a face with at least so many source pixels across teaches what 512 px look like


def contents(packs):
    """A model card's words for (what, entries) …; a pack that was not there is not named."""
    return "; ".join(common.contents(what, [e["source"] for e in entries]) for what, entries in packs if entries)


class Faces:
    """Training pictures. batch(n) -> dict: truth N×3×512×512 0..1; fine N, how much the truth is worth at 512 px (0..1).
    contents says in words what they are."""

    def __init__(self, data, device, limit=0):
        self.device = device
        large = common.read_index(data, "faces512", "train")
        # The small pack may be missing: large ones alone do, with less variety.
        small = common.read_index(data, "faces256", "train") if os.path.exists(data + "/faces256/index.json") else []
        if limit:
            large, small = large[::max(1, len(large) // limit)], small[::max(1, len(small) // limit)]
        self.large = common.load_pictures(data, large, 512, device, 6)
        self.small = common.load_pictures(data, small, 256, device, 6)
        self.contents = contents((("faces of 512 px", large), ("faces of 256 px", small)))
        counts = {s: sum(e["source"] == s for e in large) for s in SHARES}
        # Doubtful alignments and mirrored borders teach little about faces.
        self.weights = torch.tensor([SHARES[e["source"]] / counts[e["source"]] *
                                     (0.5 if e["pad"] > 0.15 or e["fit_err"] > 25 else 1.0) for e in large])
        self.fine = torch.tensor([min(1.0, max(0.1, (e["src_px"] - 260) / (TRUE_PX - 260))) for e in large],
                                 device=device)

    def _window(self, n, size):
        """Rows and columns N×size that mirror half of the pictures and move each by a few whole pixels."""
        at = torch.arange(size)[None]
        reach = size // 40
        rows, columns = (at + torch.randint(-reach, reach + 1, (n, 1)) for _ in range(2))
        columns = torch.where(torch.rand(n, 1) < 0.5, size - 1 - columns, columns)
        return [((size - 1) - ((size - 1) - v.abs()).abs()).to(self.device) for v in (rows, columns)]

    def _take(self, pictures, index):
        n, size = len(index), pictures.shape[2]
        rows, columns = self._window(n, size)
        index = index.to(self.device)
        out = pictures[index[:, None, None], :, rows[:, :, None], columns[:, None, :]]
        return out.permute(0, 3, 1, 2).float() / 255

    def _turn(self, x, share=0.3):
        """Small rotations and scales on a share of the pictures: alignments found on bad pictures are off by so much."""
        n = x.shape[0]
        angle = (torch.rand(n) * 2 - 1) * math.radians(6)
        scale = 1 + (torch.rand(n) * 2 - 1) * 0.06
        theta = torch.zeros(n, 2, 3)
        theta[:, 0, 0] = theta[:, 1, 1] = torch.cos(angle) * scale
        theta[:, 0, 1] = -torch.sin(angle) * scale
        theta[:, 1, 0] = torch.sin(angle) * scale
        grid = F.affine_grid(theta.to(x.device), list(x.shape), align_corners=False)
        turned = F.grid_sample(x, grid, mode="bicubic", padding_mode="reflection", align_corners=False)
        chosen = (torch.rand(n) < share).to(x.device)
        return torch.where(chosen[:, None, None, None], turned.clamp(0, 1), x), chosen

    def batch(self, n):
        few = int(round(n * SMALL_SHARE)) if n > 3 and len(self.small) else 0
        index = torch.multinomial(self.weights, n - few, replacement=True)
        truth, fine = self._take(self.large, index), self.fine[index.to(self.device)]
        if few:
            small = self._take(self.small, torch.randint(0, len(self.small), (few,)))
            small = F.interpolate(small, scale_factor=2, mode="bicubic", align_corners=False).clamp(0, 1)
            truth, fine = torch.cat([truth, small]), torch.cat([fine, torch.zeros(few, device=self.device)])
        truth, turned = self._turn(truth)
        fine = torch.where(turned, fine * 0.5, fine)  # resampled, so a little softer
        # The tone is the picture's own and has to stay: input and target share it.
        generator = new_generator(self.device)
        chance = degrade.Chance(n, generator)
        toned = degrade.Tone(chance)(truth)
        truth = torch.where(chance.flag(0.5)[:, None, None, None], toned, truth)
        return {"truth": truth, "fine": fine}


def new_generator(device):
    """A generator on the device that follows from the global (seeded) one."""
    return torch.Generator(device).manual_seed(int(torch.randint(2**62, (1,))))
