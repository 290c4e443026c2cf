"""Segment any number of files of any size, and write the results as TIFF files."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sfcnn.cells.apply import Segmentation, begin, check_stack, run_forest, wants_cells
from sfcnn.cells.linking import describe_agreement
from sfcnn.io.files import check_output
from sfcnn.io.pixelsize import PixelSize, read_pixel_size
from sfcnn.io.stacks import TIFF, as_fraction, as_writable_labels, read_image, read_stack, write_stacks
from sfcnn.segmentation import Segmenter

Item = TypeVar("Item")


def segment_files(
    network: Segmenter,
    files: Sequence[Path],
    out: Path,
    *,
    cells: bool | None = None,
    stack: bool = False,
    pixel_size: float | None = None,
    overwrite: bool = False,
    report: Callable[[str, float], None] = lambda name, done: None,
    warn: Callable[[str], None] = print,
    **options: Any,
) -> Iterator[Path]:
    """Segment files one by one, and yield the path of each TIFF file written, which has the size of its image.

    NAME-<class>.tif        probabilities of the class, from 0 to 1, if there is only one
    NAME-probabilities.tif  probabilities of several classes, one channel each
    NAME-labels.tif         the class of each pixel: 0 for background, 1, 2 …
    NAME-cells.tif          a number for each cell, instead of NAME-labels.tif

    Args:
        network, cells, stack: as in `segment`.
        files: TIFF stacks or images.
        out: directory for the results.
        pixel_size: in micrometres, 0 to use images as they are; by default read from each file.
        overwrite: replace existing files.
        report: called with a file's name and the fraction of it that is done.
        warn: called with a line about a file with an implausible pixel size, or about the agreement of its slices.
        options: passed to `segment`.
    """
    check_stack(network, cells, stack=stack)
    options.setdefault("forest", run_forest(network))
    endings = _endings(network, cells)
    outputs = {file: [out / f"{file.stem}-{ending}.tif" for ending in endings] for file in files}
    names = [path for paths in outputs.values() for path in paths]
    if len(set(names)) < len(names):
        raise ValueError("two of the images have the same name: segment them into different directories")
    for path in names:
        check_output(path, overwrite=overwrite)

    def begun() -> Iterator[tuple[Path, PixelSize, Callable[[], Segmentation]]]:
        for file in files:
            pixels = read_pixel_size(file)
            size = said_size(network, pixels.micrometres, file, warn) if pixel_size is None else pixel_size
            images = _read(file, network)
            told = partial(report, file.name)
            yield (
                file,
                pixels,
                begin(network, images, pool, cells=cells, stack=stack, pixel_size=size, progress=told, **options),
            )

    with ThreadPoolExecutor(1, thread_name_prefix="sfcnn-cells") as pool:
        for file, pixels, finish in _one_behind(begun()):
            found = finish()
            labels = as_writable_labels(found.labels, file)
            stacks = dict(zip(outputs[file], (found.probabilities, labels), strict=True))
            if len(network.classes) > 1 and found.probabilities.ndim == 3:
                stacks[outputs[file][0]] = found.probabilities[None]  # channels of one slice
            write_stacks(stacks, pixels=pixels, overwrite=overwrite)
            if found.agreement:
                warn(f"{file.name}: {describe_agreement(dict(enumerate(found.agreement)))}")
            yield from outputs[file]


def _one_behind(items: Iterator[Item]) -> Iterator[Item]:
    """Yield each item after the next one was made, so that what an item waits for can happen meanwhile.

    An error or interrupt in `items` is raised after the items before it.

    >>> made = []
    >>> [(item, len(made)) for item in _one_behind(made.append(n) or n for n in range(3))]
    [(0, 2), (1, 3), (2, 3)]
    """
    waiting: list[Item] = []
    failure: BaseException | None = None
    while failure is None:
        try:
            item = next(items)
        except BaseException as error:
            failure = error
        else:
            yield from waiting
            waiting = [item]
    yield from waiting
    if not isinstance(failure, StopIteration):
        raise failure


def said_size(network: Segmenter, size: float, file: Path, warn: Callable[[str], None]) -> float:
    """The pixel size stored in a file, or 0 if it is implausible, as programs often write arbitrary values."""
    try:
        network.scale(size)
    except ValueError:
        warn(f"{file} has an implausible pixel size of {size:g} µm, which is ignored: pass --pixel-size to set it")
        return 0.0
    return size


def _endings(network: Segmenter, cells: bool | None) -> tuple[str, str]:
    labels = "cells" if wants_cells(network, cells) else "labels"
    return (network.classes[0] if len(network.classes) == 1 else "probabilities"), labels


def _read(file: Path, network: Segmenter) -> NDArray[np.float32]:
    colour = network.channels == 3
    stack = read_stack(file, colour=colour) if file.suffix.lower() in TIFF else read_image(file, colour=colour)
    fraction = as_fraction(stack, file)
    if colour and fraction.shape[-1] != 3:
        fraction = np.repeat(fraction[..., None], 3, axis=-1)
    return fraction[0] if file.suffix.lower() in TIFF and len(fraction) == 1 else fraction
