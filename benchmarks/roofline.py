"""How close the spectral engine comes to the peak of the processor, and the cost of alternatives to its parts.

    python benchmarks/roofline.py [--out FILE]

Rates are in billions of multiply-adds per second (GMAC/s), medians of several calls after a warm-up, on all threads.
`peak.cpp`, which needs a C++ compiler, measures the peak.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

from sfcnn import GroupConv2d
from sfcnn.io.files import new_file
from sfcnn.ops.spectral.compiled import instruction_set
from sfcnn.ops.spectral.kernel.build import find_compiler

# Layers of the paper's networks: input and output channels, kernel size, size of the maps, images.
LAYERS = ((24, 32, 7, 28, 16), (36, 36, 7, 14, 32), (36, 64, 7, 7, 64), (64, 96, 5, 7, 64), (16, 24, 5, 28, 16))
ORIENTATIONS = 16
#: The engines to time, each with its setting of the compiled kernel.
TIMED = {"direct": ("direct", "0"), "without kernel": ("spectral", "0"), "compiled": ("spectral", "1")}


def seconds(run: Callable[[], object], repeats: int = 5) -> float:
    """Median time of a call after a warm-up."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def peak() -> float:
    """The most GMAC/s in float32: multiply-adds in registers that do not wait for each other."""
    compiler = find_compiler()
    if compiler is None:
        raise SystemExit("roofline.py needs a C++ compiler to measure the processor's peak: install g++ or clang++")
    with tempfile.TemporaryDirectory() as directory:
        program, source = f"{directory}/peak", Path(__file__).with_name("peak.cpp")
        flags = ("-O3", "-march=native", "-pthread")
        subprocess.run([*compiler.split(), *flags, str(source), "-o", program], check=True)
        found = subprocess.run([program, str(torch.get_num_threads())], check=True, capture_output=True, text=True)
    return float(found.stdout)


def parts() -> dict[str, float]:
    """GMAC/s of single products and convolutions with the sizes for 24 → 32 channels, 7×7, 28×28, one image."""
    maps, window, places, atoms, taps = 16 * 24, 64, 196, 18, 49
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    toeplitz, windows = torch.randn(1, 24, window).expand(maps, -1, -1), torch.randn(maps, window, places)
    coefficients, rows = torch.randn(7, 64, 144), torch.randn(7, 144, 784)
    images, filters = torch.randn(maps, 1, 28, 28), torch.randn(atoms, 1, 7, 7)
    responses = torch.randn(maps, atoms, 28, 28)
    useful = maps * 784 * atoms * taps
    times = {
        "matrix product 1024 × 1024 × 1024": (1024**3, seconds(lambda: a @ b)),
        "tiles: 384 products 24 × 64 × 196": (
            maps * 24 * window * places,
            seconds(lambda: torch.bmm(toeplitz, windows)),
        ),
        "mixing: 7 products 64 × 144 × 784": (7 * 64 * 144 * 784, seconds(lambda: torch.bmm(coefficients, rows))),
        "conv2d with the atoms, 1 → 18": (useful, seconds(lambda: F.conv2d(images, filters, padding=3))),
        "its adjoint, conv_transpose2d, 18 → 1": (
            useful,
            seconds(lambda: F.conv_transpose2d(responses, filters, padding=3), repeats=2),
        ),
    }
    return {name: count / duration / 1e9 for name, (count, duration) in times.items()}


def layer(inputs: int, outputs: int, kernel_size: int, size: int, batch: int, most: float) -> dict[str, object]:
    """Time of a training step per image by engine, and the rate of the multiply-adds that mix channels."""
    result: dict[str, object] = {"layer": f"{inputs} → {outputs}, {kernel_size}×{kernel_size}, {size}×{size}"}
    features = torch.randn(batch, inputs, ORIENTATIONS, size, size, requires_grad=True)
    for name, (engine, kernel) in TIMED.items():
        os.environ["SFCNN_KERNEL"] = kernel
        module = GroupConv2d(inputs, outputs, kernel_size, ORIENTATIONS, padding="same", bias=False, engine=engine)
        gradient = torch.randn_like(module(features))

        def step(module: GroupConv2d = module, gradient: torch.Tensor = gradient) -> None:
            module(features).backward(gradient)

        duration = seconds(step, 3) / batch
        result[f"{name} ms an image"] = 1e3 * duration
        if engine == "spectral":
            # Forward and for both gradients: a real product for m = 0 and Λ/2, else a complex one, which is four real
            # ones in PyTorch and three in the kernel. Only actual multiplications count.
            products = ORIENTATIONS * 2 - 2 if name != "compiled" else ORIENTATIONS // 2 * 3 - 1
            mixing = 3 * size**2 * products * inputs * outputs * module.basis.size
            result[f"{name} GMAC/s"] = mixing / duration / 1e9
            result[f"{name} share of the peak"] = mixing / duration / 1e9 / most
    return result


def main() -> None:
    """Measure, print and, on request, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    results = {
        "command": "python benchmarks/roofline.py",
        "commit": commit.stdout.strip(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "kernel": instruction_set(),
        "peak": (most := peak()),
        "parts": parts(),
        "layers": [layer(*sizes, most) for sizes in LAYERS],
    }
    text = json.dumps(results, indent=1, ensure_ascii=False)
    print(text)
    if out is not None:
        with new_file(out, overwrite=True) as path:
            path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
