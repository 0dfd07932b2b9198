"""What lies between RetinaFace's maps and faces: anchors, their coding, matching and the loss, decoding.

A face is 4 box coordinates (x0 y0 x1 y1), 10 of landmarks, and a state: 0 none, 1 a face, 2 ignored (neither a face nor
background), and whether its landmarks count. Coordinates are pixels, the origin at the centre of the top left one, as the
pipeline takes what the network says.
"""
import numpy as np
import torch
import torch.nn.functional as F

MIN_SIZES = ((16, 32), (64, 128), (256, 512))  # at strides 8, 16, 32; the reference's
MEAN_BGR = (104.0, 117.0, 123.0)
VARIANCE = (0.1, 0.2)


def network_input(x):
    """RGB 0..255 (N×3×H×W) as the network takes it."""
    return x.flip(1).float() - torch.tensor(MEAN_BGR, device=x.device).reshape(1, 3, 1, 1)


def anchors(h, w, min_sizes=MIN_SIZES, device="cpu"):
    """All anchors of a picture, level by level, cell by cell: P×4 of centre x, y and sides, px."""
    out = []
    for level, sizes in enumerate(min_sizes):
        stride = 8 << level
        rows, columns = -(-h // stride), -(-w // stride)
        y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        centre = (torch.stack([x, y], -1).float() + 0.5) * stride
        centre = centre[:, :, None].expand(rows, columns, 2, 2)
        size = torch.tensor(sizes, dtype=torch.float32).reshape(1, 1, 2, 1).expand(rows, columns, 2, 2)
        out.append(torch.cat([centre, size], -1).reshape(-1, 4))
    return torch.cat(out).to(device)


def flatten(maps):
    """The three maps as (classes N×P×2, boxes N×P×4, landmarks N×P×10), in the anchors' order."""
    parts = []
    for first, count in ((0, 2), (4, 4), (12, 10)):
        parts.append(torch.cat([m[:, first:first + 2 * count].permute(0, 2, 3, 1).reshape(m.shape[0], -1, count)
                                for m in maps], 1))
    return parts


def decode(boxes, landmarks, priors):
    """Boxes (x0 y0 x1 y1) and landmarks in px from the network's offsets."""
    centre = priors[:, :2] + boxes[..., :2] * VARIANCE[0] * priors[:, 2:]
    size = priors[:, 2:] * torch.exp(boxes[..., 2:] * VARIANCE[1])
    points = priors[:, None, :2] + landmarks.reshape(*landmarks.shape[:-1], 5, 2) * VARIANCE[0] * priors[:, None, 2:]
    return torch.cat([centre - size / 2, centre + size / 2], -1), points.flatten(-2)


def encode(faces, priors):
    """The offsets (N×P×14) that decode to faces (N×P×14: box and landmarks)."""
    centre, size = (faces[..., :2] + faces[..., 2:4]) / 2, (faces[..., 2:4] - faces[..., :2]).clamp(min=1)
    a = (centre - priors[:, :2]) / (VARIANCE[0] * priors[:, 2:])
    b = torch.log(size / priors[:, 2:]) / VARIANCE[1]
    points = faces[..., 4:14].reshape(*faces.shape[:-1], 5, 2)
    c = (points - priors[:, None, :2]) / (VARIANCE[0] * priors[:, None, 2:])
    return torch.cat([a, b, c.flatten(-2)], -1)


@torch.no_grad()
def match(faces, state, priors, positive=0.35, forced=0.15, ignored=0.4):
    """Which anchor answers for which face. faces N×M×14, state N×M. Returns (kind N×P: 0 background, 1 face, 2 neither;
    index N×P into M). An anchor takes the face it overlaps most, from an IoU of `positive`; a face's best anchor takes
    it from `forced`; one that lies by `ignored` of its area in an ignored face counts for nothing."""
    corners = torch.cat([priors[:, :2] - priors[:, 2:] / 2, priors[:, :2] + priors[:, 2:] / 2], -1)
    low = torch.maximum(corners[None, :, None, :2], faces[:, None, :, :2])
    high = torch.minimum(corners[None, :, None, 2:], faces[:, None, :, 2:4])
    shared = (high - low).clamp(min=0).prod(-1)  # N×P×M
    area = priors[:, 2] * priors[:, 3]
    size = (faces[..., 2:4] - faces[..., :2]).clamp(min=0).prod(-1)
    overlap = shared / (area[None, :, None] + size[:, None, :] - shared).clamp(min=1e-6)
    overlap = torch.where((state == 1)[:, None, :], overlap, torch.zeros_like(overlap))
    best, index = overlap.max(2)
    top, where = overlap.max(1)  # a face's best anchor
    take = (state == 1) & (top >= forced)
    n, m = state.shape
    rows = torch.arange(n, device=faces.device)[:, None].expand(n, m)
    # A face without a claim writes to a spare anchor behind the last.
    where = torch.where(take, where, torch.full_like(where, priors.shape[0]))
    spare_index = F.pad(index, (0, 1))
    spare_index[rows, where] = torch.arange(m, device=faces.device)[None].expand(n, m)
    claimed = F.pad(torch.zeros_like(best), (0, 1))
    claimed[rows, where] = 1
    index, claimed = spare_index[:, :-1], claimed[:, :-1] > 0
    kind = ((best >= positive) | claimed).long()
    inside = torch.where((state == 2)[:, None, :], shared / area[None, :, None], torch.zeros_like(shared))
    kind = torch.where((kind == 0) & (inside.max(2)[0] > ignored), torch.full_like(kind, 2), kind)
    return kind, index


def loss(maps, faces, state, points_count, priors, ratio=7, least=64, most=2048):
    """MultiBox loss. points_count N×M: whether a face's landmarks are to be learnt. Returns a dict of scalars: cls (cross
    entropy of the faces' anchors and of the hardest `ratio` times as many others, at least `least` a picture), box
    and points (smooth L1 of the offsets, sums over coordinates); all per face's anchor."""
    classes, boxes, points = flatten(maps)
    kind, index = match(faces, state, priors)
    positive = kind == 1
    target = torch.gather(faces, 1, index[..., None].expand(*index.shape, 14))
    target = encode(target, priors)
    share = positive.float()
    count = share.sum().clamp(min=1)
    entropy = F.softplus(torch.where(positive, classes[..., 0] - classes[..., 1], classes[..., 1] - classes[..., 0]))
    negative = torch.where(kind == 0, entropy, torch.zeros_like(entropy))
    hardest = torch.topk(negative, min(most, negative.shape[1]), dim=1, sorted=True)[0]
    wanted = (ratio * positive.sum(1)).clamp(min=least)
    keep = (torch.arange(hardest.shape[1], device=hardest.device)[None] < wanted[:, None]).float()
    box = F.smooth_l1_loss(boxes, target[..., :4], reduction="none", beta=0.3).sum(-1)
    counted = share * torch.gather(points_count.float(), 1, index)
    point = F.smooth_l1_loss(points, target[..., 4:], reduction="none", beta=0.1).sum(-1)
    return {"cls": ((entropy * share).sum() + (hardest * keep).sum()) / count, "box": (box * share).sum() / count,
            "points": (point * counted).sum() / counted.sum().clamp(min=1)}


def suppress(boxes, scores, limit):
    """Indices of the boxes kept by non-maximum suppression, best first; pixels are counted inclusively, as the runtime
    does."""
    order = np.argsort(-scores, kind="stable")
    area = (boxes[:, 2] - boxes[:, 0] + 1) * (boxes[:, 3] - boxes[:, 1] + 1)
    kept = []
    while len(order):
        i, rest = order[0], order[1:]
        kept.append(i)
        w = np.minimum(boxes[i, 2], boxes[rest, 2]) - np.maximum(boxes[i, 0], boxes[rest, 0]) + 1
        h = np.minimum(boxes[i, 3], boxes[rest, 3]) - np.maximum(boxes[i, 1], boxes[rest, 1]) + 1
        shared = np.maximum(0, w) * np.maximum(0, h)
        order = rest[shared / (area[i] + area[rest] - shared) <= limit]
    return np.array(kept, dtype=np.int64)


@torch.no_grad()
def detect(net, picture, min_sizes=MIN_SIZES, threshold=0.97, limit=0.4):
    """Faces of one RGB uint8 picture {3, h, w}: a float array of rows score, box, landmarks; best first."""
    h, w = picture.shape[1:]
    device = next(net.parameters()).device
    x = network_input(torch.as_tensor(np.asarray(picture)).to(device)[None])
    classes, boxes, points = flatten(net(x))
    scores = torch.softmax(classes[0], -1)[:, 1]
    keep = scores > threshold
    boxes, points = decode(boxes[0], points[0], anchors(h, w, min_sizes, device))
    rows = torch.cat([scores[keep, None], boxes[keep], points[keep]], 1).cpu().numpy()
    return rows[suppress(rows[:, 1:5], rows[:, 0], limit)]
