"""What segmentation costs: a large image by tiles, its memory, and the way from probabilities to cells.

    python benchmarks/segment.py --out benchmarks/results/segmentation.json

- `prediction`: seconds per megapixel of the network that comes with sfcnn, by the engine that it chooses and by the
  direct one, in turn on one tile, so that noise of the machine falls on both.
- `large`: `sfcnn segment predict` on an image of 4096×4096 synthetic pixels, as its user would: time and peak memory of
  the whole process, membranes and cells.
- `cells`: from probabilities to cells, a slice of 512×512, with the mean probability and with a forest.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sfcnn.cells import ForestConfig, find_cells, learn_forest, truth_cells
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
    """Synthetic membranes (size, size), one slice of 512 after the other side by side."""
    count = -(-size // 512)
    images = (255 * synthetic_membranes(count * count, 512, cell=60).images).byte().numpy()
    rows = [np.concatenate(list(images[row * count : (row + 1) * count]), axis=1) for row in range(count)]
    return np.concatenate(rows)[:size, :size]


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
            if repeat:  # the first pays for imports and plans
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
    with tempfile.TemporaryDirectory() as directory:
        image = Path(directory) / "image.tif"
        write_stack(image, texture(size))
        start = time.perf_counter()
        command = [sys.executable, "-c", "import sys; from sfcnn.cli import main; sys.exit(main())"]
        subprocess.run([*command, "segment", "predict", RUN, str(image), "--out", directory], check=True)
        wall = time.perf_counter() - start
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


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=4096, help="side of the large image")
    parser.add_argument("--tile", type=int, default=768, help="side of the image that both engines predict")
    parser.add_argument("--slice", type=int, default=512, help="side of the slice whose cells are found")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {"large": large(options.size)}  # first: it alone has the children's peak memory
    results["cells"] = from_probabilities(options.slice, options.repeats)
    results["prediction"] = prediction(options.tile, options.repeats)
    whole, engines = results["large"], results["prediction"]
    print(
        f"{options.size}×{options.size}: {whole['seconds']:.0f} s, {whole['seconds_per_megapixel']:.1f} s per megapixel"
        f", peak memory {whole['peak_bytes'] / 1e9:.2f} GB (tiles of {whole['tile']}, halo {whole['halo']})"
    )
    times = engines["seconds_per_megapixel"]
    print(
        f"one tile of {options.tile}: {times['auto']:.1f} s per megapixel, direct engine {times['direct']:.1f}: "
        f"{engines['ratio']:.2f}×"
    )
    for name, seconds in results["cells"]["seconds"].items():
        print(f"cells of a slice of {options.slice}×{options.slice} by {name}: {seconds:.2f} s")
    if options.out:
        write_json(options.out, {**results, "provenance": provenance()}, overwrite=True)


if __name__ == "__main__":
    main()
