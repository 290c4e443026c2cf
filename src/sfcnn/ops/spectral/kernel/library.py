"""The compiled library as Python sees it: where it is, what can be called and with what."""

import ctypes
import os
from functools import lru_cache
from pathlib import Path

import torch

from sfcnn.ops.spectral.kernel.build import SOURCES, library_name

#: In the order of the driver, from the plainest to the best.
INSTRUCTION_SETS = ("plain", "avx2", "avx512")

_INTEGERS = (
    *("real_bytes", "instruction_set", "tiles", "threads", "batch", "channels", "out_channels"),
    *("orientations", "height", "width", "kernel_size", "margin", "atoms", "harmonics"),
)
_POINTERS = ("rings", "parts", "classes", "feeds", "coefficients", "spectrum", "scale", "shift")


class Problem(ctypes.Structure):
    """`struct Problem` of problem.h."""

    _fields_ = [(name, ctypes.c_int32) for name in _INTEGERS] + [(name, ctypes.c_void_p) for name in _POINTERS]


class Normalization(ctypes.Structure):
    """`struct Normalization` of problem.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("real_bytes", "instruction_set", "threads", "batch", "channels")),
        *(("pixels", ctypes.c_int64), ("eps", ctypes.c_double)),
        *((name, ctypes.c_void_p) for name in ("weight", "bias", "mean", "inverse", "variance")),
    )


class Halving(ctypes.Structure):
    """`struct Halving` of problem.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("real_bytes", "instruction_set", "threads", "height", "width")),
        ("maps", ctypes.c_int64),
    )


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
        normalization, halving = ctypes.POINTER(Normalization), ctypes.POINTER(Halving)
        self.normalize_forward = library.sfcnn_normalize_forward
        self.normalize_forward.argtypes = [normalization, *[pointer] * 2]
        self.normalize_backward = library.sfcnn_normalize_backward
        self.normalize_backward.argtypes = [normalization, *[pointer] * 5]
        self.halve_forward = library.sfcnn_halve_forward
        self.halve_forward.argtypes = [halving, *[pointer] * 3]
        self.halve_backward = library.sfcnn_halve_backward
        self.halve_backward.argtypes = [halving, *[pointer] * 3]
        self.blur_forward = library.sfcnn_blur_forward
        self.blur_forward.argtypes = [halving, *[pointer] * 3]
        self.use_team = library.sfcnn_use_team
        self.use_team.argtypes, self.use_team.restype = [pointer], None
        self.prefer_huge_pages = library.sfcnn_prefer_huge_pages
        self.prefer_huge_pages.argtypes, self.prefer_huge_pages.restype = [pointer, ctypes.c_size_t], None
        self.blur_backward = library.sfcnn_blur_backward
        self.blur_backward.argtypes = [halving, *[pointer] * 3]

    def instruction_sets(self) -> tuple[str, ...]:
        """Those that this machine can run."""
        return tuple(name for number, name in enumerate(INSTRUCTION_SETS) if self.name(number) is not None)


def check(code: int) -> None:
    """Raise what the number that a function of the library returns stands for."""
    if code == 1:
        raise MemoryError("the compiled kernel found no memory to work in")
    if code:
        raise RuntimeError("the compiled kernel cannot run on this machine: set SFCNN_KERNEL=0")


def library_path() -> Path:
    """Where the library is loaded from: next to its sources.

    `SFCNN_KERNEL_LIBRARY` names another one to take, such as one that was built to look for errors in memory.
    """
    return Path(os.environ.get("SFCNN_KERNEL_LIBRARY") or SOURCES / library_name())


@lru_cache(maxsize=1)
def load() -> Library | None:
    """The library, or None if it is not there or cannot be loaded."""
    path = library_path()
    try:
        library = Library(path) if path.exists() else None
    except OSError:  # built for another machine, or a newer system
        return None
    if library is not None:
        library.use_team(find_team())
    return library


def find_team() -> int | None:
    """The address of `GOMP_parallel` in the OpenMP library that PyTorch computes with; None if there is none.

    Looked up through PyTorch's own library, since a process may hold several libraries for OpenMP.
    """
    if not torch.backends.openmp.is_available():
        return None
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        loaded = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return ctypes.cast(loaded.GOMP_parallel, ctypes.c_void_p).value
    except (OSError, AttributeError):
        return None
