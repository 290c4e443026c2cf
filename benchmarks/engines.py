"""Time each engine on many shapes, fit the prices of `sfcnn.ops.cost`, and check the resulting choices.

    python benchmarks/engines.py measure --out FILE [--shapes 60] [--seed 0]     time all engines
    python benchmarks/engines.py again FILE --engines ENGINE …                    time some engines anew
    python benchmarks/engines.py fit FILE …                                       print PRICES
    python benchmarks/engines.py validate FILE …                                  fit to 9 shapes of 10, check the tenth
    python benchmarks/engines.py check FILE …                                     compare auto with the best

`fit` prints the prices of `sfcnn.ops.cost` for benchmarks/results/engines-fit.json.

Shapes are drawn at random: Λ 1 … 32, kernels 3 … 11, maps 5 … 160, channels 1 … 64, batch 1 … 64, up to a limit on the
work. Check on a file with a seed of its own. `measure` can be interrupted and resumes where it stopped.
"""

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
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
from sfcnn.ops.cost import PRICES, Prices, Problem, predict, work

Array = NDArray[np.float64]
Record = dict[str, Any]  # a shape, and seconds by mode and engine
Summary = dict[str, dict[str, float]]

MODES = ("training", "evaluation")
SITUATIONS = [(mode, kernel) for mode in MODES for kernel in (True, False)]
LARGEST_WORK = 1.5e10  # multiply-adds of the direct engine
LARGEST_FILTERS = 5e7  # numbers of its filters
LARGEST_RESPONSES = 1.2e8  # numbers that the atomic engine keeps

# Minimal cost of one unit of work, in nanoseconds: a call of a PyTorch operator, a multiply-add of a matrix product at
# the machine's peak (benchmarks/results/roofline.json), and reading and writing a number in memory. A part of the
# compiled kernel may overlap with another one. What comes on top of other work may cost next to nothing.
LEAST = {"call": 1e4, "product": 1 / 300, "number": 0.1, "part": 5e-4, "more": 1e-3}
#: The kinds of work that `sfcnn.ops.cost.work` counts, in its order; the last ones of training are not in evaluation.
KINDS = {
    "direct": ("call", "product", "number", "more", "more", "number", "more", "product", "product"),
    "atomic": ("call", "more", "product", "number", "more", "more", "product", "number", "number", "more"),
    "spectral": (
        *("call", "more", "product", "number", "product", "number", "number", "number", "product", "more"),
        "product",
    ),
    "compiled": ("call", "more", "more", *["part"] * 5, "number", "number", "more"),
}
#: The engines to time, each with its setting of the compiled kernel.
TIMED = {
    "compiled": ("spectral", ""),
    "spectral": ("spectral", "0"),
    "direct": ("direct", "0"),
    "atomic": ("atomic", "0"),
}
HOPELESS = 4.0  # an engine this many times slower than the best is timed only twice


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
    return _to_problem(tuple(shape.items()))


@lru_cache(maxsize=1024)
def _to_problem(items: tuple[tuple[str, Any], ...]) -> Problem:
    shape = dict(items)
    layer = to_layer(shape, "direct")
    geometry = Geometry(shape["kernel_size"], padding=shape.get("padding", "same"))
    sizes = (shape["batch"], layer.in_channels, layer.out_channels, layer.orientations, layer.basis.size)
    return Problem(*sizes, shape["size"], shape["size"], geometry)


