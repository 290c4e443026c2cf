"""The lifting and group convolutions as functions, computed by interchangeable engines."""

from sfcnn.ops.dispatch import (
    ENGINES,
    group_convolution,
    lift_convolution,
    prepare_group,
    prepare_lift,
    resolve_engine,
)
from sfcnn.ops.geometry import PADDING_MODES, Geometry, Padding
from sfcnn.ops.kernels import Atoms, correlation_atoms, sample_atoms

__all__ = [
    "ENGINES",
    "PADDING_MODES",
    "Atoms",
    "Geometry",
    "Padding",
    "correlation_atoms",
    "group_convolution",
    "lift_convolution",
    "prepare_group",
    "prepare_lift",
    "resolve_engine",
    "sample_atoms",
]
