#!/usr/bin/env python3
"""Makes static/sample.jpg, the picture behind "Try the sample": an old print of two people who do not exist.

    models/training/make_sample.py [--data ../shared/data] [--out static/sample.jpg] [--parts FOLDER]

Each face is the median of PEOPLE aligned faces of the training pack, most alike in build and light, bent onto each other
pixel by pixel so that the result is crisp; what belongs to one person alone does not survive the median. Shoulders,
clothes and wall are drawn, and the whole is faded, blurred, scratched and stained like a print out of a drawer.
The same data gives the same picture. Needs numpy and PIL; --parts keeps the two faces, to be looked at."""
import argparse
import json
import pathlib

import numpy as np
from PIL import Image, ImageDraw

PEOPLE = 80             # in each face; at 60 nobody was to be recognised either
GROUPS = 12             # of faces alike in build and light; which of them became the two faces was chosen by looking
MAN, WOMAN = 4, 6
WIDTH, HEIGHT = 720, 576  # of the print with its border; it is composed twice as large
FACES = ((205, 225), (85, 125)), ((487, 265), (80, 110))  # centres and radii on the print: no dust and no scratch there


# ---- arrays ----

def blur(a, sigma):
    """Gaussian, edges repeated."""
    r = int(3 * sigma + 0.5)
    kernel = np.exp(-0.5 * (np.arange(-r, r + 1) / sigma) ** 2)
    kernel = (kernel / kernel.sum()).astype(np.float32)
    for axis in (0, 1):
        pad = [(0, 0)] * a.ndim
        pad[axis] = (r, r)
        wide, a = np.pad(a, pad, 'edge'), np.zeros_like(a)
        for i, k in enumerate(kernel):
            a += k * (wide[i:i + a.shape[0]] if axis == 0 else wide[:, i:i + a.shape[1]])
    return a


def resize(a, width, height):
    return np.asarray(Image.fromarray(a.astype(np.float32)).resize((width, height), Image.BICUBIC))


def grid(size):
    y, x = np.mgrid[0:size, 0:size].astype(np.float32)
    return x, y


def warp(a, flow):
    """a at each pixel's place plus flow, bilinear."""
    x, y = grid(a.shape[0])
    x = np.clip(x + flow[..., 0], 0, a.shape[1] - 1.001)
    y = np.clip(y + flow[..., 1], 0, a.shape[0] - 1.001)
    i, j = x.astype(np.int32), y.astype(np.int32)
    x, y = x - i, y - j
    return (a[j, i] * (1 - x) + a[j, i + 1] * x) * (1 - y) + (a[j + 1, i] * (1 - x) + a[j + 1, i + 1] * x) * y


# ---- two faces ----

def groups(thumbnails):
    """k-means on the leading principal components of brightness, each face to its own mean and spread."""
    x = thumbnails.reshape(len(thumbnails), -1)
    x = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    u, s, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    points, best = u[:, :24] * s[:24], None
    random = np.random.default_rng(1)
    for _ in range(20):
        centres = points[random.choice(len(points), GROUPS, replace=False)]
        for _ in range(60):
            distance = ((points[:, None] - centres) ** 2).sum(-1)
            nearest = distance.argmin(1)
            centres = np.stack([points[nearest == k].mean(0) if (nearest == k).any() else centres[k] for k in range(GROUPS)])
        if best is None or distance.min(1).sum() < best[0]:
            best = distance.min(1).sum(), distance
    return best[1]


def evened(a):
    """Brightness less its surroundings, over their spread: light and skin must not steer the fit."""
    mean = blur(a, 10)
    return (a - mean) / np.sqrt(blur((a - mean) ** 2, 10) + 25)


