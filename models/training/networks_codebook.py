"""Face networks that look up a codebook, with the tensors' names of their files: RestoreFormer and RestoreFormer++ (Wang
et al. 2022, 2023), and CodeFormer (Zhou et al. 2022). All three are built around the auto-encoder of VQGAN (Esser et al.
2021): residual blocks with GroupNorm and SiLU, and attention where pictures are 16×16.
"""
import torch
import torch.nn.functional as F
from torch import nn

from models.training.networks_restore import conv

GROUPS = 32


def norm(channels):
    return nn.GroupNorm(GROUPS, channels, eps=1e-6)


class Residual(nn.Module):
    """shortcut: what the 1×1 convolution is called that changes the number of channels."""

    def __init__(self, a, b, shortcut):
        super().__init__()
        self.norm1, self.conv1, self.norm2, self.conv2 = norm(a), conv(a, b), norm(b), conv(b, b)
        self.shortcut = shortcut if a != b else None
        if self.shortcut:
            self.add_module(shortcut, conv(a, b, 1))

    def forward(self, x):
        y = self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))
        return y + (getattr(self, self.shortcut)(x) if self.shortcut else x)


def attend(q, k, v, heads):
    """Of {n, c, h, w}: pixels are tokens, channels are divided among the heads."""
    n, c, h, w = q.shape
    q, k, v = (t.reshape(n, heads, c // heads, h * w) for t in (q, k, v))
    share = F.softmax(torch.einsum("nhcp,nhcj->nhpj", q, k) * (c // heads)**-0.5, dim=3)
    return torch.einsum("nhpj,nhcj->nhcp", share, v).reshape(n, c, h, w)


class Attention(nn.Module):
    """RestoreFormer's: queries are of `other`, if there is one. CodeFormer's has one norm and one head."""

    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        if heads:
            self.norm1, self.norm2 = norm(channels), norm(channels)
        else:
            self.norm = norm(channels)
        self.q, self.k, self.v, self.proj_out = (conv(channels, channels, 1) for _ in range(4))

    def forward(self, x, other=None):
        y = self.norm1(x) if self.heads else self.norm(x)
        asked = y if other is None else self.norm2(other)
        return x + self.proj_out(attend(self.q(asked), self.k(y), self.v(y), self.heads or 1))


class Down(nn.Module):
    """A convolution of every other pixel, padded to the right and below alone."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, 2)

    def forward(self, x):
        return self.conv(F.pad(x, (0, 1, 0, 1)))


class Up(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = conv(channels, channels)

    def forward(self, x):
        return self.conv(F.interpolate(x, scale_factor=2, mode="nearest"))


# ---- RestoreFormer ----


class Level(nn.Module):
    def __init__(self, a, b, blocks, heads, attends):
        super().__init__()
        self.block = nn.ModuleList(Residual(a if i == 0 else b, b, "nin_shortcut") for i in range(blocks))
        self.attn = nn.ModuleList(Attention(b, heads) for _ in range(blocks if attends else 0))

    def forward(self, x, other=None):
        for i, block in enumerate(self.block):
            x = block(x)
            if self.attn:
                x = self.attn[i](x, other)
        return x


class Middle(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.block_1, self.block_2 = (Residual(channels, channels, "") for _ in range(2))
        self.attn_1 = Attention(channels, heads)


class RestoreEncoder(nn.Module):
    def __init__(self, wide, blocks, heads, z):
        super().__init__()
        self.conv_in = conv(3, wide[0])
        self.down = nn.ModuleList()
        for i, channels in enumerate(wide):
            level = Level(wide[max(i - 1, 0)], channels, blocks, heads, i == len(wide) - 1)
            if i < len(wide) - 1:
                level.downsample = Down(channels)
            self.down.append(level)
        self.mid = Middle(wide[-1], heads)
        self.norm_out, self.conv_out = norm(wide[-1]), conv(wide[-1], z)

    def forward(self, x):
        x, kept = self.conv_in(x), []
        for level in self.down:
            x = level(x)
            if level is not self.down[-1]:
                kept.append(x)
                x = level.downsample(x)
        x = self.mid.block_1(x)
        kept.append(x)
        x = self.mid.block_2(self.mid.attn_1(x))
        return self.conv_out(F.silu(self.norm_out(x))), kept, x


class RestoreDecoder(nn.Module):
    def __init__(self, wide, blocks, heads, z, more):
        super().__init__()
        levels = len(wide)
        self.conv_in = conv(z, wide[-1])
        self.mid = Middle(wide[-1], heads)
        self.up = nn.ModuleList()
        for i, channels in enumerate(wide):
            level = Level(wide[min(i + 1, levels - 1)], channels, blocks + 1, heads, i >= levels - 1 - more)
            if i:
                level.upsample = Up(channels)
            self.up.append(level)
        self.norm_out, self.conv_out = norm(wide[0]), conv(wide[0], 3)

    def forward(self, x, kept, deepest):
        x = self.mid.block_1(self.conv_in(x))
        x = self.mid.block_2(self.mid.attn_1(x, deepest))
        for i in reversed(range(len(self.up))):
            x = self.up[i](x, kept[i])
            if i:
                x = self.up[i].upsample(x)
        return self.conv_out(F.silu(self.norm_out(x)))


class RestoreFormer(nn.Module):
    """more: levels above the deepest where the decoder attends, too: 1 in RestoreFormer++, which has 4 heads."""

    def __init__(self, wide=(64, 128, 128, 256, 256, 512), blocks=2, z=256, entries=1024, more=0):
        super().__init__()
        heads = 4 if more else 8
        self.encoder = RestoreEncoder(wide, blocks, heads, z)
        self.decoder = RestoreDecoder(wide, blocks, heads, z, more)
        self.quantize = nn.Module()
        self.quantize.embedding = nn.Embedding(entries, z)
        self.quant_conv, self.post_quant_conv = conv(z, z, 1), conv(z, z, 1)

    def forward(self, x):
        x, kept, deepest = self.encoder(x)
        x, book = self.quant_conv(x), self.quantize.embedding.weight
        far = book.square().sum(1)[:, None, None] - 2 * torch.einsum("nchw,ec->nehw", x, book)  # less what all have
        return self.decoder(self.post_quant_conv(book[far.argmin(1)].permute(0, 3, 1, 2)), kept, deepest)


# ---- CodeFormer ----


class Layer(nn.Module):
    """Of a transformer. Tokens are {h*w, n, c}; position is added to what is asked and to what answers."""

    def __init__(self, channels, heads):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(channels, heads)
        self.linear1, self.linear2 = nn.Linear(channels, 2 * channels), nn.Linear(2 * channels, channels)
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)

    def forward(self, x, position):
        y = self.norm1(x)
        x = x + self.self_attn(y + position, y + position, y, need_weights=False)[0]
        return x + self.linear2(F.gelu(self.linear1(self.norm2(x))))


class Fuse(nn.Module):
    """w of what the encoder saw."""

    def __init__(self, channels):
        super().__init__()
        self.encode_enc = Residual(2 * channels, channels, "conv_out")
        self.scale, self.shift = (
            nn.Sequential(conv(channels, channels), nn.LeakyReLU(0.2), conv(channels, channels)) for _ in range(2))

    def forward(self, seen, x, w):
        y = self.encode_enc(torch.cat((seen, x), 1))
        return x + w * (x * self.scale(y) + self.shift(y))


def adain(x, like):
    def moments(t):
        return t.mean((2, 3), keepdim=True), (t.flatten(2).var(2) + 1e-5).sqrt()[:, :, None, None]
    (a, b), (c, d) = moments(x), moments(like)
    return (x - a) / b * d + c


class CodeFormer(nn.Module):
    """fused: sides at which features are fused. size: of the picture."""

    def __init__(self, size=512, wide=(64, 128, 128, 256, 256, 512), blocks=2, z=256, entries=1024, channels=512,
                 heads=8, layers=9, fused=(32, 64, 128, 256)):
        super().__init__()
        deepest, last = size >> (len(wide) - 1), wide[-1]

        def middle():
            return [Residual(last, last, "conv_out"), Attention(last, 0), Residual(last, last, "conv_out")]

        down, up, self.seen, self.made = [conv(3, wide[0])], [conv(z, last)] + middle(), {}, {}
        for i, c in enumerate(wide):
            for k in range(blocks):
                down.append(Residual(wide[max(i - 1, 0)] if k == 0 else c, c, "conv_out"))
                if i == len(wide) - 1:
                    down.append(Attention(c, 0))
            self.seen[len(down) - 1] = size >> i
            if i < len(wide) - 1:
                down.append(Down(c))
        a = last
        for i, c in reversed(list(enumerate(wide))):
            for k in range(blocks):
                up.append(Residual(a, c, "conv_out"))
                a = c
                if k == 0:
                    self.made[len(up) - 1] = size >> i
                if i == len(wide) - 1:
                    up.append(Attention(c, 0))
            if i:
                up.append(Up(c))
        self.encoder, self.generator, self.quantize = nn.Module(), nn.Module(), nn.Module()
        self.encoder.blocks = nn.ModuleList(down + middle() + [norm(last), conv(last, z)])
        self.generator.blocks = nn.ModuleList(up + [norm(wide[0]), conv(wide[0], 3)])
        self.quantize.embedding = nn.Embedding(entries, z)
        self.position_emb = nn.Parameter(torch.zeros(deepest * deepest, channels))
        self.feat_emb = nn.Linear(z, channels)
        self.ft_layers = nn.Sequential(*(Layer(channels, heads) for _ in range(layers)))
        self.idx_pred_layer = nn.Sequential(nn.LayerNorm(channels), nn.Linear(channels, entries, bias=False))
        self.fuse_convs_dict = nn.ModuleDict(
            {str(s): Fuse(c) for i, c in enumerate(wide) for s in [size >> i] if s in fused})

    def forward(self, x, w):
        kept = {}
        for i, block in enumerate(self.encoder.blocks):
            x = block(x)
            if i in self.seen:
                kept[self.seen[i]] = x
        n, z, h, side = x.shape
        y, position = self.feat_emb(x.flatten(2).permute(2, 0, 1)), self.position_emb[:, None]
        for layer in self.ft_layers:
            y = layer(y, position)
        entry = self.idx_pred_layer(y).argmax(2)
        y = adain(self.quantize.embedding.weight[entry].permute(1, 2, 0).reshape(n, z, h, side), x)
        for i, block in enumerate(self.generator.blocks):
            y = block(y)
            fuse = str(self.made.get(i))
            if fuse in self.fuse_convs_dict and w > 0:
                y = self.fuse_convs_dict[fuse](kept[int(fuse)], y, w)
        return y


class AtHalf(CodeFormer):
    """With w = 0.5, as it is measured."""

    def forward(self, x, w=0.5):
        return super().forward(x, w)


def network_for(tensors):
    """The network of this file that tensors of official shapes belong to, or None."""
    if "position_emb" in tensors:
        return AtHalf()
    if "quantize.embedding.weight" in tensors:
        return RestoreFormer(more=int("decoder.up.4.attn.0.q.weight" in tensors))
    return None
