"""Keep the memory that a training step frees for the next one.

The C library returns freed blocks above 32 MB to the system, which clears every page when it is asked for memory again.
A step frees and allocates the same blocks over and over, and this can take a tenth of its time.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Parameters of mallopt in glibc: freed memory at the top that is kept, and the size from which blocks get a mapping of
# their own, with the largest values that glibc chooses by itself.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST = 2**31 - 1
_DEFAULTS = ((_TRIM_THRESHOLD, 64 * 2**20), (_MMAP_THRESHOLD, 32 * 2**20))


def _glibc() -> ctypes.CDLL | None:
    """The C library if it is glibc."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None


@contextmanager
def keeping_memory() -> Iterator[None]:
    """Keep freed memory for later allocations, up to 2 GB, and return it to the system in the end.

    It does nothing unless the C library is glibc.
    """
    library = _glibc()
    if library is None:
        yield
        return
    for parameter, _ in _DEFAULTS:
        library.mallopt(parameter, _LARGEST)
    try:
        yield
    finally:
        for parameter, value in _DEFAULTS:
            library.mallopt(parameter, value)
        library.malloc_trim(0)
