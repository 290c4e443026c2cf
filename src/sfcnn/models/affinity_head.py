"""Oriented affinities: whether a pixel and another, offset in the direction of an orientation, are in the same object.

The orientation axis of features is a direction, so a last group convolution without a pool over it gives one logit for
each of D distances and Λ directions θ_a = 2πa/Λ. Turning the image turns directions and values together,

    A(ρ_φ I)(x, θ) = ρ_φ A(I)(x, θ − φ)            A(m I)(x, θ) = m A(I)(x, π − θ) with reflections.

A mirrored orientation r_θ m of a network with reflections has the direction θ + π, as in `OrientationReadout`; the two
orientations of a direction are averaged. That needs θ + π to be a direction: an even Λ.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from sfcnn.models.twins import PlainConvBlock
from sfcnn.nn import ConvBlock, GroupConv2d

_KERNEL_SIZE = 3
_REACH = 2  # pixels that two convolutions without padding take from each side


class AffinityHead(nn.Module):
    """Two convolutions on features, and the rearrangement of their output.

    Shapes: features (…, H, W) → logits (B, D, Λ, H − 2·crop, W − 2·crop). The layers return (B, D, Λ, …), with
    reflections (B, D, 2Λ, …), or in a plain network (B, D·Λ, …).

    Args:
        layers: two 3×3 convolutions without padding; the last has a bias.
        radii: D, the number of distances.
        orientations: Λ, the number of directions.
        crop: pixels to remove from each side. They are removed before the convolutions, which at full resolution are
            a considerable part of the network's cost; if the crop is smaller than the convolutions need, zeros are
            added.
        reflections: whether the layers return mirrored orientations too.
    """

    def __init__(
        self, layers: nn.Sequential, radii: int, orientations: int, *, crop: int = 0, reflections: bool = False
    ) -> None:
        super().__init__()
        if reflections and orientations % 2:
            raise ValueError(f"affinities with reflections need an even number of orientations, got {orientations}")
        self.layers, self.radii, self.orientations = layers, radii, orientations
        self.crop, self.reflections = crop, reflections

    def forward(self, features: Tensor) -> Tensor:
        """Features → logits (B, D, Λ, H', W')."""
        logits: Tensor = self.layers(F.pad(features, (_REACH - self.crop,) * 4))
        if logits.dim() == 4:
            return logits.unflatten(1, (self.radii, self.orientations))
        if not self.reflections:
            return logits
        turned, mirrored = logits.chunk(2, dim=2)
        return (turned + mirrored.roll(self.orientations // 2, dims=2)) / 2

    def extra_repr(self) -> str:
        """Number of radii and directions."""
        return f"radii={self.radii}, orientations={self.orientations}, crop={self.crop}"


def affinity_head(
    channels: int, width: int, radii: int, orientations: int, *, crop: int = 0, reflections: bool = False, **conv: Any
) -> AffinityHead:
    """Group convolutions from C to `width` channels and from those to one for each radius; `conv` are their options.

    >>> import torch
    >>> affinity_head(6, 24, 4, 8, crop=3)(torch.randn(1, 6, 8, 20, 20)).shape
    torch.Size([1, 4, 8, 14, 14])
    """
    layers = nn.Sequential(
        ConvBlock(channels, width, _KERNEL_SIZE, orientations, reflections=reflections, **conv),
        GroupConv2d(width, radii, _KERNEL_SIZE, orientations, reflections=reflections, **conv),
    )
    return AffinityHead(layers, radii, orientations, crop=crop, reflections=reflections)


def plain_affinity_head(channels: int, width: int, radii: int, orientations: int, *, crop: int = 0) -> AffinityHead:
    """Ordinary convolutions, to a channel for each radius and direction.

    >>> import torch
    >>> plain_affinity_head(6, 24, 4, 8, crop=3)(torch.randn(1, 6, 20, 20)).shape
    torch.Size([1, 4, 8, 14, 14])
    """
    layers = nn.Sequential(
        PlainConvBlock(channels, width, _KERNEL_SIZE, padding="valid"),
        nn.Conv2d(width, radii * orientations, _KERNEL_SIZE),
    )
    return AffinityHead(layers, radii, orientations, crop=crop)


def split_affinities(maps: Tensor, radii: int, orientations: int) -> tuple[Tensor, Tensor]:
    """What `UNet.forward` returns with affinities, (…, K + D·Λ, H, W) → logits (…, K, H, W), (…, D, Λ, H, W).

    >>> import torch
    >>> [tuple(part.shape) for part in split_affinities(torch.zeros(2, 1 + 12, 5, 5), 3, 4)]
    [(2, 1, 5, 5), (2, 3, 4, 5, 5)]
    """
    pairs = radii * orientations
    classes = maps.shape[-3] - pairs
    return maps.narrow(-3, 0, classes), maps.narrow(-3, classes, pairs).unflatten(-3, (radii, orientations))
