"""A small copy of the training packs, to take to another machine: the same layout, so that --data reads it.

    python3 -m models.training.pack --to .train [--data ../shared/data] [--pictures SOURCE[:N]=FOLDER …]
        [--figures SOURCE=FOLDER …]

Pictures become WebP, masks WebP without loss and with 16 levels; of the two folders with the most masks a part is taken, at
the same split. --pictures cuts tiles of 512 px from photos of a source that common.LICENCES knows, into a pack `extra`: of
large ones with true detail, of the photo reduced to SMALL anything, also sky; :N takes at most N of each photo, at scales
that take turns. Every twelfth picture is of its validation split. A name that begins with one of HELD_OUT is left out.
--figures makes the pack `flat` of drawings: of each map or diagram a square, as high or as wide as it is. Those that are
not flat are left out.
"""
import argparse
import io
import json
import os
import tarfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from PIL import Image

from models.training import common

QUALITY = {"photos": 78, "faces512": 74, "detect": 42, "extra": 52, "flat": 60}
MASKS_OF = {"hair": 600, "hair-short": 200}  # the others: all
LEVELS = 16
HELD_OUT = ("kodak_11.", "backgrounds_roman-colosseum")  # their tiles are in the validation split of `photos`
SMALL = 740
LONGEST = (2400, 1200, SMALL)  # a photo is reduced to these, and cut
TILES = (6, 3, 1)  # tiles of each
FLAT = 0.5  # of a drawing's neighbouring pixels this share differs by two levels at most


def webp(picture, path, quality):
    picture.save(path, "WEBP", quality=quality, method=3)


def copy(args, pack, chosen):
    """The chosen entries of a pack, as WebP, and its index."""
    os.makedirs(os.path.join(args.to, pack), exist_ok=True)
    if pack == "detect":
        for split in ("train", "val"):
            os.makedirs(os.path.join(args.to, pack, split), exist_ok=True)

    def one(entry):
        to = os.path.splitext(entry["file"])[0] + ".webp"
        with Image.open(os.path.join(args.data, entry["file"])) as im:
            webp(im.convert("RGB"), os.path.join(args.to, to), QUALITY[pack])
        return {**entry, "file": to}

    with ThreadPoolExecutor(2) as pool:
        index = list(pool.map(one, chosen))
    name = "labels.json" if pack == "detect" else "index.json"
    with open(os.path.join(args.to, pack, name), "w", encoding="utf-8") as f:
        json.dump(index, f)


