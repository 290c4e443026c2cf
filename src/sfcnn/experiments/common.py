"""Shared by the experiments on digits: train a classifier and measure it on test images."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from torch import nn

from sfcnn.classification.config import ImagesConfig
from sfcnn.classification.data import load_splits
from sfcnn.classification.labelled import LabelledImages, Splits, first_images
from sfcnn.classification.predict import load
from sfcnn.classification.task import train
from sfcnn.experiments.sweep import Result, SweepRun
from sfcnn.train.loop import Observer
from sfcnn.train.run import RunResult


def train_digits(run: SweepRun, directory: Path, data: Path | None, observers: Sequence[Observer]) -> RunResult:
    """Train the classifier of a run, or resume it."""
    _test_images(run, data)  # fail before the training, not after it
    return train(run.train, directory, data=data, resume=True, observers=observers)


def on_test_images(
    measure: Callable[[SweepRun, nn.Module, LabelledImages], Result],
) -> Callable[[SweepRun, Path, Path | None], Result]:
    """Measure the best network of a run on the first `run.test["test_images"]` test images, 0 for all."""

    def measure_run(run: SweepRun, directory: Path, data: Path | None) -> Result:
        test = _test_images(run, data)
        return measure(run, load(directory).network, test) | {"test_images": len(test.labels)}

    return measure_run


def digit_splits(images: ImagesConfig, data: Path | None) -> Splits:
    """Load and split digits; those loaded last are kept in memory."""
    return _splits(images.dataset, data, images.seed, images.resampling)


def _test_images(run: SweepRun, data: Path | None) -> LabelledImages:
    return first_images(digit_splits(run.train.images, data).test, run.test["test_images"], "test_images")


@lru_cache(maxsize=1)  # the runs of a sweep have the same images, and rotating tens of thousands is slow
def _splits(dataset: str, data: Path | None, seed: int, resampling: str) -> Splits:
    return load_splits(dataset, data, seed=seed, resampling=resampling)
