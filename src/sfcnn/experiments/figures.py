"""Figures of the experiments: error against angle, orientations and runs, and segmented images. Needs matplotlib."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sfcnn.pictures import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray


def error_curves(angles: Sequence[float], series: Mapping[str, Sequence[float]], title: str) -> "Figure":
    """Test error in per cent against the angle of the images in degrees, one line per network."""
    figure = new_figure(6.4, 3.8)
    axes = figure.subplots()
    for (name, errors), marker in zip(series.items(), "osd^v", strict=False):
        axes.plot([*angles, 360], [*errors, errors[0]], marker=marker, markersize=4, label=name)
    axes.set(xlabel="rotation of the test digits (degrees)", ylabel="test error (%)", title=title, xlim=(0, 360))
    axes.set_xticks(range(0, 361, 45))
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def error_panels(angles: Sequence[float], panels: Mapping[str, Mapping[str, Sequence[float]]], title: str) -> "Figure":
    """Test error against the angle of the images in degrees: one panel per network, one line per augmentation."""
    figure = new_figure(4.2 * len(panels), 3.6)
    grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)
    for axes, (name, series) in zip(grid.flat, panels.items(), strict=True):
        for (augmentation, errors), marker in zip(series.items(), "osd^", strict=False):
            axes.plot([*angles, 360], [*errors, errors[0]], marker=marker, markersize=3, label=augmentation)
        axes.set(xlabel="rotation of the test digits (degrees)", title=name, xlim=(0, 360))
        axes.set_xticks(range(0, 361, 45))
        axes.grid(alpha=0.3)
    grid[0, 0].set_ylim(bottom=0)  # for all panels, once everything is drawn
    grid[0, 0].set_ylabel("test error (%)")
    grid[0, -1].legend(title="augmentation", fontsize=8)
    figure.suptitle(title, fontsize=10)
    return figure


def error_against_orientations(series: Mapping[str, Mapping[int, tuple[float, float]]], title: str) -> "Figure":
    """Test error against Λ, mean and deviation, one line per size of the training set (figure 4 left)."""
    figure = new_figure(5.4, 3.8)
    axes = figure.subplots()
    for (name, points), marker in zip(series.items(), "osd^v", strict=False):
        means, deviations = zip(*points.values(), strict=True)
        axes.errorbar(list(points), means, deviations, marker=marker, markersize=4, capsize=3, label=name)
    ticks = sorted({orientations for points in series.values() for orientations in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set(xlabel="orientations Λ", ylabel="test error (%)", title=title)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def error_points(points: Mapping[str, Sequence[float]], title: str) -> "Figure":
    """Test errors of single runs, one column per kind of run, with their means."""
    figure = new_figure(1.6 + 1.5 * len(points), 3.6)
    axes = figure.subplots()
    for column, errors in enumerate(points.values()):
        axes.plot([column] * len(errors), errors, "o", color="C0", alpha=0.7)
        axes.hlines(sum(errors) / len(errors), column - 0.25, column + 0.25, color="C1")
    axes.set_xticks(range(len(points)), list(points))
    axes.set(ylabel="test error (%)", xlim=(-0.5, len(points) - 0.5), title=title)
    axes.title.set_fontsize(9)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.3)
    return figure


def segmentation_rows(rows: Mapping[str, Mapping[str, "NDArray[Any]"]], title: str) -> "Figure":
    """One row of pictures per network, columns by name: label images (integers) in random colours, others as they are.

    Images are (H, W) of brightness in [0, 1], or (H, W, 3) of colours.
    """
    columns = list(next(iter(rows.values())))
    figure = new_figure(2.6 * len(columns), 2.75 * len(rows) + 0.3)
    grid = figure.subplots(len(rows), len(columns), squeeze=False)
    for row, (name, images) in zip(grid, rows.items(), strict=True):
        for axes, (column, image) in zip(row, images.items(), strict=True):
            if image.ndim == 2 and image.dtype.kind in "iu":
                axes.imshow(_random_colors(image), interpolation="nearest")
            else:
                axes.imshow(image, cmap="gray", vmin=0, vmax=None if image.ndim == 3 else 1, interpolation="nearest")
            axes.set_xticks([])
            axes.set_yticks([])
            if axes in grid[0]:
                axes.set_title(column, fontsize=9)
        row[0].set_ylabel(name, fontsize=9)
    figure.suptitle(title, fontsize=10)
    return figure


def _random_colors(labels: "NDArray[Any]") -> "NDArray[Any]":
    """Labels (H, W) → colours (H, W, 3), the same for the same label; 0 is black."""
    import numpy as np

    colors = np.random.default_rng(0).uniform(0.25, 1.0, (int(labels.max()) + 1, 3))
    colors[0] = 0
    return colors[labels]
