"""`sfcnn segment train`: a U-Net for membranes."""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfcnn.cli.training import run_training, training_parser

if TYPE_CHECKING:
    from sfcnn.training.membrane_runs import MembraneConfig
    from sfcnn.training.runs import RunResult
    from sfcnn.training.settings import SettingsParser


def parser() -> "SettingsParser":
    """Every setting is an option."""
    from sfcnn.training.membrane_runs import MembraneConfig

    return training_parser(
        "sfcnn segment train",
        MembraneConfig,
        "Train a U-Net that tells membranes from the inside of cells. The defaults are the paper's network, which\n"
        "wants a GPU, on synthetic membranes; name your own stack, or a folder with images/ and masks/.",
        (
            "sfcnn segment train --out runs/em --images.source stack --images.path em.tif --images.masks masks.tif \\",
            "     --model.orientations 8 --model.channels 6 --model.levels 3 --crops.size 128 --crops.margin 16",
            "sfcnn segment train --out runs/em --resume",
        ),
    )


def add(actions: Any) -> None:
    """Add `train` to the actions of `sfcnn segment`; its words are left to the parser of its settings."""

    def parse(words: list[str], namespace: object = None) -> tuple[argparse.Namespace, list[str]]:
        return argparse.Namespace(settings=parser().parse_args(words), carry_out=_train), []

    action = actions.add_parser("train", help="train a network that finds membranes", add_help=False)
    action.parse_known_args = parse


def _train(arguments: argparse.Namespace) -> None:
    """Train, or go on."""
    from sfcnn.training.membrane_runs import MembraneConfig

    run_training("sfcnn segment train", arguments.settings, MembraneConfig, _start)


def _start(config: "MembraneConfig", data: Path | None) -> "Callable[..., RunResult]":
    """Read the slices."""
    from sfcnn.training.membrane_runs import load_slices, train_membranes

    return partial(train_membranes, config, load_slices(config.images, data))
