"""Cells: membranes and cells in a turned image, turned back, and where they differ from those in the upright one."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sfcnn.cells.apply import Segmentation, segment
from sfcnn.cells.metrics import overlaps, rand_agreement
from sfcnn.cells.overlay import overlay
from sfcnn.group import rotate
from sfcnn.io.files import data_directory
from sfcnn.io.stacks import as_fraction, read_stack
from sfcnn.play.drawing import as_bytes, paint_labels
from sfcnn.play.networks import get_segmenter, plain_counterpart
from sfcnn.play.page import SLOW, guarded
from sfcnn.play.uploads import LONGEST, Upload, centre_square, read_upload, stretched
from sfcnn.segmentation import Segmenter, synthetic_membranes

#: The steerable network; a plain one named the same with "-plain" is shown beside it once there is one.
NETWORK = "isbi2012"

_SIDE = 256  # of the sample

Image = NDArray[np.float32]  # (H, H), from 0 to 1


@dataclass(frozen=True)
class Turned:
    """What a network finds upright, and in the turned image, turned back."""

    upright: Segmentation
    back: Segmentation
    inside: NDArray[np.bool_]  #: pixels that both have seen: all at quarter turns, else a disk

    @property
    def membranes_changed(self) -> float:
        """The part of the pixels inside that are membrane in one and not in the other."""
        cut = [found.probabilities[self.inside] > 0.5 for found in (self.upright, self.back)]
        return float((cut[0] != cut[1]).mean())

    @property
    def cells_kept(self) -> float:
        """V_rand of both sets of cells inside; 1 if they are the same."""
        return rand_agreement(
            overlaps(*(_masked(found.labels, self.inside) for found in (self.back, self.upright)))
        ).score


@lru_cache(maxsize=1)
def sample() -> Upload:
    """A slice of ISBI 2012 that the network has not seen if its files are there, else synthetic membranes."""
    directory = data_directory()
    path = None if directory is None else directory / "isbi2012" / "test-volume.tif"
    if path is not None and path.is_file():
        whole = as_fraction(read_stack(path)[0], path)
        return Upload(whole[:_SIDE, :_SIDE], ("The first test slice of ISBI 2012, which no network has seen.",))
    image = synthetic_membranes(1, _SIDE, seed=1).images[0].numpy()
    return Upload(image, ("Synthetic membranes: a drawing, not tissue.",))


def turn_image(image: Image, degrees: float) -> Image:
    """Turn a square image counter-clockwise; what comes in from beyond its corners is its mirror image."""
    beyond = math.ceil((math.sqrt(2) - 1) / 2 * len(image)) + 2
    wide = torch.from_numpy(np.pad(image, beyond, mode="reflect"))
    turned = rotate(wide, math.radians(degrees)).clamp(float(image.min()), float(image.max()))
    return turned[beyond:-beyond, beyond:-beyond].numpy()


def turn_back(found: Segmentation, degrees: float) -> Segmentation:
    """Turn probabilities and labels clockwise; each pixel gets the label of the one that comes nearest to it."""
    angle = -math.radians(degrees)
    probabilities = rotate(torch.from_numpy(found.probabilities), angle, "bilinear").clamp(0, 1).numpy()
    side = len(found.labels)
    axis = torch.arange(side, dtype=torch.float64)
    places = rotate(torch.stack(torch.meshgrid(axis, axis, indexing="ij")), angle, "bilinear")
    rows, columns = places.round().long().clamp(0, side - 1).numpy()
    return Segmentation(probabilities, found.labels[rows, columns])


def seen_twice(side: int, degrees: float) -> NDArray[np.bool_]:
    """The pixels of a square that are in it upright and turned, for any angle between quarter turns a disk."""
    if math.isclose(degrees % 90, 0):
        return np.ones((side, side), np.bool_)
    axis = np.arange(side) - (side - 1) / 2
    return axis[:, None] ** 2 + axis**2 <= (side / 2 - 2) ** 2


def compare(
    network: Segmenter, image: Image, degrees: float, report: Callable[[float, str], None] = lambda done, what: None
) -> Turned:
    """Segment an image upright and turned."""
    if network.channels != 1 or len(network.classes) != 1:
        raise ValueError(f"expected a network of grey images that looks for one thing, not {list(network.classes)}")
    report(0.0, "upright")
    upright = segment(network, image, cells=True)
    report(0.5, "turned")
    turned = segment(network, turn_image(image, degrees), cells=True)
    return Turned(upright, turn_back(turned, degrees), seen_twice(len(image), degrees))


def pictures(image: Image, found: Turned) -> tuple[NDArray[np.uint8], ...]:
    """Membranes and cells of the turned image, turned back, and where its cells differ from the upright ones."""
    grey = stretched(image)
    membranes = as_bytes(np.where(found.inside, found.back.probabilities, 0))
    cells = paint_labels(grey, _masked(found.back.labels, found.inside))
    return membranes, cells, differences(grey, found.back.labels, found.upright.labels, found.inside)


def differences(grey: Image, labels: Any, others: Any, inside: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Borders of both label images, and in colour the parts of cells that one splits or merges."""
    drawn = overlay(grey, _masked(labels, inside), _masked(others, inside))
    drawn[~inside] = 0
    return drawn


