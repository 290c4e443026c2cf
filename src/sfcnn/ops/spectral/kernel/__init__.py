"""The compiled kernel of the spectral group convolution: its sources in C++, how to build and how to load them.

`python -m sfcnn.ops.spectral.kernel` builds it next to its sources, where it is loaded from.
"""

from sfcnn.ops.spectral.kernel.build import build
from sfcnn.ops.spectral.kernel.library import (
    INSTRUCTION_SETS,
    Halving,
    Library,
    Normalization,
    Problem,
    check,
    library_path,
    load,
)

__all__ = [
    "INSTRUCTION_SETS",
    "Halving",
    "Library",
    "Normalization",
    "Problem",
    "build",
    "check",
    "library_path",
    "load",
]
