"""Steerable Filter CNNs: networks that are equivariant to rotations in any number of orientations.

Images are (B, C, H, W) and features on the group (B, C, Λ, H, W), both plain tensors.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

from sfcnn.group import assert_equivariant, equivariance_error, reflect, reflect_features, rotate, rotate_features
from sfcnn.harmonics import Basis
from sfcnn.nn import (
    ConvBlock,
    GroupConv2d,
    LiftConv2d,
    OrientationPool,
    OrientationReadout,
    OrientedResponse,
    ResidualBlock,
    Restrict,
)
from sfcnn.steering import steer
from sfcnn.subgroups import restrict

if TYPE_CHECKING:
    from sfcnn import cells, classification, export, migration, models, segmentation, volumes
    from sfcnn.pretrained import load

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
    "Restrict",
    "__version__",
    "assert_equivariant",
    "cells",
    "classification",
    "equivariance_error",
    "export",
    "load",
    "migration",
    "models",
    "reflect",
    "reflect_features",
    "restrict",
    "rotate",
    "rotate_features",
    "segmentation",
    "steer",
    "volumes",
]

#: Imported on first use, because they need optional packages.
_LAZY = ("cells", "classification", "export", "migration", "models", "segmentation", "volumes")


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return import_module(f"sfcnn.{name}")
    if name == "load":
        from sfcnn.pretrained import load

        return load
    raise AttributeError(f"module 'sfcnn' has no attribute {name!r}")
