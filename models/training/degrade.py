"""Degradations of pictures, batched on the device: every picture of a batch gets strengths of its own.

Pictures are float32 N×3×H×W, RGB, 0..1. Randomness comes from the torch.Generator that is passed, which must live on the
pictures' device: equal generators give equal results. Nothing here is differentiable, and nothing runs under autocast.

Small versions of a picture lie in the top left corner of a canvas that all of the batch share, with their last row and
column repeated beyond them (which is what a JPEG encoder does at a picture's edge); `Canvas.size` says how large each is.
"""
import math

import torch
import torch.nn.functional as F

# ---------------------------------------------------------------------------------------------------------------------
# Random numbers


class Chance:
    """Draws of n values on the generator's device."""

    def __init__(self, n, generator):
        self.n, self.generator, self.device = n, generator, generator.device

    def uniform(self, low, high):
        return low + (high - low) * torch.rand(self.n, generator=self.generator, device=self.device)

    def log_uniform(self, low, high):
        return torch.exp(self.uniform(math.log(low), math.log(high)))

    def flag(self, p):
        return torch.rand(self.n, generator=self.generator, device=self.device) < p

    def index(self, *shares):
        """One of len(shares) numbers, each as often as its share."""
        edges = torch.cumsum(torch.tensor(shares, device=self.device, dtype=torch.float32), 0)
        draw = torch.rand(self.n, generator=self.generator, device=self.device) * edges[-1]
        return (draw[:, None] >= edges[None, :-1]).sum(1)

    def normal(self, *shape):
        return torch.randn(self.n, *shape, generator=self.generator, device=self.device)


def _column(v, like):
    """A value a picture, or one number for all, as N×1×1×1."""
    return torch.as_tensor(v, device=like.device, dtype=torch.float32).expand(like.shape[0]).reshape(-1, 1, 1, 1)


# ---------------------------------------------------------------------------------------------------------------------
# Blur, in the frequency domain: a kernel there is one formula, and its width costs nothing


def _frequencies(h, w, device):
    """Angular frequencies (radian a pixel) of rfft2 of h×w: fy h×1, fx 1×(w/2+1)."""
    fy = 2 * math.pi * torch.fft.fftfreq(h, device=device)[:, None]
    fx = 2 * math.pi * torch.fft.rfftfreq(w, device=device)[None, :]
    return fy, fx


def _apply(x, response, pad):
    """x filtered by response(fy, fx) -> N×h×w' (real: kernels are symmetric), the border mirrored."""
    n, c, h, w = x.shape
    ph, pw = min(pad, h - 1), min(pad, w - 1)
    big = F.pad(x, (pw, pw, ph, ph), mode="reflect")
    spectrum = torch.fft.rfft2(big)
    fy, fx = _frequencies(big.shape[2], big.shape[3], x.device)
    spectrum = spectrum * response(fy[None], fx[None])[:, None]
    out = torch.fft.irfft2(spectrum, s=big.shape[2:])
    return out[:, :, ph : ph + h, pw : pw + w].contiguous()


def blur_response(kind, a, b, angle):
    """What blur() multiplies the spectrum by. kind, a, b, angle: N. See blur()."""

    def response(fy, fx):
        k, p, q, t = (v.reshape(-1, 1, 1) for v in (kind, a, b, angle))
        u, v = fx * torch.cos(t) + fy * torch.sin(t), fy * torch.cos(t) - fx * torch.sin(t)
        gauss = torch.exp(-0.5 * ((p * u) ** 2 + (q * v) ** 2))
        r = torch.sqrt(fx**2 + fy**2)
        z = (p * r).clamp(min=1e-4)
        disc = 2 * torch.special.bessel_j1(z) / z
        line = torch.sinc(p * u / (2 * math.pi)) * torch.exp(-0.5 * (q * r) ** 2)
        # An ideal low-pass rings; the edge is softened over a tenth of the band.
        ring = torch.sigmoid((p - r) / (0.05 * p.clamp(min=1e-3)))
        return torch.where(k == 0, gauss, torch.where(k == 1, disc, torch.where(k == 2, line, ring)))

    return response


