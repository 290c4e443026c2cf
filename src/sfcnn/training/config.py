"""What a training run is made of: network, images, optimisation. The defaults are the paper's (App. C.1)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sfcnn.data.augmentation import AUGMENTATIONS, RESAMPLINGS
from sfcnn.data.datasets import DATASETS
from sfcnn.models.plain import MATCHES
from sfcnn.training.task import check_seed

#: The tables of App. C.1.
NETWORKS = ("baseline", "benchmark")

#: Steerable, or one of its plain twins.
KINDS = ("steerable", *(f"plain-{match}" for match in MATCHES))

#: Number formats of the forward and backward pass; weights and their updates are always float32.
PRECISIONS = ("float32", "bfloat16", "float16")

#: How the learning rate falls.
SCHEDULES = ("exponential", "cosine")


def _choose(owner: object, name: str, choices: Sequence[Any]) -> None:
    if getattr(owner, name) not in choices:
        raise ValueError(f"unknown {name} {getattr(owner, name)!r}, choose one of {list(choices)}")


def _at_least(owner: object, smallest: float, *names: str) -> None:
    for name in names:
        if not getattr(owner, name) >= smallest:
            raise ValueError(f"{name} must be at least {smallest:g}, got {getattr(owner, name)}")


@dataclass(frozen=True)
class ModelConfig:
    """The network.

    Args:
        network: sizes by the first ("baseline") or the second ("benchmark") table of App. C.1
        kind: "steerable", or a plain CNN that matches it: "plain-channels", "plain-effective-channels",
            "plain-parameters"
        orientations: Λ
        width: a factor on the channels of all convolutions
        basis: preset of the atoms
        init: scheme of the initial weights
        engine: how convolutions are computed
        dropout: probability in the fully connected part
    """

    network: str = "baseline"
    kind: str = "steerable"
    orientations: int = 16
    width: float = 1.0
    basis: str = "bandlimited"
    init: str = "coeff"
    engine: str = "auto"
    dropout: float = 0.3

    def __post_init__(self) -> None:
        """Check the choices; basis, init and engine are checked where the layers are made."""
        _choose(self, "network", NETWORKS)
        _choose(self, "kind", KINDS)
        _at_least(self, 1, "orientations")
        if not 0 < self.width <= 64:
            raise ValueError(f"width must be in (0, 64], got {self.width}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout}")


@dataclass(frozen=True)
class ImagesConfig:
    """What is learned from.

    Args:
        dataset: "mnist-rot" (the original archive), "mnist-rot-regenerated" and "mnist" (from MNIST's files),
            "digits" and "digits-rot" (embedded, no files needed)
        train_images: how many of the set's training images to use, 0 for all
        validation_images: how many of its validation images select the model, 0 for all
        join_validation: train on the validation images as well; then the last epoch's weights are taken, not the best
        augmentation: random rotations of the training images: "none", "quarter-turns", "eighth-turns", "continuous"
        resampling: between pixels, of rotated sets and of augmentation: "bilinear" or "bicubic"
        seed: of the rotated set
    """

    dataset: str = "mnist-rot-regenerated"
    train_images: int = 0
    validation_images: int = 0
    join_validation: bool = False
    augmentation: str = "none"
    resampling: str = "bilinear"
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the choices."""
        _choose(self, "dataset", DATASETS)
        _choose(self, "augmentation", AUGMENTATIONS)
        _choose(self, "resampling", RESAMPLINGS)
        _at_least(self, 0, "train_images", "validation_images")
        check_seed(self.seed)


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
        _at_least(self, 1, "epochs", "batch_size", "decay_from")
        _at_least(self, 0, "elastic_conv", "elastic_dense")
        _choose(self, "precision", PRECISIONS)
        _choose(self, "schedule", SCHEDULES)
        for name, largest in (("learning_rate", 1e30), ("decay", 1)):
            if not 0 < getattr(self, name) <= largest:
                raise ValueError(f"{name} must be in (0, {largest:g}], got {getattr(self, name)}")


@dataclass(frozen=True)
class TrainConfig:
    """A training run.

    Args:
        model: the network
        images: what it learns from
        optimization: how it learns
        seed: of the initial weights, the order of images, their augmentation and dropout
        checkpoint_steps: write a checkpoint after this many steps, 0 for the end of each epoch only
        tensorboard: also log for TensorBoard
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    images: ImagesConfig = field(default_factory=ImagesConfig)
    optimization: OptimizationConfig = field(default_factory=OptimizationConfig)
    seed: int = 0
    checkpoint_steps: int = 100
    tensorboard: bool = False

    def __post_init__(self) -> None:
        """Check that every number makes sense."""
        _at_least(self, 0, "checkpoint_steps")
        check_seed(self.seed)
