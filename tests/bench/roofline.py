"""What the classes of layers reach on a device, over all networks measured:

    restored bench --layers --json | python3 tests/bench/roofline.py [--tflops 636 --gbs 4800]

--tflops, --gbs: what the device can do at most, by its data sheet or measured; the table then says how near each class
comes to either. A class near neither waits: for barriers, for shared memory, or because its layers are small.
"""
import argparse
import json
import sys


def classes_of(networks):
    """{class: [ms, GFLOP, GB, layers]}, the slowest first."""
    out = {}
    for network in networks:
        for layer in network.get("layers") or []:
            row = out.setdefault(layer["layer"], [0.0, 0.0, 0.0, 0])
            seconds = layer["ms"] / 1e3
            for i, more in enumerate((layer["ms"], layer["gflops"] * seconds, layer["gbs"] * seconds, layer["count"])):
                row[i] += more
    return dict(sorted(out.items(), key=lambda item: -item[1][0]))


def table(networks, tflops=0.0, gbs=0.0, least=0.002):
    """Markdown; classes of less than `least` of the time are one row."""
    classes = classes_of(networks)
    total = sum(row[0] for row in classes.values())
    if not total:
        return "No layers were timed: they are with --layers."
    rest = [sum(row[i] for row in classes.values() if row[0] < least * total) for i in range(4)]
    rows = [(name, row) for name, row in classes.items() if row[0] >= least * total] + [("all others", rest)] * (rest[0] > 0)
    limits = [f" of {tflops:g} TFLOP/s |"] * (tflops > 0) + [f" of {gbs:g} GB/s |"] * (gbs > 0)
    lines = ["| layers | count | ms | share | TFLOP/s | GB/s |" + "".join(limits), "|---" * (6 + len(limits)) + "|"]
    for name, (ms, gflop, gb, count) in rows:
        line = f"| {name} | {count} | {ms:.3f} | {100 * ms / total:.1f}% | {gflop / ms:.1f} | {1e3 * gb / ms:.0f} |"
        line += f" {100 * gflop / ms / tflops:.0f}% |" if tflops else ""
        line += f" {1e5 * gb / ms / gbs:.0f}% |" if gbs else ""
        lines.append(line)
    return "\n".join(lines)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tflops", type=float, default=0)
    options.add_argument("--gbs", type=float, default=0)
    args = options.parse_args()
    print(table(json.load(sys.stdin)["networks"], args.tflops, args.gbs))


if __name__ == "__main__":
    main()
