"""The whole way of a picture in PyTorch, as the projects that people run today go it, to be set beside
`restored bench --load`: pipeline_torch.py PICTURE --models DIR [--pictures N] [--threads 1,4] [--tile 400,0]

DIR holds what make_models wrote: files of the official sizes with random weights, so that both sides run the same
networks. Decode, RetinaFace, each face by itself through GFPGAN and ParseNet, Real-ESRGAN ×2 in tiles (or 0: the
whole picture), paste, encode to JPEG; fp16 on a GPU. OpenCV does the codecs and the warps where it is installed, as it
does for those projects; else PIL does the codecs, and the warps are done on the GPU, which is faster than theirs.
threads: that many pictures at once in as many Python threads, so that codecs and GPU overlap.

--calibrate N first sets the detector's last layer, in DIR, so that it finds N faces in this picture, where random weights
find none or hundreds."""
import argparse
import io
import json
import math
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from models.training import detector, gfpgan, parsenet  # noqa: E402
from models.training.networks_large import Rrdbnet, retinaface_r50  # noqa: E402

try:
    import cv2
except ImportError:
    cv2 = None
    from PIL import Image

TEMPLATE = np.array([(192.98138, 239.94708), (318.90277, 240.1936), (256.63416, 314.01935), (201.26117, 371.41043),
                     (313.08905, 371.15118)])
THRESHOLD = 0.97


# --- files ------------------------------------------------------------------------------------------------------------

def tensors(path, mode="r"):
    """A safetensors file of float32 as numpy arrays that lie in it."""
    bytes_ = np.memmap(path, np.uint8, mode)
    length = int(bytes_[:8].view("<u8")[0])
    head = json.loads(bytes_[8:8 + length].tobytes())
    return {name: bytes_[8 + length:][slice(*t["data_offsets"])].view("<f4").reshape(t["shape"])
            for name, t in head.items()}


def state(path):
    return {name: torch.from_numpy(np.array(array)) for name, array in tensors(path).items()}


def loaded(net, path):
    net.load_state_dict(state(path), strict=False)
    return net


def decode(data):
    """BGR, 8 bit."""
    if cv2:
        return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    return np.ascontiguousarray(np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))[:, :, ::-1])


def encode(bgr):
    if cv2:
        return cv2.imencode(".jpg", bgr, (cv2.IMWRITE_JPEG_QUALITY, 95))[1].tobytes()
    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(bgr[:, :, ::-1])).save(out, "JPEG", quality=95)
    return out.getvalue()


# --- geometry ---------------------------------------------------------------------------------------------------------

def similarity(points):
    """The 2×3 similarity that takes the points nearest to the template (Umeyama 1991)."""
    source, target = points - points.mean(0), TEMPLATE - TEMPLATE.mean(0)
    u, s, v = np.linalg.svd(target.T @ source)
    sign = np.diag((1, np.sign(np.linalg.det(u @ v))))
    matrix = (s @ np.diag(sign)) / (source**2).sum() * (u @ sign @ v)
    return np.hstack([matrix, (TEMPLATE.mean(0) - matrix @ points.mean(0))[:, None]])


def invert(matrix):
    inverse = np.linalg.inv(matrix[:, :2])
    return np.hstack([inverse, -inverse @ matrix[:, 2:]])


def warp(image, matrix, x0, y0, w, h):
    """On the device: the rectangle x0, y0, w, h of the C×H×W image under the matrix (source to target), bilinear."""
    inverse = invert(matrix)
    y, x = torch.meshgrid(torch.arange(y0, y0 + h, device=image.device, dtype=torch.float32),
                          torch.arange(x0, x0 + w, device=image.device, dtype=torch.float32), indexing="ij")
    u, v = (inverse[k, 0] * x + inverse[k, 1] * y + inverse[k, 2] for k in (0, 1))
    grid = torch.stack([(2 * u + 1) / image.shape[2] - 1, (2 * v + 1) / image.shape[1] - 1], -1)[None]
    return F.grid_sample(image[None], grid, align_corners=False)[0]


