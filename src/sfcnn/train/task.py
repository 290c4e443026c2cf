"""The interface of a training task: batches, loss, and validation on held-out images."""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn


class Share(NamedTuple):
    """The part of each batch that belongs to this process: images rank, rank + processes, …"""

    rank: int = 0
    processes: int = 1


class Outcome(NamedTuple):
    """Sums over images, so that parts of a set can be added."""

    loss: Tensor  #: summed over the images
    mistakes: Tensor  #: number of misclassified images, or whatever the task counts
    images: int

    def sums(self) -> Tensor:
        """All three as float64 on the CPU, since not every accelerator supports it: (3,)."""
        return torch.tensor([float(self.loss.detach()), float(self.mistakes), self.images], dtype=torch.float64)


class Task(Protocol):
    """A task. Batches depend only on the epoch and the step, so that a run can be resumed from any of them."""

    steps: int  #: per epoch
    train_images: int  #: number of training images
    validation_images: int  #: number of held-out images

    def batch(self, epoch: int, step: int, share: Share) -> tuple[Tensor, Tensor]:
        """Inputs and targets."""
        ...

    def outcome(self, net: nn.Module, inputs: Tensor, targets: Tensor) -> Outcome:
        """Loss and mistakes on a batch."""
        ...

    def validation(self, share: Share) -> list[tuple[Tensor, Tensor]]:
        """The held-out batches, or this process's part of them."""
        ...
