"""What the experiments on digits have in common: a classifier is trained and measured on test images."""

from collections.abc import Callable, Sequence
from pathlib import Path

from torch import nn

from sfcnn.data.datasets import Splits, load_splits
from sfcnn.data.digits import Digits, first_images
from sfcnn.experiments.sweep import Cell, Result
from sfcnn.training.config import TrainConfig
from sfcnn.training.loop import Observer
from sfcnn.training.runs import RunResult, load_run, train


def train_digits(cell: Cell, directory: Path, data: Path | None, observers: Sequence[Observer]) -> RunResult:
    """Train the classifier of a cell, or go on with it."""
    splits = _splits(cell.train, data)
    _test_images(cell, splits)  # a mistake is better noticed before than after
    return train(cell.train, splits, directory, resume=True, observers=observers)


def on_test_images(
    measure: Callable[[Cell, nn.Module, Digits], Result],
) -> Callable[[Cell, Path, Path | None], Result]:
    """Measure the best network of a cell on the first `cell.test["test_images"]` test images, 0 for all."""

    def measure_run(cell: Cell, directory: Path, data: Path | None) -> Result:
        test = _test_images(cell, _splits(cell.train, data))
        return measure(cell, load_run(directory)[1], test) | {"test_images": len(test.labels)}

    return measure_run


def _test_images(cell: Cell, splits: Splits) -> Digits:
    return first_images(splits.test, cell.test["test_images"], "test_images")


def _splits(config: TrainConfig, data: Path | None) -> Splits:
    images = config.images
    return load_splits(images.dataset, data, seed=images.seed, resampling=images.resampling)
