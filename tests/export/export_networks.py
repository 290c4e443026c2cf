"""Networks of users, to be exported."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sfcnn import ConvBlock, GroupConv2d, LiftConv2d, OrientationPool, OrientationReadout
from sfcnn.models import ClassifierSizes

SMALL = ClassifierSizes((5, 3, 3), (3, 4, 5), (6,))


class Found(NamedTuple):
    """A result with names."""

    maps: Tensor
    angle: Tensor


class Mixed(nn.Module):
    """Layers of both libraries, skips, sums, concatenations, functions of its own and several outputs."""

    def __init__(self, mode: str = "reflect") -> None:
        super().__init__()
        self.lift = LiftConv2d(2, 4, 5, 6, padding="same", padding_mode=mode)
        self.norm = nn.BatchNorm3d(4)
        self.even = GroupConv2d(4, 4, 3, 6, padding=1, padding_mode="circular")
        self.down = GroupConv2d(8, 4, 3, 6, padding=2, stride=2, dilation=2, padding_mode="replicate")
        self.up = nn.Upsample(scale_factor=(1, 2, 2), mode="trilinear")
        self.instance, self.group = nn.InstanceNorm3d(4, affine=True), nn.GroupNorm(2, 4)
        self.scale = nn.Parameter(torch.rand(4, 1, 1, 1))
        self.soft, self.hard = OrientationReadout("soft", symmetry=2, temperature=0.7), OrientationReadout()
        self.head = nn.Sequential(nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6), nn.Sigmoid())
        self.dropout = nn.Dropout3d(0.5)

    def forward(self, images: Tensor, sharpness: float = 1.0, *, mask: Tensor | None = None) -> dict[str, object]:
        if images.dim() != 4:
            raise ValueError(f"expected (B, C, H, W), got {tuple(images.shape)}")
        assert mask is None
        lifted = self.lift(images)
        features = F.elu(self.norm(lifted))
        joined = torch.cat([self.even(features), self.dropout(lifted)], dim=1)
        wide = self.up(self.down(joined)) * sharpness
        features = features + self.group(self.instance(wide) * self.scale)
        skip = features
        features += 0.5
        response, angle = self.hard(skip)
        soft = self.soft(features)
        return {
            "found": Found(self.head(skip.mean(2)), soft.angle),
            "list": [response, angle],
            "sum": skip.sum((2, 3, 4)) + soft.response.sum((2, 3)),
            "features": self.even(skip.clamp(min=0)),
        }


class Field(nn.Module):
    """A small network for directions, whose maps are halved and doubled."""

    def __init__(self) -> None:
        super().__init__()
        self.down = ConvBlock(1, 3, 5, 4, lift=True, padding="same", padding_mode="reflect")
        self.deep = nn.Sequential(nn.MaxPool3d((1, 2, 2)), ConvBlock(3, 3, 3, 4, padding="same"))
        self.pool, self.readout = OrientationPool("mean"), OrientationReadout("soft", symmetry=2)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        fine = self.down(images)
        if fine.shape[-1] % 2 or fine.shape[-2] % 2:
            raise ValueError(f"size {fine.shape[-2:]} must be even")
        features = fine + F.interpolate(self.deep(fine), scale_factor=(1, 2, 2))
        return self.pool(features), *self.readout(features)
