"""What a task must offer to be trained: its batches, its loss, and how well a network does on images held out."""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn


class Share(NamedTuple):
    """Which part of each batch is this process's: images rank, rank + processes, … of it."""

    rank: int = 0
    processes: int = 1


class Outcome(NamedTuple):
    """Sums over images, so that parts of a set can be added."""

    loss: Tensor  #: summed over the images
    mistakes: Tensor  #: how many images were classified wrongly, or what else the task counts
    images: int

    def sums(self) -> Tensor:
        """All three as float64 on the CPU, since not every accelerator has it: (3,)."""
        return torch.tensor([float(self.loss.detach()), float(self.mistakes), self.images], dtype=torch.float64)


class Task(Protocol):
    """A task. Batches depend on nothing but the epoch and the step, so that a run can go on from any of them."""

    steps: int  #: of an epoch
    train_images: int  #: how many there are
    validation_images: int  #: how many are held out

    def batch(self, epoch: int, step: int, share: Share) -> tuple[Tensor, Tensor]:
        """Inputs and targets."""
        ...

    def outcome(self, net: nn.Module, inputs: Tensor, targets: Tensor) -> Outcome:
        """Loss and mistakes on a batch."""
        ...

    def validation(self, share: Share) -> list[tuple[Tensor, Tensor]]:
        """The batches held out, or this process's part of them."""
        ...
