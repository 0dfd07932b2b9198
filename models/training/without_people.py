"""Pictures without people, to count false faces on: animals, statues, toys, food, rooms, drawings, landscapes.

    python3 -m models.training.without_people --clones DIR [--to build/without-people]
    python3 -m models.training.eval_detector --without-people build/without-people

DIR holds clones (bare ones do) of the repositories below, each under its last name. The pictures are reduced to 640 px and
flattened onto white. Pictures with people, and paintings of them, were left out by eye; what the detector learns from, too.
They are under the licences named here, serve for measuring only, and are never committed.
"""
import argparse
import io
import os
import re
import subprocess

from PIL import Image

LONGEST = 640
# Repository, what the paths of its pictures look like, words of the names that are left out, licence.
SOURCES = (
    ("ezfibuilds/NPC-Thought-Starter-Generator", r"images/animals/.*\.webp",
     # These are in the public domain, CC0 or CC BY, and training takes them.
     "badger grizzlybear jaguar lion bison cheetah deer moose dog dolphin orca donkey honeybadger lemming alpaca mole pig "
     "raccoon rat seal skunk walrus whale wolverine crow dodo dove flamingo turkey hawk kiwi owl pelican quail roadrunner "
     "toucan vulture frilledlizard toad gecko gartersnake python viper anglerfish catfish pufferfish shark swordfish ant "
     "bee cockroach lobster grasshopper dragonfly fly shrimp spider blackwidow", "CC BY-SA of Wikimedia Commons, by picture"),
    ("deepin-community/tuxpaint-stamps", r"stamps/.*\.png",
     "fireman200b fireman240a paratrooper mermaid", "GPL-2"),
    ("imazen/codec-corpus", r"CID22/.*\.png",
     "1089930 1277396 1428647 14768480444_bc0a1b4a2e_o 159741 160577 1618269 167491 1796698 1943411 209864 "
     "21169144185_3f7977cb5a_o 2123337 2272939 2504911 2600340 26103251787_d8635e260d_o 3004909 3214023 333963 3534924 "
     "35875869841_0b10e41e57_o 3794859 45258 4934193 5097354 5398956 5617414 5739122 6763758 7062177 7062227 7218572 "
     "7394483 pexels-photo-1075776 pexels-photo-1544724 pexels-photo-1933873 pexels-photo-2598024 pexels-photo-2686358 "
     "pexels-photo-2811087 pexels-photo-2846602 pexels-photo-3155588 pexels-photo-3193731 pexels-photo-3214683 "
     "pexels-photo-3568544 pexels-photo-3586798 pexels-photo-4177747 pexels-photo-4352249 pexels-photo-4354221 "
     "pexels-photo-4672246 pexels-photo-6096399 pexels-photo-6635187 pexels-photo-7114620 pexels-photo-7263002 "
     "pexels-photo-7266811 pexels-photo-796526 1418519 159550 162520 2190188 2670327 297394 3762075 5055743 6292444 7062219",
     "CC BY-SA 4.0"),
    # The pictures of CLIC that have no people.
    ("imazen/codec-corpus", r"clic2025/.*(0bf1ccea|44a2ba49|452db505|571f1c68|7fbdb368|0c49a5cc|22ea12c9|3140d643|60430844|"
     r"7e499613|aed95e00|c80999cd|d1a9be98|ef576c4e|d095795a)[0-9a-f]*\.png", "", "Unsplash"),
)


def blobs(clone, pattern):
    """Names and contents of the files of a clone's newest commit whose path matches."""
    git = ["git", "-C", clone]
    names = subprocess.run([*git, "ls-tree", "-r", "-z", "--name-only", "HEAD"], capture_output=True, check=True).stdout
    for name in names.decode().split("\0"):
        if re.fullmatch(pattern, name):
            got = subprocess.run([*git, "cat-file", "blob", "HEAD:" + name], capture_output=True)
            if got.returncode == 0:
                yield name, got.stdout


def reduced(blob):
    """A picture as RGB; None for one that is too small or narrow to tell anything."""
    with Image.open(io.BytesIO(blob)) as im:
        if min(im.size) < 150 or max(im.size) > 3 * min(im.size):
            return None
        im = im.convert("RGBA")
    ground = Image.new("RGBA", im.size, (255, 255, 255, 255))
    ground.alpha_composite(im)
    im = ground.convert("RGB")
    im.thumbnail((LONGEST, LONGEST), Image.LANCZOS)
    return im


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clones", required=True)
    parser.add_argument("--to", default="build/without-people")
    args = parser.parse_args()
    os.makedirs(args.to, exist_ok=True)
    total = 0
    for repository, pattern, out, licence in SOURCES:
        count, left_out = 0, set(out.split())
        for name, blob in blobs(os.path.join(args.clones, repository.split("/")[1]), pattern):
            stem = os.path.splitext(os.path.basename(name))[0]
            im = None if stem in left_out or len(blob) < 8000 else reduced(blob)
            if im:
                # The path's folder tells same names apart.
                folder = os.path.basename(os.path.dirname(name))
                im.save(os.path.join(args.to, f"{folder}_{stem}.jpg"), quality=90)
                count += 1
        print(f"{repository}: {count} pictures ({licence})", flush=True)
        total += count
    print(f"{total} in {args.to}")


if __name__ == "__main__":
    main()
