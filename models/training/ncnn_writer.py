"""Writes RRDBNet and SRVGGNetCompact as ncnn's .param and .bin, in the two spellings in which people have them: as its
converter writes a graph, and as its optimiser rewrites that. For tests of the runtime's reader.
"""
import numpy as np

FP16, FP32 = 0x01306B47, 0x0002C056


class Writer:
    """Layers as text, weights as bytes. A blob is its name; each may be read once, so those that are read more often are
    split at the end. `optimised`: activations and factors within other layers."""

    def __init__(self, tensors, optimised, tag=FP16):
        self.tensors, self.optimised, self.tag = tensors, optimised, tag
        self.lines, self.bytes, self.count = [("Input", "in", [], ["data"], "")], b"", 0

    def layer(self, kind, inputs, keys=""):
        self.count += 1
        out = f"b{self.count}"
        self.lines.append((kind, f"{kind}_{self.count}", list(inputs), [out], keys))
        return out

    def weights(self, array):
        if self.tag == FP16:
            data = array.astype("<f2").tobytes()
        else:
            data = array.astype("<f4").tobytes()
        self.bytes += self.tag.to_bytes(4, "little") + data + b"\0" * (-len(data) % 4)

    def conv(self, x, name, slope=None):
        w, b = (self.tensors[f"{name}.{part}"].numpy() for part in ("weight", "bias"))
        self.weights(w)
        self.bytes += b.astype("<f4").tobytes()
        keys = f"0={w.shape[0]} 1=3 "
        keys += "4=1 " if self.optimised else "11=3 2=1 12=1 3=1 13=1 4=1 14=1 15=1 16=1 "
        keys += f"5=1 6={w.size}"
        if slope is None:
            return self.layer("Convolution", [x], keys)
        if self.optimised:
            return self.layer("Convolution", [x], keys + f" 9=2 -23310=1,{slope:e}")
        return self.layer("ReLU", [self.layer("Convolution", [x], keys)], f"0={slope:e}")

    def prelu(self, x, name):
        slopes = self.tensors[f"{name}.weight"].numpy()
        self.bytes += slopes.astype("<f4").tobytes()
        return self.layer("PReLU", [x], f"0={slopes.size}")

    def scaled_sum(self, x, factor, y):
        """x * factor + y"""
        if self.optimised:
            return self.layer("Eltwise", [x, y], f"0=1 -23301=2,{factor:e},1.0")
        return self.layer("BinaryOp", [self.layer("BinaryOp", [x], f"0=2 1=1 2={factor:e}"), y], "0=0")

    def concat(self, parts):
        return self.layer("Concat", parts, "" if self.optimised else "0=0")

    def nearest(self, x, factor):
        return self.layer("Interp", [x], f"0=1 1={factor:e} 2={factor:e}" + ("" if self.optimised else " 3=0 4=0 6=0"))

    def files(self):
        """(.param, .bin); what is read more than once is split."""
        readers, lines, blobs = {}, [], 0
        for _, _, inputs, _, _ in self.lines:
            for x in inputs:
                readers[x] = readers.get(x, 0) + 1
        left = dict(readers)
        for kind, name, inputs, outputs, keys in self.lines:
            given = []
            for x in inputs:
                left[x] -= 1
                given.append(x if readers[x] == 1 else f"{x}_split_{left[x]}")
            lines.append(f"{kind:<16} {name:<16} {len(given)} {len(outputs)} {' '.join(given + outputs)} {keys}")
            blobs += len(outputs)
            for x in outputs:
                if readers.get(x, 0) > 1:
                    many = [f"{x}_split_{i}" for i in range(readers[x])]
                    lines.append(f"{'Split':<16} split_{x} 1 {len(many)} {x} {' '.join(many)}")
                    blobs += len(many)
        return f"7767517\n{len(lines)} {blobs}\n" + "\n".join(lines) + "\n", self.bytes


def rrdbnet(tensors, optimised, tag=FP16):
    """From the tensors of TrunkEsrgan."""
    w = Writer(tensors, optimised, tag)
    first = x = w.conv("data", "conv_first")
    blocks = sum(k.startswith("RRDB_trunk.") and k.endswith("RDB1.conv1.weight") for k in tensors)
    for i in range(blocks):
        start = x
        for r in (1, 2, 3):
            parts = [x]
            for k in range(1, 5):
                parts.append(w.conv(parts[0] if k == 1 else w.concat(parts), f"RRDB_trunk.{i}.RDB{r}.conv{k}", 0.2))
            x = w.scaled_sum(w.conv(w.concat(parts), f"RRDB_trunk.{i}.RDB{r}.conv5"), 0.2, x)
        x = w.scaled_sum(x, 0.2, start)
    x = w.layer("BinaryOp", [first, w.conv(x, "trunk_conv")], "" if optimised else "0=0")
    for k in range(sum(k.startswith("upconv") and k.endswith("weight") for k in tensors)):
        x = w.conv(w.nearest(x, 2), f"upconv{k + 1}", 0.2)
    w.conv(w.conv(x, "HRconv", 0.2), "conv_last")
    return w.files()


def srvgg(tensors, scale, optimised, slope=None, end=None, tag=FP16):
    """From the tensors body.N. slope: of LeakyReLU where there are no PReLU's; end: a factor of a last resize."""
    w = Writer(tensors, optimised, tag)
    last = max(int(k.split(".")[1]) for k in tensors)
    x = "data"
    for i in range(0, last, 2):
        x = w.conv(x, f"body.{i}", slope)
        x = x if slope is not None else w.prelu(x, f"body.{i + 1}")
    x = w.conv(x, f"body.{last}")
    shuffled, large = w.layer("PixelShuffle", [x], f"0={scale}"), w.nearest("data", scale)
    x = w.layer("BinaryOp", [shuffled, large])
    if end:
        w.layer("Interp", [x], f"0=3 1={end:e} 2={end:e}")
    return w.files()


def save(stem, files):
    with open(stem + ".param", "w", encoding="ascii") as f:
        f.write(files[0])
    with open(stem + ".bin", "wb") as f:
        f.write(np.frombuffer(files[1], np.uint8).tobytes())
