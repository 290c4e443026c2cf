"""What a task must offer to be trained: its batches, its loss, and how well a network does on images held out."""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

#: That every random generator takes: those of torch, numpy and scikit-learn.
LARGEST_SEED = 2**32 - 1


def check_seed(seed: int) -> None:
    """Raise unless a seed is one that every random generator takes."""
    if not 0 <= seed <= LARGEST_SEED:
        raise ValueError(f"seed must be from 0 to {LARGEST_SEED}, got {seed}")


def seeded_generator(*numbers: int) -> torch.Generator:
    """A generator of its own for each tuple of small numbers, such as seed, epoch and step."""
    seed = 0
    for number in numbers:
        seed = (seed * 1_000_003 + number + 1) % 2**63
    return torch.Generator().manual_seed(seed)


class Share(NamedTuple):
    """Which part of each batch is this process's: images rank, rank + processes, … of it."""

    rank: int = 0
    processes: int = 1


class Outcome(NamedTuple):
    """Sums over images, so that parts of a set can be added."""

    loss: Tensor  #: summed over the images
    mistakes: Tensor  #: how many images were classified wrongly, or what else the task counts
    images: int


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
