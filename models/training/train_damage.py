"""Trains the damage detector: python3 -m models.training.train_damage --data DIR --out DIR --minutes 8

Every step's pictures have one size of SIDES, and as many of them make up the batch as have the pixels of --batch pictures
of 512 px; each is seen whole, with itself reduced as its context.
"""
import torch
import torch.nn.functional as F

from models.training import common, damage
from models.training.networks_damage import KINDS, Damage, damage_init, spread

NAME = "starter_damage"
SIDES = ((256, 0.3), (512, 0.45), (1024, 0.25))  # and how often each is taken
AHEAD = 6  # batches are made so many at a time: the launches of the many small kernels take longer than their work
AGAIN = 2  # and each is taken so often, upright, then turned by 1 to 3 quarters: to make it takes longer than to learn from it
WEIGHTS = (4.0, 2.0, 3.0, 0.7)  # of a damaged pixel, by kind: thin ones are few
TONED = 1 / 3  # of the pictures without colour so many have one tone, such as sepia
THIN_ON_PRINTS = 1.5  # times as much: those are the last to be found
FEW = 40  # damaged or found pixels that a picture's own Dice takes for few
ALARMED = 500  # of a picture's pixels one in so many: the undamaged ones that look most like damage


def soft_dice(found, yes, weight):
    return 1 - (2 * (found * yes).sum() + 1) / (found.sum() + (weight * yes).sum() + 1)


def thin_on_prints(logits, label, kind, kept):
    """Soft Dice of thin lines on the pictures that were printed; undamaged pixels within 2 px of damage do not count."""
    yes = ((label == damage.YES) & (kind == damage.THIN)).float()
    near = F.max_pool2d((label != damage.NO).float()[:, None], 5, 1, 2)[:, 0]
    counts = ((yes > 0) | (near == 0)) & ~kept[:, None, None] & ((yes > 0) | (logits[:, 1:].argmax(1) == damage.THIN))
    return soft_dice(torch.sigmoid(logits[:, 0]) * counts, yes * counts, 1.0)


def of_each(logits, label):
    """Soft Dice of each picture, N: a few specks alone count as much as a net of cracks. Undamaged pixels within 2 px of
    damage count little."""
    yes = (label == damage.YES).float()
    near = F.max_pool2d(yes[:, None], 5, 1, 2)[:, 0]
    found = torch.sigmoid(logits[:, 0]) * torch.where((yes == 0) & (near > 0), 0.3, 1.0) * (label != damage.IGNORED)
    right, found, yes = (v.flatten(1).sum(1) for v in (found * yes, found, yes))
    return 1 - (2 * right + FEW) / (found + yes + FEW)


