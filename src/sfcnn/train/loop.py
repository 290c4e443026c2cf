"""The training loop: steps, epochs, validation, model selection and checkpoints, the same for every task.

What a run does next depends only on its state, which a checkpoint contains in full: weights and their average,
optimiser, random generators of all processes, position in the epoch, sums of the epoch so far, history. So the result
of a run that was killed and resumed is bit-identical to that of an uninterrupted run.
"""

import math
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from sfcnn.io.state import write_state
from sfcnn.ops import measured
from sfcnn.train.averaging import averaged_network
from sfcnn.train.checkpoint import Checkpoints
from sfcnn.train.config import OptimizationConfig
from sfcnn.train.distributed import add_up, gather_objects, share_of, synchronize_batch_norm
from sfcnn.train.optimization import ElasticNet, learning_rate, make_optimizer
from sfcnn.train.prefetch import prefetch
from sfcnn.train.task import Task


class NonFiniteLossError(ValueError):
    """The loss is not finite."""


@dataclass(frozen=True)
class EpochRecord:
    """The log of an epoch; losses are means over images, errors are in per cent."""

    epoch: int  #: counted from 1
    learning_rate: float  #: at its start
    loss: float  #: on the training images, without the penalty
    penalty: float  #: of the elastic net, after the epoch's last step
    error: float  #: on the training images, as augmented
    validation_loss: float
    validation_error: float
    seconds: float  #: of the whole epoch


@dataclass
class Progress:
    """The position of a run."""

    epoch: int = 0  #: whole epochs done
    step: int = 0  #: steps done in the next one
    sums: tuple[float, float, float] = (0.0, 0.0, 0.0)  #: of loss, mistakes and images in it
    seconds: float = 0.0  #: spent on it
    history: list[EpochRecord] = field(default_factory=list)

    def selected(self, *, last: bool = False) -> EpochRecord:
        """The epoch with the smallest validation error, with ties broken by validation loss; or the last one."""
        if last:
            return self.history[-1]
        return min(self.history, key=lambda record: (record.validation_error, record.validation_loss))


class Observer(Protocol):
    """Callbacks of a run."""

    def step(self, progress: Progress, steps: int, loss: float) -> None:
        """Called after each step, of `steps` in the epoch."""
        ...

    def epoch(self, progress: Progress) -> None:
        """Called after each epoch."""
        ...


