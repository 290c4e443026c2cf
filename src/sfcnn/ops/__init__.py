"""The lifting and group convolutions as functions, computed by interchangeable engines."""

from sfcnn.ops.atoms import Atoms, correlation_atoms, sample_atoms
from sfcnn.ops.dispatch import ENGINE_CHOICES, ENGINES, Engine, check_engine, known_size, resolve_engine
from sfcnn.ops.geometry import PADDING_MODES, Geometry, Padding

__all__ = [
    "ENGINES",
    "ENGINE_CHOICES",
    "PADDING_MODES",
    "Atoms",
    "Engine",
    "Geometry",
    "Padding",
    "check_engine",
    "correlation_atoms",
    "known_size",
    "resolve_engine",
    "sample_atoms",
]
