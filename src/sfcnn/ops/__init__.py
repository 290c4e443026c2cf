"""The lifting and group convolutions as functions, computed by interchangeable engines."""

from sfcnn.ops.dispatch import (
    ENGINE_CHOICES,
    ENGINES,
    check_engine,
    choose_group_engine,
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
    "ENGINE_CHOICES",
    "PADDING_MODES",
    "Atoms",
    "Geometry",
    "Padding",
    "check_engine",
    "choose_group_engine",
    "correlation_atoms",
    "group_convolution",
    "lift_convolution",
    "prepare_group",
    "prepare_lift",
    "resolve_engine",
    "sample_atoms",
]
