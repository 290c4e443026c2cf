"""Speed of exported networks: the model itself, its plain network and its ONNX file in onnxruntime.

    python benchmarks/export.py --out benchmarks/results/export.json
    python benchmarks/export.py --quick     # small networks and one repeat, to check that it runs

Evaluation in float32 on random images, all with the same number of threads. The three take turns, so that changes in
the machine's speed affect all of them. A repeat is one pass, or the mean of as many short ones as fill 0.2 s; times are
medians of the repeats, with minimum and maximum, and ratios are of the medians of one run. The model uses
`engine="auto"` without gradients, so that its filters are built before timing starts, as in the exported forms. Outputs
are compared first.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from job import seconds_per_step
from torch import Tensor, nn

from sfcnn.export import to_onnx, to_plain
from sfcnn.io.files import write_json
from sfcnn.io.provenance import provenance
from sfcnn.models import membrane_unet, mnist_baseline, mnist_benchmark

Case = tuple[str, Callable[[], nn.Module], tuple[int, ...]]

CASES: list[Case] = [
    ("mnist_baseline, Λ = 16, 28×28", lambda: mnist_baseline(16), (16, 1, 28, 28)),
    ("mnist_benchmark, Λ = 16, 28×28", lambda: mnist_benchmark(16, padding="same"), (16, 1, 28, 28)),
    ("mnist_benchmark, Λ = 16, 28×28", lambda: mnist_benchmark(16, padding="same"), (1, 1, 28, 28)),
    ("mnist_benchmark, Λ = 4, 28×28", lambda: mnist_benchmark(4, padding="same"), (16, 1, 28, 28)),
    (
        "membrane_unet, Λ = 8, 6 channels, 3 levels, 128×128",
        lambda: membrane_unet(8, channels=6, levels=3),
        (1, 1, 128, 128),
    ),
]
QUICK: list[Case] = [
    ("mnist_benchmark, Λ = 2, 28×28", lambda: mnist_benchmark(2, padding="same"), (2, 1, 28, 28)),
    ("membrane_unet, Λ = 2, 2 levels, 16×16", lambda: membrane_unet(2, channels=2, levels=2), (1, 1, 16, 16)),
]


def in_onnxruntime(path: Path, threads: int) -> Callable[[Tensor], Tensor]:
    """A function that runs an ONNX file."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda images: torch.from_numpy(session.run(None, {name: images.numpy()})[0])


def megabytes(net: nn.Module) -> float:
    """Size of the weights."""
    return sum(parameter.nbytes for parameter in net.parameters()) / 1e6


def measure(make: Callable[[], nn.Module], shape: tuple[int, ...], repeats: int, threads: int) -> dict[str, Any]:
    """Seconds of each form; the forms take turns."""
    torch.manual_seed(0)
    net, images = make().eval(), torch.rand(shape)
    plain = to_plain(net)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "net.onnx")
        to_onnx(net, images, path)
        forms: dict[str, Callable[[Tensor], Tensor]] = {
            "model": net,
            "plain": plain,
            "onnxruntime": in_onnxruntime(path, threads),
        }
        file_size = path.stat().st_size / 1e6
    expected = net(images)
    times: dict[str, list[float]] = {name: [] for name in forms}
    differences = {}
    for name, form in forms.items():  # the first call builds filters and plans
        differences[name] = float((form(images) - expected).abs().max() / expected.abs().max())
    for _ in range(repeats):
        for name, form in forms.items():
            times[name].append(seconds_per_step(partial(form, images)))
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {
        "images": list(shape),
        "seconds": medians,
        "all_seconds": times,
        "model_over": {name: medians["model"] / medians[name] for name in ("plain", "onnxruntime")},
        "largest_difference": {name: differences[name] for name in ("plain", "onnxruntime")},
        "megabytes": {"model": megabytes(net), "plain": megabytes(plain), "onnx": file_size},
    }


def row(name: str, result: dict[str, Any]) -> str:
    """One line of the table: milliseconds per image with extremes, and speed relative to the model."""
    batch = result["images"][0]
    cells = []
    for form, median in result["seconds"].items():
        spread = [1e3 * extreme(result["all_seconds"][form]) / batch for extreme in (min, max)]
        faster = f", {result['model_over'][form]:.2f}×" if form != "model" else ""
        cells.append(f"{1e3 * median / batch:.1f} ({spread[0]:.1f} … {spread[1]:.1f}){faster}")
    sizes = result["megabytes"]
    return f"| {name} | {' | '.join(cells)} | {sizes['model']:.1f} → {sizes['onnx']:.1f} |"


def main() -> None:
    """Measure, print and, on request, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7, help="of each form (default %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="of torch and onnxruntime (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="small networks and one repeat, to check that it runs")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print("| evaluation, ms per image | model | plain | onnxruntime | MB of weights → ONNX file |")
    print("| --- | --- | --- | --- | --- |")
    results = {}
    with torch.no_grad():
        for name, make, shape in QUICK if arguments.quick else CASES:
            repeats = 1 if arguments.quick else arguments.repeats
            label = f"{name}, batch {shape[0]}"
            results[label] = measure(make, shape, repeats, arguments.threads)
            print(row(label, results[label]), flush=True)
    if arguments.quick:
        print("Quick run: these numbers say nothing about speed.")
    if arguments.out:
        versions = {"onnx": version("onnx"), "onnxruntime": version("onnxruntime")}
        values = {"threads": arguments.threads, "results": results, "onnx": versions, "provenance": provenance()}
        write_json(arguments.out, values, overwrite=True)


if __name__ == "__main__":
    main()
