"""Figures of the experiments: error against angle, orientations and runs, and segmented images. Needs matplotlib."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sfcnn.pictures import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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
    grid[0, 0].set_ylim(bottom=0)  # for all panels, after everything is drawn
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
    axes.set_ylim(0, 1.1 * max(max(errors) for errors in points.values()) or 1)
    axes.grid(axis="y", alpha=0.3)
    return figure


def error_against_time(
    series: Mapping[str, Sequence[Sequence[float]]], thresholds: Sequence[float], title: str
) -> "Figure":
    """Validation error after each epoch against minutes of training, one line per run, and the thresholds."""
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = new_figure(6.0, 3.8)
    axes = figure.subplots()
    for (name, history), marker in zip(series.items(), "osd^vx" * len(series), strict=False):
        minutes, errors = zip(*history, strict=True)
        axes.plot(minutes, errors, marker=marker, markersize=4, label=name)
    for threshold in thresholds:
        axes.axhline(threshold, color="grey", linewidth=0.8, linestyle="--")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set(xlabel="minutes of training", ylabel="validation error (%)", title=title)
    axes.title.set_fontsize(9)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def scores_against_slices(series: Mapping[str, Mapping[int, float]], title: str) -> "Figure":
    """V_rand against the number of training slices, one line per network."""
    figure = new_figure(5.8, 4.2)
    axes = figure.subplots()
    for (name, points), marker in zip(series.items(), "osd^vx", strict=False):
        axes.plot(list(points), list(points.values()), marker=marker, markersize=4, label=name)
    ticks = sorted({slices for points in series.values() for slices in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set(xlabel="training slices", ylabel="V_rand of held-out slices", title=title)
    axes.title.set_fontsize(9)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)
    return figure


def segmentation_rows(
    image: "NDArray[Any]", truth: "NDArray[Any]", rows: Mapping[str, tuple["NDArray[Any]", "NDArray[Any]"]], title: str
) -> "Figure":
    """A slice and its true cells, then one row per network: membranes, cells and mistakes.

    Each cell has the colour of the true cell with which it shares most pixels, in every row.

    Args:
        image: brightness in [0, 1], (H, W)
        truth: true cells, 0 on membranes, (H, W)
        rows: membrane probabilities and cells of each network, (H, W) each
        title: of the figure
    """
    from sfcnn.cells.overlay import overlay

    figure = new_figure(8.4, 2.85 * (len(rows) + 1) + 0.3)
    grid = figure.subplots(len(rows) + 1, 3)
    for axes in grid.flat:
        axes.set_xticks([])
        axes.set_yticks([])
    _picture(grid[0, 0], image, "image")
    _picture(grid[0, 1], cell_colors(truth, truth), "true cells")
    _mistakes_legend(grid[0, 2])
    for row, (name, (membranes, cells)) in zip(grid[1:], rows.items(), strict=True):
        _picture(row[0], membranes, "membrane")
        _picture(row[1], cell_colors(cells, truth), "cells")
        _picture(row[2], overlay(image, cells, truth), "mistakes")
        row[0].set_ylabel(name, fontsize=10)
    figure.suptitle(title, fontsize=10)
    return figure


def cell_colors(labels: "NDArray[Any]", truth: "NDArray[Any]") -> "NDArray[Any]":
    """Cells (H, W) in the colours of the true cells with which they share most pixels, and black borders: (H, W, 3).

    Cells that share none are grey.
    """
    import numpy as np

    from sfcnn.cells.metrics import overlaps

    table = overlaps(labels, truth)
    order = np.argsort(table.counts, kind="stable")  # the last one written stays: the cell with most pixels
    partners = np.zeros(int(labels.max()) + 1, np.int64)
    partners[table.segments[order]] = table.cells[order]
    colors = np.random.default_rng(0).uniform(0.25, 1.0, (int(truth.max()) + 1, 3))
    colors[0] = 0.5
    picture = colors[partners[labels]]
    borders = labels == 0
    borders[:-1] |= labels[:-1] != labels[1:]
    borders[:, :-1] |= labels[:, :-1] != labels[:, 1:]
    picture[borders] = 0
    return picture


def _picture(axes: "Axes", picture: "NDArray[Any]", title: str) -> None:
    axes.imshow(picture, cmap="gray", vmin=0, vmax=None if picture.ndim == 3 else 1, interpolation="nearest")
    axes.set_title(title, fontsize=9)


def _mistakes_legend(axes: "Axes") -> None:
    """A legend with the colours of mistakes."""
    from matplotlib.patches import Patch

    from sfcnn.cells.overlay import COLORS

    axes.set_axis_off()
    shades = {name: (red / 255, green / 255, blue / 255) for name, (red, green, blue) in COLORS.items()}
    patches = [Patch(color=shade, label=name) for name, shade in shades.items()]
    axes.legend(handles=patches, title="mistakes", loc="center", fontsize=10, frameon=False)
