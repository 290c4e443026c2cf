"""A run is a directory:

config.yaml          its settings
log.csv              one row per epoch
best.safetensors     the weights with the smallest validation error
checkpoints/         the newest states, to go on from
result.json          written at the end
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sfcnn.data.datasets import Splits
from sfcnn.files import remove_leftovers, write_json
from sfcnn.models.plain import count_parameters
from sfcnn.provenance import provenance
from sfcnn.training.checkpoint import read_state
from sfcnn.training.classification import Classification
from sfcnn.training.config import TrainConfig
from sfcnn.training.distributed import make_accelerator, named_failures, share_of
from sfcnn.training.log import Log
from sfcnn.training.loop import Fit, Observer, Progress
from sfcnn.training.networks import build_network
from sfcnn.training.settings import read_settings, write_settings


@dataclass(frozen=True)
class RunResult:
    """How a run ended."""

    dataset: str  #: by its full name
    train_images: int
    validation_images: int
    parameters: int
    best_epoch: int  #: whose weights were kept
    validation_error: float  #: of that epoch, in per cent
    seconds: float  #: of all epochs
    epochs: int


class _Observers:
    def __init__(self, observers: Sequence[Observer]) -> None:
        self.observers = observers

    def step(self, progress: Progress, steps: int, loss: float) -> None:
        for observer in self.observers:
            observer.step(progress, steps, loss)

    def epoch(self, progress: Progress) -> None:
        for observer in self.observers:
            observer.epoch(progress)


def check_run(directory: Path, config: TrainConfig, *, resume: bool) -> None:
    """Raise unless a run with these settings can start, or go on, in a directory.

    A resumed run may have other checkpoints and logs and, with a schedule that does not depend on their number, more
    epochs than before; all else must be the same.
    """
    path = directory / "config.yaml"
    if not path.exists():
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise ValueError(f"{directory} is in use and holds no run: choose another --out")
        return
    if not resume:
        raise ValueError(f"{directory} holds a run: pass --resume to go on with it, or choose another --out")
    kept = read_settings(TrainConfig, path)
    kept = replace(kept, checkpoint_steps=config.checkpoint_steps, tensorboard=config.tensorboard)
    epochs = config.optimization.epochs
    if kept.optimization.schedule == "exponential" and epochs > kept.optimization.epochs:
        kept = replace(kept, optimization=replace(kept.optimization, epochs=epochs))
    if kept != config:
        differing = sorted(_differences(asdict(kept), asdict(config)))
        raise ValueError(f"{directory} was started with other settings: {', '.join(differing)}")


def _differences(kept: dict[str, Any], asked: dict[str, Any], prefix: str = "") -> list[str]:
    found = []
    for name, value in kept.items():
        if isinstance(value, dict):
            found += _differences(value, asked[name], f"{prefix}{name}.")
        elif value != asked[name]:
            found.append(f"{prefix}{name} was {value}, not {asked[name]}")
    return found


def train(
    config: TrainConfig,
    splits: Splits,
    directory: Path,
    *,
    resume: bool = False,
    observers: Sequence[Observer] = (),
    warn: Callable[[str], None] = print,
) -> RunResult:
    """Train a network as `config` says, in a directory of its own, or go on with the run that is there.

    Every process of a distributed job calls this; the first one writes.
    """
    check_run(directory, config, resume=resume)
    accelerator = make_accelerator(config.optimization.precision)
    first = share_of(accelerator).rank == 0
    torch.manual_seed(config.seed)
    net = build_network(config.model)
    task = Classification(splits, config)
    accelerator.wait_for_everyone()  # all have looked at the directory before one writes to it
    if first:
        remove_leftovers(directory)
        write_settings(directory / "config.yaml", config, overwrite=True)
    watching = _Observers(observers if first else ())
    fit = Fit(
        net,
        task,
        config.optimization,
        seed=config.seed,
        directory=directory,
        checkpoint_steps=config.checkpoint_steps,
        select_last=config.images.join_validation,
        accelerator=accelerator,
        observer=watching,
    )
    if resume:
        fit.resume(warn if first else lambda _: None)
    with named_failures(accelerator):
        if first:
            with closing(Log(directory, tensorboard=config.tensorboard, start=fit.progress.epoch)) as log:
                watching.observers = [log, *observers]
                progress = fit.run()
        else:
            progress = fit.run()
        accelerator.wait_for_everyone()
    best = progress.selected(last=config.images.join_validation)
    result = RunResult(
        dataset=splits.name,
        train_images=len(task.train.labels),
        validation_images=len(task.held_out.labels),
        parameters=count_parameters(net),
        best_epoch=best.epoch,
        validation_error=best.validation_error,
        seconds=sum(record.seconds for record in progress.history),
        epochs=len(progress.history),
    )
    if first:
        write_json(directory / "result.json", {**asdict(result), "provenance": provenance()}, overwrite=True)
    return result


def load_run(directory: Path) -> tuple[TrainConfig, nn.Sequential]:
    """The settings of a run and its best network so far, in eval mode."""
    if not (directory / "config.yaml").is_file():
        raise ValueError(f"{directory} is no run: it has no config.yaml; `sfcnn train --out DIR` makes one")
    weights = directory / "best.safetensors"
    if not weights.is_file():
        raise ValueError(f"{directory} has no best.safetensors yet: its first epoch has not ended")
    config = read_settings(TrainConfig, directory / "config.yaml")
    net = build_network(config.model)
    state = read_state(weights)
    if "model" not in state:
        raise ValueError(f"{weights} holds no weights of a network")
    try:
        net.load_state_dict(state["model"])
    except RuntimeError as error:
        raise ValueError(f"{weights} does not fit the network of {directory / 'config.yaml'}") from error
    return config, net.eval()