BLUR_GAUSS, BLUR_DISC, BLUR_LINE, BLUR_RING = range(4)


def blur(x, kind, a, b, angle):
    """A blur a picture. Gauss: a, b = sigmas along and across angle. Disc (out of focus): a = radius. Line (motion):
    a = length, b = sigma of a little Gauss with it. Ring (a sharp low-pass): a = highest frequency kept, in radians a pixel
    (pi keeps all but the corners)."""
    return _apply(x, blur_response(kind, a, b, angle), 32)


def random_blur(x, chance, low, high, ring=0.0):
    """Blurs with Gaussian sigmas (or the like) of low..high px; ring: the share of ringing low-passes."""
    kind = chance.index(0.75 * (1 - ring), 0.15 * (1 - ring), 0.10 * (1 - ring), ring)
    sigma = chance.log_uniform(low, high)
    round_ = chance.flag(0.5)
    other = torch.where(round_, sigma, chance.log_uniform(low, high))
    cut = chance.uniform(math.pi / 3, math.pi)
    a = torch.where(kind == BLUR_GAUSS, sigma, torch.where(kind == BLUR_DISC, 2 * sigma, torch.where(
        kind == BLUR_LINE, 3.5 * sigma, cut)))
    b = torch.where(kind == BLUR_LINE, 0.3 * sigma, other)
    return blur(x, kind, a, b, chance.uniform(0, math.pi))


# ---------------------------------------------------------------------------------------------------------------------
# Resize, as products with a matrix a picture: sizes may differ within a batch

RESIZE_LINEAR, RESIZE_CUBIC, RESIZE_AREA, RESIZE_PLAIN = range(4)  # PLAIN: linear without antialiasing


def resize_matrix(source, target, width, height, kind):
    """Weights N×height×width that resize source[n] samples to target[n] (both integers in float tensors, at most width and
    height); rows beyond target repeat its last one."""
    device = source.device
    s, t, k = (v.reshape(-1, 1, 1) for v in (source, target, kind))
    row = torch.arange(height, device=device, dtype=torch.float32)[None, :, None]
    column = torch.arange(width, device=device, dtype=torch.float32)[None, None, :]
    ratio = s / t
    centre = (torch.minimum(row, t - 1) + 0.5) * ratio - 0.5
    centre = torch.minimum(centre.clamp(min=0), s - 1)
    stretch = torch.where(k == RESIZE_PLAIN, torch.ones_like(ratio), ratio.clamp(min=1))
    d = (column - centre) / stretch
    a = d.abs()
    linear = (1 - a).clamp(min=0)
    # Keys' cubic with a = -1/2
    near = (1.5 * a - 2.5) * a * a + 1
    far = ((-0.5 * a + 2.5) * a - 4) * a + 2
    cubic = torch.where(a <= 1, near, torch.where(a < 2, far, torch.zeros_like(a)))
    # The overlap of the output pixel's extent with each input pixel
    half = 0.5 * ratio.clamp(min=1)
    area = (torch.minimum(centre + half, column + 0.5) - torch.maximum(centre - half, column - 0.5)).clamp(min=0)
    weight = torch.where(k == RESIZE_CUBIC, cubic, torch.where(k == RESIZE_AREA, area, linear))
    weight = torch.where(column < s, weight, torch.zeros_like(weight))
    return weight / weight.sum(2, keepdim=True)