def gaussian(mask, size=101, sigma=11.0):
    """1×H×W on the device."""
    x = torch.arange(size, device=mask.device) - size // 2
    kernel = torch.exp(-x.float()**2 / (2 * sigma**2))
    kernel = kernel / kernel.sum()
    half = size // 2
    mask = F.conv2d(F.pad(mask[None], (half, half, 0, 0), "reflect"), kernel[None, None, None])
    return F.conv2d(F.pad(mask, (0, 0, half, half), "reflect"), kernel[None, None, :, None])[0]


# --- the way of a picture ---------------------------------------------------------------------------------------------

class Pipeline:
    def __init__(self, folder, device):
        folder = Path(folder)
        self.device = torch.device(device)
        self.dtype = torch.float16 if self.device.type == "cuda" else torch.float32
        self.times = defaultdict(float)
        self.anchors = {}

        def ready(net):
            return net.eval().to(self.device, self.dtype)
        self.detector = ready(loaded(retinaface_r50(), folder / "detection_Resnet50_Final.safetensors"))
        self.upscaler = ready(loaded(Rrdbnet(2), folder / "RealESRGAN_x2plus.safetensors"))
        self.face = ready(gfpgan.from_state(state(folder / "GFPGANv1.3.safetensors")))
        self.parser = ready(parsenet.from_state(state(folder / "parsing_parsenet.safetensors")))

    def detect(self, bgr):
        """Landmarks of the faces, N×5×2."""
        h, w = bgr.shape[:2]
        mean = torch.tensor(detector.MEAN_BGR, device=self.device).reshape(1, 3, 1, 1)
        x = torch.from_numpy(bgr).to(self.device).permute(2, 0, 1)[None].float() - mean
        maps = [m.float() for m in self.detector(x.to(self.dtype))]
        if (h, w) not in self.anchors:
            self.anchors[h, w] = detector.anchors(h, w, device=self.device)
        classes, boxes, points = (t[0] for t in detector.flatten(maps))
        scores = classes.softmax(1)[:, 1]
        kept = scores > THRESHOLD
        boxes, points = detector.decode(boxes[kept], points[kept], self.anchors[h, w][kept])
        boxes, points, scores = (t.cpu().numpy() for t in (boxes, points, scores[kept]))
        return [points[i].reshape(5, 2) for i in detector.suppress(boxes, scores, 0.4)]

    def align(self, bgr, matrix):
        """The crop, RGB -1..1, 1×3×512×512 on the device."""
        if cv2:
            crop = cv2.warpAffine(bgr, matrix, (512, 512), borderMode=cv2.BORDER_CONSTANT, borderValue=(135, 133, 132))
            crop = torch.from_numpy(crop).to(self.device).permute(2, 0, 1).float()
        else:
            crop = warp(torch.from_numpy(bgr).to(self.device).permute(2, 0, 1).float(), matrix, 0, 0, 512, 512)
        return ((crop.flip(0)[None] / 255 - 0.5) / 0.5).to(self.dtype)

    def restore(self, crop):
        """Each face by itself: 8 bit RGB on the device, as its output is rounded."""
        out = self.face(crop)[0].float().clamp(-1, 1)
        return ((out + 1) / 2 * 255).round()

    def parse(self, face):
        """Opacity of a restored face: 512×512, 0..1."""
        logits = self.parser(((face[None] / 255 - 0.5) / 0.5).to(self.dtype))[0]
        labels = logits[0].argmax(0)
        opaque = torch.zeros(parsenet.CLASSES, device=self.device)
        opaque[list(parsenet.OPAQUE)] = 255
        if cv2:
            mask = opaque[labels].cpu().numpy()
            for _ in range(2):
                mask = cv2.GaussianBlur(mask, (101, 101), 11)
        else:
            mask = gaussian(gaussian(opaque[labels][None]))[0]
        mask[:10], mask[-10:], mask[:, :10], mask[:, -10:] = 0, 0, 0, 0
        return mask / 255

    def upscale(self, bgr, tile):
        """Twice as large, BGR 8 bit; tiles with 10 px around them, as shipped."""
        x = torch.from_numpy(bgr).to(self.device).flip(2).permute(2, 0, 1)[None].to(self.dtype) / 255
        h, w = bgr.shape[:2]
        x = F.pad(x, (0, w % 2, 0, h % 2), "reflect")
        if not tile:
            out = self.upscaler(x)
        else:
            out = x.new_empty(1, 3, 2 * x.shape[2], 2 * x.shape[3])
            for y0 in range(0, x.shape[2], tile):
                for x0 in range(0, x.shape[3], tile):
                    y1, x1 = min(y0 + tile, x.shape[2]), min(x0 + tile, x.shape[3])
                    top, left = max(y0 - 10, 0), max(x0 - 10, 0)
                    part = self.upscaler(x[:, :, top:min(y1 + 10, x.shape[2]), left:min(x1 + 10, x.shape[3])])
                    out[:, :, 2 * y0:2 * y1, 2 * x0:2 * x1] = \
                        part[:, :, 2 * (y0 - top):2 * (y1 - top), 2 * (x0 - left):2 * (x1 - left)]
        out = out[0, :, :2 * h, :2 * w].float().clamp(0, 1)
        return (out.flip(0).permute(1, 2, 0) * 255).round().byte().cpu().numpy()

    def paste(self, picture, faces, matrices):
        """Faces over the picture, BGR 8 bit, in turn."""
        h, w = picture.shape[:2]
        inverses = [invert(m) * 2 for m in matrices]
        masks = [self.parse(face) for face in faces]
        if cv2:  # over the whole picture, as facexlib does
            out = picture
            for face, inverse, mask in zip(faces, inverses, masks):
                bgr = face.byte().flip(0).permute(1, 2, 0).cpu().numpy()
                pasted = cv2.warpAffine(bgr, inverse, (w, h))
                soft = cv2.warpAffine(mask, inverse, (w, h), flags=3)[:, :, None]
                out = soft * pasted + (1 - soft) * out
            return out.astype(np.uint8)
        out = torch.from_numpy(picture).to(self.device).permute(2, 0, 1).float()
        for face, inverse, mask in zip(faces, inverses, masks):
            corners = np.array([(0, 0, 1), (512, 0, 1), (0, 512, 1), (512, 512, 1)]) @ inverse.T
            (x0, y0), (x1, y1) = np.floor(corners.min(0)).astype(int), np.ceil(corners.max(0)).astype(int)
            x0, y0, x1, y1 = max(x0, 0), max(y0, 0), min(x1, w), min(y1, h)
            part = warp(torch.cat([face.flip(0), mask[None]]), inverse, x0, y0, x1 - x0, y1 - y0)
            out[:, y0:y1, x0:x1] += part[3] * (part[:3] - out[:, y0:y1, x0:x1])
        return out.round().byte().permute(1, 2, 0).cpu().numpy()

    def sync(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    @torch.inference_mode()
    def run(self, data, tile, timed=False):
        """File to file. timed: what each step takes, which makes the CPU wait for the GPU after each. Returns the file
        and the number of faces."""
        clock = time.perf_counter()

        def step(name, result):
            nonlocal clock
            if timed:
                self.sync()
                self.times[name] += time.perf_counter() - clock
                clock = time.perf_counter()
            return result
        bgr = step("decode", decode(data))
        matrices = [similarity(points) for points in step("detect", self.detect(bgr))]
        crops = step("align", [self.align(bgr, matrix) for matrix in matrices])
        faces = step("restore", [self.restore(crop) for crop in crops])
        picture = step("background", self.upscale(bgr, tile))
        picture = step("parse and paste", self.paste(picture, faces, matrices))
        return step("encode", encode(picture)), len(faces)


# --- the detector -----------------------------------------------------------------------------------------------------

@torch.inference_mode()
def calibrate(path, data, faces, device):
    """Makes the detector at `path` find so many faces: of the anchors of 256 px at stride 32 those whose class it rates
    highest; their boxes are the anchors, their landmarks lie in them as in a face."""
    arrays = tensors(path, "r+")
    bgr = decode(data)
    h, w = bgr.shape[:2]
    net = loaded(retinaface_r50(), path).eval().to(device)
    x = torch.from_numpy(bgr).to(device).permute(2, 0, 1)[None].float()
    x -= torch.tensor(detector.MEAN_BGR, device=device).reshape(1, 3, 1, 1)
    # Of a head that was calibrated before only the direction is left, which is all that is used here.
    classes = net(x)[2][0, :2].reshape(2, -1)
    rating = (classes[1] - classes[0]).cpu().numpy().astype(np.float64)
    priors = detector.anchors(h, w)
    level = priors[-2 * rating.size::2].numpy()
    corners = np.concatenate([level[:, :2] - level[:, 2:] / 2, level[:, :2] + level[:, 2:] / 2], 1)
    order = detector.suppress(corners, rating, 0.4)
    last, next_ = rating[order[faces - 1]], rating[order[faces]]
    middle, gain = (last + next_) / 2, min(6 / (last - next_), 1e4)  # so that fp16 does not move a face over the edge
    for i in range(3):
        weight, bias = arrays[f"ClassHead.{i}.conv1x1.weight"], arrays[f"ClassHead.{i}.conv1x1.bias"]
        direction, offset = weight[1] - weight[0], bias[1] - bias[0]
        weight[:], bias[:] = 0, (10, -10, 10, -10)
        if i == 2:
            weight[1] = gain * direction
            bias[:2] = 0, gain * (offset - middle) + math.log(THRESHOLD / (1 - THRESHOLD))
        for head in ("BboxHead", "LandmarkHead"):
            arrays[f"{head}.{i}.conv1x1.weight"][:] = 0
            arrays[f"{head}.{i}.conv1x1.bias"][:] = 0
        points = (TEMPLATE - 256) / 380 / detector.VARIANCE[0]
        arrays[f"LandmarkHead.{i}.conv1x1.bias"][:] = np.tile(points.reshape(-1), 2)


# --- measuring --------------------------------------------------------------------------------------------------------

def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture")
    parser.add_argument("--models", required=True)
    parser.add_argument("--pictures", type=int, default=24)
    parser.add_argument("--threads", default="1,4")
    parser.add_argument("--tile", default="400,0")
    parser.add_argument("--calibrate", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", help="write the result there")
    args = parser.parse_args()
    data = Path(args.picture).read_bytes()
    torch.backends.cudnn.benchmark = True
    if args.calibrate:
        calibrate(Path(args.models) / "detection_Resnet50_Final.safetensors", data, args.calibrate, args.device)
    if not args.pictures:
        return
    pipeline = Pipeline(args.models, args.device)
    name = torch.cuda.get_device_name() if pipeline.device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"PyTorch {torch.__version__}, {name}, {str(pipeline.dtype)[6:]}, "
          f"{'OpenCV ' + cv2.__version__ if cv2 else 'PIL, warps on the device'}\n")
    print("| tiles | threads | faces | pictures/s | mean ms of steps, one by one |\n|---|---|---|---|---|", flush=True)
    for tile in map(int, args.tile.split(",")):
        for _ in range(2):
            out, faces = pipeline.run(data, tile)
        if args.out:
            Path(args.out).write_bytes(out)
        pipeline.times.clear()
        rounds = max(1, min(5, args.pictures // 4))
        for _ in range(rounds):
            pipeline.run(data, tile, True)
        steps = " ".join(f"{step} {1e3 * t / rounds:.1f}" for step, t in pipeline.times.items())
        for threads in map(int, args.threads.split(",")):
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(lambda _: pipeline.run(data, tile), range(threads)))
                pipeline.sync()
                start = time.perf_counter()
                list(pool.map(lambda _: pipeline.run(data, tile), range(args.pictures)))
                pipeline.sync()
                seconds = time.perf_counter() - start
            print(f"| {tile or 'none'} | {threads} | {faces} | {args.pictures / seconds:.2f} | {steps} |", flush=True)


if __name__ == "__main__":
    main()
