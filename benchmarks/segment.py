"""The cost of segmentation: a large image in tiles, its memory, and finding cells from probabilities.

    python benchmarks/segment.py --out benchmarks/results/segmentation.json

- `prediction`: seconds per megapixel of the pretrained network, with the engine that it chooses and with the direct
  one, taking turns on one tile, so that noise of the machine affects both.
- `large`: `sfcnn segment predict` on a synthetic image of 4096×4096 pixels: time and peak memory of the whole process,
  for membranes and cells.
- `cells`: from probabilities to cells, for a slice of 512×512, with the mean probability and with a forest.
- `stack`: eight slices of 512×512, the cells of each found while the network computes the next one, and after it.
- `predict`: `sfcnn segment predict` on a synthetic image of 2048×2048 pixels, with the compiled kernel and with
  SFCNN_KERNEL=0, taking turns: wall time and CPU time of the whole process, and the ratio.

`--only predict --image 128` measures one section, here with a small image, and keeps the others in the file.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sfcnn.cells import ForestConfig, find_cells, learn_forest, segment, truth_cells
from sfcnn.cells.apply import run_forest
from sfcnn.cells.pipeline import describe
from sfcnn.io.files import write_json
from sfcnn.io.provenance import provenance
from sfcnn.io.runs import load_best
from sfcnn.io.stacks import write_stack
from sfcnn.pretrained import find_run
from sfcnn.segmentation import load, synthetic_membranes
from sfcnn.segmentation.crops import standardize
from sfcnn.segmentation.network import build_network
from sfcnn.segmentation.tiles import largest_tile, predict_tiles, receptive_radius

RUN = "isbi2012"


def texture(size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Synthetic membranes (size, size), tiled from slices of 512×512."""
    count = -(-size // 512)
    images = (255 * synthetic_membranes(count * count, 512, cell=60).images).byte().numpy()
    rows = [np.concatenate(list(images[row * count : (row + 1) * count]), axis=1) for row in range(count)]
    return np.concatenate(rows)[:size, :size]


def command(size: int, **environment: str) -> tuple[float, float]:
    """`sfcnn segment predict` on an image (size, size): seconds of wall time and of CPU time."""
    with tempfile.TemporaryDirectory() as directory:
        image = Path(directory) / "image.tif"
        write_stack(image, texture(size))
        sfcnn = [sys.executable, "-c", "import sys; from sfcnn.cli import main; sys.exit(main())"]
        start, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [*sfcnn, "segment", "predict", RUN, str(image), "--out", directory],
            check=True,
            env={**os.environ, **environment},
        )
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime


def prediction(size: int, repeats: int) -> dict[str, Any]:
    """Seconds per megapixel of an image of one tile, by engine."""
    network = load(find_run(RUN), device="cpu")
    config = network.config
    direct = load_best(find_run(RUN), build_network(replace(config, model=replace(config.model, engine="direct"))))
    image = standardize(torch.from_numpy(texture(size)).float() / 255)[None]
    times: dict[str, list[float]] = {"auto": [], "direct": []}
    for repeat in range(repeats + 1):
        for name, net in (("auto", network.network), ("direct", direct)):
            start = time.perf_counter()
            predict_tiles(net, image, margin=config.crops.margin)
            if repeat:  # the first one is a warm-up: imports and plans
                times[name].append(time.perf_counter() - start)
    seconds = {name: statistics.median(values) / (size**2 / 1e6) for name, values in times.items()}
    return {
        "size": size,
        "seconds": times,
        "seconds_per_megapixel": seconds,
        "ratio": seconds["direct"] / seconds["auto"],
    }


def large(size: int) -> dict[str, Any]:
    """The command on a large image: wall time and peak memory."""
    network = load(find_run(RUN), device="cpu")
    config, tile, halo = network.config, largest_tile(network.network), receptive_radius(network.network)
    del network
    wall, _ = command(size)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return {
        "size": size,
        "orientations": config.model.orientations,
        "tile": tile,
        "halo": halo,
        "seconds": wall,
        "seconds_per_megapixel": wall / (size**2 / 1e6),
        "peak_bytes": peak,
    }


def predict(size: int, repeats: int) -> dict[str, Any]:
    """The command with the compiled kernel and with PyTorch only."""
    ways: dict[str, dict[str, str]] = {"kernel": {"SFCNN_KERNEL": ""}, "without kernel": {"SFCNN_KERNEL": "0"}}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, environment in ways.items():
            times[name].append(command(size, **environment))
    seconds = {name: statistics.median(wall for wall, _ in values) for name, values in times.items()}
    return {
        "size": size,
        "seconds": seconds,
        "processor_seconds": {name: statistics.median(cpu for _, cpu in values) for name, values in times.items()},
        "all_seconds": {name: [wall for wall, _ in values] for name, values in times.items()},
        "ratio": seconds["without kernel"] / seconds["kernel"],
    }


