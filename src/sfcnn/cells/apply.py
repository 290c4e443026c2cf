"""From images to cells with a trained network."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from sfcnn.cells.affinities import Affinities
from sfcnn.cells.forest import Forest
from sfcnn.cells.linking import SliceAgreement, link_stack
from sfcnn.cells.pipeline import BY_AFFINITIES, BY_SUPERPIXELS, CellsConfig, find_cells
from sfcnn.io.settings import read_settings
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
    with ThreadPoolExecutor(1, thread_name_prefix="sfcnn-cells") as pool:
        return begin(network, images, pool, only=only, cells=cells, stack=stack, **options)()


def begin(
    network: Segmenter,
    images: ArrayLike,
    pool: Executor,
    *,
    only: Sequence[int] | None = None,
    cells: bool | None = None,
    stack: bool = False,
    **options: Any,
) -> Callable[[], Segmentation]:
    """Apply the network, as in `segment`, while the `pool` finds the cells of earlier slices; call the result to wait.

    So the network can go on with another image at once. Finding cells lets go of Python's lock nearly all the time.
    """
    check_stack(network, cells, stack=stack)
    images = np.asarray(images)
    forest = options.pop("forest") if "forest" in options else run_forest(network)
    settings: CellsConfig | None = options.pop("settings", None) or run_settings(network)
    if settings is not None and settings.method not in BY_SUPERPIXELS:
        forest = None
    if not wants_cells(network, cells):
        probabilities = network.predict(images, only=only, **options)
        return lambda: Segmentation(probabilities, _classes(network, probabilities))
    if settings is not None and settings.method in BY_AFFINITIES:
        found = _by_affinities(network, images.astype(np.float32, copy=False), settings, forest, only=only, **options)
        return lambda: _linked(found) if stack else found
    scale = network.scale(options.get("pixel_size", 0.0))
    progress = options.pop("progress", lambda done: None)

    def predict(only: Sequence[int] | None, start: float, share: float) -> tuple[NDArray[Any], Future[NDArray[Any]]]:
        probabilities = network.predict(
            images, only=only, progress=lambda done: progress(start + done * share), **options
        )
        raw = images if only is None else images[list(only)]
        raw = 1 - raw if options.get("invert") else raw
        return probabilities, pool.submit(_cells, probabilities, raw, forest, scale, settings)

    single = images.ndim - (network.channels == 3 and images.shape[-1] == 3) == 2
    chosen = range(len(images)) if only is None else only
    if single or len(chosen) < 2 or (settings is not None and settings.joined):
        parts = [predict(only, 0.0, 1.0)]
    else:
        parts = [predict([z], number / len(chosen), 1 / len(chosen)) for number, z in enumerate(chosen)]

    def finish() -> Segmentation:
        labels = [cells.result() for _, cells in parts]
        for last, this in pairwise(labels):
            this += last.max()  # labels are unique across slices
        if len(parts) == 1:
            found = Segmentation(parts[0][0], labels[0])
        else:
            found = Segmentation(np.concatenate([part for part, _ in parts]), np.concatenate(labels))
        return _linked(found) if stack else found

    return finish


def _classes(network: Segmenter, probabilities: NDArray[np.float32]) -> NDArray[np.int64]:
    """The class of each pixel, from 0."""
    if len(network.classes) == 1:
        return (probabilities > 0.5).astype(np.int64)
    return probabilities.argmax(-3)


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
