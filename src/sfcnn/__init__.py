"""Steerable Filter CNNs: networks that are equivariant to rotations in any number of orientations.

Images are (B, C, H, W) and features on the group (B, C, Λ, H, W), both plain tensors.
"""

from importlib.metadata import version

from sfcnn.group import assert_equivariant, equivariance_error, rotate, rotate_features
from sfcnn.harmonics import Basis
from sfcnn.nn import (
    ConvBlock,
    GroupConv2d,
    LiftConv2d,
    OrientationPool,
    OrientationReadout,
    OrientedResponse,
    ResidualBlock,
)
from sfcnn.steering import steer

__version__ = version("sfcnn")

__all__ = [
    "Basis",
    "ConvBlock",
    "GroupConv2d",
    "LiftConv2d",
    "OrientationPool",
    "OrientationReadout",
    "OrientedResponse",
    "ResidualBlock",
    "__version__",
    "assert_equivariant",
    "equivariance_error",
    "rotate",
    "rotate_features",
    "steer",
]
