"""Training for many steps takes no more memory than training for a few."""

import gc
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sfcnn import segmentation
from sfcnn.classification import ClassificationConfig, ImagesConfig, ModelConfig
from sfcnn.segmentation import CropConfig, SegmentationConfig, SlicesConfig, UNetConfig
from sfcnn.train.config import OptimizationConfig
from train.conftest import splits, train


def resident() -> int:
    """Bytes of memory that this process uses."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        pytest.skip("the system does not tell how much memory a process uses")
    return pages * os.sysconf("SC_PAGE_SIZE")


class Watch:
    """Counts tensors, objects and memory at the ends of eight epochs."""

    def __init__(self, epochs: int) -> None:
        self.every = epochs // 8
        self.tensors: list[int] = []
        self.objects: list[int] = []
        self.bytes: list[int] = []

    def step(self, progress: Any, steps: int, loss: float) -> None: ...

    def epoch(self, progress: Any) -> None:
        if progress.epoch % self.every == 0:
            gc.collect()
            objects = gc.get_objects()
            self.tensors.append(sum(issubclass(type(thing), torch.Tensor) for thing in objects))
            self.objects.append(len(objects))
            self.bytes.append(resident())


def assert_steady(watch: Watch, steps: int) -> None:
    """After the first quarter, in which caches fill, nothing is kept of a step.

    The history, which is kept, has one record per epoch. Memory is taken from the system in pieces, and training keeps
    what it frees, so it is allowed 16 MB and two kilobytes per step: less than the smallest network's gradients.
    """
    start = len(watch.tensors) // 4
    assert len(set(watch.tensors[start:])) == 1
    assert watch.objects[-1] - watch.objects[start] < steps // 4
    assert watch.bytes[-1] - watch.bytes[start] < 2 * 1024 * steps + (16 << 20)


@pytest.mark.parametrize(
    ("engine", "epochs"),
    [
        ("direct", 16),
        *(pytest.param(engine, 80, marks=pytest.mark.slow) for engine in ("direct", "atomic", "spectral")),
    ],
)
def test_classification(engine: str, epochs: int, tmp_path: Path) -> None:
    config = ClassificationConfig(
        model=ModelConfig(orientations=4, width=0.1, engine=engine),
        images=ImagesConfig("digits", augmentation="continuous", train_images=16, validation_images=4),
        optimization=OptimizationConfig(epochs=epochs, batch_size=2, learning_rate=0.001, decay_from=epochs),
        checkpoint_steps=5,
    )
    watch = Watch(epochs)
    train(config, splits(), tmp_path / "run", observers=[watch])
    assert_steady(watch, 8 * epochs)


@pytest.mark.parametrize("epochs", [8, pytest.param(80, marks=pytest.mark.slow)])
def test_segmentation(epochs: int, tmp_path: Path) -> None:
    config = SegmentationConfig(
        model=UNetConfig(orientations=4, channels=2, levels=2, input_kernel_size=3, kernel_size=3),
        images=SlicesConfig(validation=1),
        crops=CropConfig(size=16, margin=4),
        optimization=OptimizationConfig(epochs=epochs, batch_size=1, learning_rate=0.001, decay_from=epochs),
        steps=6,
    )
    watch = Watch(epochs)
    segmentation.train(config, tmp_path / "run", observers=[watch])
    assert_steady(watch, 6 * epochs)


def test_runs_one_after_the_other(tmp_path: Path) -> None:
    """As a sweep makes them: a run that is over leaves no tensors."""
    config = ClassificationConfig(
        model=ModelConfig(orientations=2, width=0.1, engine="direct"),
        images=ImagesConfig("digits", train_images=16, validation_images=8),
        optimization=OptimizationConfig(epochs=1, batch_size=8),
    )
    counts = []
    for seed in range(4):
        train(replace(config, seed=seed), splits(), tmp_path / f"run-{seed}")
        gc.collect()
        counts.append(sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects()))
    assert counts[1] == counts[-1]
