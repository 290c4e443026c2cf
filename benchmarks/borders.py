"""How borders and pooling affect a classifier on rotated digits and on larger canvases.

    SFCNN_DATA=data python benchmarks/borders.py                       # all variants, about 75 s each on one thread
    SFCNN_DATA=data python benchmarks/borders.py --variants disk-blur --seeds 0

Networks with Λ = 8 and half the paper's channels are trained on 1,500 upright digits. 1,000 test digits are rotated by
0°, 15°, …, 75°: quarter turns are exact, so these represent all 24 angles. The same digits are also placed on black
canvases of 40 pixels instead of 28, in the middle and 6 pixels off it. The centre of mass of MNIST's digits is half a
pixel below and to the right of the middle of the image, and a network that uses this can tell a 6 from a 9 at any
angle. Errors are therefore also counted without these two, and upright digits are also tested half a pixel and a pixel
off. Features of digits rotated by 45° are compared with rotated features, layer by layer. Results are added to
results/borders.json; existing ones are not measured again, unless they are incomplete, from an older version.
"""

import argparse
import json
import math
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sfcnn.classification import ClassificationConfig, ImagesConfig, load, train
from sfcnn.classification.config import ModelConfig
from sfcnn.classification.data import load_splits
from sfcnn.classification.evaluate import Evaluation, evaluate, even_degrees
from sfcnn.classification.labelled import DIGITS, LabelledImages, as_fraction, first_images
from sfcnn.group import rotate, rotate_features
from sfcnn.io.files import write_json
from sfcnn.io.provenance import provenance
from sfcnn.nn.borders import disk
from sfcnn.train.config import OptimizationConfig

RESULTS = Path(__file__).parent / "results" / "borders.json"

#: Border, pooling and shifts of the training images, by name.
VARIANTS = {
    "none": ("none", "max", 0),
    "none-blur": ("none", "blur", 0),
    "disk": ("disk", "max", 0),
    "disk-blur": ("disk", "blur", 0),
    "disk-blur-moves": ("disk", "blur", 2),
    "background": ("background", "max", 0),
    "background-blur": ("background", "blur", 0),
}
#: Margins of the canvases around the digits: left, right, top, bottom.
CANVASES = {"centred": (6, 6, 6, 6), "moved": (12, 0, 0, 12)}
IMAGES = ImagesConfig(dataset="mnist", train_images=1500, validation_images=200)
OPTIMIZATION = OptimizationConfig(epochs=4, batch_size=20, learning_rate=0.003, schedule="cosine")
TEST_IMAGES = 1000


def measure(variant: str, basis: str, seed: int, kind: str = "steerable") -> dict[str, Any]:
    """Train one network and test it."""
    border, pool, moves = VARIANTS[variant]
    images = replace(IMAGES, moves=moves)
    model = ModelConfig(kind=kind, orientations=8, width=0.5, basis=basis, border=border, pool=pool)
    start = time.process_time()
    with tempfile.TemporaryDirectory() as directory:
        config = ClassificationConfig(model, images, OPTIMIZATION, seed=seed, checkpoint_steps=0)
        train(config, Path(directory) / "run")
        trained = time.process_time() - start
        net = load(Path(directory) / "run", "cpu").network
    test = first_images(load_splits(IMAGES, None).test, TEST_IMAGES, "test images")
    # A plain network is not invariant to quarter turns.
    angles = even_degrees(24)[: 6 if kind == "steerable" else 24]
    turned = evaluate(net, test, DIGITS, angles)
    others = {
        name: evaluate(net, LabelledImages(F.pad(test.images, margins), test.labels), DIGITS)
        for name, margins in CANVASES.items()
    }
    # To the upper left, against the offset of the digits: by ½ they are centred, by 1 the offset is reversed.
    off = {
        str(pixels): evaluate(net, LabelledImages(_moved(test.images, -pixels), test.labels), DIGITS)
        for pixels in (0.5, 1)
    }
    return {
        "variant": variant, "border": border, "pool": pool, "moves": moves, "basis": basis, "seed": seed, "kind": kind,
        "angles": list(angles), "errors": list(turned.errors), "errors_without_6_9": _without_6_9(turned),
        "canvas": {name: found.errors[0] for name, found in others.items()},
        "canvas_without_6_9": {name: _without_6_9(found)[0] for name, found in others.items()},
        "off": {name: found.errors[0] for name, found in off.items()},
        "off_without_6_9": {name: _without_6_9(found)[0] for name, found in off.items()},
        "layers": layer_errors(net, test.images[:100]) if kind == "steerable" else [],
        "train_cpu_seconds": round(trained, 1), "provenance": provenance(),
    }  # fmt: skip


@torch.no_grad()
def layer_errors(net: nn.Sequential, images: Tensor, angle: float = math.pi / 4) -> list[dict[str, Any]]:
    """‖f(ρx) − ρf(x)‖ / ‖ρf(x)‖ of every layer, within three quarters of the disk, where rotated maps are known.

    "own" is the error of the layer alone, given the rotated features of the layers before it; "all" that of all layers
    up to it.
    """
    features, turned = as_fraction(images), rotate(as_fraction(images), angle, "bicubic")
    alone, errors = turned, []
    for layer in net[0].children():
        features, turned, own = layer(features), layer(turned), layer(alone)
        alone = rotate_features(features, angle)
        inside = disk(features, 0.75)
        size = (alone * inside).norm()
        parts = {name: float(((f - alone) * inside).norm() / size) for name, f in (("own", own), ("all", turned))}
        errors.append({"layer": type(layer).__name__, "side": features.shape[-1], **parts})
    return errors


def _without_6_9(found: Evaluation) -> list[float]:
    """Errors (%) at each angle on the digits that are neither 6 nor 9, whatever is predicted."""
    kept = found.counts[:, [digit for digit in range(10) if digit not in (6, 9)]]
    wrong = kept.sum((1, 2)) - found.counts.diagonal(dim1=1, dim2=2)[:, [0, 1, 2, 3, 4, 5, 7, 8]].sum(1)
    return (100 * wrong / kept.sum((1, 2))).tolist()


def _moved(images: Tensor, pixels: float) -> Tensor:
    """Images shifted down and to the right, resampled like rotated ones."""
    images = as_fraction(images)
    offset = -2 * pixels / images.shape[-1]  # the grid has sides of length 2
    matrix = torch.tensor([[1, 0, offset], [0, 1, offset]]).expand(len(images), 2, 3)
    grid = F.affine_grid(matrix, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bicubic", align_corners=False)


def main() -> None:
    """Measure what is requested and not yet in the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--bases", nargs="+", default=["averaged"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--kind", default="steerable")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for seed in arguments.seeds:
        for basis in arguments.bases:
            for variant in arguments.variants:
                place = (variant, basis, seed, arguments.kind)
                if any(_place(r) == place and "off" in r for r in _read()):
                    continue
                result = measure(*place)
                others = [r for r in _read() if _place(r) != place]
                write_json(RESULTS, {"results": [*others, result]}, overwrite=True)
                print(place, [f"{error:.1f}" for error in result["errors"]], result["canvas"], flush=True)


def _place(result: dict[str, Any]) -> tuple[str, str, int, str]:
    return result["variant"], result["basis"], result["seed"], result["kind"]


def _read() -> list[dict[str, Any]]:
    return json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else []


if __name__ == "__main__":
    main()
