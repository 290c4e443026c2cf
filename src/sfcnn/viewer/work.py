"""The widget's work in another thread: load a network, read a layer, segment it image by image."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfcnn.cells.apply import run_forest, segment, wants_cells
from sfcnn.io.runs import read_run
from sfcnn.pretrained import PRETRAINED, find_run
from sfcnn.segmentation import load
from sfcnn.segmentation.neighbours import window
from sfcnn.viewer.layers import Source, read_images


@dataclass(frozen=True)
class Options:
    """Options of a segmentation, as in `sfcnn segment predict`."""

    run: str  #: directory of a run, or the name of a network that comes with sfcnn
    invert: bool = False
    pixel_size: float = 0.0  #: in micrometres, 0 to leave the image as it is
    average: str = "none"
    cells: bool = True  #: find cells if the network predicts membranes


@dataclass(frozen=True)
class Found:
    """The segmentation of a source."""

    source: Source
    classes: tuple[str, ...]  #: of the network
    probabilities: NDArray[np.float32] | None  #: (…, H, W) of a single class; None if there are several
    labels: NDArray[np.int32]  #: (…, H, W): cells numbered from 1, or classes numbered from 0
    cells: bool  #: whether the labels are cells


def segmentation_names() -> list[str]:
    """Names of the segmentation networks that come with sfcnn.

    >>> segmentation_names()
    ['isbi2012', 'isbi2012-affinities', 'isbi2012-plain']
    """
    return [name for name in PRETRAINED if read_run(find_run(name))[0] == "segmentation"]


def segment_source(
    source: Source, options: Options, progress: Callable[[float], None] = lambda done: None, device: str = "auto"
) -> Found:
    """Segment each image of a source separately, as `sfcnn segment predict` does with the slices of a stack.

    Args:
        source: from `sfcnn.viewer.layers.take_layer`.
        options: chosen by the user.
        progress: called with the fraction that is done; an exception from it ends the work.
        device: as in `sfcnn.load`.
    """
    network = load(find_run(options.run), device=device)
    cells = wants_cells(network, None if options.cells else False)
    forest = run_forest(network) if cells else None
    wide, first = source.around(network.neighbours)
    images = read_images(wide, colours=network.channels == 3, check=lambda: progress(0.0))
    images = images.reshape(-1, wide.shape[-3] if len(wide.shape) > 2 else 1, *images.shape[1:])  # stacks of slices
    one = len(network.classes) == 1
    labels = np.empty(source.shape, np.int32)
    probabilities = np.empty(source.shape, np.float32) if one else None
    last, count = 0, math.prod(source.shape[:-2])
    for number, index in enumerate(np.ndindex(*source.shape[:-2])):
        stack = images[number // images.shape[1]] if wide is source else images[0]
        z = first + (index[-1] if index else 0)
        found = segment(
            network,
            stack[window(z, len(stack), network.neighbours)],
            only=[network.neighbours],
            cells=cells,
            forest=forest,
            invert=options.invert,
            pixel_size=options.pixel_size,
            average=options.average,
            progress=lambda done, number=number: progress((number + done) / count),
        )
        labels[index] = found.labels[0] + last
        if cells:  # labels are unique across slices
            last = int(labels[index].max())
        if probabilities is not None:
            probabilities[index] = found.probabilities[0]
    return Found(source, network.classes, probabilities, labels, cells)
