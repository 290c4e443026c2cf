"""What a run that learns to segment is made of: network, images, crops, optimisation (§4.2, App. C.2)."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from sfcnn.models.twins import KINDS
from sfcnn.models.unet import READOUTS
from sfcnn.randomness import check_seed
from sfcnn.segmentation.crops import CropConfig
from sfcnn.segmentation.losses import LOSSES
from sfcnn.segmentation.offsets import oriented_offsets
from sfcnn.train.config import OptimizationConfig, check_at_least, check_choice

#: Where images come from.
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
        readout: from features to logits, "group" or "paper"
        basis: preset of the atoms
        init: scheme of the initial weights
        engine: how convolutions are computed
        reflections: whether the prediction for a mirror image is the mirrored prediction
        affinities: distances in pixels, such as [1, 3, 9, 27], at which the network also tells whether two pixels are
            in the same cell, in the direction of each orientation; none by default. Best with an even Λ
    """

    kind: str = "steerable"
    orientations: int = 17
    channels: int = 12
    levels: int = 5
    input_kernel_size: int = 11
    kernel_size: int = 7
    residual_depth: int = 1
    dropout: float = 0.4
    readout: str = "group"
    basis: str = "bandlimited"
    init: str = "coeff"
    engine: str = "auto"
    reflections: bool = False
    affinities: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Check the choices, the levels and the affinities; other sizes are checked where the network is made."""
        check_choice(self, "kind", KINDS)
        check_choice(self, "readout", READOUTS)
        if not 1 <= self.levels <= _MOST_LEVELS:
            raise ValueError(f"levels must be at least 1 and at most {_MOST_LEVELS}, got {self.levels}")
        if self.affinities:
            oriented_offsets(self.affinities, self.orientations)
            if self.reflections and self.orientations % 2:
                raise ValueError(
                    f"affinities with reflections need an even number of orientations, got {self.orientations}"
                )


@dataclass(frozen=True)
class SlicesConfig:
    """What is learned from: images, or slices of a stack, with a mask each.

    Args:
        source: "synthetic" (drawn membranes, no files needed), "isbi" (isbi2012/train-volume.tif and train-labels.tif
            in the data directory), "stack" (two TIFF files) or "pairs" (a folder with `images/` and `masks/`)
        path: of the stack's images, or of the folder
        masks: of the stack's masks
        invert_masks: masks are 0 on what is looked for, as those of the ISBI challenge are on membranes
        label_masks: masks are label images, with a number for each cell and 0 on membranes, which are looked for
        classes: a name for what is looked for, or for each of the numbers 0, 1, 2 … in the masks; found in the masks
            if there are none
        channels: of the images, 1 for grey and 3 for RGB; 0 for what the files have
        pixel_size: in micrometres; 0 for what the files say
        validation: how many slices choose the epoch whose weights are kept
        validation_from: number of the first of them, counted from 1; 0 for the last ones
        test: how many slices are left out of everything
        test_from: number of the first of them, counted from 1; 0 for the last ones
        standardize: bring each slice to mean 0 and deviation 1, in training and prediction, so that its brightness and
            contrast do not matter
        seed: of synthetic slices
    """

    source: str = "synthetic"
    path: str = ""
    masks: str = ""
    invert_masks: bool = False
    classes: tuple[str, ...] = ()
    channels: int = 0
    pixel_size: float = 0.0
    validation: int = 4
    validation_from: int = 0
    test: int = 0
    test_from: int = 0
    standardize: bool = True
    seed: int = 0
    label_masks: bool = False

    def __post_init__(self) -> None:
        """Check that what the source needs is named."""
        check_choice(self, "source", SOURCES)
        check_choice(self, "channels", (0, 1, 3))
        needed = {"stack": ("path", "masks"), "pairs": ("path",)}.get(self.source, ())
        for name in needed:
            if not getattr(self, name):
                raise ValueError(f"source {self.source!r} needs images.{name}")
        if self.label_masks and not needed:
            raise ValueError(f"images.label_masks is for the sources 'stack' and 'pairs', got {self.source!r}")
        if self.label_masks and self.invert_masks:
            raise ValueError("images.invert_masks is for masks of two values: label images have 0 on membranes")
        check_at_least(self, 1, "validation")
        check_at_least(self, 0, "validation_from", "test", "test_from", "pixel_size")
        if len(set(self.classes)) < len(self.classes):
            raise ValueError(f"classes must have different names, got {list(self.classes)}")
        check_seed(self.seed)

    def split(self, count: int) -> tuple[list[int], list[int], list[int]]:
        """Indices of the slices to train on, to choose the epoch by, and to leave out, of `count` slices.

        >>> SlicesConfig(validation=1, test=1).split(4)
        ([0, 1], [2], [3])
        """
        test = _held_out("test", self.test, self.test_from, list(range(count)))
        left = [index for index in range(count) if index not in test]
        validation = _held_out("validation", self.validation, self.validation_from, left)
        train = [index for index in left if index not in validation]
        if not train:
            raise ValueError(
                f"images.validation and images.test must leave slices to train on, got {self.validation} and "
                f"{self.test} of {count}"
            )
        return train, validation, test


def _held_out(name: str, count: int, first: int, left: list[int]) -> list[int]:
    """`count` slices in a row from number `first` on, or the last ones of those that are left."""
    chosen = list(range(first - 1, first - 1 + count)) if first else left[len(left) - count :]
    if len(chosen) < count or not set(chosen) <= set(left):
        numbers = f"{first} to {first + count - 1}" if first else "the last ones"
        raise ValueError(f"images.{name} cannot hold out {count} slices, {numbers}, of {len(left)}")
    return chosen


@dataclass(frozen=True)
class SegmentationConfig:
    """A run that learns to segment; sizes and schedule are the paper's where it states them.

    Args:
        model: the network
        images: what it learns from
        crops: how crops are drawn
        optimization: how it learns
        loss: "cross-entropy" (the paper's); "balanced", where every class counts as much as any other, and "dice" are
            for rare classes
        affinity_weight: factor on the loss of affinities, if the network has some
        steps: of an epoch
        seed: of the initial weights, the crops and dropout
        checkpoint_steps: write a checkpoint after this many steps, 0 for the end of each epoch only
        tensorboard: also log for TensorBoard
    """

    task: ClassVar[str] = "segmentation"

    model: UNetConfig = field(default_factory=UNetConfig)
    images: SlicesConfig = field(default_factory=SlicesConfig)
    crops: CropConfig = field(default_factory=CropConfig)
    optimization: OptimizationConfig = field(
        default_factory=lambda: OptimizationConfig(batch_size=1, learning_rate=0.05, decay=0.85, decay_from=2)
    )
    loss: str = "cross-entropy"
    steps: int = 100
    seed: int = 0
    checkpoint_steps: int = 20
    tensorboard: bool = False
    affinity_weight: float = 1.0

    def __post_init__(self) -> None:
        """Check that every number makes sense."""
        check_seed(self.seed)
        check_choice(self, "loss", LOSSES)
        check_at_least(self, 1, "steps")
        check_at_least(self, 0, "checkpoint_steps", "affinity_weight")


def from_version_1(values: dict[str, Any]) -> dict[str, Any]:
    """Settings of a run of version 0.1, which looked for membranes and knew the paper's read-out only."""
    if "classes" in values.get("images", {}):
        return values
    images = {"invert_masks": True, "classes": ["membranes"], "channels": 1, **values.get("images", {})}
    return {**values, "model": {"readout": "paper", **values.get("model", {})}, "images": images}
