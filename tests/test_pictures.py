from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sfcnn.harmonics import resolve_basis
from sfcnn.pictures import (
    atoms_table,
    error_against_orientations,
    error_curves,
    error_panels,
    error_points,
    save_figure,
    steered_filter,
)


def test_the_table_has_one_panel_per_real_atom() -> None:
    figure = atoms_table("paper", 5)
    drawn = [axes for axes in figure.axes if axes.images]
    assert len(drawn) == resolve_basis("paper", 5).size
    assert {axes.get_title() for axes in drawn} >= {"Re k=0", "Re k=6", "Im k=6"}


@pytest.mark.parametrize("orientations", [1, 5, 16, 17])
def test_a_filter_is_drawn_at_every_orientation(orientations: int) -> None:
    weight = torch.randn(18, requires_grad=True)
    figure = steered_filter(weight, "bandlimited", 7, orientations)
    images = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    assert len(images) == orientations
    if orientations == 16:
        quarter = torch.rot90(torch.as_tensor(images[0]), 1)
        torch.testing.assert_close(torch.as_tensor(images[4]), quarter)


def test_pictures_are_saved_by_their_ending(tmp_path: Path) -> None:
    figure = error_curves([0, 180], {"a": [1.0, 2.0], "b": [0.5, 0.5]}, "title")
    for ending, start in ((".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")):
        path = tmp_path / f"curve{ending}"
        save_figure(figure, path)
        assert path.read_bytes().startswith(start)
    with pytest.raises(ValueError, match=r"must end in one of \['.pdf', '.png', '.svg'\]"):
        save_figure(figure, tmp_path / "curve.bmp")


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


def test_single_runs_are_points_with_their_mean() -> None:
    points = {"one": [1.0, 2.0, 6.0], "two": [4.0]}
    (axes,) = error_points(points, "some digits").axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["one", "two"]
    drawn = [points_of(line) for line in axes.lines]
    assert drawn == [[(0, 1.0), (0, 2.0), (0, 6.0)], [(1, 4.0)]]
    means = [np.asarray(path.vertices)[:, 1] for lines in axes.collections for path in lines.get_paths()]
    assert np.array_equal(means, [[3.0, 3.0], [4.0, 4.0]])
    assert axes.get_ylim()[0] == 0
