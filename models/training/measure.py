"""What the evaluations of the face models share: PSNR, SSIM, landmarks, sheets, and a run of the built program."""
import os
import subprocess

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from models.training import common


def psnr(a, b):
    """Of each picture (N×C×h×w, 0..1), dB."""
    return -10 * torch.log10((a - b).square().mean((1, 2, 3)).clamp(min=1e-10))


def luma(x):
    return (x * torch.tensor([0.299, 0.587, 0.114], device=x.device).reshape(1, 3, 1, 1)).sum(1, keepdim=True)


def ssim(a, b):
    """Of each picture's luma (Wang et al. 2004: 11×11 Gauss of sigma 1.5)."""
    at = torch.arange(11, device=a.device, dtype=torch.float32) - 5
    g = torch.exp(-at**2 / 4.5)
    g = (g / g.sum()).reshape(1, 1, 1, 11)

    def mean(x):
        return F.conv2d(F.conv2d(x, g), g.transpose(2, 3))

    a, b = luma(a), luma(b)
    ma, mb = mean(a), mean(b)
    va, vb, ab = mean(a * a) - ma * ma, mean(b * b) - mb * mb, mean(a * b) - ma * mb
    c1, c2 = 0.01**2, 0.03**2
    return ((2 * ma * mb + c1) * (2 * ab + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2))).mean((1, 2, 3))


def detail(x):
    """Fine detail of each picture: the RMS of luma less its blur."""
    y = luma(x)
    return (y - F.avg_pool2d(F.pad(y, (2, 2, 2, 2), mode="reflect"), 5, 1)).square().mean((1, 2, 3)).sqrt()


class Landmarks:
    """Five points by a RetinaFace; slope and anchors as the public mobilenet0.25 weights need them. Pictures are reduced to
    256 px: an aligned face then has the size that its anchors fit best (held-out faces: 4.4 % of the eye distance from the
    packs' labels, 10.9 % at 512 px)."""

    def __init__(self, path, device):
        from models.training import detector
        from models.training.networks_scene import retinaface_of
        self.detector = detector
        public = not path.endswith(".safetensors")
        self.sizes = [[10, 20], [32, 64], [128, 256]] if public else detector.MIN_SIZES
        self.net = retinaface_of(common.load_weights(path), 0.0 if public else 0.1).to(device)

    def __call__(self, x):
        """5×2 points in pixels of the largest face of a picture 3×h×w (0..1); None without a face."""
        scale = x.shape[1] / 256
        x = F.interpolate(x[None], size=(256, round(x.shape[2] / scale)), mode="area")[0]
        rows = self.detector.detect(self.net, (x * 255).round().byte(), self.sizes, threshold=0.5)
        if not len(rows):
            return None
        size = (rows[:, 3] - rows[:, 1]) * (rows[:, 4] - rows[:, 2])
        return rows[int(size.argmax()), 5:15].reshape(5, 2) * scale


def distance(a, b):
    """Mean distance of two sets of points in parts of b's eye distance."""
    eyes = np.linalg.norm(b[0] - b[1]).clip(20)
    return float(np.linalg.norm(a - b, axis=1).mean() / eyes)


def sheet(path, rows, side=256):
    """Writes a picture of rows (lists of pictures 3×h×w, 0..1), each shown at side×side."""
    lines = [torch.cat([F.interpolate(x[None].float().cpu(), size=(side, side), mode="area")[0] if x.shape[1] > side
                        else x.float().cpu() for x in row], 2) for row in rows]
    image = (torch.cat(lines, 1).clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    Image.fromarray(image).save(path, quality=92)
    print(path)


def save(path, x):
    Image.fromarray((x.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).cpu().numpy()).save(path)


def load(path):
    return torch.from_numpy(common.read_picture(path)).float() / 255


def program(binary, model, source, target, *options):
    """Runs `restored restore` on one picture with the models of the folder that the model lies in."""
    subprocess.run([binary, "restore", source, "-o", target, "--models", os.path.dirname(os.path.abspath(model)),
                    "--device", "cpu", "--precision", "fp32", "--ext", "png", *options], check=True,
                   stdout=subprocess.DEVNULL)
