"""Draw where cells are split and merged.

Every segment is assigned to the cell with which it shares the most pixels, and every cell to a segment likewise. A
pixel is in a split part if its segment is not the one assigned to its cell, and in a merged part if its cell is not the
one assigned to its segment. Both hold along a border that is out of place.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from sfcnn.cells.metrics import Labels, Mask, overlaps
from sfcnn.cells.scoring import StackScores
from sfcnn.cells.thinning import fill_borders, thin_borders
from sfcnn.io.files import check_output, new_file

RIGHT, SPLIT, MERGED, OUT_OF_PLACE = range(4)

#: Colour-blind-safe palette (Okabe and Ito).
COLORS = {
    "true border": (240, 228, 66),
    "proposed border": (86, 180, 233),
    "split part": (0, 114, 178),
    "merged part": (213, 94, 0),
    "border out of place": (204, 121, 167),
}
_TINTS = {SPLIT: "split part", MERGED: "merged part", OUT_OF_PLACE: "border out of place"}
_WIDTH = 512  # smaller pictures are enlarged, so that pixels and the legend are legible
_LINE = 20


def mistakes(labels: Labels, truth: Labels) -> NDArray[np.uint8]:
    """Classify each pixel of label images (H, W) as SPLIT, MERGED, OUT_OF_PLACE or RIGHT.

    Membrane pixels, with label 0 in either image, are RIGHT.

    >>> mistakes(np.array([[1, 1, 2, 3, 3, 3]]), np.array([[1, 1, 1, 0, 2, 2]]))
    array([[0, 0, 1, 0, 0, 0]], dtype=uint8)
    """
    table = overlaps(labels, truth)
    inside = table.segments > 0
    cells, segments, counts = table.cells[inside], table.segments[inside], table.counts[inside]
    pixels = (labels > 0) & (truth > 0)
    i, j = truth[pixels], labels[pixels]
    classes = np.zeros(labels.shape, np.uint8)
    split = _main_partner(cells, segments, counts, i) != j
    merged = _main_partner(segments, cells, counts, j) != i
    classes[pixels] = SPLIT * split + MERGED * merged  # their sum is OUT_OF_PLACE
    return classes


def overlay(grey: NDArray[Any], labels: Labels, truth: Labels) -> NDArray[np.uint8]:
    """An image (H, W) of brightness in [0, 1] with borders and mistakes in the `COLORS`: (H, W, 3)."""
    if grey.shape != labels.shape:
        raise ValueError(f"image {grey.shape} and labels {labels.shape} must have the same shape")
    classes = mistakes(labels, truth)
    picture = np.repeat(255.0 * grey[..., None].clip(0, 1), 3, axis=-1)
    for kind, name in _TINTS.items():
        picture[classes == kind] = (picture[classes == kind] + COLORS[name]) / 2
    picture[_lines(labels)] = COLORS["proposed border"]
    picture[_lines(truth)] = COLORS["true border"]
    return picture.round().astype(np.uint8)


def check_picture(path: Path, *, overwrite: bool = False) -> None:
    """Raise if `path` cannot become a PNG file."""
    if path.suffix.lower() != ".png":
        raise ValueError(f"the picture must be a .png file, got {path}")
    check_output(path, overwrite=overwrite)


def save_overlay(path: Path, picture: NDArray[np.uint8], title: str = "", *, overwrite: bool = False) -> None:
    """Write an overlay (H, W, 3) as PNG with a title and a legend below it, atomically."""
    check_picture(path, overwrite=overwrite)
    zoom = math.ceil(_WIDTH / picture.shape[1])
    enlarged = Image.fromarray(picture.repeat(zoom, axis=0).repeat(zoom, axis=1))
    legend = _legend(enlarged.width, title)
    page = Image.new("RGB", (enlarged.width, enlarged.height + legend.height))
    page.paste(enlarged)
    page.paste(legend, (0, enlarged.height))
    with new_file(path, overwrite=overwrite) as temporary:
        page.save(temporary, "PNG")


def draw_mistakes(
    path: Path,
    grey: NDArray[Any],
    prediction: NDArray[Any],
    truth: Labels,
    scores: StackScores,
    index: int | None = None,
    *,
    overwrite: bool = False,
) -> None:
    """Write the overlay of one slice of a scored stack, at the threshold with the best V_rand.

    Args:
        path: path of the PNG file
        grey: background images (Z, H, W), in [0, 1]
        prediction: labels, a mask or probabilities of interior (Z, H, W), as returned by `read_prediction`
        truth: true cells (Z, H, W)
        scores: scores of the prediction
        index: index of the slice; None for the one with the lowest V_rand
        overwrite: replace an existing file
    """
    values = scores.v_rand.slices
    index = values.index(min(values)) if index is None else index
    threshold, labels = scores.v_rand.threshold, prediction[index]
    labels = labels if threshold is None else thin_borders(labels.astype(np.float64) > threshold)
    title = f"slice {index + 1}: V_rand {values[index]:.4f}, V_info {scores.v_info.slices[index]:.4f}"
    save_overlay(path, overlay(grey[index], labels, truth[index]), title, overwrite=overwrite)


def _main_partner(names: Labels, partners: Labels, counts: Labels, wanted: Labels) -> Labels:
    """The partner with which each wanted name shares the most pixels; ties go to the first."""
    order = np.argsort(-counts, kind="stable")
    found, first = np.unique(names[order], return_index=True)
    return partners[order][first][np.searchsorted(found, wanted)]


def _lines(labels: Labels) -> Mask:
    """Pixels whose right or lower neighbour has another label once membranes are filled: lines one pixel wide."""
    filled = fill_borders(labels)
    lines = np.zeros(labels.shape, np.bool_)
    lines[:-1] |= filled[:-1] != filled[1:]
    lines[:, :-1] |= filled[:, :-1] != filled[:, 1:]
    return lines


def _legend(width: int, title: str) -> Image.Image:
    """White text on black: the title, then the colours with their names, wrapped to the width."""
    font = ImageFont.load_default(size=13)
    legend = Image.new("RGB", (width, _LINE * (len(COLORS) + 2)))
    draw = ImageDraw.Draw(legend)
    draw.text((4, 2), title, font=font)
    x, y = 4, _LINE if title else 0
    for name, color in COLORS.items():
        step = _LINE + round(draw.textlength(name, font=font)) + 12
        if x > 4 and x + step > width:
            x, y = 4, y + _LINE
        draw.rectangle((x, y + 4, x + 12, y + 16), fill=color)
        draw.text((x + _LINE - 2, y + 2), name, font=font)
        x += step
    return legend.crop((0, 0, width, y + _LINE + 2))
