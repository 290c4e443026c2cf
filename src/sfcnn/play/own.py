"""Own network: any run, or a pretrained network, applied to uploaded files."""

import math
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sfcnn.cells.apply import wants_cells
from sfcnn.cells.files import segment_files
from sfcnn.classification import Classifier
from sfcnn.classification.rows import as_csv, prediction_rows
from sfcnn.io.stacks import TIFF, as_fraction, read_image, read_labels, read_stack
from sfcnn.play.drawing import paint_labels
from sfcnn.play.networks import get_network
from sfcnn.play.page import SLOW, guarded
from sfcnn.play.uploads import stretched
from sfcnn.pretrained import PRETRAINED
from sfcnn.segmentation import Segmenter

#: Largest number of pixels of a file, over all slices, that the page segments.
MOST_PIXELS = 4 * 1024 * 1024
#: Largest number of files at once.
MOST_FILES = 100

_COLUMNS = ["file", "class", "probability", "orientation", "angle"]


@dataclass(frozen=True)
class Applied:
    """Results of a network for files."""

    summary: str  #: in a sentence or two
    rows: list[list[Any]] = field(default_factory=list)  #: of a classifier, one per file: `_COLUMNS`
    pictures: list[tuple[NDArray[np.uint8], str]] = field(default_factory=list)  #: of a segmenter, with captions
    files: list[Path] = field(default_factory=list)  #: for download


def apply(
    run: str,
    files: Sequence[Path],
    out: Path,
    *,
    invert: bool = False,
    device: str = "auto",
    report: Callable[[float, str], None] = lambda done, what: None,
) -> Applied:
    """Classify or segment files, depending on the network, and write the results to the directory `out`.

    A classifier writes predictions.csv; a segmenter two TIFF files per image (`segment_files`) and a PNG image.
    """
    if not files:
        raise ValueError("choose at least one image first: TIFF, PNG, JPEG …")
    if len(files) > MOST_FILES:
        raise ValueError(
            f"{len(files)} files are too many for the page, which accepts {MOST_FILES}: use the command line"
        )
    network = get_network(run, device)
    if isinstance(network, Classifier):
        return _classify(network, files, out, invert)
    return _segment(network, run, files, out, invert, report)


def _classify(network: Classifier, files: Sequence[Path], out: Path, invert: bool) -> Applied:
    rows = prediction_rows([Path(file.name) for file in files], network.predict(list(files), invert=invert))
    path = out / "predictions.csv"
    path.write_text(as_csv(rows), encoding="utf-8")
    classes = ", ".join(network.classes)
    summary = f"{len(files)} {'image' if len(files) == 1 else 'images'}; the classes are {classes}."
    return Applied(summary, [[row.get(column) for column in _COLUMNS] for row in rows], files=[path])


def _segment(
    network: Segmenter, run: str, files: Sequence[Path], out: Path, invert: bool, report: Callable[[float, str], None]
) -> Applied:
    for file in files:
        shape = _read(file).shape[:3]
        if math.prod(shape) > MOST_PIXELS:
            raise ValueError(
                f"{file.name} has {math.prod(shape):,} pixels, and the page segments at most {MOST_PIXELS:,}: "
                f"use sfcnn segment predict {run} {file.name} --out DIR"
            )
    names, notes = [file.name for file in files], list[str]()

    def tell(name: str, done: float) -> None:
        report((names.index(name) + done) / len(names), name)

    written = list(segment_files(network, files, out, invert=invert, report=tell, warn=notes.append))
    pictures = []
    kind = "cells" if wants_cells(network, None) else "labels"
    for file, labels in zip(files, written[1::2], strict=True):
        painted, caption = paint_labels(stretched(_read(file)[0]), read_labels(labels)[0]), f"{file.stem}, {kind}"
        path = out / f"{file.stem}-{kind}.png"
        Image.fromarray(painted).save(path)
        pictures.append((painted, caption))
        written.append(path)
    found = f"Classes: {', '.join(network.classes)}."
    return Applied(" ".join([found, *notes]), pictures=pictures, files=written)


def _read(file: Path) -> NDArray[np.float32]:
    """The slices of a file (Z, H, W) for display, colours as grey."""
    stack = read_stack(file, colour=True) if file.suffix.lower() in TIFF else read_image(file, colour=True)[None]
    fraction = as_fraction(stack, file.name)
    return fraction.mean(-1) if fraction.ndim == 4 else fraction


def tab(page: Any, device: str) -> None:
    """Lay out the tab and connect its events."""
    import gradio as gr

    def _apply(
        run: str | None,
        paths: list[str] | None,
        invert: bool,
        progress: Any = gr.Progress(),  # noqa: B008
    ) -> tuple[Any, ...]:
        out = Path(tempfile.mkdtemp(dir=os.environ.get("GRADIO_TEMP_DIR")))
        found = apply(
            run or "", [Path(path) for path in paths or ()], out, invert=invert, device=device,
            report=lambda done, what: progress(done, desc=what),
        )  # fmt: skip
        return (
            found.summary,
            gr.Dataframe(found.rows or None, visible=bool(found.rows)),
            gr.Gallery(found.pictures or None, visible=bool(found.pictures)),
            gr.Files([str(path) for path in found.files], visible=True),
        )

    gr.Markdown(
        "Apply a network to your images: choose a pretrained network, or enter the directory of a run created by "
        "`sfcnn classify train` or `sfcnn segment train`."
    )
    with gr.Row():
        with gr.Column(scale=1, min_width=280):
            run = gr.Dropdown(
                list(PRETRAINED), value="mnist-rot", allow_custom_value=True, label="Network", elem_id="own-run"
            )
            files = gr.Files(label="Images", type="filepath", height=150, elem_id="own-files")
            invert = gr.Checkbox(label="Exchange black and white")
            button = gr.Button("Apply", variant="primary", elem_id="apply")
        with gr.Column(scale=2, min_width=420):
            summary = gr.Markdown("The result appears here.", elem_id="own-words")
            table = gr.Dataframe(headers=_COLUMNS, interactive=False, visible=False, elem_id="own-table")
            gallery = gr.Gallery(label="Results", columns=2, height=420, format="png", interactive=False, visible=False)
            downloads = gr.Files(label="Download", interactive=False, visible=False, elem_id="own-downloads")
    outputs = [summary, table, gallery, downloads]
    button.click(guarded(_apply), [run, files, invert], outputs, show_progress_on=summary, **SLOW)
