"""Cells: membranes and cells of a rotated image, rotated back, and where they differ from those found upright."""

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

#: The steerable network; the plain one with the same name and "-plain", if there is one, is shown for comparison.
NETWORK = "isbi2012"

_SIDE = 256  # of the sample

Image = NDArray[np.float32]  # (H, H), from 0 to 1


@dataclass(frozen=True)
class Turned:
    """Results of a network on the upright image, and on the rotated image, rotated back."""

    upright: Segmentation
    back: Segmentation
    inside: NDArray[np.bool_]  #: pixels seen in both: all at quarter turns, else a disk

    @property
    def membranes_changed(self) -> float:
        """The fraction of pixels inside that are membrane in one and not in the other."""
        cut = [found.probabilities[self.inside] > 0.5 for found in (self.upright, self.back)]
        return float((cut[0] != cut[1]).mean())

    @property
    def cells_kept(self) -> float:
        """V_rand between both sets of cells inside; 1 if they are identical."""
        return rand_agreement(
            overlaps(*(_masked(found.labels, self.inside) for found in (self.back, self.upright)))
        ).score


@lru_cache(maxsize=1)
def sample() -> Upload:
    """A held-out slice of ISBI 2012 if its files are available, else synthetic membranes."""
    directory = data_directory()
    path = None if directory is None else directory / "isbi2012" / "test-volume.tif"
    if path is not None and path.is_file():
        whole = as_fraction(read_stack(path)[0], path)
        return Upload(whole[:_SIDE, :_SIDE], ("The first test slice of ISBI 2012, held out from training.",))
    image = synthetic_membranes(1, _SIDE, seed=1).images[0].numpy()
    return Upload(image, ("Synthetic membranes, not real tissue.",))


def turn_image(image: Image, degrees: float) -> Image:
    """Rotate a square image counter-clockwise, with reflection padding at its corners."""
    beyond = math.ceil((math.sqrt(2) - 1) / 2 * len(image)) + 2
    wide = torch.from_numpy(np.pad(image, beyond, mode="reflect"))
    turned = rotate(wide, math.radians(degrees)).clamp(float(image.min()), float(image.max()))
    return turned[beyond:-beyond, beyond:-beyond].numpy()


def turn_back(found: Segmentation, degrees: float) -> Segmentation:
    """Rotate probabilities and labels clockwise; labels by nearest neighbour."""
    angle = -math.radians(degrees)
    probabilities = rotate(torch.from_numpy(found.probabilities), angle, "bilinear").clamp(0, 1).numpy()
    side = len(found.labels)
    axis = torch.arange(side, dtype=torch.float64)
    places = rotate(torch.stack(torch.meshgrid(axis, axis, indexing="ij")), angle, "bilinear")
    rows, columns = places.round().long().clamp(0, side - 1).numpy()
    return Segmentation(probabilities, found.labels[rows, columns])


def seen_twice(side: int, degrees: float) -> NDArray[np.bool_]:
    """The pixels of a square that are visible upright and rotated; between quarter turns, a disk."""
    if math.isclose(degrees % 90, 0):
        return np.ones((side, side), np.bool_)
    axis = np.arange(side) - (side - 1) / 2
    return axis[:, None] ** 2 + axis**2 <= (side / 2 - 2) ** 2


def compare(
    network: Segmenter, image: Image, degrees: float, report: Callable[[float, str], None] = lambda done, what: None
) -> Turned:
    """Segment an image upright and rotated."""
    if network.channels != 1 or len(network.classes) != 1:
        raise ValueError(f"expected a network for grey images with one class, got {list(network.classes)}")
    report(0.0, "upright")
    upright = segment(network, image, cells=True)
    report(0.5, "rotated")
    turned = segment(network, turn_image(image, degrees), cells=True)
    return Turned(upright, turn_back(turned, degrees), seen_twice(len(image), degrees))


def pictures(image: Image, found: Turned) -> tuple[NDArray[np.uint8], ...]:
    """Membranes and cells of the rotated image, rotated back, and where its cells differ from the upright ones."""
    grey = stretched(image)
    membranes = as_bytes(np.where(found.inside, found.back.probabilities, 0))
    cells = paint_labels(grey, _masked(found.back.labels, found.inside))
    return membranes, cells, differences(grey, found.back.labels, found.upright.labels, found.inside)


def differences(grey: Image, labels: Any, others: Any, inside: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Borders of both label images, with the parts of cells that one splits or merges in colour."""
    drawn = overlay(grey, _masked(labels, inside), _masked(others, inside))
    drawn[~inside] = 0
    return drawn


def words(name: str, degrees: float, found: Turned) -> str:
    """How much rotation changes the results."""
    upright, turned = (len(np.unique(part.labels[found.inside])) for part in (found.upright, found.back))
    return (
        f"**{name}**, rotated by {degrees:g}° and back: {found.membranes_changed:.2%} of the pixels change between "
        f"membrane and cell; V_rand between both sets of cells is {found.cells_kept:.4f} "
        f"({upright} cells upright, {turned} rotated)."
    )


def _masked(labels: NDArray[np.int64], inside: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Labels set to 0 outside; 0 counts as membrane."""
    return np.where(inside, labels, 0)


def tab(page: Any, device: str) -> None:
    """Lay out the tab and connect its events."""
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
            lines.append(f"On the rotated image, V_rand between the cells of both is {between.cells_kept:.4f}.")
        else:
            rows += [None] * 3
        if not math.isclose(degrees % 90, 0):
            lines.append(
                "Between quarter turns the image is resampled, and only the disk visible in both images is compared."
            )
        return *rows, "\n\n".join(lines), gr.Row(visible=len(found) > 1)

    gr.Markdown(
        "Membranes and cells of a rotated micrograph, rotated back, and where they differ from those found upright. "
        f"Images are cropped to {LONGEST}×{LONGEST} pixels; they should have about 4 nm per pixel."
    )
    with gr.Row():
        with gr.Column(scale=1, min_width=260):
            file = gr.File(label="Image (default: the sample)", type="filepath", height=120, elem_id="cells-file")
            angle = gr.Slider(0, 360, 90, step=15, label="Angle in degrees, counter-clockwise", elem_id="cells-angle")
            other = gr.Textbox(
                plain_counterpart(NETWORK),
                label="Compare with run",
                placeholder="directory of a plain U-Net (optional)",
            )
            button = gr.Button("Segment", variant="primary", elem_id="segment")
            note = gr.Markdown()
        turned = _image(gr, "Rotated image", scale=1)
    text = gr.Markdown(elem_id="cells-words")
    with gr.Row():
        first = [_image(gr, name) for name in ("Membranes, rotated back", "Cells, rotated back", "Upright vs. rotated")]
    with gr.Row(visible=False) as second:
        others = [_image(gr, f"Other network: {name}") for name in ("membranes", "cells", "upright vs. rotated")]
    gr.Markdown(
        "In the comparison, borders of cells found upright are yellow and those found in the rotated image light blue; "
        "split parts are dark blue, merged parts orange, and borders that have moved pink."
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
