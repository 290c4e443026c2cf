"""How a network learns: the settings that every run has."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: Number formats of the forward and backward pass; weights and their updates are always float32.
PRECISIONS = ("float32", "bfloat16", "float16")

#: How the learning rate falls.
SCHEDULES = ("exponential", "cosine")


def check_choice(owner: object, name: str, choices: Sequence[Any]) -> None:
    """Raise unless a setting has one of its values."""
    if getattr(owner, name) not in choices:
        raise ValueError(f"unknown {name} {getattr(owner, name)!r}, choose one of {list(choices)}")


def check_at_least(owner: object, smallest: float, *names: str) -> None:
    """Raise unless settings are numbers of at least `smallest`."""
    for name in names:
        if not getattr(owner, name) >= smallest:
            raise ValueError(f"{name} must be at least {smallest:g}, got {getattr(owner, name)}")


@dataclass(frozen=True)
class OptimizationConfig:
    """Adam with a falling learning rate and an elastic net.

    Args:
        epochs: passes over the training images
        batch_size: images of a step, over all processes together
        learning_rate: at the start
        schedule: "exponential" (the paper's, by epochs) or "cosine" (falls to zero with every step; for short runs)
        decay: of the exponential schedule: factor on the learning rate from one epoch to the next …
        decay_from: … beginning with this epoch, counted from 1
        elastic_conv: λ of λ(‖w‖₁ + ‖w‖²) on the weights of convolutions
        elastic_dense: the same on those of fully connected layers
        precision: "float32", or mixed with "bfloat16" or "float16"
    """

    epochs: int = 40
    batch_size: int = 64
    learning_rate: float = 0.015
    schedule: str = "exponential"
    decay: float = 0.8
    decay_from: int = 15
    elastic_conv: float = 1e-7
    elastic_dense: float = 1e-8
    precision: str = "float32"

    def __post_init__(self) -> None:
        """Check that every number makes sense."""
        check_at_least(self, 1, "epochs", "batch_size", "decay_from")
        check_at_least(self, 0, "elastic_conv", "elastic_dense")
        check_choice(self, "precision", PRECISIONS)
        check_choice(self, "schedule", SCHEDULES)
        for name, largest in (("learning_rate", 1e30), ("decay", 1)):
            if not 0 < getattr(self, name) <= largest:
                raise ValueError(f"{name} must be in (0, {largest:g}], got {getattr(self, name)}")
