"""What borders and pooling cost a classifier on turned digits and on larger canvases.

    SFCNN_DATA=data python benchmarks/borders.py                       # all variants, about 75 s of one thread each
    SFCNN_DATA=data python benchmarks/borders.py --variants disk-blur --seeds 0

Networks of Λ = 8 with half the paper's channels learn from 1,500 upright digits. 1,000 test digits are turned by 0°,
15°, …, 75°: quarter turns are exact, so these stand for all of 24 angles. The same digits are also put on black
canvases of 40 pixels instead of 28, in the middle and 6 pixels off it. Results are added to results/borders.json;
what is there already is not measured again.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from sfcnn.classification import ClassificationConfig, ImagesConfig, load, train
from sfcnn.classification.config import ModelConfig
from sfcnn.classification.data import load_splits
from sfcnn.classification.evaluate import errors_by_angle, even_degrees
from sfcnn.classification.labelled import LabelledImages, first_images
from sfcnn.io.files import write_json
from sfcnn.io.provenance import provenance
from sfcnn.train.config import OptimizationConfig

RESULTS = Path(__file__).parent / "results" / "borders.json"

#: Border and pooling by name.
VARIANTS = {
    "none": ("none", "max"),
    "none-blur": ("none", "blur"),
    "disk": ("disk", "max"),
    "disk-blur": ("disk", "blur"),
    "background": ("background", "max"),
    "background-blur": ("background", "blur"),
}
IMAGES = ImagesConfig(dataset="mnist", train_images=1500, validation_images=200)
OPTIMIZATION = OptimizationConfig(epochs=4, batch_size=20, learning_rate=0.003, schedule="cosine")
TEST_IMAGES = 1000


def measure(variant: str, basis: str, seed: int, kind: str = "steerable") -> dict[str, Any]:
    """Train one network and test it."""
    border, pool = VARIANTS[variant]
    model = ModelConfig(kind=kind, orientations=8, width=0.5, basis=basis, border=border, pool=pool)
    start = time.process_time()
    with tempfile.TemporaryDirectory() as directory:
        config = ClassificationConfig(model, IMAGES, OPTIMIZATION, seed=seed, checkpoint_steps=0)
        train(config, Path(directory) / "run")
        trained = time.process_time() - start
        net = load(Path(directory) / "run", "cpu").network
    test = first_images(load_splits(IMAGES, None).test, TEST_IMAGES, "test images")
    # A plain network is not the same at quarter turns.
    angles = even_degrees(24)[: 6 if kind == "steerable" else 24]
    errors = errors_by_angle(net, test, angles)
    canvases = {"centred": (6, 6, 6, 6), "moved": (12, 0, 0, 12)}
    larger = {
        name: errors_by_angle(net, LabelledImages(F.pad(test.images, margins), test.labels), [0.0])[0]
        for name, margins in canvases.items()
    }
    return {
        "variant": variant, "border": border, "pool": pool, "basis": basis, "seed": seed, "kind": kind,
        "angles": list(angles), "errors": list(errors), "canvas": larger,
        "train_cpu_seconds": round(trained, 1), "provenance": provenance(),
    }  # fmt: skip


def main() -> None:
    """Measure what was asked for and is not in the results yet."""
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
                if place in {(r["variant"], r["basis"], r["seed"], r["kind"]) for r in _read()}:
                    continue
                result = measure(*place)
                write_json(RESULTS, {"results": [*_read(), result]}, overwrite=True)
                print(place, [f"{error:.1f}" for error in result["errors"]], result["canvas"], flush=True)


def _read() -> list[dict[str, Any]]:
    return json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else []


if __name__ == "__main__":
    main()
