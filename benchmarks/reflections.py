"""What reflections cost: a layer of D_Λ with C channels beside a layer of C_Λ with 2C.

    python benchmarks/reflections.py --out benchmarks/results/reflections.json

Both convolve as many maps and differ in what makes the filters of the weights, which D_Λ ties. A step is forward and
backward, evaluation keeps its kernel. The two are timed in turns, and the ratio is that of their medians.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sfcnn import GroupConv2d
from sfcnn.io.files import write_json
from sfcnn.io.provenance import provenance

#: Channels, kernel size, Λ, batch and side of the maps: layers of the classifier, and a small one.
SHAPES = ((12, 7, 8, 16, 28), (16, 5, 16, 8, 14), (32, 5, 4, 16, 7))


def step(layer: nn.Module, features: torch.Tensor) -> None:
    """Forward and backward."""
    layer(features).sum().backward()


@torch.no_grad()
def evaluation(layer: nn.Module, features: torch.Tensor) -> None:
    """Forward alone."""
    layer(features)


def ratio(pair: list[Callable[[], None]], seconds: float) -> tuple[float, float, float]:
    """Median milliseconds of two works, timed in turns, and the first by the second."""
    times: list[list[float]] = [[], []]
    for work in pair:
        work()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for kept, work in zip(times, pair, strict=True):
            start = time.perf_counter()
            work()
            kept.append(1000 * (time.perf_counter() - start))
    mirrored, plain = map(statistics.median, times)
    return mirrored, plain, mirrored / plain


def main() -> None:
    """Time all shapes and engines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each pair")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    rows = []
    for channels, size, orientations, batch, side in SHAPES:
        features = torch.randn(batch, channels, 2 * orientations, side, side)
        maps = features.unflatten(2, (2, orientations)).flatten(1, 2)
        options: dict[str, Any] = {"padding": "same", "bias": False}
        mirrored = GroupConv2d(channels, channels, size, orientations, reflections=True, **options)
        plain = GroupConv2d(2 * channels, 2 * channels, size, orientations, **options)
        for name, work in (("step", step), ("evaluation", evaluation)):
            for layer in (mirrored, plain):
                layer.train(name == "step").requires_grad_(name == "step")
            found = ratio([partial(work, mirrored, features), partial(work, plain, maps)], arguments.seconds)
            row = {"channels": channels, "kernel": size, "orientations": orientations, "batch": batch, "side": side}
            rows.append({**row, "work": name, "d_ms": found[0], "c_ms": found[1], "ratio": found[2]})
            print(
                f"D_{orientations}, {channels} channels, {size}×{size}, {batch}×{side}×{side}, {name}: "
                f"{found[0]:.1f} ms, C_{orientations} of {2 * channels}: {found[1]:.1f} ms, ratio {found[2]:.3f}"
            )
    if arguments.out:
        write_json(arguments.out, {"rows": rows, **provenance()})


if __name__ == "__main__":
    main()
