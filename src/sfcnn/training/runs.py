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
from typing import Any, Protocol, TypeVar

import torch
from torch import nn

from sfcnn.data.datasets import Splits
from sfcnn.files import remove_leftovers, write_json
from sfcnn.models.plain import count_parameters
from sfcnn.provenance import provenance
from sfcnn.training.checkpoint import read_state
from sfcnn.training.classification import Classification
from sfcnn.training.config import OptimizationConfig, TrainConfig
from sfcnn.training.distributed import make_accelerator, named_failures, share_of
from sfcnn.training.log import Log
from sfcnn.training.loop import Fit, Observer, Progress
from sfcnn.training.networks import build_network
from sfcnn.training.settings import read_settings, write_settings
from sfcnn.training.task import Task

Config = TypeVar("Config")
Net = TypeVar("Net", bound=nn.Module)


class RunConfig(Protocol):
    """What the settings of every run have, beside those of its network and images."""

    @property
    def optimization(self) -> OptimizationConfig: ...  # noqa: D102
    @property
    def seed(self) -> int: ...  # noqa: D102
    @property
    def checkpoint_steps(self) -> int: ...  # noqa: D102
    @property
    def tensorboard(self) -> bool: ...  # noqa: D102


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


def check_run(directory: Path, config: Any, *, resume: bool) -> None:
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
    kept = read_settings(type(config), path)
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


def carry_out(
    config: RunConfig,
    build: Callable[[], nn.Module],
    make_task: Callable[[], Task],
    dataset: str,
    directory: Path,
    *,
    select_last: bool = False,
    resume: bool = False,
    observers: Sequence[Observer] = (),
    warn: Callable[[str], None] = print,
) -> RunResult:
    """Train a network on a task in a directory of its own, or go on with the run that is there.

    Every process of a distributed job calls this; the first one writes.

    Args:
        config: all settings, a frozen dataclass; kept in the directory.
        build, make_task: make the network, after the generator was seeded, and the task.
        dataset: full name of the images.
        directory: of the run.
        select_last: keep the last epoch's weights, not those with the smallest validation error.
        resume: go on with a run that is there.
        observers: who watches, in the first process.
        warn: told of damaged checkpoints.
    """
    check_run(directory, config, resume=resume)
    accelerator = make_accelerator(config.optimization.precision)
    first = share_of(accelerator).rank == 0
    torch.manual_seed(config.seed)
    net, task = build(), make_task()
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
        select_last=select_last,
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
    best = progress.selected(last=select_last)
    result = RunResult(
        dataset=dataset,
        train_images=task.train_images,
        validation_images=task.validation_images,
        parameters=count_parameters(net),
        best_epoch=best.epoch,
        validation_error=best.validation_error,
        seconds=sum(record.seconds for record in progress.history),
        epochs=len(progress.history),
    )
    if first:
        write_json(directory / "result.json", {**asdict(result), "provenance": provenance()}, overwrite=True)
    return result


def read_run(directory: Path, config: type[Config]) -> Config:
    """The settings of a run."""
    path = directory / "config.yaml"
    if not path.is_file():
        raise ValueError(f"{directory} is no run: it has no config.yaml; `sfcnn train --out DIR` makes one")
    return read_settings(config, path)


def load_best(directory: Path, net: Net) -> Net:
    """Give a network the best weights of a run so far, and put it in eval mode."""
    weights = directory / "best.safetensors"
    if not weights.is_file():
        raise ValueError(f"{directory} has no best.safetensors yet: its first epoch has not ended")
    state = read_state(weights)
    if not isinstance(state.get("model"), dict):
        raise ValueError(f"{weights} holds no weights of a network")
    try:
        net.load_state_dict(state["model"])
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ValueError(f"{weights} does not fit the network of {directory / 'config.yaml'}") from error
    return net.eval()


def train(
    config: TrainConfig,
    splits: Splits,
    directory: Path,
    *,
    resume: bool = False,
    observers: Sequence[Observer] = (),
    warn: Callable[[str], None] = print,
) -> RunResult:
    """Train a classifier of digits as `config` says: `carry_out` for the paper's §4.1."""
    return carry_out(
        config,
        lambda: build_network(config.model),
        lambda: Classification(splits, config),
        splits.name,
        directory,
        select_last=config.images.join_validation,
        resume=resume,
        observers=observers,
        warn=warn,
    )


def load_run(directory: Path) -> tuple[TrainConfig, nn.Sequential]:
    """The settings of a run that `train` made and its best network so far, in eval mode."""
    config = read_run(directory, TrainConfig)
    return config, load_best(directory, build_network(config.model))
