"""Runs of the membrane task: a U-Net on slices of a stack, of a folder, or of synthetic tissue (§4.2, App. C.2)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from sfcnn.data.crops import CropConfig, standardize
from sfcnn.data.datasets import data_directory
from sfcnn.data.membranes import synthetic_membranes
from sfcnn.data.pairs import Pair, read_pairs, read_stack_pairs
from sfcnn.data.stacks import as_fraction
from sfcnn.models import membrane_unet, membrane_unet_cnn
from sfcnn.models.unet import UNet
from sfcnn.training.config import KINDS, OptimizationConfig
from sfcnn.training.loop import Observer
from sfcnn.training.membranes import MembraneTask
from sfcnn.training.runs import RunResult, carry_out, load_best, read_run
from sfcnn.training.task import check_seed

#: Where slices come from.
SOURCES = ("synthetic", "isbi", "stack", "pairs")

_MOST_LEVELS = 16  # halving an image so often leaves nothing of it


@dataclass(frozen=True)
class UNetConfig:
    """The network; see `membrane_unet` for what its sizes mean.

    Args:
        kind: "steerable", or a plain U-Net that matches it: "plain-channels", "plain-effective-channels",
            "plain-parameters"
        orientations: Λ
        channels: filters of the first level
        levels: of resolution
        input_kernel_size: of the first convolution
        kernel_size: of all others
        residual_depth: convolutions in each residual block
        dropout: probability of dropping a channel
        basis: preset of the atoms
        init: scheme of the initial weights
        engine: how convolutions are computed
    """

    kind: str = "steerable"
    orientations: int = 17
    channels: int = 12
    levels: int = 5
    input_kernel_size: int = 11
    kernel_size: int = 7
    residual_depth: int = 1
    dropout: float = 0.4
    basis: str = "bandlimited"
    init: str = "coeff"
    engine: str = "auto"

    def __post_init__(self) -> None:
        """Check the kind and the levels; other sizes are checked where the network is made."""
        if self.kind not in KINDS:
            raise ValueError(f"unknown kind {self.kind!r}, choose one of {list(KINDS)}")
        if not 1 <= self.levels <= _MOST_LEVELS:
            raise ValueError(f"levels must be at least 1 and at most {_MOST_LEVELS}, got {self.levels}")


@dataclass(frozen=True)
class SlicesConfig:
    """What is learned from.

    Args:
        source: "synthetic" (no files needed), "isbi" (isbi2012/train-volume.tif and train-labels.tif in the data
            directory), "stack" (two TIFF files) or "pairs" (a folder with `images/` and `masks/`)
        path: of the stack's images, or of the folder
        masks: of the stack's masks
        validation: how many slices are held out
        validation_from: number of the first of them, counted from 1; 0 for the last ones
        standardize: bring each slice to mean 0 and deviation 1, in training and prediction, so that its brightness and
            contrast do not matter
        seed: of synthetic slices
    """

    source: str = "synthetic"
    path: str = ""
    masks: str = ""
    validation: int = 4
    validation_from: int = 0
    standardize: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        """Check that what the source needs is named."""
        if self.source not in SOURCES:
            raise ValueError(f"unknown source {self.source!r}, choose one of {list(SOURCES)}")
        needed = {"stack": ("path", "masks"), "pairs": ("path",)}.get(self.source, ())
        for name in needed:
            if not getattr(self, name):
                raise ValueError(f"source {self.source!r} needs images.{name}")
        if self.validation < 1:
            raise ValueError(f"validation must be at least 1, got {self.validation}")
        if self.validation_from < 0:
            raise ValueError(f"validation_from must be at least 0, got {self.validation_from}")
        check_seed(self.seed)

    def split(self, count: int) -> tuple[list[int], list[int]]:
        """Indices of the slices to train on and of those held out, of `count` slices."""
        first = self.validation_from - 1 if self.validation_from else count - self.validation
        held_out = range(first, first + self.validation)
        if not 0 <= held_out.start < held_out.stop <= count:
            raise ValueError(
                f"cannot hold out {self.validation} slices from number {first + 1} on, there are only {count}"
            )
        if len(held_out) == count:
            raise ValueError(f"images.validation must be below {count}, the number of slices, got {self.validation}")
        return [index for index in range(count) if index not in held_out], list(held_out)


@dataclass(frozen=True)
class MembraneConfig:
    """A training run on membranes; the defaults are the paper's where it states them.

    Args:
        model: the network
        images: what it learns from
        crops: how crops are drawn
        optimization: how it learns
        steps: of an epoch
        seed: of the initial weights, the crops and dropout
        checkpoint_steps: write a checkpoint after this many steps, 0 for the end of each epoch only
        tensorboard: also log for TensorBoard
    """

    model: UNetConfig = field(default_factory=UNetConfig)
    images: SlicesConfig = field(default_factory=SlicesConfig)
    crops: CropConfig = field(default_factory=CropConfig)
    optimization: OptimizationConfig = field(
        default_factory=lambda: OptimizationConfig(batch_size=1, learning_rate=0.05, decay=0.85, decay_from=2)
    )
    steps: int = 100
    seed: int = 0
    checkpoint_steps: int = 20
    tensorboard: bool = False

    def __post_init__(self) -> None:
        """Check that every number makes sense."""
        check_seed(self.seed)
        for name, smallest in (("steps", 1), ("checkpoint_steps", 0)):
            if getattr(self, name) < smallest:
                raise ValueError(f"{name} must be at least {smallest}, got {getattr(self, name)}")
        side, unit = self.crops.size + 2 * self.crops.margin, 2 ** (self.model.levels - 1)
        if side % unit:
            raise ValueError(
                f"crops.size + 2 crops.margin must be divisible by {unit} for {self.model.levels} levels, got {side}"
            )


class Slices(NamedTuple):
    """Slices (H, W) of any sizes, from black, 0, to white, 1, and which of their pixels are membrane."""

    name: str  #: as printed beside numbers
    images: Sequence[Tensor]
    membranes: Sequence[Tensor]


def load_slices(config: SlicesConfig, data: Path | None = None) -> Slices:
    """All slices that `config` names; `data` is the directory of data sets, by default that of SFCNN_DATA."""
    if config.source == "synthetic":
        images, membranes = synthetic_membranes(12, 256, seed=config.seed)
        return Slices(f"synthetic membranes (seed {config.seed})", images.unbind(), membranes.unbind())
    if config.source == "isbi":
        directory = data_directory(data)
        if directory is None:
            raise ValueError("source isbi needs a directory with isbi2012/train-volume.tif: pass --data DIR")
        folder = directory / "isbi2012"
        return _slices("ISBI 2012", read_stack_pairs(folder / "train-volume.tif", folder / "train-labels.tif"))
    if config.source == "stack":
        return _slices(Path(config.path).name, read_stack_pairs(Path(config.path), Path(config.masks)))
    return _slices(Path(config.path).name, read_pairs(Path(config.path)))


def _slices(name: str, pairs: Sequence[Pair]) -> Slices:
    images = [torch.from_numpy(as_fraction(pair.image, pair.name)) for pair in pairs]
    return Slices(name, images, [torch.from_numpy(~pair.interior) for pair in pairs])


def prepare(config: SlicesConfig, image: Tensor) -> Tensor:
    """A slice (H, W) from black, 0, to white, 1, as a network that was trained on such slices takes it."""
    return standardize(image) if config.standardize else image


def build_unet(config: UNetConfig, margin: int) -> UNet:
    """The network, which crops `margin` pixels from each side of its output."""
    sizes = {
        "channels": config.channels,
        "levels": config.levels,
        "input_kernel_size": config.input_kernel_size,
        "kernel_size": config.kernel_size,
        "residual_depth": config.residual_depth,
        "dropout": config.dropout,
        "crop": margin,
    }
    if config.kind == "steerable":
        options = {"basis": config.basis, "init": config.init, "engine": config.engine}
        return membrane_unet(config.orientations, **sizes, **options)  # type: ignore[arg-type]
    return membrane_unet_cnn(config.kind.removeprefix("plain-"), config.orientations, **sizes)


def _make_task(config: MembraneConfig, slices: Slices) -> MembraneTask:
    train, held_out = (
        ([prepare(config.images, slices.images[index]) for index in part], [slices.membranes[index] for index in part])
        for part in config.images.split(len(slices.images))
    )
    return MembraneTask(
        *train,
        held_out,
        crops=config.crops,
        batch_size=config.optimization.batch_size,
        steps=config.steps,
        seed=config.seed,
    )


def train_membranes(
    config: MembraneConfig,
    slices: Slices,
    directory: Path,
    *,
    resume: bool = False,
    observers: Sequence[Observer] = (),
    warn: Callable[[str], None] = print,
) -> RunResult:
    """Train a U-Net as `config` says, in a directory of its own, or go on with the run that is there."""
    return carry_out(
        config,
        lambda: build_unet(config.model, config.crops.margin),
        lambda: _make_task(config, slices),
        slices.name,
        directory,
        resume=resume,
        observers=observers,
        warn=warn,
    )


def load_membrane_run(directory: Path) -> tuple[MembraneConfig, UNet]:
    """The settings of a run that `train_membranes` made and its best network so far, in eval mode."""
    config = read_run(directory, MembraneConfig)
    return config, load_best(directory, build_unet(config.model, config.crops.margin))
