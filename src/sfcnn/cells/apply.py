"""From images to cells with a trained network, for arrays or for any number of files of any size."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from sfcnn.cells.affinities import Affinities
from sfcnn.cells.forest import Forest
from sfcnn.cells.linking import SliceAgreement, describe_agreement, link_stack
from sfcnn.cells.pipeline import BY_AFFINITIES, BY_SUPERPIXELS, CellsConfig, find_cells
from sfcnn.io.files import check_output
from sfcnn.io.pixelsize import read_pixel_size
from sfcnn.io.settings import read_settings
from sfcnn.io.stacks import TIFF, as_fraction, as_writable_labels, read_image, read_stack, write_stacks
from sfcnn.segmentation import Segmenter
from sfcnn.segmentation.neighbours import window
from sfcnn.segmentation.predict import resize

#: Networks with this single class produce cells by default.
MEMBRANES = "membranes"

#: File of a run with the settings of its cells.
SETTINGS_FILE = "cells.yaml"


@dataclass(frozen=True)
class Segmentation:
    """The segmentation of an image or of slices."""

    probabilities: NDArray[np.float32]  #: (H, W) or (Z, H, W); several classes are (K, H, W) or (Z, K, H, W)
    labels: NDArray[np.int64]  #: (H, W) or (Z, H, W): cells numbered from 1, or classes numbered from 0
    agreement: tuple[SliceAgreement, ...] = ()  #: of each slice with the next, if cells are linked across slices


def segment(
    network: Segmenter,
    images: ArrayLike,
    *,
    only: Sequence[int] | None = None,
    cells: bool | None = None,
    stack: bool = False,
    **options: Any,
) -> Segmentation:
    """Segment an image or slices: probabilities, and the cells between membranes or the class of each pixel.

    Args:
        network: from `sfcnn.load`.
        images: (H, W) or (Z, H, W), from 0 (black) to 1 (white); RGB with a last axis of 3.
        only: indices of the slices to segment, by default all; the others are neighbours that the network may see.
        cells: whether to find cells; by default, if the network predicts membranes.
        stack: link cells across slices (`sfcnn.cells.linking`), so that a cell has the same label in all of them.
        options: options of `Segmenter.predict`; `forest`, a `Forest` or None, by default the one in the network's run;
            `settings`, a `CellsConfig`, by default that of the network's run; some methods need a network that was
            trained with affinities.

    >>> import sfcnn
    >>> image = sfcnn.segmentation.synthetic_membranes(1, 128)[0][0].numpy()
    >>> int(segment(sfcnn.load("isbi2012", device="cpu"), image).labels.max()) > 1
    True
    """
    if not isinstance(network, Segmenter):
        raise ValueError(
            f"expected a segmentation network, such as sfcnn.load('isbi2012'), got {type(network).__name__}"
        )
    check_stack(network, cells, stack=stack)
    forest = options.pop("forest") if "forest" in options else run_forest(network)
    settings: CellsConfig | None = options.pop("settings", None) or run_settings(network)
    if settings is not None and settings.method not in BY_SUPERPIXELS:
        forest = None
    if settings is not None and settings.method in BY_AFFINITIES and wants_cells(network, cells):
        found = _by_affinities(network, np.asarray(images, np.float32), settings, forest, only=only, **options)
        return _linked(found) if stack else found
    probabilities = network.predict(images, only=only, **options)
    if wants_cells(network, cells):
        scale = network.scale(options.get("pixel_size", 0.0))
        raw = np.asarray(images) if only is None else np.asarray(images)[list(only)]
        raw = 1 - raw if options.get("invert") else raw
        found = Segmentation(probabilities, _cells(probabilities, raw, forest, scale, settings))
        return _linked(found) if stack else found
    if len(network.classes) == 1:
        return Segmentation(probabilities, (probabilities > 0.5).astype(np.int64))
    return Segmentation(probabilities, probabilities.argmax(-3))


def wants_cells(network: Segmenter, cells: bool | None) -> bool:
    """Whether to find cells, which need a network with a single class."""
    if cells and len(network.classes) > 1:
        raise ValueError(f"cells need a network whose only class is membranes, got the classes {network.classes}")
    return network.classes == (MEMBRANES,) if cells is None else cells


def check_stack(network: Segmenter, cells: bool | None, *, stack: bool) -> None:
    """Raise if there are no cells to be linked across slices."""
    if stack and not wants_cells(network, cells):
        raise ValueError(f"only cells can be linked across slices, but the output is {network.classes}, not cells")


def run_forest(network: Segmenter) -> Forest | None:
    """The forest stored with a network's run, if any."""
    path = network.directory / "edges.safetensors"
    return Forest.load(path) if path.is_file() else None


def run_settings(network: Segmenter) -> CellsConfig | None:
    """The settings of cells stored with a network's run by `sfcnn segment tune`, if any."""
    path = network.directory / SETTINGS_FILE
    return read_settings(CellsConfig, path) if path.is_file() else None


