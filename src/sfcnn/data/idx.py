"""The idx format of the MNIST files: a short header, then the numbers.

0, 0, type (8 = unsigned byte), number of dimensions d      four bytes
d sizes                                                     four bytes each, most significant first
the numbers, the last dimension running fastest             as many as the product of the sizes
"""

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

_GZIP = b"\x1f\x8b"
_UNSIGNED_BYTE = 8
_BLOCK = 1 << 20
_LIMIT = 1 << 31  # bytes; MNIST has 47 million, and a broken header can announce any number


def read_idx(path: Path) -> Tensor:
    """The numbers of an idx file as uint8, in the shape that its header gives; gzip is told by content, not by name.

    Whatever is wrong with the file ends in a ValueError of one line that names it.
    """
    with path.open("rb") as file:
        compressed = file.read(len(_GZIP)) == _GZIP
        file.seek(0)
        if not compressed:
            return _read(path, file)
        try:
            with gzip.GzipFile(fileobj=file) as unpacked:
                return _read(path, unpacked)  # type: ignore[arg-type]  # it reads like any binary file
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            reason = str(error).rstrip(".")
            raise ValueError(f"{path} is damaged: {reason}; delete it and get it again") from error


def _read(path: Path, file: BinaryIO) -> Tensor:
    shape = _read_shape(path, file)
    expected = math.prod(shape)
    if expected > _LIMIT:
        raise ValueError(f"{path} is no idx file to read: its header announces {expected:,} numbers {shape}")
    numbers = bytearray()
    # Block by block, so that memory follows what is there and not what the header announces; one byte more than
    # announced shows whether the file goes on.
    while block := file.read(min(_BLOCK, expected + 1 - len(numbers))):
        numbers += block
    if len(numbers) < expected:
        raise ValueError(
            f"{path} is cut short: its header announces {expected:,} numbers {shape}, but {len(numbers):,} follow; "
            "delete it and get it again"
        )
    if len(numbers) > expected:
        raise ValueError(f"{path} is too long: more than the {expected:,} numbers {shape} of its header follow")
    if not expected:
        return torch.empty(shape, dtype=torch.uint8)
    return torch.frombuffer(numbers, dtype=torch.uint8).view(shape)


def _read_shape(path: Path, file: BinaryIO) -> tuple[int, ...]:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0":
        raise ValueError(f"{path} is no idx file: it starts with bytes {list(magic)}, expected 0, 0, type, dimensions")
    kind, dimensions = magic[2:]
    if kind != _UNSIGNED_BYTE:
        raise ValueError(
            f"{path} holds numbers of idx type {kind:#04x}, expected {_UNSIGNED_BYTE:#04x} (unsigned byte)"
        )
    if not 1 <= dimensions <= 8:
        raise ValueError(f"{path} is no idx file: its header announces {dimensions} dimensions, expected 1 to 8")
    sizes = file.read(4 * dimensions)
    if len(sizes) < 4 * dimensions:
        raise ValueError(f"{path} is cut short inside its header; delete it and get it again")
    return struct.unpack(f">{dimensions}I", sizes)
