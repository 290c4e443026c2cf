"""The text format of the original mnist-rot: on each line 784 pixels in [0, 1] and a label, with blanks between."""

import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TextIO

import numpy as np
import torch

from sfcnn.data.digits import Digits

_PIXELS = 28 * 28
_BLOCK = 1000  # rows parsed at a time: some ten megabytes of text
_LONGEST_LINE = 1 << 17  # characters; 785 numbers take about 10,000
_MOST_BLANK = 1000  # lines in a row; an archive of a few kilobytes can unpack to gigabytes of them
#: What damaged archives make Python raise.
_ARCHIVE_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    NotImplementedError,
    UnicodeDecodeError,
    EOFError,
    OverflowError,
    OSError,
)
_ROUNDING = 1e-4  # what a number may lie outside [0, 1] and is cut off


def read_amat(path: Path, count: int | None = None, *, member: str | None = None) -> Digits:
    """The images and labels of a text file, or of the file `member` of a zip archive, which is not extracted.

    The pixels of an image follow each other row by row. The file must hold `count` rows, if that is given. Whatever
    is wrong with it ends in a ValueError of one line that names it.
    """
    source = f"{path}, member {member}" if member else str(path)
    blocks, rows = [torch.empty(0, _PIXELS + 1)], 0
    with _opened(path, member, source) as file:
        for block in _row_blocks(file, source):
            blocks.append(_parse(block, source, rows))
            rows += len(block)
            if count is not None and rows > count:
                raise ValueError(f"{source} is too long: it has more than the expected {count:,} rows")
    if count is not None and rows < count:
        raise ValueError(f"{source} is cut short: it has {rows:,} rows, expected {count:,}; delete it and get it again")
    images = torch.cat([block[:, :_PIXELS] for block in blocks]).clamp_(0, 1)
    labels = torch.cat([block[:, _PIXELS] for block in blocks]).long()
    return Digits(images.view(-1, 1, 28, 28), labels)


@contextmanager
def _opened(path: Path, member: str | None, source: str) -> Iterator[TextIO]:
    """The text to read; what goes wrong in unpacking it becomes a ValueError."""
    if member is None:
        with path.open(encoding="ascii", errors="replace") as file:
            yield file
        return
    try:
        with zipfile.ZipFile(path) as archive, _member(archive, path, member) as unpacked:
            yield io.TextIOWrapper(unpacked, encoding="ascii", errors="replace")
    except _ARCHIVE_ERRORS as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise  # the file system's own: no permission; others are of addresses in the archive that lead nowhere
        reason = " ".join(str(error).split()) or "it ends early"
        raise ValueError(f"{source} is damaged: {reason}; delete it and get it again") from error


def _member(archive: zipfile.ZipFile, path: Path, member: str) -> IO[bytes]:
    try:
        return archive.open(member)
    except KeyError as error:
        raise ValueError(f"archive {path} has no file {member}") from error
    except RuntimeError as error:  # encrypted, or packed in a way that Python cannot undo
        raise ValueError(f"archive {path} cannot be read: {error}") from error


def _row_blocks(file: TextIO, source: str) -> Iterator[list[str]]:
    """The lines that are not blank, `_BLOCK` at a time."""
    block: list[str] = []
    blank = 0
    while line := file.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise ValueError(f"{source} is no text file of digits: a line has {_LONGEST_LINE:,} characters or more")
        blank = blank + 1 if line.isspace() else 0
        if blank > _MOST_BLANK:
            raise ValueError(f"{source} is no text file of digits: more than {_MOST_BLANK:,} lines in a row are blank")
        if not blank:
            block.append(line)
        if len(block) == _BLOCK:
            yield block
            block = []
    if block:
        yield block


def _parse(block: list[str], source: str, before: int) -> torch.Tensor:
    """The numbers (rows, 785) of a block that `before` rows precede, checked."""
    try:
        numbers = np.loadtxt(block, dtype=np.float32, comments=None, ndmin=2)
        whole = numbers.shape == (len(block), _PIXELS + 1)
    except ValueError:
        whole = False
    if not whole:
        raise ValueError(_first_mistake(block, source, before))
    pixels, labels = numbers[:, :_PIXELS], numbers[:, _PIXELS]
    for wrong, values, expected in (
        (~((pixels >= -_ROUNDING) & (pixels <= 1 + _ROUNDING)), pixels, "a pixel from 0 to 1"),  # true for NaN as well
        (~np.isin(labels, range(10))[:, None], labels[:, None], "a label, a whole number from 0 to 9"),
    ):
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise ValueError(f"{source}, row {before + row + 1}: found {values[row, column]:g}, expected {expected}")
    return torch.from_numpy(numbers)


def _first_mistake(block: list[str], source: str, before: int) -> str:
    """What is wrong with a block that could not be parsed."""
    for number, line in enumerate(block, start=before + 1):
        words = line.split()
        if len(words) != _PIXELS + 1:
            return f"{source}, row {number}: found {len(words)} numbers, expected 784 pixels and a label"
        for word in words:
            try:
                float(word)
            except ValueError:
                return f"{source}, row {number}: {word[:20]!r} is not a number"
    return f"{source}, rows {before + 1} to {before + len(block)}: not 785 numbers on each"
