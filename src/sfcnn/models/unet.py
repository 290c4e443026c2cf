"""The segmentation network of App. C.2: a U-Net on the group, with residual blocks and skips that are added.

    level 1  ─ conv, residual ───────────────── + ─ residual ─ read-out
                  ↓ pool                        ↑ upsample, conv
    level 2  ─── conv, residual ─────────── + ─ residual
                    ↓ pool                  ↑ upsample, conv
    level 3  ───── conv, residual ──────────┘            (and so on)

The readout leaves the group. The paper's takes the maximum over orientations first, which leaves as many maps as the
first level has filters, and continues with two 1×1 convolutions. Where all of these few maps are zero, the logit is the
last bias, so narrow networks rarely reach confident predictions. By default the maximum is preceded by a 3×3 group
convolution to four times as many channels, and followed by one 1×1 convolution.

The paper specifies the number of levels and their contents only in a figure; its text specifies channels, kernel sizes,
depth of the residual blocks, addition of skips, pooling and dropout. Five levels, as in the U-Net it is modelled on,
are our interpretation.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from sfcnn.harmonics import BasisLike
from sfcnn.models.affinity_head import AffinityHead, affinity_head, plain_affinity_head
from sfcnn.models.padding import margins, pad_by_reflection
from sfcnn.models.twins import PlainConvBlock, PlainResidualBlock, matching_width, scale_channels
from sfcnn.nn import ConvBlock, OrientationPool, ResidualBlock, SpatialMaxPool


class Crop(nn.Module):
    """Remove `margin` pixels from each side: (…, H, W) → (…, H − 2m, W − 2m)."""

    def __init__(self, margin: int) -> None:
        super().__init__()
        if margin < 0:
            raise ValueError(f"crop must be at least 0, got {margin}")
        self.margin = margin

    def forward(self, maps: Tensor) -> Tensor:
        """Maps (…, H, W) → the inner part."""
        m = self.margin
        return maps[..., m : maps.shape[-2] - m, m : maps.shape[-1] - m]

    def extra_repr(self) -> str:
        """The margin."""
        return str(self.margin)


class UNet(nn.Module):
    """Encoder, decoder and head; steerable and plain networks differ only in the parts they pass.

    Shapes: images (B, C, H, W) → logits (B, classes, H', W'). Images whose sides are not divisible by 2^(levels − 1)
    are padded by reflection, and the logits cropped to the image again. Affinities of D radii and Λ directions follow
    the classes, (B, classes + D·Λ, H', W'); `sfcnn.models.affinity_head.split_affinities` separates them.

    Args:
        widths: channels of each level, from the image down.
        first: from the image to the features of level 1.
        conv: makes the module that changes the number of channels, from and to.
        residual: makes the module that keeps it.
        pool, upsample: between levels.
        head: from the features of level 1 to logits.
        affinity_head: from the features of level 1 to logits of pixel pairs, optional.
    """

    def __init__(
        self,
        widths: list[int],
        first: nn.Module,
        conv: Callable[[int, int], nn.Module],
        residual: Callable[[int], nn.Module],
        pool: nn.Module,
        upsample: nn.Module,
        head: nn.Module,
        affinity_head: AffinityHead | None = None,
    ) -> None:
        super().__init__()
        down, up = pairwise(widths), pairwise(reversed(widths))
        self.encoder = nn.ModuleList([nn.Sequential(first, residual(widths[0]))])
        self.encoder.extend(nn.Sequential(conv(above, below), residual(below)) for above, below in down)
        self.decoder = nn.ModuleList(conv(below, above) for below, above in up)
        self.merge = nn.ModuleList(residual(above) for above in widths[-2::-1])
        self.pool, self.upsample, self.head, self.affinity_head = pool, upsample, head, affinity_head

    def forward(self, images: Tensor, affinities: bool = False) -> Tensor:
        """Images (B, C, H, W) → logits (B, classes, H', W'), with affinities (B, classes + D·Λ, H', W')."""
        if images.dim() != 4:
            raise ValueError(f"UNet expects images of shape (B, C, H, W), got {tuple(images.shape)}")
        if affinities and self.affinity_head is None:
            raise ValueError("this UNet has no affinities: make one with the number of radii as its `affinities`")
        multiple = 2 ** (len(self.encoder) - 1)
        if images.shape[-2] % multiple or images.shape[-1] % multiple:
            return self._padded(images, multiple, affinities)
        skips: list[Tensor] = []
        features = images
        for level, encode in enumerate(self.encoder):
            features = encode(self.pool(features) if level else features)
            skips.append(features)
        skips.pop()
        for decode, merge in zip(self.decoder, self.merge, strict=True):
            features = merge(decode(self.upsample(features)) + skips.pop())
        logits: Tensor = self.head(features)
        if affinities and self.affinity_head is not None:
            return torch.cat([logits, self.affinity_head(features).flatten(1, 2)], dim=1)
        return logits

    def _padded(self, images: Tensor, multiple: int, affinities: bool) -> Tensor:
        """Logits of an image of any size, padded to whole multiples."""
        if not isinstance(images, Tensor):  # the symbol of an exporter, whose graph has no conditions
            raise ValueError(f"an exported U-Net needs height and width divisible by {multiple}")
        whole = pad_by_reflection(images, 0, multiple)
        logits: Tensor = self(whole, affinities)
        for axis in (-2, -1):
            cropped = whole.shape[axis] - logits.shape[axis]  # by both sides of the head together
            before, _ = margins(images.shape[axis], 0, multiple)
            logits = logits.narrow(axis, before, images.shape[axis] - cropped)
        return logits


def _level_channels(channels: int, levels: int) -> list[int]:
    """Channels of each level: doubled at levels 2 and 3, constant afterwards."""
    if levels < 1:
        raise ValueError(f"levels must be at least 1, got {levels}")
    return [channels * 2 ** min(level, 2) for level in range(levels)]


#: How features on the group become logits.
READOUTS = ("group", "paper")

_EXPANSION = 4  # channels before the maximum over orientations, for each of level 1


def _pixelwise(width: int, classes: int, dropout: float) -> list[nn.Module]:
    """Two 1×1 convolutions, pixel by pixel from maps to logits."""
    return [PlainConvBlock(width, width, 1, dropout=dropout), nn.Conv2d(width, classes, 1)]


def membrane_unet(
    orientations: int = 17,
    *,
    in_channels: int = 1,
    classes: int = 1,
    channels: int = 12,
    levels: int = 5,
    input_kernel_size: int = 11,
    kernel_size: int = 7,
    residual_depth: int = 1,
    dropout: float = 0.4,
    crop: int = 0,
    readout: str = "group",
    reflections: bool = False,
    affinities: int = 0,
    padding_mode: str = "zeros",
    basis: BasisLike = "bandlimited",
    init: str = "coeff",
    engine: str = "auto",
) -> UNet:
    """The paper's network for EM membranes: images (B, C, H, W) → logits (B, classes, H − 2·crop, W − 2·crop).

    Args:
        orientations: Λ; 17 has no common factor with the four rotations that data are augmented with.
        in_channels, classes: of the images and the logits.
        channels: filters of the first level; the second has twice, the third and all further four times as many.
        levels: of resolution, each half of the one before.
        input_kernel_size, kernel_size: of the lifting convolution and of all others.
        residual_depth: convolutions in each residual block.
        dropout: probability of dropping a channel, after every convolution but the last.
        crop: pixels removed from each side before the 1×1 convolutions. The paper feeds 256×256 regions padded to
            320×320, a crop of 32.
        readout: "group", or "paper" for the maximum over orientations followed by two 1×1 convolutions.
        reflections: also make the network equivariant to reflections.
        affinities: D, the number of distances at which pixel pairs are classified in each of the Λ directions
            (`sfcnn.models.affinity_head`); 0 for a network without affinities.
        padding_mode, basis, init, engine: as in `GroupConv2d`.

    >>> import torch
    >>> membrane_unet(4, channels=2, levels=3, crop=4)(torch.randn(1, 1, 32, 32)).shape
    torch.Size([1, 1, 24, 24])
    """
    options: dict[str, Any] = {
        "reflections": reflections,
        "padding_mode": padding_mode,
        "basis": basis,
        "init": init,
        "engine": engine,
        "dropout": dropout,
    }

    def conv(inputs: int, outputs: int) -> nn.Module:
        return ConvBlock(inputs, outputs, kernel_size, orientations, padding="same", **options)

    def residual(width: int) -> nn.Module:
        return ResidualBlock(width, kernel_size, orientations, depth=residual_depth, **options)

    if readout not in READOUTS:
        raise ValueError(f"unknown readout {readout!r}, choose one of {list(READOUTS)}")
    if readout == "paper":
        head = [OrientationPool("max"), Crop(crop), *_pixelwise(channels, classes, dropout)]
    else:
        wide = _EXPANSION * channels
        expand = ConvBlock(channels, wide, 3, orientations, padding="same", **{**options, "dropout": 0.0})
        head = [expand, OrientationPool("max"), Crop(crop), nn.Conv2d(wide, classes, 1)]
    net = UNet(
        _level_channels(channels, levels),
        ConvBlock(in_channels, channels, input_kernel_size, orientations, lift=True, padding="same", **options),
        conv,
        residual,
        SpatialMaxPool(),
        nn.Upsample(scale_factor=(1, 2, 2)),
        nn.Sequential(*head),
    )
    if affinities:  # made last, so that the rest begins with the weights that it has without
        del options["dropout"]
        wide = _EXPANSION * channels
        net.affinity_head = affinity_head(channels, wide, affinities, orientations, crop=crop, **options)
    return net


def plain_unet(
    width: float = 1.0,
    *,
    in_channels: int = 1,
    classes: int = 1,
    channels: int = 12,
    levels: int = 5,
    input_kernel_size: int = 11,
    kernel_size: int = 7,
    residual_depth: int = 1,
    dropout: float = 0.4,
    crop: int = 0,
    affinities: int = 0,
    orientations: int = 8,
) -> UNet:
    """The same network of ordinary convolutions with `width` times the channels; `orientations` are of affinities."""
    widths = [scale_channels(c, width) for c in _level_channels(channels, levels)]

    def conv(inputs: int, outputs: int) -> nn.Module:
        return PlainConvBlock(inputs, outputs, kernel_size, dropout=dropout)

    def residual(channels: int) -> nn.Module:
        return PlainResidualBlock(channels, kernel_size, depth=residual_depth, dropout=dropout)

    net = UNet(
        widths,
        PlainConvBlock(in_channels, widths[0], input_kernel_size, dropout=dropout),
        conv,
        residual,
        nn.MaxPool2d(2),
        nn.Upsample(scale_factor=2),
        nn.Sequential(Crop(crop), *_pixelwise(widths[0], classes, dropout)),
    )
    if affinities:
        wide = _EXPANSION * widths[0]
        net.affinity_head = plain_affinity_head(widths[0], wide, affinities, orientations, crop=crop)
    return net


def membrane_unet_cnn(match: str = "channels", orientations: int = 17, **options: Any) -> UNet:
    """The plain twin of `membrane_unet(orientations)`; `match` is one of `sfcnn.models.twins.MATCHES`.

    Options are those of `plain_unet`, and `readout` and `reflections` of the network to match.
    """
    readout, reflections = options.pop("readout", "group"), options.pop("reflections", False)
    width = matching_width(
        match,
        2 * orientations if reflections else orientations,
        steerable=lambda: membrane_unet(orientations, readout=readout, reflections=reflections, **options),
        plain=lambda width: plain_unet(width, orientations=orientations, **options),
    )
    return plain_unet(width, orientations=orientations, **options)