def sharpest(gray, count, side=512):
    """Corners of up to count tiles that overlap by half at most, those with the most texture first; flat and blurred ones
    are left out."""
    h, w = gray.shape
    fine = np.abs(np.diff(gray, axis=0))[:, :-1] + np.abs(np.diff(gray, axis=1))[:-1]
    found = []
    for top in sorted({*range(0, h - side + 1, side // 2), h - side}):
        for left in sorted({*range(0, w - side + 1, side // 2), w - side}):
            part = fine[top:top + side, left:left + side]
            if part.mean() > 2.5 and gray[top:top + side, left:left + side].mean() > 25:
                found.append((float(part.mean()), top, left))
    kept = []
    for _, top, left in sorted(found, reverse=True):
        if all(abs(top - t) > side // 2 or abs(left - u) > side // 2 for t, u in kept) and len(kept) < count:
            kept.append((top, left))
    return kept


def cut(args, source, folder):
    """The tiles of a folder's photos as index entries."""
    os.makedirs(os.path.join(args.to, "extra"), exist_ok=True)
    names = [n for n in sorted(os.listdir(folder)) if not n.startswith(HELD_OUT)]
    source, _, most = source.partition(":")

    def one(item):
        number, name = item
        found = []
        with Image.open(os.path.join(folder, name)) as im:
            im.draft("RGB", (2 * LONGEST[0], 2 * LONGEST[0]))
            im = im.convert("RGB")
        for scale, (longest, count) in enumerate(zip(LONGEST, TILES)):
            f = max(min(1, longest / max(im.size)), 512 / min(im.size) if longest == SMALL else 0)
            size = [round(s * f) for s in im.size]
            if f > 1 or min(size) < 512 or (f == 1 and longest != LONGEST[0]):
                continue
            small = im.resize(size, Image.BOX if f < 0.5 else Image.LANCZOS)
            if longest == SMALL:
                places = [((size[1] - 512) * (number % 3) // 2, (size[0] - 512) * (number // 3 % 3) // 2)]
            else:
                places = sharpest(np.asarray(small.convert("L"), np.float32), count)
            for i, (top, left) in enumerate(places):
                found.append((i, (scale + number) % len(LONGEST), longest, left, top, small))
        stem, out = "".join(ch if ch.isalnum() else "-" for ch in os.path.splitext(name)[0]), []
        for _, _, longest, left, top, small in sorted(found, key=lambda e: e[:2])[:int(most or len(found))]:
            file = f"extra/{source}_{stem}_{longest}_{left}_{top}.webp"
            webp(small.crop((left, top, left + 512, top + 512)), os.path.join(args.to, file), QUALITY["extra"])
            out.append({"file": file, "source": source, "picture": f"{source}_{stem}",
                        "split": "val" if number % 12 == 11 else "train"})
        return out

    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(one, enumerate(names)), [])


def figures(args, source, folder):
    """A square of each flat picture of a folder as index entries; all of them are to learn from."""
    os.makedirs(os.path.join(args.to, "flat"), exist_ok=True)
    out = []
    for number, name in enumerate(sorted(os.listdir(folder))):
        with Image.open(os.path.join(folder, name)) as im:
            im = im.convert("RGBA")
        ground = Image.new("RGB", im.size, "white")
        ground.paste(im, mask=im.getchannel("A"))
        small = ground.copy()
        small.thumbnail((500, 500))
        steps = np.abs(np.diff(np.asarray(small).astype(int), axis=1)).max(2)
        if min(im.size) < 300 or (steps <= 2).mean() < FLAT:
            continue
        size = [max(512, round(s * 512 / min(im.size))) for s in im.size]
        left, top = ((s - 512) * (number % 3) // 2 for s in size)
        stem = "".join(ch if ch.isalnum() else "-" for ch in os.path.splitext(name)[0])
        file = f"flat/{source}_{stem}.webp"
        square = ground.resize(size, Image.LANCZOS).crop((left, top, left + 512, top + 512))
        webp(square, os.path.join(args.to, file), QUALITY["flat"])
        out.append({"file": file, "source": source, "picture": f"{source}_{stem}", "split": "train"})
    return out


def masks(args):
    os.makedirs(os.path.join(args.to, "damage"), exist_ok=True)
    folders = {}
    with tarfile.open(os.path.join(args.data, "damage", "masks.tar")) as source, \
            tarfile.open(os.path.join(args.to, "damage", "masks.tar"), "w") as target:
        for member in source.getmembers():
            if member.isfile():
                folders.setdefault(os.path.basename(os.path.dirname(member.name)), []).append(member)
        for folder, members in sorted(folders.items()):
            members.sort(key=lambda m: m.name)
            first, wanted = len(members) - len(members) // 10, MASKS_OF.get(folder, len(members))
            train = members[:first][:wanted - wanted // 10]
            for member in train + members[first:][:wanted // 10]:
                with Image.open(io.BytesIO(source.extractfile(member).read())) as im:
                    a = np.asarray(im.convert("L")).astype(np.float32)
                a = np.round(np.round(a / 255 * (LEVELS - 1)) * 255 / (LEVELS - 1)).astype(np.uint8)
                file = io.BytesIO()
                Image.fromarray(a).convert("RGB").save(file, "WEBP", lossless=True, quality=50, method=3)
                info = tarfile.TarInfo(os.path.splitext(member.name)[0] + ".webp")
                info.size = file.tell()
                file.seek(0)
                target.addfile(info, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--to", required=True)
    parser.add_argument("--packs", default="photos,faces512,detect,masks,extra")
    parser.add_argument("--faces", type=int, default=260, help="how many of the training faces of 512 px")
    parser.add_argument("--scenes", type=float, default=1.0, help="the share of the detector's training scenes")
    parser.add_argument("--scenes-val", action="store_true", help="the detector's validation scenes too")
    parser.add_argument("--pictures", nargs="*", default=[], metavar="SOURCE[:N]=FOLDER")
    parser.add_argument("--figures", nargs="*", default=[], metavar="SOURCE=FOLDER")
    args = parser.parse_args()
    packs = args.packs.split(",")
    if "photos" in packs:
        copy(args, "photos", common.read_index(args.data, "photos", "train") + common.read_index(args.data, "photos", "val"))
    if "faces512" in packs:
        train = [e for e in common.read_index(args.data, "faces512", "train") if e["src_px"] >= 512]
        step = max(1, len(train) // max(1, args.faces))
        copy(args, "faces512", train[::step][:args.faces] + common.read_index(args.data, "faces512", "val"))
    if "detect" in packs:
        train = common.read_index(args.data, "detect", "train")
        copy(args, "detect", [train[int(i / args.scenes)] for i in range(int(len(train) * args.scenes))]
             + (common.read_index(args.data, "detect", "val") if args.scenes_val else []))
    if "masks" in packs:
        masks(args)
    if "extra" in packs and args.pictures:
        index = sum((cut(args, *p.split("=", 1)) for p in args.pictures), [])
        with open(os.path.join(args.to, "extra", "index.json"), "w", encoding="utf-8") as f:
            json.dump(index, f)
    if args.figures:
        index = sum((figures(args, *f.split("=", 1)) for f in args.figures), [])
        with open(os.path.join(args.to, "flat", "index.json"), "w", encoding="utf-8") as f:
            json.dump(index, f)


if __name__ == "__main__":
    main()
