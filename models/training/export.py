"""Writes a trained network's averaged weights as safetensors, from the checkpoint that its training left.

    python3 -m models.training.export --state DIR --network detector [--to models/starter/…] [--commit HASH]
"""
import argparse
import os

from models.training import common

LICENCE = "MIT"
# Per network: the file's name, the moving average that is exported, and what was learnt from.
NETWORKS = {
    "detector": ("starter_detector", "net",
                 "930 scenes of 640 px with 3600 faces of congress (public domain), interfaces (CC0) and SFHQ-T2I "
                 "(MIT, synthetic) on photos of budgie, elementary, pdimages (CC0) and kodak; labels: a public RetinaFace"),
    "upsampler": ("starter_upsampler_x2", "net",
                  "340 photo tiles and 460 faces of 512 px: budgie, elementary, pdimages, interfaces (CC0), kodak, "
                  "congress (public domain)"),
    "upsampler-l1": ("starter_upsampler_x2_l1", "plain",
                     "340 photo tiles and 460 faces of 512 px: budgie, elementary, pdimages, interfaces (CC0), kodak, "
                     "congress (public domain)"),
}


def write(folder, network, commit="", to=None):
    """The file's path. Its steps and commit are those of the checkpoint in folder, unless another commit is given."""
    name, average, data = NETWORKS[network]
    state = common.load_state(folder)
    path = to or os.path.join(folder, name + ".safetensors")
    metadata = {"name": name, "licence": LICENCE, "commit": commit or common.commit(), "data": data,
                "training": f"{state['step']} steps from random weights"}
    common.write_safetensors(path, state["emas"][average], metadata)
    print(f"{path}: {os.path.getsize(path)} bytes", flush=True)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", required=True, help="the training's --out")
    parser.add_argument("--network", required=True, choices=sorted(NETWORKS))
    parser.add_argument("--to")
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    write(args.state, args.network, args.commit, args.to)


if __name__ == "__main__":
    main()
