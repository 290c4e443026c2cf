"""The effect of torch.compile and bfloat16: training steps and inference of two networks, compared with eager float32.

    python benchmarks/compile.py --out benchmarks/results/compile.json
    python benchmarks/compile.py --quick     # small networks and one repeat, to check that it runs

A training step is forward, backward and Adam on random images; only the network is compiled, not the optimiser.
Inference is forward without gradients in eval mode. bfloat16 means autocast: weights and filters stay float32.
Inference also includes "plain", the network exported by `sfcnn.export.to_plain`, whose filters are prebuilt: a compiled
model builds its filters in every call, an eager one caches them. The compiler is inductor if there is a C++ compiler,
else aot_eager, which only traces. All forms of a case take turns, so that changes in the machine's speed affect all of
them. A repeat is one step, or the mean of as many short ones as fill 0.2 s; times are medians of the repeats, with
minimum and maximum, and ratios are of the medians of one run. The first call compiles; its time is reported separately.
"""

import argparse
import copy
import os
import shutil
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from job import Step, seconds_per_step
from torch import Tensor, nn

from sfcnn.export import to_plain
from sfcnn.io.files import write_json
from sfcnn.io.provenance import provenance
from sfcnn.models import ClassifierSizes, membrane_unet, mnist_benchmark


@dataclass(frozen=True)
class Case:
    """A network and its images."""

    name: str
    make: Callable[[str], nn.Module]  #: from an engine
    shape: tuple[int, ...]


CASES = (
    Case(
        "mnist_benchmark, Λ = 16, 28×28",
        lambda engine: mnist_benchmark(16, engine=engine, padding="same"),
        (16, 1, 28, 28),
    ),
    Case(
        "membrane_unet, Λ = 8, 6 channels, 3 levels, 64×64",
        lambda engine: membrane_unet(8, channels=6, levels=3, engine=engine),
        (2, 1, 64, 64),
    ),
)
QUICK = (
    Case(
        "mnist_benchmark, Λ = 2, 2 layers, 12×12",
        lambda engine: mnist_benchmark(2, ClassifierSizes((3, 3), (2, 2), ()), engine=engine, padding="same"),
        (2, 1, 12, 12),
    ),
    Case(
        "membrane_unet, Λ = 2, 1 level, 16×16",
        lambda engine: membrane_unet(2, channels=2, levels=1, input_kernel_size=3, kernel_size=3, engine=engine),
        (1, 1, 16, 16),
    ),
)
ENGINES = ("auto", "direct")
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def find_compiler() -> str:
    """Inductor compiles C++; without a C++ compiler, graphs are only traced."""
    return "inductor" if shutil.which(os.environ.get("CXX", "g++")) else "aot_eager"


def loss_of(outputs: Tensor) -> Tensor:
    """A loss with artificial targets, in float32."""
    outputs = outputs.float()
    if outputs.dim() == 2:
        return F.cross_entropy(outputs, torch.arange(len(outputs)) % outputs.shape[1])
    return F.binary_cross_entropy_with_logits(outputs, (torch.arange(outputs.shape[-1]) % 2).expand_as(outputs).float())


def training_step(forward: Callable[[Tensor], Tensor], net: nn.Module, images: Tensor, precision: str) -> Step:
    """Forward, backward and Adam."""
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            outputs = forward(images)
        loss_of(outputs).backward()
        optimizer.step()

    return step


def inference_step(forward: Callable[[Tensor], Tensor], images: Tensor, precision: str) -> Step:
    """Forward without gradients."""

    def step() -> None:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            forward(images)

    return step


def make_forms(net: nn.Module, images: Tensor, mode: str, compiler: str) -> dict[str, Step]:
    """The steps to compare, each with a copy of the network."""
    forms: dict[str, Step] = {}
    for precision in PRECISIONS:
        for way in ("eager", "compiled") if mode == "training" else ("eager", "compiled", "plain", "plain compiled"):
            twin: nn.Module = copy.deepcopy(net).train(mode == "training")
            twin = to_plain(twin) if way.startswith("plain") else twin
            forward: Any = torch.compile(twin, backend=compiler) if way.endswith("compiled") else twin
            if mode == "training":
                forms[f"{way}, {precision}"] = training_step(forward, twin, images, precision)
            else:
                forms[f"{way}, {precision}"] = inference_step(forward, images, precision)
    return forms


def measure(case: Case, engine: str, mode: str, compiler: str, repeats: int) -> dict[str, Any]:
    """Seconds of each form; the forms take turns."""
    torch.manual_seed(0)
    torch.compiler.reset()
    net, images = case.make(engine), torch.rand(case.shape)
    forms = make_forms(net, images, mode, compiler)
    first: dict[str, float] = {}
    for name, step in forms.items():  # the first call compiles, or builds filters and plans
        start = time.perf_counter()
        step()
        first[name] = time.perf_counter() - start
        step()
    times: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(repeats):
        for name, step in forms.items():
            times[name].append(seconds_per_step(step))
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {
        "case": case.name,
        "images": list(case.shape),
        "engine": engine,
        "mode": mode,
        "seconds": medians,
        "all_seconds": times,
        "first_call_seconds": first,
        "eager_over": {name: medians["eager, float32"] / value for name, value in medians.items()},
    }


def describe(result: dict[str, Any]) -> str:
    """A few lines on one comparison: milliseconds per image with extremes, and speed relative to eager."""
    batch = result["images"][0]
    lines = [f"{result['case']}, batch {batch}, engine {result['engine']}, {result['mode']}"]
    for name, median in result["seconds"].items():
        low, high = (1e3 * extreme(result["all_seconds"][name]) / batch for extreme in (min, max))
        lines.append(
            f"  {name:26}{1e3 * median / batch:9.2f} ms per image ({low:.2f} … {high:.2f})"
            f"{result['eager_over'][name]:7.2f}×   first call {result['first_call_seconds'][name]:.1f} s"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, print and, on request, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7, help="of each form (default %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="of torch (default %(default)s)")
    parser.add_argument("--compiler", default=find_compiler(), help="of torch.compile (here %(default)s)")
    parser.add_argument("--quick", action="store_true", help="small networks and one repeat, to check that it runs")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    warnings.simplefilter("ignore", DeprecationWarning)  # from inductor's own imports
    results = []
    for case in QUICK if arguments.quick else CASES:
        for engine in ENGINES[:1] if arguments.quick else ENGINES:
            for mode in ("training", "inference"):
                repeats = 1 if arguments.quick else arguments.repeats
                results.append(measure(case, engine, mode, arguments.compiler, repeats))
                print(describe(results[-1]), flush=True)
    if arguments.quick:
        print("Quick run: these numbers say nothing about speed.")
    if arguments.out:
        values = {
            "compiler": arguments.compiler,
            "threads": arguments.threads,
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "results": results,
            "provenance": provenance(),
        }
        write_json(arguments.out, values, overwrite=True)


if __name__ == "__main__":
    main()