def words(name: str, degrees: float, found: Turned) -> str:
    """How much turning has changed."""
    upright, turned = (len(np.unique(part.labels[found.inside])) for part in (found.upright, found.back))
    return (
        f"**{name}**, turned by {degrees:g}° and back: {found.membranes_changed:.2%} of the pixels change between "
        f"membrane and cell, and the cells agree to V_rand = {found.cells_kept:.4f} "
        f"({upright} upright, {turned} turned)."
    )


def _masked(labels: NDArray[np.int64], inside: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Labels with 0 outside; whatever is 0 counts as membrane."""
    return np.where(inside, labels, 0)


def tab(page: Any, device: str) -> None:
    """Lay out the tab and say what happens when something is touched."""
    import gradio as gr

    def _show(path: str | None, degrees: float) -> tuple[Any, str]:
        upload = centre_square(sample() if path is None else read_upload(path))
        turned = turn_image(upload.image, degrees)
        return as_bytes(stretched(turned)), " ".join(upload.notes)

    def _compare(path: str | None, degrees: float, other: str, progress: Any = gr.Progress()) -> tuple[Any, ...]:  # noqa: B008
        upload = centre_square(sample() if path is None else read_upload(path))
        names = [NETWORK, *filter(None, [other.strip() or plain_counterpart(NETWORK)])]
        networks = [get_segmenter(name, device) for name in names]
        found = []
        for number, (name, network) in enumerate(zip(names, networks, strict=True)):

            def report(done: float, what: str, number: int = number, name: str = name) -> None:
                progress((number + done) / len(names), desc=f"{name}: {what}")

            found.append(compare(network, upload.image, degrees, report))
        rows: list[Any] = [*pictures(upload.image, found[0])]
        lines = [words(name, degrees, each) for name, each in zip(names, found, strict=True)]
        if len(found) > 1:
            rows += pictures(upload.image, found[1])
            between = Turned(found[0].back, found[1].back, found[0].inside)
            lines.append(f"On the turned image the cells of both agree to V_rand = {between.cells_kept:.4f}.")
        else:
            rows += [None] * 3
        if not math.isclose(degrees % 90, 0):
            lines.append(
                "Between quarter turns the image is resampled, and only the disk that is seen twice is compared."
            )
        return *rows, "\n\n".join(lines), gr.Row(visible=len(found) > 1)

    gr.Markdown(
        "Membranes and cells in a turned micrograph, turned back, and where they differ from those found upright. "
        f"Images are cut to {LONGEST}×{LONGEST} pixels; they should have about 4 nm a pixel."
    )
    with gr.Row():
        with gr.Column(scale=1, min_width=260):
            file = gr.File(label="Image (none: the sample)", type="filepath", height=120, elem_id="cells-file")
            angle = gr.Slider(0, 360, 90, step=15, label="Angle in degrees, counter-clockwise", elem_id="cells-angle")
            other = gr.Textbox(
                plain_counterpart(NETWORK),
                label="Compare with run",
                placeholder="directory of a plain U-Net, or nothing",
            )
            button = gr.Button("Segment", variant="primary", elem_id="segment")
            note = gr.Markdown()
        turned = _image(gr, "Turned image", scale=1)
    text = gr.Markdown(elem_id="cells-words")
    with gr.Row():
        first = [
            _image(gr, name) for name in ("Membranes, turned back", "Cells, turned back", "Upright against turned")
        ]
    with gr.Row(visible=False) as second:
        others = [_image(gr, f"The other network: {name}") for name in ("membranes", "cells", "upright against turned")]
    gr.Markdown(
        "In the comparison, borders of cells found upright are yellow and those found turned are light blue; "
        "dark blue parts are split, orange parts are merged, and pink is a border that has moved."
    )
    page.load(guarded(_show), [file, angle], [turned, note], show_progress="hidden", **SLOW)
    for touched in (file.change, angle.release):
        touched(guarded(_show), [file, angle], [turned, note], show_progress="minimal", **SLOW)
    button.click(
        guarded(_compare), [file, angle, other], [*first, *others, text, second], show_progress_on=text, **SLOW
    )


def _image(gr: Any, label: str, **options: Any) -> Any:
    return gr.Image(
        label=label, format="png", interactive=False, height=330, buttons=["download", "fullscreen"], **options
    )
