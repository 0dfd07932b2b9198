"""The answers of the second network of runtime/selftest.c, in float64 from the same integers: python3 -m models.training.selftest_answers.

Prints them as C, then by how much the highest score of a pixel leads (LOOKUP must choose alike in fp16).
"""
import numpy as np
import torch
import torch.nn.functional as F

H, W = 18, 24


class Random:
    """Marsaglia's xorshift32: u in [0, 1) with 24 bits."""

    def __init__(self, state):
        self.state = state

    def one(self):
        s = self.state
        s ^= s << 13 & 0xFFFFFFFF
        s ^= s >> 17
        s ^= s << 5 & 0xFFFFFFFF
        self.state = s
        return np.float32((s >> 8) * 2.0**-24)

    def values(self, shape, low, span):
        count = int(np.prod(shape))
        values = [np.float32(low) + np.float32(span) * self.one() for _ in range(count)]
        return torch.from_numpy(np.array(values, np.float32)).double().reshape(shape)


def main():
    random = Random(2463534242)

    def conv(x, out, kernel, stride=1, groups=1):
        shape = (out, x.shape[1] // groups, kernel, kernel)
        span = np.sqrt(np.float32(24) / np.float32(np.prod(shape[1:])))
        weight = random.values(shape, np.float32(-0.5) * span, span)
        return F.conv2d(x, weight, random.values((out,), -0.1, 0.2), stride, (kernel - 1) // 2, groups=groups)

    def affine():
        return random.values((16,), 0.5, 1), random.values((16,), -0.5, 1)

    def moments(x):
        return x.mean((2, 3), keepdim=True), (x.var((2, 3), keepdim=True) + 1e-5).sqrt()

    torch.set_grad_enabled(False)
    x = F.leaky_relu(conv(Random(88172645).values((1, 3, H, W), 0, 1), 16, 7), 0.2)
    x = F.silu(conv(conv(conv(x, 16, 17), 16, 5), 16, 3))
    x = F.silu(F.group_norm(x, 4, *affine(), 1e-5))
    a = F.mish(conv(x, 16, 3, 2))
    b = conv(x, 16, 4, 2, groups=16)
    (a_mean, a_deviation), (b_mean, b_deviation) = moments(a), moments(b)
    a = (a - a_mean) / a_deviation * b_deviation + b_mean
    c = F.layer_norm(a.permute(0, 2, 3, 1), (16,), *affine(), 1e-5).permute(0, 3, 1, 2)
    query = F.gelu(conv(c, 16, 1))
    q, k, v = (t.reshape(2, 8, -1) for t in (query, c, a))
    x = torch.einsum("hij,hcj->hci", torch.softmax(0.5 * torch.einsum("hci,hcj->hij", q, k), 2), v).reshape(a.shape)
    x = (x + x) * (torch.sigmoid(x) - 0.5)
    mean = (x * random.values((1, 1, H // 2, W // 2), 0, 2)).mean((2, 3), keepdim=True)
    factors = torch.sigmoid(conv(mean, 16, 1))
    pairs = conv(x * factors, 6, 1).reshape(2, 3, H // 2, W // 2)
    places = torch.tanh(conv(x, 16, 1)) + random.values((16,), -0.5, 1)[:, None, None]
    places = F.pixel_shuffle(places.reshape(2, 2 * 4, H // 2, W // 2), 2).transpose(0, 1)  # [group][x, y]
    grid = torch.stack((torch.arange(W) // 2 + places[:, 0], (torch.arange(H) // 2)[:, None] + places[:, 1]), 3)
    grid = (2 * grid + 1) / torch.tensor([W // 2, H // 2]) - 1
    x = F.grid_sample(pairs, grid, "bilinear", "border", align_corners=False).sum(0, keepdim=True)
    scores = random.values((9, 3, 4), 0, 1)
    entries = random.values((8, 9), -0.25, 0.5)[:, scores.argmax(0)]
    answer = (conv(F.pixel_unshuffle(x, 6), 8, 1) + entries).flatten()
    for i in range(0, len(answer), 9):
        print("    " + " ".join(f"{v:.7f}f," for v in answer[i:i + 9]))
    top = scores.flatten(1).sort(0).values
    print("a lead of at least", float((top[-1] - top[-2]).min()))


if __name__ == "__main__":
    main()