def cells_settings(network: Segmenter, method: str | None, forest: Forest | None) -> CellsConfig | None:
    """Settings for a method: those of the network's run, if it has some, else the defaults with a forest's superpixels.

    Without a method, those of the run, or None for all defaults.
    """
    stored = run_settings(network)
    if method is None or (stored is not None and stored.method == method):
        return stored
    return CellsConfig(method=method) if forest is None else CellsConfig(forest.superpixels, method=method)


def check_method(network: Segmenter, settings: CellsConfig | None) -> None:
    """Raise if the method needs affinities that the network does not predict."""
    if settings is not None and settings.method in BY_AFFINITIES and not network.config.model.affinities:
        raise ValueError(
            f"the method {settings.method!r} needs a network that was trained with affinities, such as "
            f"--model.affinities '[1, 3, 9, 27]', which {network.directory} was not"
        )


def _linked(found: Segmentation) -> Segmentation:
    """The same segmentation with cells linked across slices; a single image is returned unchanged."""
    if found.labels.ndim == 2:
        return found
    labels, agreement = link_stack(found.labels)
    return Segmentation(found.probabilities, labels, tuple(agreement))


def _cells(
    probabilities: NDArray[np.float32],
    images: NDArray[Any],
    forest: Forest | None,
    scale: float,
    settings: CellsConfig | None,
) -> NDArray[np.int64]:
    """Find the cells, with a forest if there is one.

    Superpixel settings refer to the pixel size of the training images, so other images are rescaled by `scale`.
    """
    sides = probabilities.shape[-2:]
    scaled = [max(1, round(scale * side)) for side in sides]
    membranes = _resized(probabilities, scaled).clip(0, 1)
    raw = _resized(images, scaled) if forest is not None and forest.needs_raw else None
    return _stretched(find_cells(membranes, settings, forest, raw), sides)


def _by_affinities(
    network: Segmenter,
    images: NDArray[np.float32],
    settings: CellsConfig,
    forest: Forest | None,
    *,
    only: Sequence[int] | None = None,
    pixel_size: float = 0.0,
    progress: Callable[[float], None] = lambda done: None,
    **options: Any,
) -> Segmentation:
    """Find cells slice by slice, because affinities take much memory, at the pixel size of the training images."""
    check_method(network, settings)
    radii = network.config.model.affinities
    colours = network.channels == 3 and images.shape[-1] == 3
    single = images.ndim - colours == 2
    slices = images[None] if single else images
    chosen = range(len(slices)) if only is None else only
    scale, found = network.scale(pixel_size), []
    for number, z in enumerate(chosen):
        seen = slices[window(z, len(slices), network.neighbours)]
        planes = np.moveaxis(seen, -1, -3) if colours else seen
        sides = planes.shape[-2:]
        planes = _resized(planes, [max(1, round(scale * side)) for side in sides])
        membranes, values = network.predict_affinities(
            np.moveaxis(planes, -3, -1) if colours else planes,
            z=network.neighbours,
            progress=lambda done, number=number: progress((number + done) / len(chosen)),  # type: ignore[misc]
            **options,
        )
        small = planes[network.neighbours]
        raw = (1 - small if options.get("invert") else small) if forest is not None and forest.needs_raw else None
        labels = find_cells(membranes, settings, forest, raw, affinities=Affinities(values, radii))
        found.append((_resized(membranes, sides).clip(0, 1), _stretched(labels, sides)))
    probabilities, cells = (np.stack(parts) for parts in zip(*found, strict=True))
    for last, this in pairwise(cells):
        this += last.max()  # labels are unique across slices
    return Segmentation(probabilities[0], cells[0]) if single else Segmentation(probabilities, cells)


def _stretched(labels: NDArray[np.int64], sides: Sequence[int]) -> NDArray[np.int64]:
    """Resample labels (…, H, W) to new sides: each pixel takes the label of the nearest one."""
    if labels.shape[-2:] == tuple(sides):
        return labels
    rows, columns = (np.arange(side) * part // side for side, part in zip(sides, labels.shape[-2:], strict=True))
    return labels[..., rows[:, None], columns]


def _resized(images: NDArray[Any], sides: Sequence[int]) -> NDArray[np.float32]:
    """Resample an image (H, W) or slices (Z, H, W) to new sides."""
    slices = torch.from_numpy(np.ascontiguousarray(images, np.float32)).reshape(-1, *images.shape[-2:])
    return resize(slices, sides).numpy().reshape(*images.shape[:-2], *sides)


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
    for file, paths in outputs.items():
        pixels = read_pixel_size(file)
        size = said_size(network, pixels.micrometres, file, warn) if pixel_size is None else pixel_size
        found = segment(
            network,
            _read(file, network),
            cells=cells,
            stack=stack,
            pixel_size=size,
            progress=lambda done, name=file.name: report(name, done),
            **options,
        )
        stacks = dict(zip(paths, (found.probabilities, as_writable_labels(found.labels, file)), strict=True))
        if len(network.classes) > 1 and found.probabilities.ndim == 3:
            stacks[paths[0]] = found.probabilities[None]  # channels of one slice
        write_stacks(stacks, pixels=pixels, overwrite=overwrite)
        if found.agreement:
            warn(f"{file.name}: {describe_agreement(dict(enumerate(found.agreement)))}")
        yield from paths


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
