"""Optimisation settings, shared by all tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

#: Number formats of the forward and backward pass; weights and their updates are always float32.
PRECISIONS = ("float32", "bfloat16", "float16")

#: Learning rate schedules.
SCHEDULES = ("exponential", "cosine", "linear", "one-cycle")

#: Optimisers.
OPTIMIZERS = ("adam", "adamw")

#: Presets of several settings, by name; "paper" has the defaults.
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "paper": {},
    "fast": {
        "epochs": 12,
        "learning_rate": 0.01,
        "schedule": "one-cycle",
        "elastic_conv": 0.0,
        "elastic_dense": 0.0,
        "optimizer": "adamw",
        "weight_decay": 0.01,
        "averaging": 0.998,
        "label_smoothing": 0.1,
    },
}


def check_choice(owner: object, name: str, choices: Sequence[Any]) -> None:
    """Raise unless a setting has one of the `choices`."""
    if getattr(owner, name) not in choices:
        raise ValueError(f"unknown {name} {getattr(owner, name)!r}, choose one of {list(choices)}")


def check_at_least(owner: object, smallest: float, *names: str) -> None:
    """Raise unless the named settings are at least `smallest`."""
    for name in names:
        if not getattr(owner, name) >= smallest:
            raise ValueError(f"{name} must be at least {smallest:g}, got {getattr(owner, name)}")


@dataclass(frozen=True)
class OptimizationConfig:
    """Adam with a learning rate schedule and an elastic net, by default as in App. C.1.

    In settings files and on the command line, `recipe` sets several of these settings to those of one of the RECIPES;
    other settings override it. A run records the settings, not the name. In Python, use `recipe("fast")`.

    Args:
        epochs: passes over the training images
        batch_size: images per step, over all processes
        learning_rate: initial learning rate, or the peak of "one-cycle"
        schedule: "exponential" (as in the paper, per epoch); "cosine" or "linear" (to zero, per step, for short runs);
            "one-cycle" (rises from a tenth of the peak in the first fifth of the steps, then falls to a thousandth)
        decay: factor on the learning rate per epoch, for the exponential schedule
        decay_from: epoch in which this decay starts, counted from 1
        elastic_conv: λ of λ(‖w‖₁ + ‖w‖²) on the weights of convolutions
        elastic_dense: λ of the same penalty on the weights of fully connected layers
        precision: "float32", or mixed precision with "bfloat16" or "float16"
        optimizer: "adam", or "adamw" for Adam with decoupled weight decay
        weight_decay: weight decay of "adamw", on the weights of convolutions and fully connected layers
        averaging: decay per step of an exponential moving average of the weights, such as 0.998; the averaged weights
            are validated and saved. 0 for none
        label_smoothing: fraction of the target probability that is spread evenly over all classes
    """

    presets: ClassVar[tuple[str, Mapping[str, Mapping[str, Any]]]] = ("recipe", RECIPES)

    epochs: int = 40
    batch_size: int = 64
    learning_rate: float = 0.015
    schedule: str = "exponential"
    decay: float = 0.8
    decay_from: int = 15
    elastic_conv: float = 1e-7
    elastic_dense: float = 1e-8
    precision: str = "float32"
    optimizer: str = "adam"
    weight_decay: float = 0.0
    averaging: float = 0.0
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        """Check that every number makes sense."""
        check_at_least(self, 1, "epochs", "batch_size", "decay_from")
        check_at_least(self, 0, "elastic_conv", "elastic_dense", "weight_decay")
        check_choice(self, "precision", PRECISIONS)
        check_choice(self, "optimizer", OPTIMIZERS)
        check_choice(self, "schedule", SCHEDULES)
        for name, largest in (("learning_rate", 1e30), ("decay", 1)):
            if not 0 < getattr(self, name) <= largest:
                raise ValueError(f"{name} must be in (0, {largest:g}], got {getattr(self, name)}")
        for name in ("averaging", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be in [0, 1), got {getattr(self, name)}")
        if self.weight_decay and self.optimizer != "adamw":
            raise ValueError(
                f"weight_decay must be 0 with the optimizer {self.optimizer!r}, which has none, got {self.weight_decay}"
            )


def recipe(name: str, **changes: Any) -> OptimizationConfig:
    """The settings of a recipe, with some changed.

    >>> recipe("fast", epochs=15).schedule
    'one-cycle'
    """
    if name not in RECIPES:
        raise ValueError(f"unknown recipe {name!r}, choose one of {list(RECIPES)}")
    return replace(OptimizationConfig(), **{**RECIPES[name], **changes})
