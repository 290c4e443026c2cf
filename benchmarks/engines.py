"""Time each engine on many shapes, fit the prices of `sfcnn.ops.cost`, and check the resulting choices.

    python benchmarks/engines.py measure --out FILE [--shapes 60] [--seed 0]     time all engines
    python benchmarks/engines.py fit FILE                                         print PRICES
    python benchmarks/engines.py check FILE                                       compare auto with the best

Shapes are drawn at random: Λ 1 … 32, kernels 3 … 11, maps 5 … 160, channels 1 … 64, batch 1 … 64, up to a limit on the
work. Fit and check on files with different seeds. `measure` can be interrupted and resumes where it stopped.
"""

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import least_squares
from torch import Tensor

from sfcnn import GroupConv2d
from sfcnn.io.files import new_file
from sfcnn.ops import ENGINES, Geometry
from sfcnn.ops.cost import PRICES, Problem, fastest_engine, work

Array = NDArray[np.float64]

MODES = ("training", "evaluation")
LARGEST_WORK = 1.5e10  # multiply-adds of the direct engine
LARGEST_FILTERS = 5e7  # numbers of its filters
LARGEST_RESPONSES = 1.2e8  # numbers that the atomic engine keeps

# Minimal cost of one unit of work, in nanoseconds: a call of a PyTorch operator, a multiply-add of a matrix product at
# the machine's peak (benchmarks/results/roofline.json), and reading and writing a number in memory. A part of the
# compiled kernel may overlap with another one. Numbers beyond the caches cost more.
LEAST = {"call": 1e4, "product": 1 / 300, "number": 0.1, "part": 5e-4, "more": 1e-3}
#: The kinds of work that `sfcnn.ops.cost.work` counts, in its order.
KINDS = {
    "direct": ("call", "product", "number", "more", "number", "more"),
    "atomic": ("call", "product", "number", "more", "product", "number", "number"),
    "spectral": ("call", "call", "product", "number", "product", "number", "number", "number"),
    "compiled": ("call", *["part"] * 6, "number", "number"),
}
#: The engines to time, each with its setting of the compiled kernel.
TIMED = {
    "compiled": ("spectral", ""),
    "spectral": ("spectral", "0"),
    "direct": ("direct", "0"),
    "atomic": ("atomic", "0"),
}
HOPELESS = 4.0  # an engine this many times slower than the best at its first call is not timed again


def draw_shape(rng: random.Random) -> dict[str, Any]:
    """A random shape within the bounds."""
    while True:
        shape: dict[str, Any] = {
            "batch": rng.choice([1, 2, 4, 8, 16, 32, 64]),
            "in_channels": rng.choice([1, 2, 4, 8, 12, 16, 24, 32, 48, 64]),
            "out_channels": rng.choice([1, 2, 4, 8, 12, 16, 24, 32, 48, 64]),
            "orientations": rng.choice([1, 2, 3, 4, 6, 8, 12, 16, 17, 24, 32]),
            "kernel_size": rng.choice([3, 5, 7, 9, 11]),
            "size": rng.choice([5, 7, 10, 14, 20, 28, 40, 56, 80, 112, 160]),
            "basis": rng.choice(["bandlimited", "bandlimited", "paper"]),
            "padding": rng.choice(["same", "same", "valid"]),
        }
        if shape["padding"] == "valid" and shape["size"] < shape["kernel_size"]:
            continue
        problem = to_problem(shape)
        ins, outs = (channels * problem.orientations for channels in (problem.in_channels, problem.out_channels))
        filters = ins * outs * shape["kernel_size"] ** 2
        responses = problem.pixels * ins * problem.atoms
        if problem.pixels * filters <= LARGEST_WORK and responses <= LARGEST_RESPONSES and filters <= LARGEST_FILTERS:
            return shape


def to_layer(shape: dict[str, Any], engine: str) -> GroupConv2d:
    """The layer for a shape."""
    sizes = (shape["in_channels"], shape["out_channels"], shape["kernel_size"], shape["orientations"])
    return GroupConv2d(*sizes, padding=shape.get("padding", "same"), basis=shape["basis"], engine=engine, bias=False)


def to_problem(shape: dict[str, Any]) -> Problem:
    """The same for the cost model."""
    layer = to_layer(shape, "direct")
    geometry = Geometry(shape["kernel_size"], padding=shape.get("padding", "same"))
    sizes = (shape["batch"], layer.in_channels, layer.out_channels, layer.orientations, layer.basis.size)
    return Problem(*sizes, shape["size"], shape["size"], geometry)


