from pathlib import Path
from typing import Any

import numpy as np

from sfcnn.experiments.figures import (
    cell_colors,
    error_against_orientations,
    error_against_time,
    error_curves,
    error_panels,
    error_points,
    segmentation_rows,
)
from sfcnn.pictures import save_figure


def points_of(line: Any) -> list[tuple[float, float]]:
    return list(zip(line.get_xdata(), line.get_ydata(), strict=True))


def test_every_network_has_a_panel_with_closed_curves(tmp_path: Path) -> None:
    panels = {"one": {"none": [3.0, 9.0], "π/2": [2.0, 2.0]}, "two": {"none": [1.0, 50.0]}}
    figure = error_panels([0, 180], panels, "some digits")
    assert [axes.get_title() for axes in figure.axes] == ["one", "two"]
    for axes, series in zip(figure.axes, panels.values(), strict=True):
        assert [line.get_label() for line in axes.lines] == list(series)
        for line, errors in zip(axes.lines, series.values(), strict=True):
            assert points_of(line) == [(0, errors[0]), (180, errors[1]), (360, errors[0])]  # 360° is 0°
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()  # so that they can be compared
    assert figure.axes[0].get_ylim()[0] == 0
    largest = max(error for series in panels.values() for errors in series.values() for error in errors)
    assert figure.axes[0].get_ylim()[1] > largest  # no line leaves its panel
    save_figure(figure, tmp_path / "panels.png")
    assert (tmp_path / "panels.png").read_bytes().startswith(b"\x89PNG")


def test_errors_stand_over_the_number_of_orientations_with_their_deviations(tmp_path: Path) -> None:
    series = {"few": {1: (40.0, 2.0), 4: (20.0, 1.0)}, "many": {1: (30.0, 0.0), 2: (25.0, 3.0), 4: (10.0, 0.5)}}
    figure = error_against_orientations(series, "some digits")
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "2", "4"]
    assert axes.get_xscale() == "log"
    for container, points in zip(axes.containers, series.values(), strict=True):
        line, _, (bars,) = container
        assert points_of(line) == [(number, mean) for number, (mean, _) in points.items()]
        for (number, (mean, deviation)), segment in zip(points.items(), bars.get_segments(), strict=True):
            assert segment.tolist() == [[number, mean - deviation], [number, mean + deviation]]
    assert axes.get_legend_handles_labels()[1] == ["few", "many"]
    save_figure(figure, tmp_path / "orientations.png")


def test_validation_errors_stand_over_minutes_with_the_thresholds() -> None:
    series = {"one": [[1.0, 5.0], [2.0, 1.0]], "two": [[3.0, 0.5]]}
    (axes,) = error_against_time(series, [0.75], "some digits").axes
    lines = {line.get_label(): points_of(line) for line in axes.lines}
    assert {name: lines[name] for name in series} == {"one": [(1, 5.0), (2, 1.0)], "two": [(3, 0.5)]}
    assert [points_of(line)[0][1] for line in axes.lines if line.get_label() not in series] == [0.75]
    assert axes.get_yscale() == "log"


def test_single_runs_are_points_with_their_mean() -> None:
    points = {"one": [1.0, 2.0, 6.0], "two": [4.0]}
    (axes,) = error_points(points, "some digits").axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["one", "two"]
    drawn = [points_of(line) for line in axes.lines]
    assert drawn == [[(0, 1.0), (0, 2.0), (0, 6.0)], [(1, 4.0)]]
    means = [np.asarray(path.vertices)[:, 1] for lines in axes.collections for path in lines.get_paths()]
    assert np.array_equal(means, [[3.0, 3.0], [4.0, 4.0]])
    assert axes.get_ylim()[0] == 0


def test_curves_are_closed() -> None:
    (axes,) = error_curves([0, 180], {"a": [1.0, 2.0], "b": [0.5, 0.5]}, "title").axes
    assert [points_of(line) for line in axes.lines] == [
        [(0, 1), (180, 2), (360, 1)],
        [(0, 0.5), (180, 0.5), (360, 0.5)],
    ]
    assert axes.get_legend_handles_labels()[1] == ["a", "b"]


def test_cells_have_the_colours_of_the_true_cells_they_cover() -> None:
    truth = np.repeat([[1, 1, 1, 1, 0, 2, 2, 2, 2]], 9, axis=0)
    split = np.repeat([[7, 7, 5, 5, 5, 3, 3, 3, 3]], 9, axis=0)  # the first cell in two parts, other numbers
    merged = np.ones_like(truth)
    true, parts, one = (cell_colors(labels, truth)[4] for labels in (truth, split, merged))
    assert not true[4].any()  # what is no cell is black …
    assert not parts[1].any()  # … and so is the border of a part
    for part, cell in ((0, 0), (2, 0), (6, 6)):
        assert np.array_equal(parts[part], true[cell])
    assert not np.array_equal(true[0], true[6])
    assert np.array_equal(one[0], one[6])  # one cell, one colour
    outside = np.repeat([[1, 1, 0, 0, 0, 0]], 6, axis=0)
    assert np.array_equal(cell_colors(outside + 1, outside)[2, 3], [0.5] * 3)  # shares no pixel with any


def test_every_network_has_a_row_with_its_cells_and_mistakes() -> None:
    truth = np.repeat([[1, 1, 0, 2, 2]], 5, axis=0)
    rows = {name: (np.full((5, 5), 0.5), truth) for name in ("one", "two")}
    figure = segmentation_rows(np.eye(5), truth, rows, "some cells")
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["image", "true cells", "", *["membrane", "cells", "mistakes"] * 2]
    assert [axes.get_ylabel() for axes in figure.axes[3::3]] == ["one", "two"]
    found, true = (np.asarray(figure.axes[index].images[0].get_array()) for index in (4, 1))
    assert np.array_equal(found, true)
    legend = figure.axes[2].get_legend()
    assert legend is not None
    named = [text.get_text() for text in legend.get_texts()]
    assert {"split part", "merged part"} <= set(named)
