"""The classification networks of the two tables in App. C.1, and their plain CNN twins.

Six convolutions with batch norm and ReLU, a 2×2 max-pool after the second and the fourth, global max-pooling over
space and orientations, three fully connected layers with batch norm, and dropout between them.

The paper does not say how convolutions pad. With `padding="same"` all of them do, and maps of 28 pixels become 14 and
7. With `padding="inner"` all but the first and the last do, 28 → 20 → 10 → 5 → 1 for the second network: the paper's
first author later built it this way, and it takes half the computation.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from torch import nn

from sfcnn.harmonics import BasisLike
from sfcnn.models.borders import make_pool, with_border
from sfcnn.models.twins import PlainConvBlock, matching_width, scale_channels
from sfcnn.nn import ConvBlock, OrientationPool, Restrict


@dataclass(frozen=True)
class ClassifierSizes:
    """Sizes of a classification network, one entry per layer, so that their number is its depth."""

    kernel_sizes: tuple[int, ...]  #: of each convolution; the first one lifts images to the group
    channels: tuple[int, ...]  #: Ĉ of each convolution
    hidden: tuple[int, ...]  #: units of each hidden fully connected layer

    def __post_init__(self) -> None:
        """Check that every convolution has a kernel size and a number of channels."""
        if not self.channels or len(self.kernel_sizes) != len(self.channels):
            raise ValueError(
                "kernel_sizes and channels need one entry per convolution, and at least one, "
                f"got {self.kernel_sizes} and {self.channels}"
            )


#: Which convolutions are padded so that maps keep their size: all of them, or all but the first and the last.
PADDINGS = ("same", "inner")

#: The first table: the network of the experiments on orientations and on generalisation.
BASELINE = ClassifierSizes((7, 5, 5, 5, 5, 5), (16, 24, 32, 32, 48, 64), (64, 64))
#: The second table: the network of the benchmark on rotated MNIST.
BENCHMARK = ClassifierSizes((9, 7, 7, 7, 7, 5), (24, 32, 36, 36, 64, 96), (96, 96))


class ClassifierOptions(TypedDict, total=False):
    """What else can be chosen about a classifier."""

    in_channels: int  #: channels of the images, 1
    classes: int  #: number of logits, 10
    dropout: float  #: probability in the fully connected part, 0.3
    padding: str  #: one of PADDINGS: "same" for the first table, "inner" for the second
    border: str  #: one of `sfcnn.models.borders.BORDERS`, "none"
    pool: str  #: one of `sfcnn.models.borders.POOLS`, "max"


class SteerableOptions(ClassifierOptions, total=False):
    """What else can be chosen about a steerable classifier."""

    reflections: bool  #: whether logits stay the same for mirror images as well, False
    restrict_after: int  #: number of the convolution after which reflections are given up, 0 for none
    basis: BasisLike  #: "bandlimited", "averaged", "paper", "pixels", or a `Basis` of one's own
    init: str  #: "coeff"
    engine: str  #: "auto"


def _head(inputs: int, hidden: tuple[int, ...], classes: int, dropout: float) -> nn.Sequential:
    """Fully connected layers with batch norm after each and dropout between them: (B, C) → (B, classes)."""
    layers: list[nn.Module] = []
    for units in hidden:
        # Batch norm has a shift of its own, so the layers before it need no bias.
        layers += [nn.Linear(inputs, units, bias=False), nn.BatchNorm1d(units), nn.ReLU(), nn.Dropout(dropout)]
        inputs = units
    return nn.Sequential(*layers, nn.Linear(inputs, classes, bias=False), nn.BatchNorm1d(classes))


def _assemble(
    blocks: Sequence[nn.Module],
    pool: Callable[[], nn.Module],
    global_pool: list[nn.Module],
    head: nn.Module,
    restrict_after: int = 0,
) -> nn.Sequential:
    """Pool after every second block except the last, and name the parts."""
    features = nn.Sequential()
    for number, block in enumerate(blocks, start=1):
        features.append(block)
        if number == restrict_after:
            features.append(Restrict(reflections=True))
        if number % 2 == 0 and number < len(blocks):
            features.append(pool())
    parts = {"features": features, "pool": nn.Sequential(*global_pool, nn.Flatten()), "head": head}
    return nn.Sequential(OrderedDict(parts))


def _paddings(padding: str, count: int) -> list[str]:
    """How each of `count` convolutions pads, as `nn.Conv2d` calls it.

    >>> _paddings("inner", 4)
    ['valid', 'same', 'same', 'valid']
    """
    if padding not in PADDINGS:
        raise ValueError(f"unknown padding {padding!r}, choose one of {list(PADDINGS)}")
    ends = (0, count - 1) if padding == "inner" else ()
    return ["valid" if index in ends else "same" for index in range(count)]


def smallest_side(sizes: ClassifierSizes, padding: str) -> int:
    """The least height and width of images that every convolution and pooling of a classifier fits into.

    >>> smallest_side(BENCHMARK, "inner"), smallest_side(BENCHMARK, "same")
    (28, 4)
    """
    side, layers = 1, list(zip(sizes.kernel_sizes, _paddings(padding, len(sizes.channels)), strict=True))
    for number, (kernel_size, how) in reversed(list(enumerate(layers, start=1))):
        if number % 2 == 0 and number < len(layers):
            side *= 2  # before the pooling that follows this convolution
        side += kernel_size - 1 if how == "valid" else 0
    return side


def steerable_classifier(
    sizes: ClassifierSizes,
    orientations: int,
    *,
    in_channels: int = 1,
    classes: int = 10,
    dropout: float = 0.3,
    padding: str = "same",
    reflections: bool = False,
    restrict_after: int = 0,
    basis: BasisLike = "bandlimited",
    init: str = "coeff",
    engine: str = "auto",
    border: str = "none",
    pool: str = "max",
) -> nn.Sequential:
    """A classifier of any sizes: images (B, C, H, W) → logits (B, classes), unchanged by rotations of the image.

    With `reflections` its features are those of D_Λ and logits are unchanged by mirror images, too. Digits and letters
    change their meaning in a mirror, but their strokes do not: `restrict_after=n` restricts features to rotations after
    the n-th convolution, and the next one takes twice the channels.
    """
    check_restriction(restrict_after, reflections, len(sizes.channels))
    layers = zip((in_channels, *sizes.channels), sizes.channels, sizes.kernel_sizes, strict=False)
    options: dict[str, Any] = {"basis": basis, "init": init, "engine": engine}
    blocks: list[nn.Module] = []
    paddings = _paddings(padding, len(sizes.channels))
    for index, ((inputs, outputs, kernel_size), how) in enumerate(zip(layers, paddings, strict=True)):
        mirrored = reflections and (not restrict_after or index < restrict_after)
        doubled = 2 if restrict_after and index == restrict_after else 1
        shape = doubled * inputs, outputs, kernel_size, orientations
        block = ConvBlock(*shape, lift=not index, reflections=mirrored, padding=how, **options)
        blocks.append(with_border(block, border))
    global_pool = [OrientationPool("max"), nn.AdaptiveMaxPool2d(1)]
    head = _head(sizes.channels[-1], sizes.hidden, classes, dropout)
    return _assemble(blocks, lambda: make_pool(pool), global_pool, head, restrict_after)


def check_restriction(restrict_after: int, reflections: bool, convolutions: int) -> None:
    """Raise unless there are reflections to drop, after a convolution that is followed by another."""
    if restrict_after and not reflections:
        raise ValueError(
            f"restrict_after gives up reflections, got {restrict_after} for a network without: set reflections"
        )
    if not 0 <= restrict_after < convolutions:
        raise ValueError(
            f"restrict_after must be 0 (never) or a convolution with another after it, 1 … {convolutions - 1}, "
            f"got {restrict_after}"
        )


def plain_classifier(
    sizes: ClassifierSizes,
    width: float = 1.0,
    *,
    in_channels: int = 1,
    classes: int = 10,
    dropout: float = 0.3,
    padding: str = "same",
    border: str = "none",
    pool: str = "max",
) -> nn.Sequential:
    """The same network of ordinary convolutions with `width` times the channels: (B, C, H, W) → (B, classes)."""
    channels = tuple(scale_channels(c, width) for c in sizes.channels)
    layers = zip((in_channels, *channels), channels, sizes.kernel_sizes, strict=False)
    head = _head(channels[-1], sizes.hidden, classes, dropout)
    blocks = [
        with_border(PlainConvBlock(*layer, padding=how), border)
        for layer, how in zip(layers, _paddings(padding, len(channels)), strict=True)
    ]
    return _assemble(blocks, lambda: make_pool(pool, 2), [nn.AdaptiveMaxPool2d(1)], head)


class TwinOptions(ClassifierOptions, total=False):
    """What else can be chosen about a plain twin."""

    reflections: bool  #: of the network to match, False


def plain_twin(
    sizes: ClassifierSizes,
    orientations: int,
    match: str,
    reflections: bool = False,
    **options: Unpack[ClassifierOptions],
) -> nn.Sequential:
    """The plain classifier that matches the steerable one in channels, effective channels or parameters."""
    width = matching_width(
        match,
        2 * orientations if reflections else orientations,
        steerable=lambda: steerable_classifier(sizes, orientations, reflections=reflections, **options),
        plain=lambda width: plain_classifier(sizes, width, **options),
    )
    return plain_classifier(sizes, width, **options)


def mnist_baseline(
    orientations: int = 16, sizes: ClassifierSizes = BASELINE, **options: Unpack[SteerableOptions]
) -> nn.Sequential:
    """The network of the first table: one 7×7 and five 5×5 convolutions of 16, 24, 32, 32, 48 and 64 channels.

    >>> import torch
    >>> mnist_baseline(orientations=4, classes=3)(torch.randn(2, 1, 28, 28)).shape
    torch.Size([2, 3])
    """
    return steerable_classifier(sizes, orientations, **options)


def mnist_benchmark(
    orientations: int = 16, sizes: ClassifierSizes = BENCHMARK, **options: Unpack[SteerableOptions]
) -> nn.Sequential:
    """The network of the second table: 9×9, four 7×7 and a 5×5 convolution of 24, 32, 36, 36, 64 and 96 channels.

    The first and the last convolution are not padded, so images need 28 pixels; `padding="same"` pads all.

    >>> mnist_benchmark(orientations=4, basis="paper", init="he").pool
    Sequential(
      (0): OrientationPool('max')
      (1): AdaptiveMaxPool2d(output_size=1)
      (2): Flatten(start_dim=1, end_dim=-1)
    )
    """
    options.setdefault("padding", "inner")
    return steerable_classifier(sizes, orientations, **options)


def mnist_baseline_cnn(
    match: str = "channels",
    orientations: int = 16,
    sizes: ClassifierSizes = BASELINE,
    **options: Unpack[TwinOptions],
) -> nn.Sequential:
    """The plain twin of `mnist_baseline(orientations)`; `match` is one of `sfcnn.models.twins.MATCHES`.

    >>> from sfcnn.models.twins import count_parameters
    >>> ratio = count_parameters(mnist_baseline_cnn("parameters", 16)) / count_parameters(mnist_baseline(16))
    >>> round(ratio, 2)
    1.0
    """
    return plain_twin(sizes, orientations, match, **options)


def mnist_benchmark_cnn(
    match: str = "channels",
    orientations: int = 16,
    sizes: ClassifierSizes = BENCHMARK,
    **options: Unpack[TwinOptions],
) -> nn.Sequential:
    """The plain twin of `mnist_benchmark(orientations)`; `match` is one of `sfcnn.models.twins.MATCHES`."""
    options.setdefault("padding", "inner")
    return plain_twin(sizes, orientations, match, **options)
