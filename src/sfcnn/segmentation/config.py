"""Settings of a segmentation run: network, images, crops, optimisation (§4.2, App. C.2)."""

from dataclasses import dataclass, field
from typing import ClassVar

from sfcnn.models.twins import KINDS
from sfcnn.models.unet import READOUTS
from sfcnn.randomness import check_seed
from sfcnn.segmentation.crops import CropConfig
from sfcnn.segmentation.losses import LOSSES
from sfcnn.segmentation.offsets import oriented_offsets
from sfcnn.train.config import OptimizationConfig, check_at_least, check_choice

#: Where images come from.
SOURCES = ("synthetic", "isbi", "stack", "pairs")

_MOST_NEIGHBOURS = 16  # thicker stacks are volumes, which need filters in three dimensions
_MOST_LEVELS = 16  # halving an image more often than this leaves nothing of it


@dataclass(frozen=True)
class UNetConfig:
    """The network; see `membrane_unet` for what its sizes mean.

    Args:
        kind: "steerable", or a plain U-Net that matches it: "plain-channels", "plain-effective-channels",
            "plain-parameters"
        orientations: Λ
        channels: number of filters on the first level
        levels: number of resolution levels
        input_kernel_size: kernel size of the first convolution
        kernel_size: kernel size of all other convolutions
        residual_depth: convolutions in each residual block
        dropout: probability of dropping a channel
        readout: how features become logits, "group" or "paper"
        basis: preset of the atoms
        init: initialisation scheme of the weights
        engine: how convolutions are computed
        reflections: also make the network equivariant to reflections
        affinities: distances in pixels, such as [1, 3, 9, 27], at which the network also predicts whether two pixels
            are in the same cell, in the direction of each orientation; none by default. Works best with an even Λ
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
        """Check the choices, the levels and the affinities; other sizes are checked when the network is built."""
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
    """The training data: images, or slices of a stack, each with a mask.

    Args:
        source: "synthetic" (generated membranes, no files needed), "isbi" (isbi2012/train-volume.tif and
            train-labels.tif in the data directory), "stack" (two TIFF files) or "pairs" (a folder with `images/` and
            `masks/`)
        path: path of the image stack, or of the folder
        masks: path of the mask stack
        invert_masks: the masks are 0 on the foreground, as in the ISBI challenge, where membranes are 0
        label_masks: the masks are label images, with a number for each cell and 0 on membranes (the foreground)
        classes: one name for the foreground, or one for each of the numbers 0, 1, 2 … in the masks; taken from the
            masks if empty
        channels: number of image channels, 1 for grey and 3 for RGB; 0 takes it from the files
        pixel_size: in micrometres; 0 takes it from the files
        train: number of slices to train on, the first of those that are not held out; 0 for all
        neighbours: number of slices above and below each slice that the network also sees, for stacks of thin sections
        validation: number of held-out slices that select the best epoch
        validation_from: number of the first of them, counted from 1; 0 takes the last ones
        test: number of slices that are neither trained on nor used to select the epoch
        test_from: number of the first of them, counted from 1; 0 takes the last ones
        standardize: scale each slice to mean 0 and standard deviation 1, in training and prediction, so that its
            brightness and contrast do not matter
        seed: seed of the synthetic slices
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
    train: int = 0
    neighbours: int = 0

    def __post_init__(self) -> None:
        """Check that everything the source needs is given."""
        check_choice(self, "source", SOURCES)
        check_choice(self, "channels", (0, 1, 3))
        needed = {"stack": ("path", "masks"), "pairs": ("path",)}.get(self.source, ())
        for name in needed:
            if not getattr(self, name):
                raise ValueError(f"source {self.source!r} needs images.{name}")
        if self.label_masks and not needed:
            raise ValueError(f"images.label_masks needs the source 'stack' or 'pairs', got {self.source!r}")
        if self.label_masks and self.invert_masks:
            raise ValueError("images.invert_masks is for two-valued masks; label images are 0 on membranes")
        check_at_least(self, 1, "validation")
        check_at_least(self, 0, "train", "validation_from", "test", "test_from", "pixel_size", "neighbours")
        if self.neighbours > _MOST_NEIGHBOURS:
            raise ValueError(f"images.neighbours must be at most {_MOST_NEIGHBOURS}, got {self.neighbours}")
        if self.neighbours and self.source == "pairs":
            raise ValueError(
                "images.neighbours is for the slices of a stack, but the images of source 'pairs' are unrelated"
            )
        if len(set(self.classes)) < len(self.classes):
            raise ValueError(f"class names must be distinct, got {list(self.classes)}")
        check_seed(self.seed)

    def split(self, count: int) -> tuple[list[int], list[int], list[int]]:
        """Split `count` slices: indices for training, for validation (selects the epoch), and for testing.

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
                f"{self.test} out of {count}"
            )
        if self.train > len(train):
            raise ValueError(f"images.train must be at most {len(train)}, the slices not held out, got {self.train}")
        return train[: self.train or None], validation, test


def _held_out(name: str, count: int, first: int, left: list[int]) -> list[int]:
    """`count` consecutive slices starting at number `first`, or the last ones of those that are left."""
    chosen = list(range(first - 1, first - 1 + count)) if first else left[len(left) - count :]
    if len(chosen) < count or not set(chosen) <= set(left):
        numbers = f"{first} to {first + count - 1}" if first else "the last ones"
        raise ValueError(f"images.{name} cannot hold out {count} slices, {numbers}, of {len(left)}")
    return chosen


@dataclass(frozen=True)
class SegmentationConfig:
    """A segmentation run; sizes and schedule are the paper's where it states them.

    Args:
        model: the network
        images: the training data
        crops: how crops are drawn
        optimization: optimiser, schedule and batch size
        loss: "cross-entropy" (the paper's); for rare classes "balanced", which gives every class the same weight, or
            "dice"
        affinity_weight: weight of the affinity loss, if the network predicts affinities
        steps: steps per epoch
        seed: seed of the initial weights, the crops and dropout
        checkpoint_steps: write a checkpoint every this many steps; 0 writes one only at the end of each epoch
        tensorboard: also log to TensorBoard
        start: start from the weights of this network: the name of a pretrained one, such as "isbi2012", or the
            directory of a run; the model is then the same, except for dropout, init, engine and affinities
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
    start: str = ""

    def __post_init__(self) -> None:
        """Check that every number makes sense."""
        check_seed(self.seed)
        check_choice(self, "loss", LOSSES)
        check_at_least(self, 1, "steps")
        check_at_least(self, 0, "checkpoint_steps", "affinity_weight")
