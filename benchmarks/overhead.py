"""Training overhead (data, augmentation, penalty, logs, checkpoints) relative to a step, and what kept memory saves.

    python benchmarks/overhead.py --out benchmarks/results/overhead.json

Trains `mnist_baseline` (Λ = 16, batch 64, continuous augmentation) with the real loop on the embedded digits, rotated.
The network, the loss, the backward pass and Adam's step are timed in place; the rest of the wall time is overhead. Both
are thus measured in one run, and noise of the machine affects both. Epochs with and without `keeping_memory` alternate.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sfcnn.classification.config import ClassificationConfig, ImagesConfig, ModelConfig
from sfcnn.classification.data import load_splits
from sfcnn.classification.network import build_network
from sfcnn.classification.task import Classification
from sfcnn.io.files import write_json
from sfcnn.io.provenance import provenance
from sfcnn.train.config import OptimizationConfig
from sfcnn.train.distributed import make_accelerator
from sfcnn.train.log import Log
from sfcnn.train.loop import Fit
from sfcnn.train.memory import keeping_memory
from sfcnn.train.run import flushing_denormals
from sfcnn.train.task import Share

CONFIG = ClassificationConfig(
    model=ModelConfig(orientations=16),
    images=ImagesConfig("digits-rot", augmentation="continuous", validation_images=1),
    optimization=OptimizationConfig(epochs=1, batch_size=64),
    checkpoint_steps=100,
)


class Stopwatch:
    """Accumulates the time spent in the functions that it wraps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                self.seconds += time.perf_counter() - start

        return timed


def measure(config: ClassificationConfig, steps: int, directory: Path, *, keep: bool) -> dict[str, float]:
    """Seconds per step in an epoch of `steps` steps, of the network and of overhead, and per batch on its own.

    `keep`: keep the memory of a step for the next one, as training runs do.
    """
    count = steps * config.optimization.batch_size
    splits = load_splits(config.images.dataset)
    task = Classification(splits, replace(config, images=replace(config.images, train_images=count)))
    net = build_network(config.model)
    fit = Fit(
        net,
        task,
        config.optimization,
        seed=0,
        directory=directory,
        checkpoint_steps=config.checkpoint_steps,
        select_last=False,
        accelerator=make_accelerator("float32"),
        observer=Log(directory, tensorboard=False, start=0),
    )
    network = Stopwatch()
    with keeping_memory() if keep else nullcontext(), flushing_denormals():
        fit._step(*task.batch(0, 0, Share()))  # warm-up: imports and plans
        task.outcome = network.wrap(task.outcome)  # type: ignore[method-assign]
        fit.accelerator.backward = network.wrap(fit.accelerator.backward)
        fit.optimizer.step = network.wrap(fit.optimizer.step)
        start = time.perf_counter()
        fit.run()
        wall = time.perf_counter() - start
    start = time.perf_counter()
    for step in range(steps):
        task.batch(0, step, Share())
    batch = (time.perf_counter() - start) / steps
    return {
        "steps": steps,
        "network_seconds_per_step": network.seconds / steps,
        "overhead_seconds_per_step": (wall - network.seconds) / steps,
        "overhead_part": (wall - network.seconds) / network.seconds,
        "batch_seconds": batch,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="steps of the epoch (default 20)")
    parser.add_argument("--repeats", type=int, default=3, help="epochs of each kind, whose median counts (default 3)")
    parser.add_argument("--orientations", type=int, default=16, help="Λ (default 16)")
    parser.add_argument("--threads", type=int, help="of torch")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    config = replace(CONFIG, model=replace(CONFIG.model, orientations=arguments.orientations))
    kept: list[dict[str, float]] = []
    returned: list[dict[str, float]] = []
    for _ in range(arguments.repeats):
        for found, keep in ((kept, True), (returned, False)):
            with tempfile.TemporaryDirectory() as directory:
                found.append(measure(config, arguments.steps, Path(directory), keep=keep))
    result: dict[str, float] = {name: statistics.median(part[name] for part in kept) for name in kept[0]}
    step = "network_seconds_per_step"
    result["network_seconds_per_step_without_keeping"] = statistics.median(part[step] for part in returned)
    print(
        f"network {1000 * result[step]:.0f} ms per step, "
        f"{1000 * result[step + '_without_keeping']:.0f} ms without keeping memory; overhead "
        f"{1000 * result['overhead_seconds_per_step']:.1f} ms = {100 * result['overhead_part']:.2f} %; "
        f"preparing a batch takes {1000 * result['batch_seconds']:.1f} ms"
    )
    if arguments.out:
        values = {
            "orientations": arguments.orientations,
            "batch_size": 64,
            "repeats": arguments.repeats,
            **result,
            "provenance": provenance(),
        }
        write_json(arguments.out, values, overwrite=True)


if __name__ == "__main__":
    main()
