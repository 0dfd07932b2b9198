"""Writes RRDBNet, SRVGGNetCompact and Real-CUGAN as ncnn's .param and .bin, in the two spellings in which people have
them: as its converter writes a graph, and as its optimiser rewrites that. For tests of the runtime's reader.
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

    def activated(self, x, kind, keys, activation):
        """A layer and its activation: None, a slope or "sigmoid"."""
        if activation is None:
            return self.layer(kind, [x], keys)
        if not self.optimised:
            y = self.layer(kind, [x], keys)
            return self.layer("Sigmoid", [y]) if activation == "sigmoid" else self.layer("ReLU", [y], f"0={activation:e}")
        if activation == "sigmoid":
            return self.layer(kind, [x], keys + " 9=4")
        return self.layer(kind, [x], keys + (f" 9=2 -23310=1,{activation:e}" if activation else " 9=1"))

    def unpadded(self, x, name, activation=0.1, stride=1, transposed=False, pad=0):
        w, b = (self.tensors[f"{name}.{part}"].numpy() for part in ("weight", "bias"))
        w = w.swapaxes(0, 1) if transposed else w  # outputs first
        self.weights(np.ascontiguousarray(w))
        self.bytes += b.astype("<f4").tobytes()
        kernel = w.shape[2]
        if kernel == 1 and self.optimised:
            return self.activated(x, "InnerProduct", f"0={w.shape[0]} 1=1 2={w.size}", activation)
        keys = f"0={w.shape[0]} 1={kernel}" + (f" 3={stride}" if stride > 1 else "") + (f" 4={pad}" if pad else "")
        if not self.optimised:
            keys += f" 11={kernel} 2=1 12=1 13={stride} 14={pad}" + (" 18=0 19=0" if transposed else f" 15={pad} 16={pad}")
        return self.activated(x, "Deconvolution" if transposed else "Convolution", keys + f" 5=1 6={w.size}", activation)

    def crop(self, x, by):
        axes = "-2,-1" if self.optimised else "1,2"
        return self.layer("Crop", [x], f"-23309=2,{by},{by} -23310=2,{-by},{-by} -23311=2,{axes}")

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


def without_range(tensors):
    """Real-CUGAN pro whose convolutions take and give 0..1, as its files for ncnn have them: those that read what was
    0.15 + 0.7 x read x, those that gave that give x."""
    t = {k: v.double() for k, v in tensors.items() if k != "pro"}
    for name in ("unet1.conv1.conv.0", "unet2.conv1.conv.0"):
        t[f"{name}.bias"] = t[f"{name}.bias"] + 0.15 * t[f"{name}.weight"].sum((1, 2, 3))
        t[f"{name}.weight"] = 0.7 * t[f"{name}.weight"]
    for name, low in (("unet1.conv_bottom", 0.15), ("unet2.conv_bottom", 0)):
        t[f"{name}.bias"] = (t[f"{name}.bias"] - low) / 0.7
        t[f"{name}.weight"] = t[f"{name}.weight"] / 0.7
    return t


def cugan(tensors, scale, optimised, tag=FP16):
    """From the tensors of Cugan, not pro."""
    w = Writer(tensors, optimised, tag)

    def pair(x, name):
        return w.unpadded(w.unpadded(x, f"{name}.conv.0"), f"{name}.conv.2")

    def gated(x, name):
        x = pair(x, name)
        if f"{name}.seblock.conv1.weight" not in tensors:
            return x
        small = w.unpadded(w.layer("Pooling", [x], "0=1 4=1"), f"{name}.seblock.conv1", 0)
        return w.layer("BinaryOp", [x, w.unpadded(small, f"{name}.seblock.conv2", "sigmoid")], "0=2")

    def up(x, name, skip, by):
        skip = w.crop(skip, by)
        return w.layer("BinaryOp", [skip, w.unpadded(x, name, stride=2, transposed=True)])

    whole = pair("data", "unet1.conv1")
    x = gated(w.unpadded(whole, "unet1.conv1_down", stride=2), "unet1.conv2")
    x = w.unpadded(up(x, "unet1.conv2_up", whole, 4), "unet1.conv3")
    first = w.unpadded(x, "unet1.conv_bottom", None, 3 if scale == 3 else 2, True, 2 if scale == 3 else 3)
    whole = pair(first, "unet2.conv1")
    half = gated(w.unpadded(whole, "unet2.conv1_down", stride=2), "unet2.conv2")
    x = gated(w.unpadded(half, "unet2.conv2_down", stride=2), "unet2.conv3")
    x = gated(up(x, "unet2.conv3_up", half, 4), "unet2.conv4")
    x = w.unpadded(up(x, "unet2.conv4_up", whole, 16), "unet2.conv5")
    crop = w.crop(first, 20)
    x = w.layer("BinaryOp", [w.unpadded(x, "unet2.conv_bottom", None), crop])
    if scale == 4:
        w.layer("PixelShuffle", [w.crop(w.unpadded(x, "conv_final", None), 1)], "0=2")
    return w.files()


def save(stem, files):
    with open(stem + ".param", "w", encoding="ascii") as f:
        f.write(files[0])
    with open(stem + ".bin", "wb") as f:
        f.write(np.frombuffer(files[1], np.uint8).tobytes())
