"""Read the two file formats of digits: MNIST's idx files, and the text files of the original mnist-rot.

idx     0, 0, type (8 = unsigned byte), number of dimensions; the sizes, four bytes each, big-endian; then the values,
        last dimension fastest
text    784 pixels in [0, 1], row by row, and a label on each line, separated by blanks

Any problem with a file raises a ValueError with a one-line message that names the file.
"""

import gzip
import io
import math
import struct
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfcnn.classification.labelled import LabelledImages

_PIXELS = 28 * 28
_ROUNDING = 1e-4  # pixels may lie this far outside [0, 1] and are clipped


def _damaged(source: object, error: Exception) -> ValueError:
    reason = " ".join(str(error).split())[:300] or type(error).__name__
    return ValueError(f"{source} is damaged: {reason}; delete it and download it again")


def read_idx(path: Path, shape: tuple[int, ...]) -> Tensor:
    """The values of an idx file, uint8 of this shape. The file may be gzipped, whatever its name."""
    content = path.read_bytes()
    try:
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise _damaged(path, error) from error
    header = struct.pack(f">4B{len(shape)}I", 0, 0, 8, len(shape), *shape)
    if not content.startswith(header):
        found = list(content[: len(header)])
        raise ValueError(f"{path} is not an idx file of bytes {shape}: it starts with {found}, expected {list(header)}")
    numbers = np.frombuffer(content, np.uint8)[len(header) :]
    if numbers.size != math.prod(shape):
        raise _damaged(path, ValueError(f"{numbers.size:,} numbers follow its header, expected {math.prod(shape):,}"))
    return torch.from_numpy(numbers.reshape(shape).copy())


def read_amat(path: Path, count: int, *, member: str | None = None) -> LabelledImages:
    """The `count` images and labels of a text file, or of a file `member` in a zip archive, which is not extracted."""
    source = f"{path}, member {member}" if member else path
    try:
        if member is None:
            with path.open(encoding="latin-1") as text:
                numbers = _parse(text, count)
        else:
            with zipfile.ZipFile(path) as archive, archive.open(member) as unpacked:
                numbers = _parse(io.TextIOWrapper(unpacked, encoding="latin-1"), count)
    except Exception as error:  # damaged archives raise many kinds of error
        if isinstance(error, OSError) and error.filename is not None:
            raise  # from the file system, such as a missing permission
        raise _damaged(source, error) from error
    images = torch.from_numpy(numbers[:, :_PIXELS]).clamp(0, 1).view(-1, 1, 28, 28)
    return LabelledImages(images, torch.from_numpy(numbers[:, _PIXELS]).long())


def _parse(text: TextIO, count: int) -> NDArray[np.float32]:
    """Parse and check pixels and labels (count, 785)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about an empty file, whose rows are counted below
        # One more row than expected, to detect longer files.
        numbers = np.loadtxt(text, dtype=np.float32, comments=None, ndmin=2, max_rows=count + 1)
    if numbers.shape != (count, _PIXELS + 1):
        rows, columns = numbers.shape
        more = "or more " if rows > count else ""
        raise ValueError(
            f"it has {rows:,} {more}rows of {columns} numbers, expected {count:,} of 784 pixels and a label"
        )
    pixels, labels = numbers[:, :_PIXELS], numbers[:, _PIXELS]
    if not ((pixels >= -_ROUNDING) & (pixels <= 1 + _ROUNDING)).all():  # NaN fails, too
        raise ValueError(f"it has pixels from {pixels.min():g} to {pixels.max():g}, expected 0 to 1")
    if not np.isin(labels, range(10)).all():
        raise ValueError("it has labels that are not integers from 0 to 9")
    return numbers
