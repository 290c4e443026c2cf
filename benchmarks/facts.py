"""Small numbers quoted in the documentation: seconds to build a network, bytes to save it, errors under quarter turns.

    python benchmarks/facts.py --out benchmarks/results/facts.json

Build times are CPU time in one process, the minimum and maximum of the repeats after a warm-up. Quarter turns rotate
random images by 90°, 180° and 270°; the error is the maximum of `equivariance_error`.
"""

import argparse
import io
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sfcnn import equivariance_error
from sfcnn.io.files import write_json
from sfcnn.io.provenance import provenance
from sfcnn.models import count_parameters, membrane_unet, mnist_baseline, mnist_benchmark

#: The paper's networks, with its number of orientations and, for quarter turns, with a multiple of 4.
NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "mnist_baseline": mnist_baseline,
    "mnist_benchmark": mnist_benchmark,
    "membrane_unet": membrane_unet,
}
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def build_seconds(build: Callable[[], nn.Module], repeats: int) -> tuple[float, float]:
    """Minimum and maximum CPU seconds of a call."""
    build()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        build()
        times.append(time.process_time() - start)
    return min(times), max(times)


def saved_bytes(network: nn.Module) -> int:
    """Size of the saved state dict."""
    buffer = io.BytesIO()
    torch.save(network.state_dict(), buffer)
    return buffer.tell()


def quarter_turns(name: str, dtype: torch.dtype) -> float:
    """The maximal relative error of a network with Λ = 8 and random weights."""
    torch.manual_seed(0)
    network: nn.Module
    if name == "membrane_unet":
        network, images = membrane_unet(8, channels=4, levels=3), torch.rand(1, 1, 64, 64)
    else:
        network, images = NETWORKS[name](orientations=8), torch.rand(2, 1, 28, 28)
    network, images = network.eval().to(dtype), images.to(dtype)
    return max(equivariance_error(network, images, turns * math.pi / 2) for turns in (1, 2, 3))


def measure(repeats: int) -> dict[str, Any]:
    """All numbers, by network."""
    found: dict[str, Any] = {}
    for name, build in NETWORKS.items():
        network = build()
        least, greatest = build_seconds(build, repeats)
        found[name] = {
            "parameters": count_parameters(network),
            "build_seconds": {"least": least, "greatest": greatest},
            "saved_bytes": saved_bytes(network),
            "quarter_turn_error": {dtype: quarter_turns(name, kind) for dtype, kind in DTYPES.items()},
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="times to build each network (default 5)")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    arguments = parser.parse_args()
    networks = measure(arguments.repeats)
    for name, values in networks.items():
        print(name, values)
    if arguments.out:
        write_json(arguments.out, {"networks": networks, "provenance": provenance()}, overwrite=True)


if __name__ == "__main__":
    main()
