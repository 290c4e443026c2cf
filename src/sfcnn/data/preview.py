"""A look at data sets: how many images each split has, and the first of them as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from sfcnn.data.datasets import Splits
from sfcnn.data.digits import Digits

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Preview:
    """What is shown of a data set."""

    name: str
    counts: dict[str, int]  #: number of images of each of the `SPLITS`
    first: dict[str, Digits]  #: the first images of each


def preview(splits: Splits, count: int = 12) -> Preview:
    """The numbers of images and copies of the first `count` of each split, so that the rest need not be kept."""
    parts: dict[str, Digits] = {name: getattr(splits, name) for name in SPLITS}
    return Preview(
        splits.name,
        {name: len(part.labels) for name, part in parts.items()},
        {name: Digits(part.images[:count].clone(), part.labels[:count].clone()) for name, part in parts.items()},
    )


def preview_figure(previews: Sequence[Preview]) -> "Figure":
    """For each data set its first images, a row for each split, every image with its label in the corner."""
    from matplotlib.figure import Figure

    if not previews:
        raise ValueError("a picture needs at least one data set, and none was found")
    columns = max(len(part.labels) for preview in previews for part in preview.first.values())
    figure = Figure(figsize=(1.2 + 0.5 * columns, 2.0 * len(previews)), layout="constrained")
    for axes, shown in zip(figure.subplots(len(previews), squeeze=False).flat, previews, strict=True):
        side = 28
        axes.imshow(_mosaic(shown.first, columns).numpy(), cmap="gray", vmin=0, vmax=1)
        axes.set_title(shown.name, fontsize=9)
        axes.set_xticks([])
        axes.set_yticks(
            [side * (row + 0.5) for row in range(len(SPLITS))],
            [f"{split}\n{shown.counts[split]:,}" for split in SPLITS],
            fontsize=7,
        )
        for row, split in enumerate(SPLITS):
            for column, label in enumerate(shown.first[split].labels.tolist()):
                axes.text(side * column + 1, side * row + 1, label, color="orange", fontsize=6, va="top")
    return figure


def _mosaic(parts: dict[str, Digits], columns: int) -> Tensor:
    """One image (3·28, columns·28) of the parts, one below the other."""
    image = next(iter(parts.values())).images.new_zeros(len(parts), columns, 28, 28)
    for row, part in enumerate(parts.values()):
        image[row, : len(part.labels)] = part.images[:, 0]
    return image.transpose(1, 2).reshape(len(parts) * 28, columns * 28)
