"""Train a network in a directory of its own, from settings to result; see `sfcnn.io.runs` for its contents."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import nn

from sfcnn.io.files import remove_leftovers, write_json
from sfcnn.io.provenance import provenance
from sfcnn.io.runs import read_task
from sfcnn.io.settings import make_settings, write_settings
from sfcnn.models.twins import count_parameters
from sfcnn.train.checkpoint import Checkpoints
from sfcnn.train.config import OptimizationConfig
from sfcnn.train.distributed import make_accelerator, named_failures, share_of
from sfcnn.train.log import Log
from sfcnn.train.loop import Fit, Observer, Progress
from sfcnn.train.memory import keeping_memory
from sfcnn.train.start import Started
from sfcnn.train.task import Task

_FEWEST_STEPS = 5  # per epoch, without a warning


class RunConfig(Protocol):
    """Settings of every run, besides those of its network and images."""

    task: ClassVar[str]

    @property
    def optimization(self) -> OptimizationConfig: ...  # noqa: D102
    @property
    def seed(self) -> int: ...  # noqa: D102
    @property
    def checkpoint_steps(self) -> int: ...  # noqa: D102
    @property
    def tensorboard(self) -> bool: ...  # noqa: D102
    @property
    def start(self) -> str: ...  # noqa: D102


@dataclass(frozen=True)
class RunResult:
    """The result of a run."""

    dataset: str  #: full name
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


def check_directory(directory: Path, *, resume: bool) -> None:
    """Raise unless a run can start in a directory, or be resumed there."""
    if not (directory / "config.yaml").exists():
        # A run killed while writing its settings leaves only an unfinished file, which can be removed.
        if directory.exists() and (not directory.is_dir() or any(map(_is_finished, directory.iterdir()))):
            raise ValueError(f"{directory} exists but does not contain a run: choose another --out")
    elif not resume:
        raise ValueError(f"{directory} contains a run: pass --resume to continue it, or choose another --out")


def _is_finished(path: Path) -> bool:
    return not (path.name.startswith(".config-") and path.name.endswith(".part.yaml"))


def _check_settings(directory: Path, config: Any) -> None:
    """Raise unless the run in a directory, if there is one, can be resumed with these settings.

    Checkpoint and log settings may change, and the number of epochs may increase if the schedule does not depend on it;
    all other settings must be the same.
    """
    path = directory / "config.yaml"
    if not path.exists():
        return
    values = read_task(directory, config.task)
    kept = make_settings(type(config), values)
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


@dataclass(frozen=True)
class Job:
    """What to train: settings, a network, and a task to train it on."""

    config: RunConfig  #: all settings, a frozen dataclass; saved in the directory
    build: Callable[[], nn.Module]  #: builds the network, after the generator was seeded
    make_task: Callable[[], Task]
    dataset: str  #: full name of the images
    select_last: bool = False  #: keep the last epoch's weights, not those with the smallest validation error
    #: loads the network's initial weights from another one, if the run starts from trained weights
    start: Callable[[nn.Module], Started] | None = None
    more_steps: str = "a smaller optimization.batch_size"  #: what gives an epoch more steps
    notice: str = ""  #: a warning about the images, for a new run


def _few_steps(job: Job, steps: int) -> str:
    """A warning if the whole run has few steps because each epoch has, or an empty text."""
    epochs = job.config.optimization.epochs
    if steps >= _FEWEST_STEPS or steps * epochs >= _FEWEST_STEPS * OptimizationConfig.epochs:
        return ""
    return (
        f"few steps: {steps} per epoch, {steps * epochs} in all, which may be too few to learn anything; "
        f"choose {job.more_steps} or more optimization.epochs"
    )


@contextmanager
def flushing_denormals() -> Iterator[None]:
    """Let the processor treat numbers below 2⁻¹²⁶ as zero, since it is many times slower with them.

    Weights that an elastic net or weight decay drives to zero become such numbers.
    """
    before = bool(torch.full((1,), 2.0**-140) * 1.0 == 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def train_run(
    job: Job,
    directory: Path,
    *,
    resume: bool = False,
    device: str = "auto",
    observers: Sequence[Observer] = (),
    warn: Callable[[str], None] = print,
) -> RunResult:
    """Train a network on a task in a directory of its own, or resume the run that is there.

    Every process of a distributed job calls this; only the first one writes files.

    Args:
        job: what to train.
        directory: of the run.
        resume: continue the run in the directory, if there is one.
        device: one of `sfcnn.devices.DEVICES`.
        observers: callbacks, in the first process.
        warn: called with a message for each damaged checkpoint, with what was loaded if the run starts from trained
            weights, if a new run has very few steps or its data look wrong, and if a resumed run was already finished.
    """
    config = job.config
    check_directory(directory, resume=resume)
    _check_settings(directory, config)
    accelerator = make_accelerator(config.optimization.precision, device)
    first = share_of(accelerator).rank == 0
    say = warn if first else lambda _: None
    torch.manual_seed(config.seed)
    net, task = job.build(), job.make_task()
    state = Checkpoints(directory / "checkpoints").newest(say) if resume else None
    if state is None and job.start:  # a resumed run does not need the other network, which may be gone
        say(str(job.start(net)))
    elif state is None and (few := _few_steps(job, task.steps)):
        say(few)
    if state is None and job.notice:
        say(job.notice)
    accelerator.wait_for_everyone()  # all have checked the directory before one writes to it
    if first:
        remove_leftovers(directory)
        write_settings(directory / "config.yaml", config, task=config.task, overwrite=True)
    watching = _Observers(observers if first else ())
    fit = Fit(
        net,
        task,
        config.optimization,
        seed=config.seed,
        directory=directory,
        checkpoint_steps=config.checkpoint_steps,
        select_last=job.select_last,
        accelerator=accelerator,
        observer=watching,
    )
    if state is not None:
        fit.load_state(state)
        state = None  # which frees its memory
        if fit.progress.epoch >= config.optimization.epochs:
            say(f"{directory} finished with epoch {fit.progress.epoch}: raise optimization.epochs to train longer")
    elif job.start:
        fit.save()  # so that the other network is not needed any more
    with named_failures(accelerator), flushing_denormals(), keeping_memory():
        if first:
            with closing(Log(directory, tensorboard=config.tensorboard, start=fit.progress.epoch)) as log:
                watching.observers = [log, *observers]
                progress = fit.run()
        else:
            progress = fit.run()
        accelerator.wait_for_everyone()
    best = progress.selected(last=job.select_last)
    result = RunResult(
        dataset=job.dataset,
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
