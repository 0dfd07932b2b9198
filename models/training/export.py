"""Writes a trained network's averaged weights as safetensors, from the checkpoint that its training left; or corrects
what a model file or a checkpoint says it has learnt from, and leaves every tensor as it is.

    python3 -m models.training.export --state DIR --network detector [--to models/starter/…] [--commit HASH]
    python3 -m models.training.export --rewrite FILE.safetensors|DIR --data TEXT
"""
import argparse
import os

from models.training import common

# Per network: the file's name, and the moving average that is exported.
NETWORKS = {"detector": ("starter_detector", "net"), "upsampler": ("starter_upsampler_x2", "net"),
            "upsampler-l1": ("starter_upsampler_x2_l1", "plain")}

# What a network's tensors do not tell: of a pyramid wider than 64 channels the program would assume ReLU.
SAID = {"starter_detector": {"activation": "leakyrelu:0.1"}}


def write(folder, network, commit="", to=None):
    """The file's path. Its steps, data and commit are those of the checkpoint in folder, unless another commit is given."""
    name, average = NETWORKS[network]
    state = common.load_state(folder)
    path = to or os.path.join(folder, name + ".safetensors")
    common.write_safetensors(path, state["emas"][average], {**common.card(name, state, commit), **SAID.get(name, {})})
    print(f"{path}: {os.path.getsize(path)} bytes", flush=True)
    return path


def rewrite(path, data):
    """Sets the data of a model file or of a checkpoint's folder."""
    if not os.path.isdir(path):
        common.replace_metadata(path, {"data": data})
        return
    state = common.load_state(path)
    if not state:
        common.fail(f"{path}: there is no checkpoint")
    state["data"] = [data]
    common.save_state(path, state)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", help="the training's --out")
    parser.add_argument("--network", choices=sorted(NETWORKS))
    parser.add_argument("--to")
    parser.add_argument("--commit", default="")
    parser.add_argument("--rewrite", help="a model file or a checkpoint's folder")
    parser.add_argument("--data", help="what it has learnt from")
    args = parser.parse_args()
    if args.rewrite and args.data:
        rewrite(args.rewrite, args.data)
    elif args.state and args.network:
        write(args.state, args.network, args.commit, args.to)
    else:
        parser.error("give --state and --network, or --rewrite and --data")


if __name__ == "__main__":
    main()
