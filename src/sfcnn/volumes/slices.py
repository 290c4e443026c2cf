"""The units of work: segment one slice, link it to the next, number its cells.

Each can run in any process, in any order, any number of times. A slice is written chunk by chunk, each chunk
atomically, followed by its record, which holds checksums of the input and of the output. A slice is done if it still
matches the checksums in its record; whatever was interrupted, lost, damaged or changed is computed again.
"""

import errno
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfcnn.cells.apply import cells_settings, segment
from sfcnn.cells.linking import Links, link_slices
from sfcnn.io.zarr_volumes import Pyramid, remove_partial_chunks
from sfcnn.volumes.plan import Output, Plan
from sfcnn.volumes.source import read_window

#: System errors after which no other slice can be written either.
_FATAL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EFBIG, errno.EIO)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one slice."""

    z: int
    error: str = ""  #: one line; empty if the slice is done
    fatal: bool = False  #: whether the other slices would fail as well
    kept: bool = False  #: whether it was done before
    links: Links | None = None  #: to the next slice, if requested


def checksum(arrays: Iterable[NDArray[Any]]) -> int:
    """CRC-32 of the values of several arrays in sequence.

    >>> checksum([np.arange(4, dtype=np.uint8)]) == zlib.crc32(bytes([0, 1, 2, 3]))
    True
    """
    value = 0
    for array in arrays:
        value = zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, value)
    return value


def segment_slice(plan: Plan, z: int) -> Outcome:
    """Write the probabilities of slice z, and its own cells, numbered from 1, or its classes."""
    try:
        return _segment_slice(plan, z)
    except (ValueError, OSError, RuntimeError, MemoryError) as error:
        return _failed(z, error)


def _segment_slice(plan: Plan, z: int) -> Outcome:
    network = plan.network()
    output = Output(plan)
    try:
        images = read_window(plan.open(), z, plan.source, network)
    except OSError as error:  # affects only this slice; for the output it would affect all
        raise ValueError(str(error)) from error
    seen = checksum([images])
    done, before, written, _ = read_record(output.slices, z)
    if done and before == seen and _stored(z, output.probabilities, output.own) == written:
        return Outcome(z, kept=True)
    options, forest = dict(plan.options), plan.trees()
    settings = cells_settings(network, options.pop("method"), forest)
    found = segment(
        network, images, only=[network.neighbours], cells=plan.cells, forest=forest, settings=settings, **options
    )
    probabilities = found.probabilities[0]
    own = found.labels[0].astype(np.uint32 if plan.cells else np.uint8)
    for array in (*output.probabilities.arrays, *output.own.arrays, output.slices):
        remove_partial_chunks(array, plan.out, z)
    output.probabilities.write(z, probabilities)
    output.own.write(z, own)
    written = checksum([*output.probabilities.levels(probabilities), *output.own.levels(own)])
    output.slices[z] = np.array([1, seen, written, own.max(initial=0)], np.uint32)
    return Outcome(z)


def link_slice(plan: Plan, z: int, least: float) -> Outcome:
    """Link the cells of slice z to those of the next one."""
    try:
        own = Output(plan).own.arrays[0]
        return Outcome(z, links=link_slices(np.asarray(own[z]), np.asarray(own[z + 1]), least))
    except (ValueError, OSError, RuntimeError, MemoryError) as error:
        return _failed(z, error)


def number_slice(plan: Plan, z: int, table: NDArray[np.uint32]) -> Outcome:
    """Write the cells of slice z with their numbers in the volume."""
    try:
        output = Output(plan)
        names = checksum([table])
        done, before, written = read_record(output.numbered, z)
        if done and before == names and _stored(z, output.labels) == written:
            return Outcome(z, kept=True)
        labels = table[np.asarray(output.own.arrays[0][z])]
        for array in (*output.labels.arrays, output.numbered):
            remove_partial_chunks(array, plan.out, z)
        output.labels.write(z, labels)
        output.numbered[z] = np.array([1, names, checksum(output.labels.levels(labels))], np.uint32)
        return Outcome(z)
    except (ValueError, OSError, RuntimeError, MemoryError) as error:
        return _failed(z, error)


def read_record(records: Any, z: int) -> list[int]:
    """The record of slice z; zeros if it is missing or unreadable."""
    try:
        return [int(value) for value in records[z]]
    except Exception:  # decoders raise errors of many kinds; the slice is done again then
        return [0] * records.shape[1]


def _stored(z: int, *pyramids: Pyramid) -> int:
    """The checksum of a slice as stored, -1 if it cannot be read."""
    try:
        return checksum(level for pyramid in pyramids for level in pyramid.read(z))
    except Exception:  # decoders raise errors of many kinds; the slice is done again then
        return -1


def _failed(z: int, error: Exception) -> Outcome:
    fatal = isinstance(error, OSError) and error.errno in _FATAL
    return Outcome(z, " ".join(str(error).split()) or type(error).__name__, fatal)