class Fit:
    """Train one network on one task; `run` continues to the end of the last epoch.

    Args:
        net: the network, changed in place
        task: what to train it on
        config: optimisation settings
        seed: of dropout
        directory: where to write `best.safetensors` and `checkpoints/`
        checkpoint_steps: steps between checkpoints, 0 for only at the end of each epoch
        select_last: keep the last epoch's weights as the best ones, not those with the smallest validation error
        accelerator: device, processes and number format
        observer: callbacks
    """

    def __init__(
        self,
        net: nn.Module,
        task: Task,
        config: OptimizationConfig,
        *,
        seed: int,
        directory: Path,
        checkpoint_steps: int,
        select_last: bool,
        accelerator: Accelerator,
        observer: Observer,
    ) -> None:
        self.task, self.config, self.directory, self.observer = task, config, directory, observer
        self.checkpoint_steps, self.select_last = checkpoint_steps, select_last
        self.accelerator, self.share = accelerator, share_of(accelerator)
        self.bare = synchronize_batch_norm(net) if self.share.processes > 1 else net
        self.penalty = ElasticNet(net, config)
        # Copied before the accelerator wraps the network.
        self.averaged = averaged_network(net, config.averaging).to(accelerator.device) if config.averaging else None
        self.net, self.optimizer = accelerator.prepare(net, make_optimizer(net, config))
        self.checkpoints = Checkpoints(directory / "checkpoints")
        self.progress = Progress()
        torch.manual_seed(seed * 1000 + self.share.rank)

    @property
    def result(self) -> nn.Module:
        """The network that is validated and saved: the averaged one, if there is one."""
        return self.averaged.module if self.averaged else self.bare

    def run(self) -> Progress:
        """Train from the current state to the end."""
        while self.progress.epoch < self.config.epochs:
            self._epoch()
        return self.progress

    def state(self) -> dict[str, Any]:
        """Everything needed to resume the run."""
        generators = gather_objects(self.accelerator, torch.get_rng_state())
        cuda = gather_objects(self.accelerator, torch.cuda.get_rng_state()) if torch.cuda.is_available() else []
        return {
            "model": self.bare.state_dict(),
            "averaged": self.averaged.state_dict() if self.averaged else None,
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.accelerator.scaler.state_dict() if self.accelerator.scaler else None,
            "generators": generators,
            "cuda_generators": cuda,
            "progress": asdict(self.progress),
            "engines": measured.choices(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        generators = state.get("generators")
        if isinstance(generators, list) and len(generators) != self.share.processes:
            raise ValueError(
                f"the newest checkpoint in {self.checkpoints.directory} was written by {len(generators)} processes, "
                f"but this job has {self.share.processes}: start {len(generators)}"
            )
        try:
            self._load_state(state)
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:300]
            raise ValueError(
                f"the newest checkpoint in {self.checkpoints.directory} does not fit this run: {reason}"
            ) from error

    def _load_state(self, state: dict[str, Any]) -> None:
        self.bare.load_state_dict(state["model"])
        if self.averaged:
            self.averaged.load_state_dict(state["averaged"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.accelerator.scaler and state["scaler"]:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        torch.set_rng_state(state["generators"][self.share.rank])
        if torch.cuda.is_available() and state["cuda_generators"]:
            torch.cuda.set_rng_state(state["cuda_generators"][self.share.rank])
        measured.restore(state.get("engines", {}))  # other engines round differently
        kept = state["progress"]
        history = [EpochRecord(**record) for record in kept["history"]]
        self.progress = Progress(kept["epoch"], kept["step"], tuple(kept["sums"]), kept["seconds"], history)

    def _epoch(self) -> None:
        progress, steps = self.progress, self.task.steps
        self.net.train()
        clock = time.perf_counter()
        penalty = 0.0
        batches = prefetch(lambda step: self.task.batch(progress.epoch, step, self.share), progress.step, steps)
        for inputs, targets in batches:
            self._set_learning_rate()
            sums, penalty = self._step(inputs, targets)
            progress.sums = tuple(old + new for old, new in zip(progress.sums, sums, strict=True))  # type: ignore[assignment]
            progress.step += 1
            now = time.perf_counter()
            progress.seconds, clock = progress.seconds + now - clock, now
            self.observer.step(progress, steps, sums[0] / sums[2])
            if self.checkpoint_steps and progress.step % self.checkpoint_steps == 0 and progress.step < steps:
                self.save()
        validation = self._validate()
        self._check(validation[0], "validation loss")
        loss, mistakes, images = progress.sums
        record = EpochRecord(
            progress.epoch + 1,
            learning_rate(self.config, progress.epoch),
            loss / images,
            penalty,
            100 * mistakes / images,
            validation[0] / validation[2],
            100 * validation[1] / validation[2],
            progress.seconds + time.perf_counter() - clock,
        )
        progress.history.append(record)
        progress.epoch, progress.step, progress.sums, progress.seconds = progress.epoch + 1, 0, (0.0, 0.0, 0.0), 0.0
        if self.share.rank == 0 and progress.selected(last=self.select_last) is record:
            write_state(self.directory / "best.safetensors", {"model": self.result.state_dict()})
        self.save()
        self.observer.epoch(progress)

    def _set_learning_rate(self) -> None:
        rate = learning_rate(self.config, self.progress.epoch, self.progress.step / self.task.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def _step(self, inputs: Tensor, targets: Tensor) -> tuple[tuple[float, float, float], float]:
        """One update: sums of loss, mistakes and images over all processes, and the penalty."""
        device = self.accelerator.device
        outcome = self.task.outcome(self.net, inputs.to(device), targets.to(device))
        penalty = self.penalty()
        loss = outcome.loss / outcome.images + penalty
        total, mistakes, images = add_up(self.accelerator, outcome.sums())
        self._check(total, "loss")
        self.optimizer.zero_grad()
        self.accelerator.backward(loss)
        self.optimizer.step()
        if self.averaged:
            self.averaged.update_parameters(self.bare)
        return (total, mistakes, images), float(penalty.detach())

    def _check(self, value: float, what: str) -> None:
        if not math.isfinite(value):
            progress = self.progress
            raise NonFiniteLossError(
                f"the {what} became {value} at epoch {progress.epoch + 1}, step {progress.step + 1}; earlier "
                "checkpoints are kept: try a smaller optimization.learning_rate"
            )

    @torch.no_grad()
    def _validate(self) -> tuple[float, float, float]:
        """Sums of loss, mistakes and images over the held-out images."""
        self.net.eval()
        net = self.result
        device = self.accelerator.device
        sums = torch.zeros(3, dtype=torch.float64)
        with self.accelerator.autocast():
            for inputs, targets in self.task.validation(self.share):
                sums += self.task.outcome(net, inputs.to(device), targets.to(device)).sums()
        return add_up(self.accelerator, sums)

    def save(self) -> None:
        """Write a checkpoint of the current state."""
        state = self.state()
        if self.share.rank == 0:
            self.checkpoints.save(self.progress.epoch * self.task.steps + self.progress.step, state)
