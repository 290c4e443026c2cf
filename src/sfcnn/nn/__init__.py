"""Layers that PyTorch does not provide. For everything else on (B, C, Λ, H, W) use PyTorch's 3-D layers."""

from sfcnn.nn.blocks import ConvBlock, ResidualBlock
from sfcnn.nn.borders import BackgroundNorm, DiskMask, MaxBlurPool
from sfcnn.nn.conv import GroupConv2d, LiftConv2d
from sfcnn.nn.pool import OrientationPool, OrientationReadout, OrientedResponse, SpatialMaxPool
from sfcnn.nn.restrict import Restrict

__all__ = [
    "BackgroundNorm",
    "ConvBlock",
    "DiskMask",
    "GroupConv2d",
    "LiftConv2d",
    "MaxBlurPool",
    "OrientationPool",
    "OrientationReadout",
    "OrientedResponse",
    "ResidualBlock",
    "Restrict",
    "SpatialMaxPool",
]
