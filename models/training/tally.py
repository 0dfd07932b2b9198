"""Detections against the truth: average precision, recall, false faces. Without torch, so that the built program's own can
be counted as well (tests/quality)."""
import numpy as np

THRESHOLD = 0.97  # the pipeline's
SMALLEST = 32.0


def overlaps(box, boxes):
    low, high = np.maximum(box[:2], boxes[:, :2]), np.minimum(box[2:4], boxes[:, 2:4])
    shared = np.clip(high - low, 0, None).prod(1)
    return shared / ((box[2:] - box[:2]).prod() + (boxes[:, 2:] - boxes[:, :2]).prod(1) - shared + 1e-9)


class Tally:
    """Detections of a set of pictures against the truth."""

    def __init__(self):
        self.rows, self.wanted, self.points = [], 0, {}

    def add(self, picture, found, boxes, points, counts):
        """found: rows score, box, landmarks, best first; counts: whether a face must be found (else it is neutral)."""
        self.wanted += int(counts.sum())
        taken = np.zeros(len(boxes), bool)
        for row in found:
            iou = overlaps(row[1:5], boxes) if len(boxes) else np.zeros(0)
            free = np.where(taken, 0, iou)
            best = int(free.argmax()) if len(free) else -1
            if best >= 0 and free[best] >= 0.5:
                taken[best] = True
                if counts[best]:
                    self.rows.append((float(row[0]), 1))
                    if row[0] > 0.5:
                        eyes = np.hypot(*(points[best][0] - points[best][1]))
                        error = np.hypot(*(row[5:].reshape(5, 2) - points[best]).T).mean()
                        self.points[picture, best] = error / max(eyes, 1e-6)
            elif not (len(iou) and iou.max() >= 0.3 and not counts[iou.argmax()]) and \
                    (row[3:5] - row[1:3]).max() >= SMALLEST:
                self.rows.append((float(row[0]), 0))

    def precision(self):
        """Area under precision (made monotonous) over recall."""
        rows = sorted(self.rows, key=lambda r: -r[0])
        hits = np.cumsum([r[1] for r in rows]) if rows else np.zeros(0)
        precision = np.maximum.accumulate((hits / np.arange(1, len(rows) + 1))[::-1])[::-1] if rows else hits
        return float(sum(p for p, r in zip(precision, rows) if r[1]) / max(1, self.wanted))

    def at(self, threshold):
        kept = [r for r in self.rows if r[0] > threshold]
        return sum(r[1] for r in kept) / max(1, self.wanted), sum(1 - r[1] for r in kept)

    def best(self):
        """The threshold with the best F1, which says how the scores would have to be shifted."""
        scores = sorted({round(r[0], 3) for r in self.rows})
        def f1(t):
            recall, false = self.at(t)
            hits = recall * self.wanted
            return 2 * hits / max(1, self.wanted + hits + false)
        return float(max(scores, key=f1, default=0))