def losses(logits, label, kind, kept):
    """Entropy and soft Dice of the damage, its Dice by kind (what is found where nothing is counts for the kind it is taken
    for), entropy of the kinds, and a picture's false alarms: the mean entropy of its worst undamaged pixels. Undamaged pixels
    beside damage count little: 2 px off is as good."""
    yes = (label == damage.YES).float()
    near = F.max_pool2d(yes[:, None], 5, 1, 2)[:, 0]
    table = torch.tensor(WEIGHTS, device=label.device)
    weight = torch.where(yes > 0, table[kind.clamp(min=0)], torch.where(near > 0, 0.3, 1.0))
    weight = torch.where((yes > 0) & (kind == damage.THIN) & ~kept[:, None, None], THIN_ON_PRINTS * weight, weight)
    weight = weight * (label != damage.IGNORED)
    odds = logits[:, 0]
    entropy = (F.binary_cross_entropy_with_logits(odds, yes, reduction="none") * weight).mean()
    found = torch.sigmoid(odds) * weight
    dice = soft_dice(found, yes, weight)
    marked = (yes > 0) & (kind >= 0)
    taken = torch.where(marked, kind, logits[:, 1:].argmax(1))
    by_kind = [soft_dice(found * (taken == k), yes * (taken == k), weight) for k in range(len(WEIGHTS))]
    each = F.cross_entropy(logits[:, 1:], torch.where(marked, kind, -1), ignore_index=-1, reduction="none")
    kinds = (each * weight * marked).sum() / ((weight * marked).sum() + 1)
    calm = F.softplus(odds) * ((label == damage.NO) & (near == 0))
    alarms = calm.flatten(1).topk(max(1, calm[0].numel() // ALARMED), sorted=False)[0].mean(1)
    return entropy, dice, by_kind, kinds, alarms


def new_generator(device):
    return torch.Generator(device=device).manual_seed(int(torch.randint(1 << 62, (1,))))


def main():
    parser = common.arguments(__doc__, batch=16)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--alarms", type=float, default=0.15, help="the weight of the false alarms")
    parser.add_argument("--each", type=float, default=0.4, help="the weight of each picture's own Dice")
    parser.add_argument("--gray", type=float, default=0.3, help="the share of pictures that are scanned without colour")
    parser.add_argument("--decay", type=float, default=0.999, help="of the weights' moving average")
    parser.add_argument("--start", default="", help="begin with the weights of this model file")
    parser.add_argument("--export-only", action="store_true", help="write the model of the checkpoint in --out and end")
    args = parser.parse_args()
    if args.export_only:
        common.export(NAME, args.out, args.commit)
        return
    device = common.setup(args)
    net = damage_init(Damage())
    if args.start:
        net.load_state_dict(common.load_weights(args.start))
    net = net.to(device, memory_format=torch.channels_last).train()
    optimizer = common.adam(net.parameters(), args.lr, weight_decay=0.01)
    ema = common.Ema(net, args.decay)
    training = common.Training(args, {"net": net}, {"net": optimizer}, {"net": ema})
    photos = damage.Photos(args.data, "train", device, args.limit, damage.packs(args.data))
    photos.hard = torch.ones(len(photos.pictures), device=device)
    masks = damage.Masks(args.data, "train", device, args.limit)
    print(f"{len(photos.pictures)} pictures, {len(masks.pictures)} masks, {common.process_seconds():.0f} s", flush=True)
    training.learn_from(f"{photos.contents}; {masks.contents}")
    shares = torch.tensor([share for _, share in SIDES])
    made = None
    for step, progress in training.steps():
        common.set_lr(optimizer, common.cosine(progress, step, warmup=300))
        part, turn = step % AHEAD, step // AHEAD % AGAIN
        if made is None or part + turn == 0:
            common.seed_step(args.seed, step - part - AHEAD * turn, training.stream)
            side = SIDES[int(torch.multinomial(shares, 1))][0]
            count = max(1, args.batch * 512 * 512 // side**2)
            made = damage.make(photos, masks, AHEAD * count, side, new_generator(device), damaged=0.6, more=1.0, plain=0.5,
                               bare=0.4, gray=args.gray, toned=TONED)
        picture, label, kind, pick, harmed, kept = (made[k][part::AHEAD] for k in
                                                    ("picture", "label", "kind", "pick", "harmed", "kept"))
        quarters = turn * (1 + step // (AHEAD * AGAIN) % 3)
        picture, label, kind = (torch.rot90(v, quarters, (-2, -1)) for v in (picture, label, kind))
        picture = picture.contiguous(memory_format=torch.channels_last)
        with common.autocast(device):
            logits = net(picture, spread(net.context(picture), side, side))
        logits = logits.float()
        entropy, dice, by_kind, kinds, alarms = losses(logits, label, kind, kept)
        prints = thin_on_prints(logits, label, kind, kept)
        each = of_each(logits, label).mean()
        optimizer.zero_grad(set_to_none=True)
        alarm = (alarms * torch.where(harmed, 0.3, 1.0)).mean()
        (3 * entropy + 0.3 * dice + 0.1 * sum(by_kind[:3]) + 0.1 * prints + 0.2 * kinds + args.each * each
         + args.alarms * alarm).backward()
        common.average_gradients(net)
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        ema.update(step)
        # Photos in which it sees damage come more often.
        seen = torch.where(harmed, photos.hard[pick], 0.7 * photos.hard[pick] + 0.3 * alarms.detach().nan_to_num(1.0))
        photos.hard[pick] = seen
        training.log({"entropy": entropy, "dice": dice, "kinds": kinds, "alarm": alarm, "norm": norm,
                      f"dice_{side}": dice, "thin_on_prints": prints, "each": each,
                      **{f"dice_{name}": d for name, d in zip(KINDS, by_kind)}})
    common.export(NAME, args.out, args.commit, training.state())


if __name__ == "__main__":
    main()
