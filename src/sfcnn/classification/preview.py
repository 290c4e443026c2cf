"""Preview data sets: the number of images in each split, and a figure of the first ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sfcnn.classification.labelled import SPLITS, LabelledImages, Splits, as_fraction

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LONGEST = 10  # characters of a label in the figure

_DARK = 0.25  # of the brightest pixel of all images


def darkness(images: Tensor) -> str:
    """A warning if images, bytes or in [0, 1], use little of the range, as 12-bit images in 16-bit files; or "".

    >>> darkness(torch.full((2, 1, 8, 8), 16, dtype=torch.uint8))
    'images are dark: their brightest pixel has 6.3 % of the largest possible value; stretch their range first'
    """
    brightest = float(as_fraction(images.max()))
    if brightest >= _DARK:
        return ""
    share = f"{100 * brightest:.2g} % of the largest possible value"
    return f"images are dark: their brightest pixel has {share}; stretch their range first"


@dataclass(frozen=True)
class Preview:
    """A preview of a data set."""

    name: str
    counts: dict[str, int]  #: number of images in each of the `SPLITS`
    first: dict[str, LabelledImages]  #: the first images of each
    classes: tuple[str, ...]  #: their names

    def summary(self) -> str:
        """The number of images in each split, in words."""
        return ", ".join(f"{count:,} {split}" for split, count in self.counts.items())


def preview(splits: Splits, count: int = 12) -> Preview:
    """Count the images and copy the first `count` of each split, so that the others need not stay in memory."""
    parts: dict[str, LabelledImages] = {name: getattr(splits, name) for name in SPLITS}
    counts = {name: len(part.labels) for name, part in parts.items()}
    first = {name: LabelledImages(*(tensor[:count].clone() for tensor in part)) for name, part in parts.items()}
    return Preview(splits.name, counts, first, splits.classes)


def preview_figure(previews: Sequence[Preview]) -> "Figure":
    """Draw the first images of each data set, one row per split, with the label in the corner of each image."""
    from matplotlib.figure import Figure

    if not previews:
        raise ValueError("no data set to draw: at least one is needed")
    columns = max(len(part.labels) for preview in previews for part in preview.first.values())
    figure = Figure(figsize=(1.2 + 0.5 * columns, 2.0 * len(previews)), layout="constrained")
    for axes, shown in zip(figure.subplots(len(previews), squeeze=False).flat, previews, strict=True):
        side = shown.first["train"].images.shape[-1]
        axes.imshow(_mosaic(shown.first, columns).numpy(), cmap="gray", vmin=0, vmax=1)
        axes.set_title(shown.name, fontsize=9, parse_math=False)
        axes.set_xticks([])
        axes.set_yticks(
            [side * (row + 0.5) for row in range(len(SPLITS))],
            [f"{split}\n{shown.counts[split]:,}" for split in SPLITS],
            fontsize=7,
        )
        for row, split in enumerate(SPLITS):
            for column, label in enumerate(shown.first[split].labels.tolist()):
                place, name = (side * (column + 0.04), side * (row + 0.04)), shown.classes[label][:_LONGEST]
                axes.text(*place, name, color="orange", fontsize=6, va="top", parse_math=False)
    return figure


def _mosaic(parts: dict[str, LabelledImages], columns: int) -> Tensor:
    """One picture (3·side, columns·side, C) of the parts, from top to bottom."""
    _, channels, side, _ = parts["train"].images.shape
    picture = torch.zeros(len(parts), columns, channels, side, side)
    for row, part in zip(picture, parts.values(), strict=True):
        row[: len(part.labels)] = as_fraction(part.images)
    return picture.permute(0, 3, 1, 4, 2).reshape(len(parts) * side, columns * side, channels)