def timed(run: Callable[[], object], limit: float) -> float:
    """Seconds per call: the median of several after a warm-up; a single call if it exceeds the limit."""
    start = time.perf_counter()
    run()
    first = time.perf_counter() - start
    if first > limit:
        return first
    times = []
    for _ in range(9 if first < 0.05 else 5 if first < 0.3 else 3):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure_shape(shape: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Seconds by mode and engine."""
    features = torch.randn(
        shape["batch"], shape["in_channels"], shape["orientations"], shape["size"], shape["size"], requires_grad=True
    )
    times: dict[str, dict[str, float]] = {mode: {} for mode in MODES}
    for name, (engine, kernel) in TIMED.items():
        os.environ["SFCNN_KERNEL"] = kernel
        layer = to_layer(shape, engine)
        output: Tensor = layer(features)
        gradient = torch.randn_like(output)

        def train(layer: GroupConv2d = layer, gradient: Tensor = gradient) -> None:
            layer.zero_grad()
            features.grad = None
            layer(features).backward(gradient)

        def evaluate(layer: GroupConv2d = layer) -> None:
            with torch.no_grad():
                layer(features)

        for mode, run in (("training", train), ("evaluation", evaluate)):
            layer.train(mode == "training")
            best = min(times[mode].values(), default=1e9)
            times[mode][name] = timed(run, HOPELESS * best)
    return times


def measure(out: Path, shapes: int, seed: int) -> None:
    """Time random shapes and write the results after each of them."""
    rng = random.Random(seed)
    drawn = [draw_shape(rng) for _ in range(shapes)]
    done: list[dict[str, Any]] = json.loads(out.read_text())["records"] if out.exists() else []
    if [record["shape"] for record in done] != drawn[: len(done)]:
        raise SystemExit(f"{out} has other shapes: choose another --out")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    for index, shape in enumerate(drawn[len(done) :], start=len(done) + 1):
        done.append({"shape": shape, "seconds": measure_shape(shape)})
        print(f"{index}/{shapes} {shape} {done[-1]['seconds']['training']}", flush=True)
        about = {
            "command": f"python benchmarks/engines.py measure --out {out.as_posix()} --shapes {shapes} --seed {seed}",
            "commit": commit.stdout.strip(),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "machine": platform.machine(),
        }
        with new_file(out, overwrite=True) as path:
            path.write_text(json.dumps({**about, "records": done}, indent=1) + "\n")


def lowest_prices(mode: str, engine: str) -> Array:
    """Minimal cost of each kind of work; training does all of it three times, forward and for two gradients."""
    times = 3 if mode == "training" else 1
    return np.array([times * LEAST[kind] for kind in KINDS[engine]])


def fit(records: list[dict[str, Any]]) -> dict[str, dict[str, tuple[float, ...]]]:
    """Prices, none below the minimum, that make the logarithms of predicted and measured times agree.

    Engines far slower than the best count less, since they are not chosen anyway. Large errors count linearly, so that
    single shapes on which a library is unexpectedly slow do not spoil the fit.
    """
    prices: dict[str, dict[str, tuple[float, ...]]] = {}
    for mode in MODES:
        prices[mode] = {}
        best = np.array([min(record["seconds"][mode].values()) for record in records])
        for engine in PRICES[mode]:
            times = np.array([record["seconds"][mode][engine] for record in records])
            amounts = np.array([work(to_problem(record["shape"]))[engine] for record in records])
            weights = np.where(times <= 2 * best, 1.0, np.where(times <= 4 * best, 0.5, 0.15))
            least = lowest_prices(mode, engine)

            def errors(
                logs: Array, amounts: Array = amounts, times: Array = times, least: Array = least, by: Array = weights
            ) -> Array:
                return by * np.log(amounts @ (least + np.exp(logs)) / (1e9 * times))

            share = np.median(1e9 * times[:, None] / np.maximum(amounts, 1e-9), axis=0) / len(least)
            starts = [np.log(np.clip(share * factor, 1e-9, 1e9)) for factor in (1.0, 0.1, 0.01)]
            found = [least_squares(errors, start, loss="soft_l1", f_scale=0.15, max_nfev=500) for start in starts]
            above = np.exp(min(found, key=lambda result: result.cost).x)
            prices[mode][engine] = tuple(float(f"{price:.3g}") for price in least + above)
    return prices


def check(records: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """By mode, with and without the kernel: fraction of shapes where auto is within 10 % of the best, and the worst."""
    summary = {}
    for mode in MODES:
        for kernel in (True, False):
            times = [_by_engine(record["seconds"][mode], kernel) for record in records]
            ratios = []
            for record, seconds in zip(records, times, strict=True):
                choice = fastest_engine(to_problem(record["shape"]), mode == "training", kernel)
                ratios.append(seconds[choice] / min(seconds.values()))
                if ratios[-1] > 1.1:
                    known = {engine: round(1e3 * value, 2) for engine, value in seconds.items()}
                    print(f"{mode}: {choice} is {ratios[-1]:.2f}× the best on {record['shape']}: {known} ms")
            shares = {"within 10 %": _share(ratios)}
            for engine in ENGINES:
                shares[f"always {engine}"] = _share([seconds[engine] / min(seconds.values()) for seconds in times])
            name = f"{mode}, {'with' if kernel else 'without'} the kernel"
            summary[name] = {"shapes": float(len(ratios)), "worst": max(ratios), **shares}
    return summary


def _by_engine(seconds: dict[str, float], kernel: bool) -> dict[str, float]:
    """Times of the engines that a layer can choose from, the spectral one with its kernel or without."""
    return {engine: seconds["compiled" if kernel and engine == "spectral" else engine] for engine in ENGINES}


def _share(ratios: list[float]) -> float:
    return sum(ratio <= 1.1 for ratio in ratios) / len(ratios)


def main() -> None:
    """Run one of the three commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--out", type=Path, required=True)
    measuring.add_argument("--shapes", type=int, default=60)
    measuring.add_argument("--seed", type=int, default=0)
    for name in ("fit", "check"):
        commands.add_parser(name).add_argument("file", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "measure":
        measure(arguments.out, arguments.shapes, arguments.seed)
        return
    records = json.loads(arguments.file.read_text())["records"]
    if arguments.command == "fit":
        prices = fit(records)
        print("PRICES =", json.dumps(prices, indent=4))
        PRICES.update(prices)
    print(json.dumps(check(records), indent=1))


if __name__ == "__main__":
    main()
