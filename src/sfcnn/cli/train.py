"""`sfcnn train`: a run from settings, in a directory of its own."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfcnn.cli.training import run_training, training_parser

if TYPE_CHECKING:
    from sfcnn.training.config import TrainConfig
    from sfcnn.training.runs import RunResult
    from sfcnn.training.settings import SettingsParser


def parser() -> "SettingsParser":
    """Every setting is an option."""
    from sfcnn.training.config import TrainConfig

    return training_parser(
        "sfcnn train",
        TrainConfig,
        "Train a network; keep its best weights, logs and checkpoints in a directory. The defaults are the paper's.",
        (
            "sfcnn train --out runs/small --images.dataset digits-rot --model.width 0.25 --model.orientations 4 \\",
            "            --optimization.epochs 2 --optimization.batch_size 20 --optimization.learning_rate 0.005",
            "sfcnn train --out runs/small --resume --optimization.epochs 4",
            "sfcnn train --config my.yaml --data ~/data --out runs/mine",
            "sfcnn train --print_config > my.yaml",
        ),
    )


def run(arguments: Any) -> None:
    """Train, or go on."""
    from sfcnn.training.config import TrainConfig

    run_training("sfcnn train", arguments, TrainConfig, _start)


def _start(config: "TrainConfig", data: Path | None) -> "Callable[..., RunResult]":
    """Read the data."""
    from sfcnn.data.datasets import data_directory, load_splits
    from sfcnn.training.runs import train

    images = config.images
    splits = load_splits(images.dataset, data_directory(data), seed=images.seed, resampling=images.resampling)
    return partial(train, config, splits)