class Canvas:
    """Pictures of different sizes in one tensor. x: N×3×h×w; height, width: N."""

    def __init__(self, x, height=None, width=None):
        n = x.shape[0]
        self.x = x
        self.height = torch.full((n,), float(x.shape[2]), device=x.device) if height is None else height
        self.width = torch.full((n,), float(x.shape[3]), device=x.device) if width is None else width

    def resize(self, height, width, kind, canvas=None):
        """To height, width (N, whole numbers), on a canvas of canvas = (h, w), by default as large as now."""
        ch, cw = canvas or self.x.shape[2:]
        down = resize_matrix(self.height, height, self.x.shape[2], ch, kind)
        across = resize_matrix(self.width, width, self.x.shape[3], cw, kind)
        x = torch.matmul(torch.matmul(down[:, None], self.x), across.transpose(1, 2)[:, None])
        return Canvas(x, height, width)

    def with_pixels(self, x):
        return Canvas(x, self.height, self.width)


def random_kind(chance):
    return chance.index(0.35, 0.3, 0.25, 0.1)


# ---------------------------------------------------------------------------------------------------------------------
# Noise


def noise(x, chance, gauss, shot, gray):
    """gauss: sigma (0..1) N; shot: sigma at white of noise that grows with the root of the light, N (Poisson's, by its
    normal limit); gray: N booleans, the same noise in all three channels."""
    shape = x.shape[1:]
    one = chance.normal(*shape)
    one = torch.where(gray.reshape(-1, 1, 1, 1), one[:, :1].expand_as(one), one)
    sigma = torch.sqrt(_column(gauss, x) ** 2 + _column(shot, x) ** 2 * x.clamp(0, 1))
    return x + sigma * one


# ---------------------------------------------------------------------------------------------------------------------
# JPEG: everything of the standard's baseline that loses something (ITU-T T.81, tables K.1 and K.2)

_LUMA = [16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56,
         14, 17, 22, 29, 51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92,
         49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99]
_CHROMA = [17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99, 24, 26, 56, 99, 99, 99, 99, 99,
           47, 66, 99, 99, 99, 99, 99, 99] + [99] * 32
_TO_YCC = [[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]]
_TO_RGB = [[1, 0, 1.402], [1, -0.344136, -0.714136], [1, 1.772, 0]]


def _dct(device):
    """The DCT of a block's 64 values, row by row, as one matrix."""
    k = torch.arange(8, device=device, dtype=torch.float32)
    m = torch.cos((2 * k[None, :] + 1) * k[:, None] * math.pi / 16) * 0.5
    m[0] *= math.sqrt(0.5)
    return torch.kron(m, m)


def _tables(quality, base, device):
    """libjpeg's scaling of a table to a quality of 1..100: N×1×1×8×8."""
    q = quality.reshape(-1, 1).clamp(1, 100)
    scale = torch.where(q < 50, 5000 / q, 200 - 2 * q)
    t = torch.floor((torch.tensor(base, device=device, dtype=torch.float32)[None] * scale + 50) / 100)
    return t.clamp(1, 255).reshape(-1, 1, 1, 8, 8)