def halve(a):
    return a.reshape(a.shape[0] // 2, 2, a.shape[1] // 2, 2, *a.shape[2:]).mean((1, 3))


def bend(fixed, moving, flow, steps, sigma):
    """Demons (Thirion 1998): each pixel is pushed along the gradient by what still differs, and the field is smoothed."""
    for _ in range(steps):
        now = warp(moving, flow)
        gy, gx = np.gradient((fixed + now) / 2)
        rest = fixed - now
        scale = rest / (gx * gx + gy * gy + 0.5 * rest * rest + 0.02)
        flow = blur(flow + np.clip(np.stack([gx * scale, gy * scale], -1), -2, 2), sigma)
    return flow


def face(paths):
    """The median of these pictures, 512x512 brightness, each bent onto the mean of all by what shows at 128 px."""
    whole = [np.asarray(Image.open(p).convert('L'), np.float32) for p in paths]
    small = [halve(halve(a)) for a in whole]
    even = [evened(a) for a in small]
    flows = [np.zeros((128, 128, 2), np.float32) for _ in whole]
    for turn in range(3):
        target = evened(np.mean([warp(a, f) for a, f in zip(small, flows)], 0))
        for i, moving in enumerate(even):
            if turn == 0:
                coarse = bend(halve(target), halve(moving), halve(flows[i]) / 2, 25, 2.0)
                flows[i] = 2 * coarse.repeat(2, 0).repeat(2, 1)
            flows[i] = bend(target, moving, blur(flows[i], 1.5), 20, 1.8)
        drift = np.mean(flows, 0)  # the shape is the mean one, not the first one's
        flows = [f - drift for f in flows]
    bent = [warp(a, np.stack([resize(4 * f[..., c], 512, 512) for c in (0, 1)], -1)) for a, f in zip(whole, flows)]
    level = np.mean([a[200:400, 160:350].mean() for a in bent])
    middle = np.median([a * (level / a[200:400, 160:350].mean()) for a in bent], 0)
    return np.clip(middle + 0.6 * (middle - blur(middle, 2.0)), 0, 255)


def two_faces(data):
    index = json.loads((data / 'faces512/index.json').read_text())
    rows = [r for r in index if r['split'] == 'train' and r['fit_err'] < 13 and r['others'] == 0 and r['pad'] < 0.2]
    paths = [data / r['file'] for r in rows]
    small = np.stack([np.asarray(Image.open(p).convert('L').resize((32, 32), Image.BOX), np.float32) for p in paths])
    distance = groups(small)
    return [face([paths[i] for i in np.argsort(distance[:, k])[:PEOPLE]]) for k in (MAN, WOMAN)]


# ---- the picture ----

class Drawing:
    """Shapes on a picture of brightness, placed like the face that they belong to: in its 512 px square's coordinates."""

    def __init__(self, pixels, left, top, scale):
        self.pixels, self.place, self.scale = pixels, np.array([left, top]), scale

    def mask(self, draw, soft):
        image = Image.new('L', self.pixels.shape[::-1])
        draw(ImageDraw.Draw(image))
        return blur(np.asarray(image, np.float32) / 255, soft * self.scale)

    def points(self, points):
        return [tuple(self.place + self.scale * np.array(p)) for p in points]

    def put(self, mask, tone):
        self.pixels += mask * (tone - self.pixels)

    def polygon(self, points, tone, soft=2.0):
        self.put(self.mask(lambda d: d.polygon(self.points(points), fill=255), soft), tone)

    def line(self, points, tone, width, soft=1.0, opacity=1.0):
        self.put(opacity * self.mask(lambda d: d.line(self.points(points), 255, max(1, round(width * self.scale)), 'curve'), soft), tone)

    def disc(self, x, y, radius, tone, soft=0.7, opacity=1.0):
        box = self.points([(x - radius, y - radius), (x + radius, y + radius)])
        self.put(opacity * self.mask(lambda d: d.ellipse([*box[0], *box[1]], fill=255), soft), tone)

    def ramp(self, *stops):
        """Brightness by height: (y, tone) …, straight between."""
        y = (np.arange(self.pixels.shape[0]) - self.place[1]) / self.scale
        return np.interp(y, *zip(*stops)).astype(np.float32)[:, None]

    def head(self, picture, outline):
        size = round(512 * self.scale)
        x, y = (round(v) for v in self.place)
        inside = self.mask(lambda d: d.polygon(self.points(outline), fill=255), 5)[y:y + size, x:x + size]
        inside = inside * np.clip((size - np.arange(size)) / (30 * self.scale), 0, 1).astype(np.float32)[:, None]
        part = self.pixels[y:y + size, x:x + size]
        part += inside * (resize(picture, size, size) - part)


def man(d, picture):
    d.polygon([(30, 470), (108, 416), (352, 455), (440, 478), (530, 512), (590, 570), (618, 700), (640, 1000), (-150, 1000),
               (-128, 700), (-100, 570), (-40, 500)], d.ramp((400, 24), (520, 25), (680, 42), (1000, 30)), 4)
    d.polygon([(118, 470), (132, 508), (236, 830), (268, 830), (347, 508), (350, 470)], d.ramp((480, 178), (560, 200), (830, 186)), 2)
    d.polygon([(150, 480), (350, 480), (318, 516), (252, 580), (186, 516)], d.ramp((480, 100), (512, 113), (580, 112)), 3)
    d.polygon([(228, 570), (276, 570), (283, 604), (270, 612), (304, 772), (252, 840), (204, 772), (236, 612), (221, 604)],
              d.ramp((570, 66), (606, 84), (612, 60), (840, 76)), 1.5)
    for y in range(630, 840, 26):  # the tie's stripes
        reach = np.interp(y, (612, 772, 840), (16, 47, 10))
        d.line([(253 - reach, y + 0.4 * reach), (253 + reach, y - 0.4 * reach)], 128, 5, 1.0, 0.5)
    d.polygon([(116, 440), (132, 510), (186, 516), (250, 574), (206, 640), (140, 560), (112, 490)], d.ramp((450, 160), (508, 191), (560, 206)), 1.2)
    d.polygon([(350, 460), (347, 510), (318, 516), (254, 574), (300, 640), (352, 560), (360, 490)], d.ramp((450, 150), (508, 180), (560, 202)), 1.2)
    for edge in ([(250, 574), (206, 640), (136, 556)], [(254, 574), (300, 640), (354, 556)]):
        d.line(edge, 120, 2.5, 1.5, 0.7)
    d.polygon([(108, 425), (58, 520), (78, 660), (52, 676), (238, 900), (244, 830), (150, 560), (128, 480)], d.ramp((440, 25), (640, 44), (900, 36)), 2)
    d.polygon([(354, 455), (420, 530), (404, 664), (432, 680), (262, 900), (262, 830), (336, 560), (352, 480)], d.ramp((440, 25), (640, 42), (900, 34)), 2)
    for edge in ([(60, 520), (80, 660), (54, 676), (238, 900)], [(418, 530), (402, 664), (430, 680), (262, 900)]):
        d.line(edge, 18, 3, 2)
        d.line([(x - 4, y - 3) for x, y in edge], 74, 2, 1.5, 0.6)
    d.line([(-60, 640), (-44, 1000)], 20, 6, 6)
    d.line([(548, 640), (536, 1000)], 20, 6, 6)
    d.polygon([(440, 748), (452, 728), (462, 740), (474, 722), (482, 736), (492, 728), (496, 744), (446, 760)], 170, 1.5)  # a handkerchief
    d.head(picture, [(20, 512), (0, 486), (60, 462), (104, 418), (100, 340), (86, 312), (76, 240), (80, 170), (104, 105),
                     (150, 50), (205, 20), (255, 11), (310, 20), (356, 48), (388, 100), (404, 160), (406, 220), (398, 290),
                     (386, 350), (374, 410), (352, 452), (420, 472), (505, 503), (490, 512)])


def woman(d, picture):
    d.polygon([(60, 474), (110, 440), (375, 445), (420, 490), (500, 530), (556, 590), (590, 720), (610, 1000), (-120, 1000),
               (-98, 720), (-66, 590), (-10, 525)], d.ramp((440, 50), (640, 84), (1000, 60)), 4)
    for row, y in enumerate(range(560, 1000, 30)):  # the dress's dots
        reach = np.interp(y, (550, 600, 720, 1000), (240, 290, 318, 335))
        for x in range(-120 + 17 * (row % 2), 620, 34):
            if abs(x - 238) < reach:
                d.disc(x + 6 * np.sin(y / 70), y + 14 * np.cos(x / 120), 4.2, 165, 1.0, 0.55)
    d.polygon([(60, 474), (110, 440), (375, 445), (420, 490), (400, 530), (352, 560), (130, 560), (90, 530)], 52, 12)
    d.polygon([(150, 470), (338, 470), (342, 520), (372, 560), (352, 622), (300, 664), (248, 676), (196, 664), (144, 622),
               (118, 560), (146, 520)], d.ramp((470, 100), (512, 106), (560, 138), (676, 150)), 3)
    d.line([(206, 560), (238, 612), (248, 616)], 112, 5, 7, 0.7)
    d.line([(292, 556), (260, 610), (248, 616)], 112, 5, 7, 0.7)
    d.line([(118, 560), (144, 622), (196, 664), (248, 676), (300, 664), (352, 622), (372, 560)], 30, 5, 2)
    d.line([(112, 566), (139, 628), (194, 672), (248, 684), (302, 672), (357, 628), (378, 566)], 200, 6, 1.5, 0.8)
    for t in np.linspace(-1, 1, 25):  # pearls
        x, y = 245 + 104 * t, 596 - 72 * abs(t) ** 2.2
        d.disc(x, y + 2, 7.0, 70, 1.5, 0.6)
        d.disc(x, y, 5.8, 196)
        d.disc(x - 1.5, y - 2, 1.8, 250, 1.0)
    d.line([(-34, 690), (-24, 1000)], 30, 6, 6)
    d.line([(524, 690), (514, 1000)], 30, 6, 6)
    d.head(picture, [(40, 512), (24, 500), (62, 474), (98, 452), (112, 410), (108, 350), (84, 310), (66, 262), (62, 200), (72, 130),
                     (104, 76), (150, 38), (205, 14), (262, 8), (320, 24), (372, 62), (408, 120), (428, 180), (436, 230),
                     (424, 290), (404, 360), (384, 412), (374, 446), (400, 478), (440, 506), (420, 512)])


def portrait(faces):
    """Twice the print's size, brightness."""
    random = np.random.default_rng(2)
    height, width = 2 * HEIGHT, 2 * WIDTH
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    wall = 122 - 40 * ((x / width - 0.42) ** 2 * 1.6 + (y / height - 0.35) ** 2 * 1.9)
    wall += 90 * blur(random.standard_normal((height // 4, width // 4)).astype(np.float32), 22).repeat(4, 0).repeat(4, 1)
    woman(Drawing(wall, 704, 236, 1.06), faces[1])
    man(Drawing(wall, 118, 112, 1.2), faces[0])
    return np.clip(1.22 * wall - 12 + 2.5 * random.standard_normal(wall.shape), 0, 255)


def age(picture):
    """The print as it would come out of a drawer: soft, faded, brown, with grain, stains, dust, scratches and a crease."""
    random = np.random.default_rng(3)
    a = blur(picture, 2.6).reshape(HEIGHT, 2, WIDTH, 2).mean((1, 3))
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    edge = np.minimum.reduce([x, y, WIDTH - 1 - x, HEIGHT - 1 - y])
    a = 50 + 0.78 * a + 16 * np.exp(-edge / 60)                       # faded, most at its edges
    a += 160 * blur(random.standard_normal((HEIGHT // 4, WIDTH // 4)).astype(np.float32), 11).repeat(4, 0).repeat(4, 1)
    a += 7 * blur(random.standard_normal(a.shape).astype(np.float32), 0.7)
    marks = Image.new('L', (2 * WIDTH, 2 * HEIGHT))
    pen = ImageDraw.Draw(marks)
    for _ in range(14):                                               # scratches
        start, turn = random.uniform((0, 0), (2 * WIDTH, 2 * HEIGHT)), random.uniform(-0.5, 0.5)
        step = random.uniform(14, 50) * np.array([np.sin(turn), np.cos(turn)])
        line = [tuple(start + i * step + random.normal(0, 1.5, 2)) for i in range(7)]
        pen.line(line, int(random.uniform(60, 170)), int(random.integers(1, 3)))
    for _ in range(150):                                              # dust
        cx, cy = random.uniform((0, 0), (2 * WIDTH, 2 * HEIGHT))
        r = random.exponential(1.1) + 0.6
        pen.ellipse([cx - r, cy - r, cx + r, cy + r], fill=int(random.uniform(80, 220)))
    for (cx, cy), (rx, ry) in FACES:
        pen.ellipse([2 * (cx - rx), 2 * (cy - ry), 2 * (cx + rx), 2 * (cy + ry)], fill=0)
    fold = [(0, 2 * HEIGHT - 250), (140, 2 * HEIGHT - 128), (290, 2 * HEIGHT)]
    pen.line(fold, 200, 4)                                            # a corner that was bent once
    marks = blur(np.asarray(marks, np.float32) / 255, 1.0).reshape(HEIGHT, 2, WIDTH, 2).mean((1, 3))
    a += marks * (232 - a)
    corner = y - HEIGHT + 125 - x * 0.86
    a -= 10 * np.exp(-((corner - 4) / 5) ** 2)
    margin = blur((edge < 20 + 8 * blur(random.standard_normal(a.shape).astype(np.float32), 5)).astype(np.float32), 0.8)
    paper = 226 + 26 * blur(random.standard_normal(a.shape).astype(np.float32), 6) - 14 * np.exp(-edge / 5)
    a += margin * (paper - a)
    brown = np.stack([np.interp(a, [0, 70, 150, 235, 255], tones) for tones in
                      ([22, 88, 170, 240, 250], [14, 68, 146, 228, 242], [8, 50, 116, 200, 222])], -1)
    return np.clip(brown + 0.5, 0, 255).astype(np.uint8)


if __name__ == '__main__':
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--data', type=pathlib.Path, default=root.parent / 'shared/data')
    parser.add_argument('--out', type=pathlib.Path, default=root / 'static/sample.jpg')
    parser.add_argument('--parts', type=pathlib.Path)
    arguments = parser.parse_args()
    faces = two_faces(arguments.data)
    if arguments.parts:
        for name, pixels in zip(('man', 'woman'), faces):
            Image.fromarray(pixels.astype(np.uint8)).save(arguments.parts / f'{name}.png')
    Image.fromarray(age(portrait(faces))).save(arguments.out, quality=84, optimize=True, progressive=True)