def from_probabilities(size: int, repeats: int) -> dict[str, Any]:
    """Seconds from probabilities of a slice to its cells."""
    images, membranes = (part.numpy() for part in synthetic_membranes(2, size, cell=60))
    truth = truth_cells(~membranes)
    found = load(find_run(RUN), device="cpu").predict(images)
    learned = learn_forest(found[:1], truth[:1], images[:1], settings=ForestConfig(trees=200))
    _, graph, _ = describe(found[1])
    ways: dict[str, tuple[Any, ...]] = {"mean": (), "forest": (None, learned.forest, images[1])}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(repeats + 1):
        for name, more in ways.items():
            start = time.perf_counter()
            find_cells(found[1], *more)
            if repeat:
                seconds[name].append(time.perf_counter() - start)
    return {
        "size": size,
        "superpixels": int(graph.nodes),
        "edges": len(graph.edges),
        "seconds": {name: statistics.median(values) for name, values in seconds.items()},
        "all_seconds": seconds,
    }


def stack(size: int, repeats: int, count: int = 8) -> dict[str, Any]:
    """Seconds from slices to cells, overlapped as in `segment`, and one after the other."""
    network = load(find_run(RUN), device="cpu")
    forest, images = run_forest(network), synthetic_membranes(count, size, cell=60).images.numpy()
    ways: dict[str, Callable[[], Any]] = {
        "overlapped": lambda: segment(network, images),
        "in turn": lambda: find_cells(network.predict(images), None, forest, images),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(repeats + 1):
        for name, find in ways.items():
            start = time.perf_counter()
            find()
            if repeat:
                seconds[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "size": size,
        "slices": count,
        "seconds": medians,
        "all_seconds": seconds,
        "ratio": medians["in turn"] / medians["overlapped"],
    }


def report(found: dict[str, Any]) -> None:
    """Print the measured sections."""
    if "large" in found:
        whole = found["large"]
        print(
            f"{whole['size']}×{whole['size']}: {whole['seconds']:.0f} s, {whole['seconds_per_megapixel']:.1f} s per "
            f"megapixel, peak memory {whole['peak_bytes'] / 1e9:.2f} GB "
            f"(tiles of {whole['tile']}, halo {whole['halo']})"
        )
    if "prediction" in found:
        times = found["prediction"]["seconds_per_megapixel"]
        print(
            f"one tile of {found['prediction']['size']}: {times['auto']:.1f} s per megapixel, direct engine "
            f"{times['direct']:.1f}: {found['prediction']['ratio']:.2f}×"
        )
    if "cells" in found:
        size = found["cells"]["size"]
        for name, seconds in found["cells"]["seconds"].items():
            print(f"cells of a slice of {size}×{size} by {name}: {seconds:.2f} s")
    if "stack" in found:
        slices = found["stack"]
        print(
            f"{slices['slices']} slices of {slices['size']}×{slices['size']}: {slices['seconds']['overlapped']:.1f} s, "
            f"in turn {slices['seconds']['in turn']:.1f} s: {slices['ratio']:.2f}×"
        )
    if "predict" in found:
        size, times = found["predict"]["size"], found["predict"]["seconds"]
        print(
            f"the command on {size}×{size}: {times['kernel']:.1f} s, without the kernel "
            f"{times['without kernel']:.1f} s: {found['predict']['ratio']:.2f}×"
        )


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=4096, help="side of the large image")
    parser.add_argument("--tile", type=int, default=768, help="side of the image for comparing engines")
    parser.add_argument("--slice", type=int, default=512, help="side of the slice for finding cells")
    parser.add_argument("--image", type=int, default=2048, help="side of the image for comparing kernels")
    parser.add_argument("--repeats", type=int, default=3)
    sections: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
        "large": lambda options: large(options.size),  # first: the peak memory covers all child processes so far
        "cells": lambda options: from_probabilities(options.slice, options.repeats),
        "stack": lambda options: stack(options.slice, options.repeats),
        "prediction": lambda options: prediction(options.tile, options.repeats),
        "predict": lambda options: predict(options.image, options.repeats),
    }
    parser.add_argument("--only", choices=list(sections), action="append", help="a section; may be given several times")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    measured = {name: sections[name](options) for name in sections if name in (options.only or sections)}
    report(measured)
    if options.out:
        kept = json.loads(options.out.read_text(encoding="utf-8")) if options.only and options.out.exists() else {}
        own = {name: {**section, "provenance": provenance()} for name, section in measured.items()}
        write_json(options.out, {"provenance": provenance(), **kept, **own}, overwrite=True)


if __name__ == "__main__":
    main()
