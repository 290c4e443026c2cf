"""`sfcnn train`: a run from settings, in a directory of its own."""

import argparse
import signal
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfcnn.training.settings import SettingsParser


def _resumed_settings(words: Sequence[str]) -> list[Path]:
    """The settings of the run that is to go on, if the words ask for one and it is there."""
    peek = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    peek.add_argument("--out", type=Path)
    peek.add_argument("--resume", action="store_true")
    try:
        found, _ = peek.parse_known_args(words)
    except argparse.ArgumentError:
        return []  # the real parser will say what is wrong
    kept = [found.out / "config.yaml"] if found.resume and found.out else []
    return [path for path in kept if path.is_file()]


def parser() -> "SettingsParser":
    """Every setting is an option."""
    from sfcnn.training.config import TrainConfig
    from sfcnn.training.settings import SettingsParser

    parser = SettingsParser(
        "sfcnn train",
        "Train a network; keep its best weights, logs and checkpoints in a directory. The defaults are the paper's.\n"
        "On several processes or machines: torchrun --nproc-per-node=2 -m sfcnn train …, or accelerate launch.",
        (
            "sfcnn train --out runs/small --images.dataset digits-rot --model.width 0.25 --model.orientations 4 \\",
            "            --optimization.epochs 2 --optimization.batch_size 20 --optimization.learning_rate 0.005",
            "sfcnn train --out runs/small --resume --optimization.epochs 4",
            "sfcnn train --config my.yaml --data ~/data --out runs/mine",
            "sfcnn train --print_config > my.yaml",
        ),
    )
    parser.add_settings(TrainConfig, first=_resumed_settings)
    parser.add_argument("--out", type=Path, help="directory of the run")
    parser.add_argument("--data", type=Path, help="directory of the data files (default: SFCNN_DATA)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out, if there is one")
    return parser


def _stop(number: int, frame: object) -> None:
    """End like Ctrl-C."""
    raise KeyboardInterrupt


def run(arguments: Any) -> None:
    """Train, or go on."""
    from sfcnn.console import make_console
    from sfcnn.data.datasets import data_directory, load_splits
    from sfcnn.training.config import TrainConfig
    from sfcnn.training.display import RunDisplay
    from sfcnn.training.distributed import is_first_process
    from sfcnn.training.runs import check_run, train
    from sfcnn.training.settings import make_settings

    values = arguments.as_dict()
    out, data, resume = (values.pop(name) for name in ("out", "data", "resume"))
    values.pop("config")
    if out is None:
        raise ValueError("where to? Name a directory for the run with --out")
    config = make_settings(TrainConfig, values)
    check_run(out, config, resume=resume)
    images = config.images
    splits = load_splits(images.dataset, data_directory(data), seed=images.seed, resampling=images.resampling)
    console = make_console(quiet=not is_first_process())
    display = RunDisplay(console, config.optimization.epochs)
    before = signal.signal(signal.SIGTERM, _stop)  # what schedulers send, and torchrun when another process was lost
    try:
        with closing(display.open()):
            result = train(
                config, splits, out, resume=resume, observers=[display], warn=lambda text: console.print(text)
            )
    except KeyboardInterrupt:
        console.print(f"stopped; to go on: sfcnn train --out {out} --resume")
        raise
    finally:
        if signal.getsignal(signal.SIGTERM) is _stop:
            signal.signal(signal.SIGTERM, before)
    console.print(
        f"best validation error {result.validation_error:.2f} % at epoch {result.best_epoch} "
        f"({result.validation_images:,} images of {result.dataset}); {result.parameters:,} parameters",
    )
    console.print(f"wrote {out}")
