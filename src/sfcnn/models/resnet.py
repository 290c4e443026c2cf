"""Residual networks on the group: basic blocks as in ResNet-18 and -34, and small ones for images of 28 to 96 pixels.

    stem: k×k lifting convolution, batch norm, ReLU, maps halved up to twice
    stage 1, 2, …: blocks relu(shortcut(ζ) + f(ζ)), f two convolutions with batch norms; maps halved between stages
    maximum over orientations, mean over space, one linear layer

Where the original networks have strides, convolutions have stride 1 and are followed by a halving of the maps: a stride
of 2 samples every other pixel, and which ones depends on the corner where it starts, unless the side of the map is odd.
Halving resamples the map bilinearly with pixels placed symmetrically about its centre. On even sides this is the mean
of 2×2 pixels, and on sides of any parity it commutes with quarter turns.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor, nn

from sfcnn.harmonics import BasisLike
from sfcnn.models.twins import PlainConvBlock, matching_width, scale_channels
from sfcnn.nn import ConvBlock, GroupConv2d, OrientationPool


@dataclass(frozen=True)
class ResNetSizes:
    """Sizes of a residual network."""

    channels: tuple[int, ...]  #: Ĉ of each stage; maps are halved between stages
    blocks: tuple[int, ...]  #: residual blocks of each stage
    kernel_size: int = 3  #: of the convolutions in blocks
    stem_kernel_size: int = 7  #: of the lifting convolution
    stem_halvings: int = 2  #: how often maps are halved before the first stage

    def __post_init__(self) -> None:
        """Check that every stage has channels and blocks."""
        if not self.channels or len(self.blocks) != len(self.channels) or min(self.blocks) < 1:
            raise ValueError(
                "channels and blocks need one entry per stage, at least one stage, and at least one block in each, "
                f"got {self.channels} and {self.blocks}"
            )
        if self.stem_halvings < 0:
            raise ValueError(f"stem_halvings must be at least 0, got {self.stem_halvings}")

    def wider(self, width: float) -> "ResNetSizes":
        """The same with `width` times the channels."""
        return replace(self, channels=tuple(scale_channels(channels, width) for channels in self.channels))

    def for_side(self, side: int) -> "ResNetSizes":
        """The same for images of `side` pixels: the stem halves them only while 32 are left for the first stage.

        >>> [RESNET18.for_side(side).stem_halvings for side in (28, 64, 96, 128, 224)]
        [0, 1, 1, 2, 2]
        """
        fitting = max(0, (side // 32).bit_length() - 1)
        return replace(self, stem_halvings=min(self.stem_halvings, fitting))


#: ResNet-18 with a quarter of its channels: in 16 orientations these are about as many parameters.
RESNET18 = ResNetSizes((16, 32, 64, 128), (2, 2, 2, 2))
#: ResNet-34 with a quarter of its channels.
RESNET34 = ResNetSizes((16, 32, 64, 128), (3, 4, 6, 3))
#: For images of 28 to 96 pixels: three stages of two blocks, 13 convolutions.
SMALL = ResNetSizes((16, 32, 64), (2, 2, 2), stem_kernel_size=5, stem_halvings=0)


class ResNetOptions(TypedDict, total=False):
    """What else can be chosen about a residual network."""

    in_channels: int  #: channels of the images, 1
    classes: int  #: number of logits, 10
    dropout: float  #: probability before the linear layer, 0


class LayerOptions(TypedDict, total=False):
    """What can be chosen about every steerable convolution of a network."""

    basis: BasisLike  #: "bandlimited", "averaged", "paper", or a `Basis` of one's own
    init: str  #: "coeff"
    engine: str  #: "auto"


class BasicBlock(nn.Module):
    """relu(shortcut(ζ) + f(ζ)), on features or on plain maps: (B, C, …) → (B, Ĉ, …)."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, features: Tensor) -> Tensor:
        """Features → features of the same size."""
        return torch.relu(self.shortcut(features) + self.body(features))


def _assemble(
    sizes: ResNetSizes,
    stem: nn.Module,
    block: Callable[[int, int], nn.Module],
    halve: Callable[[], nn.Module],
    global_pool: list[nn.Module],
    head: nn.Module,
) -> nn.Sequential:
    """Stem, stages and head under the names that all classifiers of this package have."""
    features = nn.Sequential(stem, *(halve() for _ in range(sizes.stem_halvings)))
    inputs = sizes.channels[0]
    for stage, (channels, blocks) in enumerate(zip(sizes.channels, sizes.blocks, strict=True)):
        if stage:
            features.append(halve())
        features.extend(block(*pair) for pair in pairwise((inputs, *(channels,) * blocks)))
        inputs = channels
    parts = {"features": features, "pool": nn.Sequential(*global_pool, nn.AdaptiveAvgPool2d(1), nn.Flatten())}
    return nn.Sequential(OrderedDict({**parts, "head": head}))


