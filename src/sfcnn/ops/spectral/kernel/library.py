"""The compiled library as Python sees it: where it is, what can be called and with what."""

import ctypes
import os
from functools import lru_cache
from pathlib import Path

from sfcnn.ops.spectral.kernel.build import SOURCES, library_name

#: In the order of the driver, from the plainest to the best.
INSTRUCTION_SETS = ("plain", "avx2", "avx512")

_INTEGERS = (
    *("real_bytes", "instruction_set", "tiles", "threads", "batch", "channels", "out_channels"),
    *("orientations", "height", "width", "kernel_size", "margin", "atoms", "harmonics"),
)
_POINTERS = ("rings", "parts", "classes", "feeds", "coefficients", "spectrum", "synthesis", "scale", "shift")


class Problem(ctypes.Structure):
    """`struct Problem` of problem.h."""

    _fields_ = [(name, ctypes.c_int32) for name in _INTEGERS] + [(name, ctypes.c_void_p) for name in _POINTERS]


class Library:
    """The functions of a compiled library."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        pointer, problem = ctypes.c_void_p, ctypes.POINTER(Problem)
        self.name = library.sfcnn_instruction_set
        self.name.argtypes, self.name.restype = [ctypes.c_int], ctypes.c_char_p
        self.workspace = library.sfcnn_spectral_workspace
        self.workspace.argtypes, self.workspace.restype = [problem, ctypes.c_int], ctypes.c_int64
        self.forward = library.sfcnn_spectral_forward
        self.forward.argtypes = [problem, *[pointer] * 3]
        self.backward = library.sfcnn_spectral_backward
        self.backward.argtypes = [problem, *[pointer] * 5]

    def instruction_sets(self) -> tuple[str, ...]:
        """Those that this machine can run."""
        return tuple(name for number, name in enumerate(INSTRUCTION_SETS) if self.name(number) is not None)


def library_path() -> Path:
    """Where the library is looked for: beside its sources.

    `SFCNN_KERNEL_LIBRARY` names another one to take, such as one that was built to look for errors in memory.
    """
    return Path(os.environ.get("SFCNN_KERNEL_LIBRARY") or SOURCES / library_name())


@lru_cache(maxsize=1)
def load() -> Library | None:
    """The library, or None if it is not there or cannot be loaded."""
    path = library_path()
    try:
        return Library(path) if path.exists() else None
    except OSError:  # built for another machine, or a newer system
        return None
