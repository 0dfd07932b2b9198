"""How good the starter models and the pipeline around them are: one table, all of it from the built program.

    python3 tests/quality/check_quality.py ./restored [--shared DIR] [--device cpu] [--limit N] [--only detector,faces]

Needs the packs of ../shared, numpy and PIL. --limit takes so many of each kind, evenly spread, for a quick look. Everything
is seeded: the same program on the same kind of device gives the same table. Ends with 1 if one of the limits that the
default must keep does not hold.
"""
import argparse
import email
import io
import json
import math
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

try:
    import numpy as np
    from PIL import Image, ImageFilter
except ImportError as missing:
    sys.exit(f"check_quality: {sys.executable} has no {missing.name}: PYTHON=… names one that has")

import faces as known  # noqa: E402
from models.training.tally import SMALLEST, Tally  # noqa: E402

POINTS = "detection_mobilenet0.25_biubug6"  # whose landmarks are compared: it is not one of ours
STRENGTHS = {"mild": (1.0, 2.0, 4.0, 85), "medium": (2.5, 4.0, 8.0, 70), "strong": (5.0, 8.0, 12.0, 55)}  # degrade.py's
OTHER = "gfpgan_tiny"  # its weights are random
STARTERS = {"version": "starter", "detector": "starter", "bg_upsampler": "starter"}
# Pictures of photos/ by sources that show nobody; those of interfaces and kodak do.
NOBODY = ("budgie", "elementary", "pdimages")


class Server:
    """The program, serving on this machine."""

    def __init__(self, program, models, device):
        self.state = tempfile.TemporaryDirectory()
        with open(f"{self.state.name}/log", "w+", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [program, "serve", "--listen", "127.0.0.1:0", "--models", models, "--starter_models", "true",
                 "--default_parser", "starter", "--state_dir", f"{self.state.name}/state", "--device", device],
                stdout=log, stderr=log, env={**os.environ, "RESTORED_CONFIG": "/dev/null"})
            said = None
            while not said:
                if self.process.poll() is not None:
                    log.seek(0)
                    sys.exit(f"check_quality: the server does not start: {log.read()}")
                time.sleep(0.1)
                said = re.search(r"(http://127\.0\.0\.1:\d+)", Path(log.name).read_text(encoding="utf-8"))
            self.url = said.group(1)
        while not self.ready():
            time.sleep(0.1)

    def ready(self):
        try:
            return urllib.request.urlopen(self.url + "/readyz").status == 200
        except urllib.error.HTTPError:
            return False

    def post(self, route, picture, accept, **options):
        """picture: an array h×w×3 of 0..255, or a file's bytes."""
        if not isinstance(picture, bytes):
            file = io.BytesIO()
            Image.fromarray(to_bytes(picture)).save(file, "PNG", compress_level=1)
            picture = file.getvalue()
        query = "&".join(f"{k}={v}" for k, v in options.items())
        request = urllib.request.Request(f"{self.url}{route}?{query}", data=picture, headers={
            "Content-Type": "application/octet-stream", "Accept": accept})
        return urllib.request.urlopen(request, timeout=600).read()

    def detect(self, picture, detector="starter"):
        """The faces that would be restored: score, box, landmarks."""
        faces = json.loads(self.post("/v1/detect", picture, "application/json", detector=detector))["faces"]
        return [f for f in faces if f["action"] == "restorable"]

    def restore(self, picture, **options):
        answer = self.post("/v1/restore", picture, "image/png", ext="png", **{**STARTERS, **options})
        return np.asarray(Image.open(io.BytesIO(answer)).convert("RGB")).astype(np.float32)

    def restored(self, picture, **options):
        """The report, too."""
        options = {**STARTERS, "bg_upsampler": "none", "upscale": "1", "ext": "png", **options}
        answer = self.post("/v1/restore", picture, "multipart/mixed, image/png;q=0.9", **options)
        report, made = None, None
        head = b"Content-Type: multipart/mixed; boundary=" + answer[2:answer.index(b"\r\n")] + b"\r\n\r\n"
        for part in email.message_from_bytes(head + answer).get_payload():
            if part.get_content_type() == "application/json":
                report = json.loads(part.get_payload(decode=True))
            elif part.get_param("name", header="content-disposition") == "restored_imgs":
                made = np.asarray(Image.open(io.BytesIO(part.get_payload(decode=True))).convert("RGB"))
        return made, [f for f in report["faces"] if f["action"] in ("restored", "kept")]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.state.cleanup()