def _head(channels: int, classes: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(nn.Dropout(dropout), nn.Linear(channels, classes))


def steerable_resnet(
    sizes: ResNetSizes,
    orientations: int,
    *,
    in_channels: int = 1,
    classes: int = 10,
    dropout: float = 0.0,
    reflections: bool = False,
    **layers: Unpack[LayerOptions],
) -> nn.Sequential:
    """A residual network: images (B, C, H, W) → logits (B, classes), unchanged by rotations of the image.

    With `reflections` mirror images have the same logits, too. Quarter turns are exact on images of every size if Λ is
    divisible by 4.

    Args:
        sizes: RESNET18, RESNET34, SMALL, or your own.
        orientations: Λ.
        in_channels, classes: of the images and the logits.
        dropout: probability before the linear layer.
        reflections: whether mirror images have the same logits.
        layers: basis, init and engine of every convolution.

    >>> steerable_resnet(SMALL.wider(0.25), 4, in_channels=3, classes=5)(torch.rand(2, 3, 33, 40)).shape
    torch.Size([2, 5])
    """

    options: dict[str, Any] = {"reflections": reflections, **layers}

    def block(inputs: int, outputs: int) -> nn.Module:
        body = nn.Sequential(
            ConvBlock(inputs, outputs, sizes.kernel_size, orientations, padding="same", **options),
            GroupConv2d(outputs, outputs, sizes.kernel_size, orientations, padding="same", bias=False, **options),
            nn.BatchNorm3d(outputs),
        )
        if inputs == outputs:
            return BasicBlock(body, nn.Identity())
        projection = GroupConv2d(inputs, outputs, 1, orientations, bias=False, **options)
        return BasicBlock(body, nn.Sequential(projection, nn.BatchNorm3d(outputs)))

    first = sizes.channels[0]
    return _assemble(
        sizes,
        ConvBlock(in_channels, first, sizes.stem_kernel_size, orientations, lift=True, padding="same", **options),
        block,
        lambda: nn.Upsample(scale_factor=(1, 0.5, 0.5), mode="trilinear", recompute_scale_factor=True),
        [OrientationPool("max")],
        _head(sizes.channels[-1], classes, dropout),
    )


def plain_resnet(
    sizes: ResNetSizes, width: float = 1.0, *, in_channels: int = 1, classes: int = 10, dropout: float = 0.0
) -> nn.Sequential:
    """The same network of ordinary convolutions with `width` times the channels: (B, C, H, W) → (B, classes).

    With four times the channels of RESNET18 it has the layers of ResNet-18, stride by stride replaced by halvings:

    >>> with torch.device("meta"):
    ...     net = plain_resnet(RESNET18, 4, in_channels=3, classes=1000)
    >>> sum(parameter.numel() for parameter in net.parameters())
    11689512
    """
    sizes = sizes.wider(width)

    def conv(inputs: int, outputs: int, kernel_size: int) -> list[nn.Module]:
        return list(PlainConvBlock(inputs, outputs, kernel_size))[:2]  # convolution and batch norm

    def block(inputs: int, outputs: int) -> nn.Module:
        first = PlainConvBlock(inputs, outputs, sizes.kernel_size)
        body = nn.Sequential(first, *conv(outputs, outputs, sizes.kernel_size))
        return BasicBlock(
            body, nn.Identity() if inputs == outputs else nn.Sequential(*conv(inputs, outputs, kernel_size=1))
        )

    return _assemble(
        sizes,
        PlainConvBlock(in_channels, sizes.channels[0], sizes.stem_kernel_size),
        block,
        lambda: nn.Upsample(scale_factor=0.5, mode="bilinear", recompute_scale_factor=True),
        [],
        _head(sizes.channels[-1], classes, dropout),
    )


def resnet_twin(
    sizes: ResNetSizes,
    orientations: int,
    match: str,
    reflections: bool = False,
    **options: Unpack[ResNetOptions],
) -> nn.Sequential:
    """The plain network that matches `steerable_resnet` in channels, effective channels (maps) or parameters.

    `match` is one of `sfcnn.models.twins.MATCHES`, `reflections` those of the network to match.
    """
    width = matching_width(
        match,
        2 * orientations if reflections else orientations,
        steerable=lambda: steerable_resnet(sizes, orientations, reflections=reflections, **options),
        plain=lambda width: plain_resnet(sizes, width, **options),
    )
    return plain_resnet(sizes, width, **options)