def _code(plane, table, dct):
    """Blocks of a plane N×h×w (multiples of 8, values about -128..127) through DCT and rounding. One product with a 64×64
    matrix takes a GPU a fraction of the time of thousands with an 8×8 one."""
    n, h, w = plane.shape
    blocks = plane.reshape(n, h // 8, 8, w // 8, 8).transpose(2, 3).reshape(n, -1, 64)
    table = table.reshape(-1, 1, 64)
    coefficients = torch.round(blocks @ dct.T / table) * table
    return (coefficients @ dct).reshape(n, h // 8, w // 8, 8, 8).transpose(2, 3).reshape(n, h, w)


def jpeg(x, quality, subsample):
    """x as a JPEG file of quality (N, 1..100) gives it back; subsample: N booleans, 4:2:0 instead of 4:4:4."""
    n, _, h, w = x.shape
    big = F.pad(x, (0, -w % 16, 0, -h % 16), mode="replicate")
    big = torch.round(big.clamp(0, 1) * 255)
    ycc = torch.einsum("ij,njhw->nihw", torch.tensor(_TO_YCC, device=x.device), big)
    dct = _dct(x.device)
    luma = _code(ycc[:, 0] - 128, _tables(quality, _LUMA, x.device), dct) + 128
    table = _tables(quality, _CHROMA, x.device)
    chroma = ycc[:, 1:]
    full = torch.stack([_code(chroma[:, i], table, dct) for i in range(2)], 1)
    half = F.avg_pool2d(chroma, 2)
    half = torch.stack([_code(half[:, i], table, dct) for i in range(2)], 1)
    half = F.interpolate(half, scale_factor=2, mode="bilinear", align_corners=False)
    chroma = torch.where(subsample.reshape(-1, 1, 1, 1), half, full)
    rgb = torch.einsum("ij,njhw->nihw", torch.tensor(_TO_RGB, device=x.device, dtype=torch.float32),
                       torch.cat([luma[:, None], chroma], 1))
    return torch.round(rgb[:, :, :h, :w]).clamp(0, 255) / 255


# ---------------------------------------------------------------------------------------------------------------------
# Tone and age


class Tone:
    """A random change of exposure, contrast, colour balance and saturation, which may turn a picture gray or sepia or fade
    it. Made once and applied to input and target alike where a network has to keep the tone (a face is pasted into a picture
    that keeps its own), or to the input alone."""

    def __init__(self, chance, amount=1.0, gray=0.1, sepia=0.04, fade=0.05):
        n = chance.n
        self.gamma = torch.exp(amount * chance.uniform(-0.25, 0.25)).reshape(n, 1, 1, 1)
        self.gain = torch.exp(amount * 0.08 * chance.normal(3, 1, 1).clamp(-1.5, 1.5) * torch.tensor(
            [1.0, 0.4, 1.0], device=chance.device).reshape(1, 3, 1, 1))
        self.contrast = (1 + amount * chance.uniform(-0.15, 0.15)).reshape(n, 1, 1, 1)
        saturation = 1 + amount * chance.uniform(-0.4, 0.3)
        kind = chance.index(gray, sepia, fade, max(0.0, 1 - gray - sepia - fade))
        self.saturation = torch.where(kind < 2, torch.zeros_like(saturation), saturation).reshape(n, 1, 1, 1)
        tint = torch.tensor([0.10, 0.0, -0.14], device=chance.device) * chance.uniform(0.4, 1.2)[:, None]
        self.tint = torch.where((kind == 1)[:, None], tint, torch.zeros_like(tint)).reshape(n, 3, 1, 1)
        old = (kind == 2) | ((kind < 2) & chance.flag(0.3))
        zero = torch.zeros(n, device=chance.device)
        self.black = torch.where(old, chance.uniform(0.03, 0.22), zero).reshape(n, 1, 1, 1)
        self.white = torch.where(old, chance.uniform(0.75, 1.0), zero + 1).reshape(n, 1, 1, 1)
        self.gray = kind == 0
        self.gain = torch.where((kind < 2).reshape(n, 1, 1, 1), torch.ones_like(self.gain), self.gain)

    def __call__(self, x):
        x = x.clamp(0, 1) ** self.gamma
        x = (x - 0.5) * self.contrast + 0.5
        weights = torch.tensor([0.299, 0.587, 0.114], device=x.device).reshape(1, 3, 1, 1)
        luma = (x * weights).sum(1, keepdim=True)
        x = (luma + (x - luma) * self.saturation) * self.gain
        # A sepia print is brown in its middle tones and paler at both ends.
        x = x + self.tint * (4 * luma * (1 - luma)).clamp(0, 1)
        return (self.black + (self.white - self.black) * x.clamp(0, 1)).clamp(0, 1)


def scratches(x, chance, p, lines=3, specks=24):
    """Scratches and dust on a share p of the pictures: thin nearly straight lines and small soft dots, light or dark."""
    n, _, h, w = x.shape
    device = x.device
    y = torch.arange(h, device=device, dtype=torch.float32).reshape(1, 1, h, 1)
    u = torch.arange(w, device=device, dtype=torch.float32).reshape(1, 1, 1, w)
    side = min(h, w) / 512
    amount = chance.flag(p).reshape(n, 1, 1, 1).float()
    shade = torch.where(chance.flag(0.75), chance.uniform(0.75, 1.0), chance.uniform(0.0, 0.2)).reshape(n, 1, 1, 1)
    cover = torch.zeros(n, 1, h, w, device=device)
    for _ in range(lines):
        angle = (chance.uniform(-0.5, 0.5) + math.pi / 2 * chance.flag(0.3)).reshape(n, 1, 1, 1)
        at = (chance.uniform(0, 1) * (w + h) / 2).reshape(n, 1, 1, 1)
        bend = (chance.uniform(-1, 1) * 8 * side).reshape(n, 1, 1, 1)
        wave = chance.uniform(40, 200).reshape(n, 1, 1, 1) * side
        along = u * torch.sin(angle) + y * torch.cos(angle)
        across = u * torch.cos(angle) - y * torch.sin(angle) - at + bend * torch.sin(along / wave)
        width = (chance.uniform(0.4, 1.4) * side).reshape(n, 1, 1, 1)
        start = (chance.uniform(-0.3, 0.7) * h).reshape(n, 1, 1, 1)
        length = (chance.uniform(0.2, 1.0) * h).reshape(n, 1, 1, 1)
        there = ((along > start) & (along < start + length)).float() * chance.flag(0.6).reshape(n, 1, 1, 1).float()
        cover = torch.maximum(cover, there * torch.exp(-0.5 * (across / width) ** 2))
    # Dust: isolated peaks of noise, widened by a Gauss.
    peaks = torch.rand(n, 1, h, w, generator=chance.generator, device=device) < specks / (h * w)
    size = chance.uniform(0.6, 2.0) * side
    zero = torch.zeros(n, dtype=torch.long, device=device)
    dust = blur(peaks.float(), zero, size, size, chance.uniform(0, 1)) * (6.28 * size**2).reshape(n, 1, 1, 1)
    cover = torch.maximum(cover, dust.clamp(0, 1)) * amount * chance.uniform(0.4, 1.0).reshape(n, 1, 1, 1)
    return x * (1 - cover) + shade * cover


# ---------------------------------------------------------------------------------------------------------------------
# The chains


def _no_autocast(f):
    def wrapped(x, *args, **kwargs):
        with torch.no_grad(), torch.autocast(device_type=x.device.type, enabled=False):
            return f(x.float(), *args, **kwargs)

    wrapped.__doc__ = f.__doc__
    wrapped.__name__ = f.__name__
    return wrapped


# sigma of the blur (px of the picture), factor of the reduction, sigma of the noise (of 255), JPEG quality
FACE_STRENGTHS = {"mild": (1.0, 2.0, 4.0, 85), "medium": (2.5, 4.0, 8.0, 70), "strong": (5.0, 8.0, 12.0, 55)}


@_no_autocast
def degrade_face_fixed(x, generator, strength):
    """x at one of FACE_STRENGTHS: blur, reduction, noise, JPEG, enlargement. For measurements."""
    sigma, factor, noise_, quality = FACE_STRENGTHS[strength]
    n, _, h, w = x.shape
    chance = Chance(n, generator)

    def same(v):
        return torch.full((n,), float(v), device=x.device)

    x = blur(x, same(BLUR_GAUSS), same(sigma), same(sigma), same(0))
    canvas = Canvas(x)
    small = (math.ceil(h / factor), math.ceil(w / factor))
    canvas = canvas.resize(same(small[0]), same(small[1]), same(RESIZE_AREA), small)
    y = noise(canvas.x, chance, same(noise_ / 255), same(0), torch.zeros(n, dtype=torch.bool, device=x.device))
    y = jpeg(y, same(quality), torch.ones(n, dtype=torch.bool, device=x.device))
    return canvas.with_pixels(y).resize(same(h), same(w), same(RESIZE_LINEAR), (h, w)).x.clamp(0, 1)


@_no_autocast
def degrade_face(x, generator, clean=0.22, light=0.28, worst=1.0, scratched=0.04, soft=0.0):
    """GFPGAN's model of a bad face picture (Wang et al. 2021, section 3.1), at x's own size: blur, reduction 1-8×, noise,
    JPEG, enlargement. Shares: clean come back as they are, light are degraded little, scratched get scratches and dust, soft are
    only reduced to 110–430 px, or blurred a little and compressed well besides.
    worst (0..1) is the strength that the worst may have: for a schedule that begins with easy ones."""
    n, _, h, w = x.shape
    chance = Chance(n, generator)
    kind = chance.index(clean, light, max(0.0, 1 - clean - light - soft), soft)
    soft = kind == 3
    # The strengths of one picture go together only loosely: a sharp photo may be badly compressed.
    top = torch.where(kind == 1, torch.full((n,), 0.25, device=x.device), torch.full((n,), float(worst), device=x.device))

    def part(low, high):
        """log-uniform from low to the part of the way to high that this picture may go"""
        return low * torch.exp(chance.uniform(0, 1) * top * math.log(high / low))

    factor = torch.where(soft, chance.log_uniform(1.2, 4.6), part(1.0, 8.0))
    sharp = chance.flag(0.15) | (soft & chance.flag(0.6))
    sigma_limit = torch.where(soft, chance.uniform(0.2, 0.5) * factor, part(0.3, 7.0))
    angle = chance.uniform(0, math.pi)
    shape = chance.index(0.75, 0.15, 0.10)
    other = torch.where(chance.flag(0.5), sigma_limit, sigma_limit * chance.uniform(0.4, 1.0))
    a = torch.where(shape == BLUR_GAUSS, sigma_limit, torch.where(shape == BLUR_DISC, 2 * sigma_limit, 3 * sigma_limit))
    b = torch.where(shape == BLUR_LINE, 0.3 * sigma_limit, other)
    y = scratches(x, chance, scratched)
    # Scratches of a print are blurred with it, or lie on the scan: the former here, for either looks alike when small.
    blurred = blur(y, shape, a, b, angle)
    y = torch.where(sharp.reshape(n, 1, 1, 1), y, blurred)
    height, width = torch.ceil(h / factor).clamp(min=8), torch.ceil(w / factor).clamp(min=8)
    canvas = Canvas(y).resize(height, width, random_kind(chance))
    # Large faces are mostly noisy a little: where most of them are grainy, a network takes skin and hair for grain as well.
    power = torch.where(factor < 2, 3.0, 1.0)
    gauss = torch.where(chance.flag(0.8), chance.uniform(0, 1) ** power * 18 / 255 * top, torch.zeros(n, device=x.device))
    shot = torch.where(chance.flag(0.3), chance.uniform(0, 1) ** power * 22 / 255 * top, torch.zeros(n, device=x.device))
    gauss, shot = (torch.where(soft, torch.zeros_like(v), v) for v in (gauss, shot))
    y = noise(canvas.x, chance, gauss, shot, chance.flag(0.4)).clamp(0, 1)
    quality = 100 - torch.where(soft, 0.25, top) * chance.uniform(0, 1) * 55
    coded = jpeg(y, torch.round(quality), chance.flag(0.8))
    y = torch.where((chance.flag(0.85) & ~(soft & chance.flag(0.5))).reshape(n, 1, 1, 1), coded, torch.round(y * 255) / 255)
    back = torch.where(chance.flag(0.8), torch.full((n,), RESIZE_LINEAR, device=x.device),
                       torch.full((n,), RESIZE_CUBIC, device=x.device))
    canvas = canvas.with_pixels(y).resize(torch.full_like(height, h), torch.full_like(width, w), back)
    return torch.where((kind == 0).reshape(n, 1, 1, 1), x, canvas.x.clamp(0, 1))


@_no_autocast
def degrade_scene(x, generator, scale=2, clean=0.15, light=0.35):
    """The second-order chain of Real-ESRGAN (Wang et al. 2021, section 3) for an upsampler: x (sides divisible by scale) to
    pictures of 1/scale of its size. Shares of the batch, from its start: clean are only reduced (cubic), light pass the
    chain's second round mildly; the rest, at its end, pass all of it."""
    n, _, h, w = x.shape
    first, second = round(n * clean), round(n * (clean + light))
    small = (h // scale, w // scale)

    def sizes(count, height, width):
        return (torch.full((count,), float(v), device=x.device) for v in (height, width))

    parts = []
    if first:
        kind = torch.full((first,), RESIZE_CUBIC, device=x.device)
        parts.append(Canvas(x[:first]).resize(*sizes(first, *small), kind, small).x)
    if first < n:
        y = x[first:]
        if second < n:
            y = torch.cat([y[:second - first], _first_round(x[second:], generator)])
        parts.append(_second_round(y, generator, second - first, *sizes(n - first, *small), small))
    return torch.round(torch.cat(parts).clamp(0, 1) * 255) / 255


def _first_round(x, generator):
    """Blur, a size of up to 1.25 times x's, noise, JPEG, x's size again."""
    n, _, h, w = x.shape
    chance = Chance(n, generator)
    zero = torch.zeros(n, device=x.device)
    y = torch.where(chance.flag(0.85).reshape(n, 1, 1, 1), random_blur(x, chance, 0.3, 2.6, ring=0.08), x)
    factor = torch.where(chance.flag(0.25), chance.uniform(1.0, 1.25), chance.uniform(0.35, 1.0))
    room = (math.ceil(h * 1.25 / 16) * 16, math.ceil(w * 1.25 / 16) * 16)
    canvas = Canvas(y).resize(torch.round(h * factor), torch.round(w * factor), random_kind(chance), room)
    shot = torch.where(chance.flag(0.4), chance.uniform(0.01, 0.08), zero)
    gauss = torch.where(shot > 0, zero, chance.uniform(0.004, 0.08))
    y = noise(canvas.x, chance, gauss, shot, chance.flag(0.4)).clamp(0, 1)
    y = jpeg(y, torch.round(chance.uniform(40, 95)), chance.flag(0.8))
    canvas = canvas.with_pixels(y).resize(torch.full_like(factor, h), torch.full_like(factor, w), random_kind(chance),
                                          (h, w))
    return canvas.x.clamp(0, 1)


def _second_round(x, generator, mild, height, width, small):
    """Blur, reduction to height × width (canvas small), noise, JPEG; less noise and better JPEG for the first `mild`."""
    n = x.shape[0]
    chance = Chance(n, generator)
    zero = torch.zeros(n, device=x.device)
    harsh = torch.arange(n, device=x.device) >= mild
    strength = torch.where(harsh, 1.0, 0.35)
    y = torch.where(chance.flag(0.6).reshape(n, 1, 1, 1), random_blur(x, chance, 0.2, 1.2, ring=0.08), x)
    y = Canvas(y).resize(height, width, random_kind(chance), small).x.clamp(0, 1)
    shot = torch.where(chance.flag(0.4), chance.uniform(0.0, 0.05), zero) * strength
    gauss = torch.where(shot > 0, zero, chance.uniform(0.0, 0.05)) * strength
    y = noise(y, chance, gauss, shot, chance.flag(0.4)).clamp(0, 1)
    quality = torch.where(harsh, chance.uniform(40, 95), chance.uniform(80, 98))
    coded = jpeg(y, torch.round(quality), chance.flag(0.8))
    return torch.where(chance.flag(0.85).reshape(n, 1, 1, 1), coded, y)