def to_bytes(x):
    return np.clip(np.round(x), 0, 255).astype(np.uint8)


def load(path):
    with Image.open(path) as im:
        return np.asarray(im.convert("RGB")).astype(np.float32)


def resized(x, width, height, how):
    return np.asarray(Image.fromarray(to_bytes(x)).resize((width, height), how)).astype(np.float32)


def psnr(a, b):
    return -10 * math.log10(max(float(np.square(a - b).mean()) / 255**2, 1e-10))


def spread(entries, limit):
    return entries[::max(1, len(entries) // limit)][:limit] if limit else entries


def index(shared, pack, split="val"):
    name = "labels.json" if pack == "detect" else "index.json"
    with open(f"{shared}/data/{pack}/{name}", encoding="utf-8") as f:
        return [e for e in json.load(f) if split in (e["split"], None)] if split else json.load(f)


# ---- detector --------------------------------------------------------------------------------------------------------

def turned(face):
    """How far the nose is beside the middle of eyes and mouth, in parts of their distance: a half profile from 0.3."""
    p = np.array(face["landmarks5"], np.float64)
    across = p[1] - p[0] + p[4] - p[3]
    height = np.hypot(*((p[3] + p[4]) / 2 - (p[0] + p[1]) / 2))
    return abs(np.dot(p[2] - p[[0, 1, 3, 4]].mean(0), across / max(np.hypot(*across), 1e-6))) / max(height, 1e-6)


def found_of(truth, found):
    """Which faces of a scene were found."""
    tally = Tally()
    boxes = np.array([f["box"] for f in truth], np.float32).reshape(-1, 4)
    points = np.array([f["landmarks5"] for f in truth], np.float32).reshape(-1, 5, 2)
    tally.add(0, found, boxes, points, np.ones(len(truth), bool))
    return {k for _, k in tally.points}


def detector(server, shared, limit):
    tally, kinds = Tally(), {"half profiles": [0, 0], "24 to 32 px": [0, 0], "cut by the edge": [0, 0]}
    for n, scene in enumerate(spread(index(shared, "detect"), limit)):
        with open(f"{shared}/data/{scene['file']}", "rb") as f:
            faces = server.detect(f.read())
        rows = [np.array([f["score"], *f["box"], *np.ravel(f["landmarks"])], np.float32) for f in faces]
        truth = scene["faces"]
        boxes = np.array([f["box"] for f in truth], np.float32).reshape(-1, 4)
        points = np.array([f["landmarks5"] for f in truth], np.float32).reshape(-1, 5, 2)
        size = (boxes[:, 2:] - boxes[:, :2]).max(1) if len(boxes) else np.zeros(0)
        counts = np.array([not f["ignore"] for f in truth], bool) & (size >= SMALLEST)
        tally.add(n, rows, boxes, points, counts)
        hit = found_of(truth, rows)
        for i, face in enumerate(truth):
            for kind, of in (("half profiles", size[i] >= SMALLEST and turned(face) >= 0.3),
                             ("24 to 32 px", 24 <= size[i] < SMALLEST),
                             ("cut by the edge", size[i] >= SMALLEST and face["vis"] < 0.95)):
                if of and not face["ignore"]:
                    kinds[kind][0] += i in hit
                    kinds[kind][1] += 1
    recall, false = tally.at(0)
    yield "detector", f"AP50 of what is reported, {tally.wanted} faces of 32 px and more", f"{100 * tally.precision():.2f}"
    yield "detector", "found, false", f"{100 * recall:.1f} %, {false}"
    yield "detector", "points' error, mean of the eye distance", f"{np.mean(list(tally.points.values())):.3f}"
    for kind, (got, of) in kinds.items():
        yield "detector", f"{kind}: found", f"{got} of {of}"


def nobody(server, shared, limit):
    scenes = [e["file"] for e in index(shared, "detect") if not e["faces"]]
    tiles = [e["file"] for e in index(shared, "photos", None) if e["source"] in NOBODY]
    photos = ["gray_animal.jpg", "scene_plants.png", "scene_small.png", "tree_alpha_16bit.png"]
    files = [f"data/{f}" for f in scenes + tiles] + [f"photos/{f}" for f in photos]
    false = []
    for file in spread(files, limit):
        with open(f"{shared}/{file}", "rb") as f:
            false += [f"{os.path.basename(file)} {face['score']:.3f}" for face in server.detect(f.read())]
    yield "detector", f"false faces on {len(spread(files, limit))} pictures without people", \
        f"{len(false)}" + (f" ({', '.join(false[:4])})" if false else "")


# ---- faces -----------------------------------------------------------------------------------------------------------

def degraded(x, strength, seed):
    """As degrade.degrade_face_fixed, with PIL's means."""
    sigma, factor, noise, quality = STRENGTHS[strength]
    h, w = x.shape[:2]
    im = Image.fromarray(to_bytes(x)).filter(ImageFilter.GaussianBlur(sigma))
    small = np.asarray(im.resize((math.ceil(w / factor), math.ceil(h / factor)), Image.BOX)).astype(np.float32)
    small = small + np.random.default_rng(seed).normal(0, noise, small.shape)
    file = io.BytesIO()
    Image.fromarray(to_bytes(small)).save(file, "JPEG", quality=quality)
    return resized(np.asarray(Image.open(file)), w, h, Image.BILINEAR)


def points_of(server, x):
    """Five points on an aligned face, or None."""
    faces = server.detect(resized(x, 256, 256, Image.BOX), POINTS)
    area = [(f["box"][2] - f["box"][0]) * (f["box"][3] - f["box"][1]) for f in faces]
    return np.array(faces[int(np.argmax(area))]["landmarks"]) * x.shape[0] / 256 if faces else None


def apart(a, b):
    return None if a is None or b is None else \
        float(np.hypot(*(a - b).T).mean() / max(np.hypot(*(b[0] - b[1])), 20))


def arrow(pairs, form):
    return " → ".join(form.format(np.mean([p[i] for p in pairs])) for i in range(2)) if pairs else "–"


def faces(server, shared, limit):
    entries = spread(index(shared, "faces512"), limit)
    truths = [load(f"{shared}/data/{e['file']}") for e in entries]
    known = [points_of(server, x) for x in truths]
    same = [psnr(server.restore(x, aligned="true"), x) for x in truths]
    yield "face network", f"{len(truths)} sharp faces against themselves: PSNR, least", f"{np.mean(same):.2f}, {min(same):.2f} dB"
    for strength in STRENGTHS:
        gains, moved, lost = [], [], 0
        for i, truth in enumerate(truths):
            given = degraded(truth, strength, i)
            made = server.restore(given, aligned="true")
            gains.append((psnr(given, truth), psnr(made, truth)))
            before, after = apart(points_of(server, given), known[i]), apart(points_of(server, made), known[i])
            lost += after is None and known[i] is not None
            if before is not None and after is not None:
                moved.append((before, after))
        yield "face network", f"{strength}: PSNR", arrow(gains, "{:.2f}") + " dB"
        yield "face network", f"{strength}: points' error ({len(moved)} faces found in both)", \
            arrow(moved, "{:.3f}") + (f", {lost} not found" if lost else "")


# ---- the whole pipeline, weight=auto ---------------------------------------------------------------------------------

def measured(item):
    return each.measure(item)


def each(what, items, measure):
    """What is measured of each, in their order; None is left out. Processes do it: most of the time is numpy's."""
    items, rows = list(items), []
    each.measure = measure  # the processes are forks of this one
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        for done, row in enumerate(pool.imap(measured, items), 1):
            rows += [] if row is None else [row]
            if done % max(1, len(items) // 10) == 0:
                print(f"{what}: {done} of {len(items)}", file=sys.stderr, flush=True)
    return rows


def sizes(server, shared, limit):
    """Pictures that are a face and what is around it, without an upscaler: detail and PSNR with the default beside weight=1 and
    what came. The default must keep the detail of sharp faces of 80 px and more, and in the mean of a kind be nearer to the
    truth than what came and than the program before. weight=1 is better where all pictures of a kind gain, which nobody knows
    from one: the default may be 0.1 dB below it."""
    def measure(case):
        _, _, _, side, kind = case
        truth, given = known.case(*case)
        (whole, _), (auto, found) = (server.restored(given, **o) for o in ({"weight": "1"}, {}))
        mask = known.inside(side)
        detail = [known.detail(v, mask) for v in (given, whole, auto)]
        return found and ((side, kind), [detail[2] / max(detail[:2]), *(min(60, known.psnr(v, truth, mask)) for v in (given, whole, auto)),
                                         found[0]["used"]]) or None

    table = {}
    for key, row in each("sizes", known.cases(shared, limit or 20, sizes.sides, known.KINDS), measure):
        table.setdefault(key, []).append(row)
    for side, kind in sorted(table, key=lambda key: (key[0], known.KINDS.index(key[1]))):
        a = np.array(table[side, kind])
        (share, none, whole, auto, used), least = a.mean(0), a[:, 0].min()
        sharp, px = kind in known.SHARP, round(0.64 * side)
        before = 0 if sharp or limit else known.BEFORE[kind].get(side, 0)
        wanted = none if limit else max(none, before, whole - 0.08)  # the rest is known of all faces only
        yield ("whole pipeline", f"{len(a)} faces of {px} px, {kind}",
               (f"detail {share:.2f}, least {least:.2f}" if sharp else
                f"{none:.2f} → {auto:.2f} dB, with weight=1 {whole:.2f}" + (f", before {before:.2f}" if before else "")) +
               f"; {used:.2f} used", px < 80 or least >= 0.95 if sharp else auto >= wanted - 0.02)


def borders(server, shared, limit):
    """At the crop's border, of portraits that go on around it."""
    def measure(entry):
        given = known.surrounded(known.worse("blur", known.read(f"{shared}/data/{entry['file']}"), 7))
        made, found = server.restored(given)
        return known.edge(made, given, known.similarity(found[0]["landmarks"], known.TEMPLATE)) if found else None

    worst = each("borders", spread(index(shared, "faces512"), min(limit or 50, 50)), measure)
    yield ("whole pipeline", f"{len(worst)} portraits: energy added in a row along the crop's border, mean, most",
           f"{100 * np.mean(worst):.1f} %, {100 * max(worst):.1f} %", max(worst) < 0.1)


def identity(server, shared, limit):
    """How far the default moves the landmarks of a face, beside weight=1, and what it says of it."""
    entries = spread(index(shared, "faces512"), limit)
    for strength in ("sharp", *STRENGTHS):
        def measure(item):
            number, entry = item
            truth = known.read(f"{shared}/data/{entry['file']}")
            given = truth if strength == "sharp" else to_bytes(degraded(truth.astype(np.float32), strength, number))
            (whole, _), (auto, found) = (server.restored(known.surrounded(given), **o) for o in ({"weight": "1"}, {}))
            pad = (auto.shape[0] - 512) // 2
            seen = [points_of(server, v) for v in (truth, given, *(v[pad:pad + 512, pad:pad + 512] for v in (whole, auto)))]
            moved = [apart(p, seen[0]) for p in seen[1:]]
            return [*moved, found[0]["change"], found[0]["used"]] if found and None not in moved else None

        rows = np.array(each(f"identity, {strength}", enumerate(entries), measure))
        before, whole, auto, change, used = rows.mean(0)
        yield ("whole pipeline", f"{strength}: points' error ({len(rows)} faces), with weight=1; change mean and most, used",
               f"{before:.3f} → {auto:.3f}, {whole:.3f}; {change:.3f}, {rows[:, 3].max():.3f}, {used:.2f}",
               auto <= whole + 0.0005)
    other = [found[0] for found in (server.restored(known.surrounded(known.read(f"{shared}/data/{e['file']}")), version=OTHER)[1]
                                    for e in spread(entries, 8)) if found]
    yield ("whole pipeline", f"{len(other)} faces by a network of random weights: change, least; used, most",
           f"{min(f['change'] for f in other):.2f}; {max(f['used'] for f in other):.2f}")


# ---- colours of faces ------------------------------------------------------------------------------------------------

def gray(x):
    return np.repeat((x @ known.LUMA)[..., None], 3, 2)


def sepia(x):
    """As a toned print: white and black stay, what is between them is brown."""
    return 255 * (gray(x) / 255) ** np.array([0.8, 1, 1.35], np.float32)


def chroma(x):
    """Red and blue beside brightness, levels."""
    x = np.asarray(x, np.float32)
    return x[..., ::2] - (x @ known.LUMA)[..., None]


def colours(server, shared, limit):
    """Within the faces of gray and toned photos, with the defaults: whether the chroma is the picture's."""
    def photo(name, change=None):
        x = load(f"{shared}/photos/{name}")
        return to_bytes(change(x)) if change else to_bytes(x)

    def portrait(name):
        return to_bytes(known.surrounded(known.read(f"{shared}/data/faces512/{name}")))

    pictures = {"the sample, a toned print": to_bytes(load("static/sample.jpg")), "one_face, a scan": photo("one_face.jpg"),
                "interfaces_002, gray": portrait("interfaces_002.jpg"), "interfaces_030, gray": portrait("interfaces_030.jpg")}
    for name in ("two_faces_blurred.jpg", "two_children.jpg", "three_faces_old.png", "one_face_2.jpg"):
        pictures |= {f"{name.split('.')[0]}, {change.__name__}": photo(name, change) for change in (gray, sepia)}
    for name in spread(list(pictures), limit):
        given = pictures[name]
        made, found = server.restored(given, bg_upsampler="starter", upscale="2")
        made = made.reshape(given.shape[0], 2, given.shape[1], 2, 3).mean((1, 3))
        before, change, apart, cell = [], chroma(made) - chroma(given), [], []
        for face in found:
            x0, y0, x1, y1 = (max(0, round(v)) for v in face["box"])
            part = change[y0:y1, x0:x1]
            before.append(np.abs(chroma(given)[y0:y1, x0:x1].mean((0, 1))).max())
            apart.append(np.abs(part.mean((0, 1))).max())
            high, wide = (n // 8 for n in part.shape[:2])
            cell.append(np.abs(part[:8 * high, :8 * wide].reshape(8, high, 8, wide, 2).mean((1, 3))).max())
        used = max((face["used"] for face in found), default=0)
        yield ("colours", f"{name}: chroma of {len(found)} faces, most; apart after, most; in an eighth of a face's sides, most",
               f"{max(before, default=0):.1f}; {max(apart, default=0):.2f}; {max(cell, default=0):.2f} ({used:.2f} used)",
               bool(found) and max(apart) <= 1)


# ---- upscaler --------------------------------------------------------------------------------------------------------

def textures(side=256):
    """Regular textures whose frequencies are known, none of them a whole number of pixels: {name: (picture, periods)}."""
    y, x = np.mgrid[:side, :side].astype(np.float64)
    noise = np.random.default_rng(5).normal(0, 1, (side, side))

    def wave(period, degrees):
        a = math.radians(degrees)
        return np.cos(2 * math.pi * (x * math.cos(a) + y * math.sin(a)) / period)

    def dots(period, degrees):
        return wave(period, degrees) + wave(period, degrees + 90)

    made = {"stripes, 3.7 px": 50 * wave(3.7, 12), "stripes, 2.6 px": 50 * wave(2.6, 31),
            "weave, 4.3 px": 30 * wave(4.3, 0) + 30 * wave(4.3, 90) + 15 * wave(4.3, 45),
            "screen, 4.6 px at 15°": 60 * np.tanh(1.5 * dots(4.6, 15)), "screen, 3.3 px at 45°": 40 * dots(3.3, 45),
            "weave with grain": 30 * wave(3.7, 3) + 30 * wave(3.7, 93) + 6 * noise}
    return {name: np.repeat((128 + v)[..., None], 3, 2).astype(np.float32) for name, v in made.items()}


def foreign(given, made):
    """Of the energy of a texture enlarged two times, the shares at frequencies that the given one has not: below its highest
    frequency (beats, seen as ripples), and above."""
    side = given.shape[0]

    def power(v):
        v = v.mean(2)[8:-8, 8:-8].astype(np.float64) if v.shape[0] == side else v.mean(2)[16:-16, 16:-16].astype(np.float64)
        window = np.hanning(v.shape[0])
        return np.abs(np.fft.fftshift(np.fft.fft2((v - v.mean()) * np.outer(window, window))))**2 / v.size**2

    low, high = power(given), power(made)
    half, cut = low.shape[0] // 2, high.shape[0] // 2
    inner = high[cut - half:cut + half, cut - half:cut + half]
    has = low > 1e-4 * low.max()
    near = np.zeros_like(has)
    for dy in range(-3, 4):
        for dx in range(-3, 4):
            near |= np.roll(has, (dy, dx), (0, 1))
    total = high.sum()
    return float(inner[~near].sum() / total), float((total - inner.sum()) / total)


def upscaler(server, shared, limit):
    gains = []
    for entry in spread(index(shared, "photos"), limit):
        truth = load(f"{shared}/data/{entry['file']}")
        small = resized(truth, 256, 256, Image.BICUBIC)
        made = server.restore(small, version="none", upscale="2")
        cubic = resized(small, 512, 512, Image.BICUBIC)
        gains.append((psnr(cubic[4:-4, 4:-4], truth[4:-4, 4:-4]), psnr(made[4:-4, 4:-4], truth[4:-4, 4:-4])))
    yield "upscaler", f"{len(gains)} photos reduced by 2: PSNR bicubic → starter", arrow(gains, "{:.2f}") + " dB"
    yield "upscaler", "the least gain", f"{min(b - a for a, b in gains):+.2f} dB"
    for name, texture in textures().items():
        shares = [foreign(texture, server.restore(texture, version="none", upscale="2", bg_upsampler=which))
                  for which in ("none", "starter")]
        (lanczos, lanczos_above), (below, above) = shares
        yield "upscaler", f"{name}: foreign energy below, above the input's highest frequency (Lanczos)", \
            " %, ".join(f"{100 * v:.2f}" for v in (below, above)) + f" % ({100 * lanczos:.2f} %, {100 * lanczos_above:.2f} %)"


PARTS = {"detector": detector, "nobody": nobody, "faces": faces, "sizes": sizes, "borders": borders, "identity": identity,
         "colours": colours, "upscaler": upscaler}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--shared", default=os.environ.get("RESTORED_SHARED", "../shared"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--sides", default=",".join(map(str, known.SIDES)), help="of the part sizes: sides of the crops, px")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between them")
    args = parser.parse_args()
    sizes.sides = [int(side) for side in args.sides.split(",")]
    if not os.path.exists(f"{args.shared}/data/detect/labels.json"):
        sys.exit(f"check_quality: there are no packs in {args.shared}/data")
    server, rows = Server(args.program, f"{args.shared}/models", args.device), []
    try:
        for part in args.only.split(","):
            started = time.monotonic()
            for row in PARTS[part](server, args.shared, args.limit):
                print(f"{part}: {row[1]}: {row[2]}{'' if all(row[3:]) else ' (does not hold)'}", file=sys.stderr, flush=True)
                rows.append(row)
            print(f"{part}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    finally:
        server.stop()
    print("| part | figure | measured |\n|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row[:3]) + " |")
    broken = [row for row in rows if not all(row[3:])]
    for part, figure, value, *_ in broken:
        print(f"does not hold: {part}: {figure}: {value}", file=sys.stderr)
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