def timed(run: Callable[[], object], limit: float) -> float:
    """Seconds per call: the median of several, or the faster of two if the first exceeds the limit.

    The call before them does not count, since libraries then generate code. Short calls are repeated for a tenth of a
    second, until all threads are awake.
    """
    run()
    times = [_seconds(run)]
    if times[0] > limit:
        return min(times[0], _seconds(run))
    least = 9 if times[0] < 0.05 else 5 if times[0] < 0.3 else 3
    while len(times) < least or sum(times) < 0.1:
        times.append(_seconds(run))
    return statistics.median(times)


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure_shape(shape: dict[str, Any], engines: Sequence[str] = tuple(TIMED)) -> dict[str, dict[str, float]]:
    """Seconds by mode and engine."""
    features = torch.randn(
        shape["batch"], shape["in_channels"], shape["orientations"], shape["size"], shape["size"], requires_grad=True
    )
    times: dict[str, dict[str, float]] = {mode: {} for mode in MODES}
    for name in engines:
        engine, kernel = TIMED[name]
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
    done: list[Record] = json.loads(out.read_text())["records"] if out.exists() else []
    if [record["shape"] for record in done] != drawn[: len(done)]:
        raise SystemExit(f"{out} has other shapes: choose another --out")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    measure_shape(drawn[0])  # the first calls of a process take longer
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


def measure_again(file: Path, engines: Sequence[str]) -> None:
    """Time some engines anew on the shapes of a file of results, such as one that has been made faster."""
    results = json.loads(file.read_text())
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    measure_shape(results["records"][0]["shape"], engines)  # the first calls of a process take longer
    for record in results["records"]:
        for mode, seconds in measure_shape(record["shape"], engines).items():
            record["seconds"][mode].update(seconds)
    results["again"] = {"engines": list(engines), "commit": commit.stdout.strip()}
    with new_file(file, overwrite=True) as path:
        path.write_text(json.dumps(results, indent=1) + "\n")


def count_work(records: list[Record], mode: str, engine: str) -> Array:
    """Amounts of each kind of work of an engine: (shapes, kinds)."""
    return np.array([_work(tuple(record["shape"].items()), mode == "training")[engine] for record in records])


@lru_cache(maxsize=4096)
def _work(shape: tuple[tuple[str, Any], ...], training: bool) -> dict[str, tuple[float, ...]]:
    return work(_to_problem(shape), training)


def fit(records: list[Record]) -> Prices:
    """Prices, none below the minimum, that make the logarithms of predicted and measured times agree.

    An engine n times slower than the best of its rivals counts 1/n, since it is not chosen anyway. Large errors count
    linearly, so that single shapes on which a library is unexpectedly slow do not spoil the fit.
    """
    prices: Prices = {}
    for mode in MODES:
        prices[mode] = {}
        for engine in KINDS:
            rivals = [_by_engine(record["seconds"][mode], engine == "compiled") for record in records]
            times = np.array([record["seconds"][mode][engine] for record in records])
            weights = np.array([min(seconds.values()) for seconds in rivals]) / times
            found = fit_engine(count_work(records, mode, engine), 1e9 * times, weights, engine)
            prices[mode][engine] = tuple(float(f"{price:.3g}") for price in found)
    return prices


def fit_engine(amounts: Array, times: Array, weights: Array, engine: str) -> Array:
    """The prices of one engine, from the amounts of its kinds of work (shapes, kinds) and its times (shapes)."""
    least = np.array([LEAST[kind] for kind in KINDS[engine][: amounts.shape[1]]])

    def errors(logs: Array) -> Array:
        return np.asarray(weights * np.log(amounts @ (least + np.exp(logs)) / times))

    def derivatives(logs: Array) -> Array:
        above = np.exp(logs)
        return np.asarray((weights / (amounts @ (least + above)))[:, None] * amounts * above)

    share = np.median(times[:, None] / np.maximum(amounts, 1e-9), axis=0) / len(least)
    starts = [np.log(np.clip(share * factor, 1e-6, 1e9)) for factor in (1.0, 0.1, 0.01)]
    options: dict[str, Any] = {"bounds": (-25, 25), "loss": "soft_l1", "f_scale": 0.25, "max_nfev": 500}
    found = [least_squares(errors, start, jac=derivatives, **options) for start in starts]
    return np.asarray(least + np.exp(min(found, key=lambda result: result.cost).x))


