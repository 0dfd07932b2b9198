"""Shifts a detector's scores so that the pipeline's threshold is where it should be.

    python3 -m models.training.calibrate_detector --model FILE [--recall 0.98] [--data DIR]

Training leaves scores whose order is good and whose height is chance. Afterwards the default threshold finds `recall` of
the validation scenes' faces of 32 px or more. One number is added to the logit of every score, in the class heads' biases;
everything else in the file stays as it is, and done again it changes nothing more.
"""
import argparse
import math

from models.training import common, detector
from models.training.eval_detector import load, scene
from models.training.tally import THRESHOLD, Tally


def logit(p):
    p = min(max(p, 1e-6), 1 - 1e-6)
    return math.log(p / (1 - p))


def shift(net, data, recall):
    """What has to be added to the logits of net's scores."""
    tally = Tally()
    for i, entry in enumerate(common.read_index(data, "detect", "val")):
        picture, boxes, points, counts = scene(data, entry, 1)
        tally.add(i, detector.detect(net, picture, threshold=0.02), boxes, points, counts)
    hits = sorted((score for score, hit in tally.rows if hit), reverse=True)
    count = math.ceil(recall * tally.wanted)
    if len(hits) <= count:
        common.fail(f"only {len(hits)} of {tally.wanted} faces are found at all: train longer, or ask for less recall")
    return logit(THRESHOLD) - (logit(hits[count - 1]) + logit(hits[count])) / 2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/starter/starter_detector.safetensors")
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--recall", type=float, default=0.98)
    args = parser.parse_args()
    by = shift(load(args.model, 0.1, "cpu"), args.data, args.recall)
    tensors, metadata = common.read_safetensors(args.model)
    for level in range(3):
        bias = tensors[f"ClassHead.{level}.conv1x1.bias"]  # [anchor][background, face]
        bias[0::2] -= by / 2
        bias[1::2] += by / 2
    metadata["training"] = metadata["training"].split(";")[0] + \
        f"; scores calibrated to a recall of {args.recall:g} at {THRESHOLD:g}"
    common.write_safetensors(args.model, tensors, metadata)
    print(f"{args.model}: the scores' logits shifted by {by:+.3f}")


if __name__ == "__main__":
    main()