def validate(records: list[Record], folds: int = 10, repeats: int = 3) -> Summary:
    """The check on shapes that the prices were not fitted to: each tenth of the shapes, with a fit to the others."""
    ratios: dict[str, list[float]] = {}
    for repeat in range(repeats):
        order = np.random.default_rng(repeat).permutation(len(records))
        for fold in range(folds):
            held_out = [records[i] for i in order[fold::folds]]
            prices = fit([records[i] for i in np.delete(order, np.s_[fold::folds])])
            for name, found in compare(held_out, prices).items():
                ratios.setdefault(name, []).extend(found)
    return {
        name: {"shapes": float(len(records)), "worst": max(found), "within 10 %": _share(found)}
        for name, found in ratios.items()
    }


def compare(records: list[Record], prices: Prices, tell: bool = False) -> dict[str, list[float]]:
    """By mode, with and without the kernel: the time of the choice over that of the best, for each shape."""
    ratios: dict[str, list[float]] = {}
    for mode, kernel in SITUATIONS:
        found = ratios[situation(mode, kernel)] = []
        for record in records:
            seconds = _by_engine(record["seconds"][mode], kernel)
            expected = _by_engine(predict(to_problem(record["shape"]), mode == "training", prices), kernel)
            choice = min(expected, key=expected.__getitem__)
            found.append(seconds[choice] / min(seconds.values()))
            if tell and found[-1] > 1.1:
                known = {engine: round(1e3 * value, 2) for engine, value in seconds.items()}
                print(f"{mode}: {choice} is {found[-1]:.2f}× the best on {record['shape']}: {known} ms")
    return ratios


def situation(mode: str, kernel: bool) -> str:
    """What is compared, in words."""
    return f"{mode}, {'with' if kernel else 'without'} the kernel"


def check(records: list[Record], prices: Prices = PRICES) -> Summary:
    """By mode, with and without the kernel: fraction of shapes where auto is within 10 % of the best, and the worst."""
    summary: Summary = {}
    ratios = compare(records, prices, tell=True)
    for mode, kernel in SITUATIONS:
        found, times = ratios[situation(mode, kernel)], [_by_engine(r["seconds"][mode], kernel) for r in records]
        shares = {"within 10 %": _share(found)}
        for engine in ENGINES:
            shares[f"always {engine}"] = _share([seconds[engine] / min(seconds.values()) for seconds in times])
        summary[situation(mode, kernel)] = {"shapes": float(len(found)), "worst": max(found), **shares}
    return summary


def _by_engine(seconds: dict[str, float], kernel: bool) -> dict[str, float]:
    """Times of the engines that a layer can choose from, the spectral one with its kernel or without."""
    return {engine: seconds["compiled" if kernel and engine == "spectral" else engine] for engine in ENGINES}


def _share(ratios: list[float]) -> float:
    return sum(ratio <= 1.1 for ratio in ratios) / len(ratios)


def main() -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--out", type=Path, required=True)
    measuring.add_argument("--shapes", type=int, default=60)
    measuring.add_argument("--seed", type=int, default=0)
    again = commands.add_parser("again")
    again.add_argument("file", type=Path)
    again.add_argument("--engines", choices=TIMED, nargs="+", required=True)
    for name in ("fit", "validate", "check"):
        commands.add_parser(name).add_argument("files", type=Path, nargs="+")
    arguments = parser.parse_args()
    if arguments.command == "measure":
        measure(arguments.out, arguments.shapes, arguments.seed)
        return
    if arguments.command == "again":
        measure_again(arguments.file, arguments.engines)
        return
    records = [record for file in arguments.files for record in json.loads(file.read_text())["records"]]
    if arguments.command == "validate":
        print(json.dumps(validate(records), indent=1))
        return
    prices = fit(records) if arguments.command == "fit" else PRICES
    if arguments.command == "fit":
        print("PRICES =", json.dumps(prices, indent=4))
    print(json.dumps(check(records, prices), indent=1))


if __name__ == "__main__":
    main()
