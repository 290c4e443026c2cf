"""The experiment on cells: groups of slices held out in turn, every way to find cells scored."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.conftest import small_result
from sfcnn.data.stacks import read_labels, read_stack
from sfcnn.experiments.isbi import EXPERIMENT, METHODS, IsbiConfig, cells, draw, table
from sfcnn.experiments.sweep import Result, run_cells, summarize
from sfcnn.segmentation.cells import CellsConfig
from sfcnn.segmentation.cells import cells as find_cells
from sfcnn.segmentation.scoring import score_labels, score_probabilities
from sfcnn.training.config import OptimizationConfig
from sfcnn.training.membrane_runs import MembraneConfig, SlicesConfig, UNetConfig, load_slices

SETTINGS = IsbiConfig(
    kinds=("steerable", "plain-parameters"),
    folds=(1, 4),
    epochs={"plain-parameters": 2},
    trees=5,
    train=MembraneConfig(
        model=UNetConfig(orientations=4, channels=1, levels=2, input_kernel_size=5, kernel_size=3, dropout=0),
        images=SlicesConfig(validation=3),
        optimization=OptimizationConfig(epochs=1, batch_size=1, learning_rate=0.01),
        steps=2,
    ),
)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Result]]:
    """One group of the sweep on synthetic slices, carried out."""
    directory = tmp_path_factory.mktemp("isbi")
    settings = replace(SETTINGS, folds=(4,))
    return directory, list(run_cells(EXPERIMENT, cells(settings), directory, None))


def test_each_group_of_slices_is_held_out_once_for_each_network() -> None:
    found = cells(SETTINGS)
    assert [cell.name for cell in found] == [
        "steerable-slices1-3-s0",
        "plain-parameters-slices1-3-s0",
        "steerable-slices10-12-s0",
        "plain-parameters-slices10-12-s0",
    ]
    for cell in found:
        train, held_out = cell.train.images.split(12)
        assert sorted(train + held_out) == list(range(12))
        assert held_out == ([0, 1, 2] if cell.place["fold"] == 1 else [9, 10, 11])
        assert cell.train.optimization.epochs == (2 if cell.place["kind"] == "plain-parameters" else 1)


def test_the_last_slices_can_be_named_or_not() -> None:
    assert SlicesConfig(validation=4).split(24) == SlicesConfig(validation=4, validation_from=21).split(24)


def test_the_scores_are_those_of_the_files_that_are_left(done: tuple[Path, list[Result]]) -> None:
    directory, results = done
    assert [result["run"]["epochs"] for result in results] == [1, 2]
    slices = load_slices(SETTINGS.train.images)
    for result in results:
        files = directory / "cells" / result["cell"]
        assert result["slices"] == [10, 11, 12]
        np.testing.assert_array_equal(read_stack(files / "images.tif"), np.stack(slices.images[9:]))
        truth, membranes = read_labels(files / "truth.tif"), read_stack(files / "membranes.tif")
        np.testing.assert_array_equal(truth == 0, np.stack(slices.membranes[9:]))
        expected = {
            "threshold": score_probabilities(1 - membranes, truth),
            "beta": score_labels(find_cells(membranes, CellsConfig(beta=result["beta"])), truth),
            "forest": score_labels(read_labels(files / "cells.tif"), truth),
        }
        assert set(result["scores"]) == set(METHODS)
        for method, scores in expected.items():
            assert result["scores"][method]["v_rand"]["best"] == scores.v_rand.best
            assert result["scores"][method]["v_info"]["slices"] == list(scores.v_info.slices)


def test_the_table_has_means_over_groups_and_the_figure_a_row_per_network(
    done: tuple[Path, list[Result]], tmp_path: Path
) -> None:
    directory, results = done
    settings = replace(SETTINGS, folds=(4,))
    shown = table(settings, results)
    assert shown.title == "synthetic membranes (seed 0), held out: slices 10–12"
    assert [row[:2] for row in shown.rows[:4]] == [["SFCNN", name] for name in METHODS.values()]
    figure = draw(settings, results, directory)
    assert [axes.get_title() for axes in figure.axes[:5]] == ["image", "true cells", "membrane", "cells", "mistakes"]
    assert [axes.get_ylabel() for axes in figure.axes[::5]] == ["SFCNN", "U-Net, same parameters"]
    copy = Path(shutil.copytree(directory, tmp_path / "copy"))
    assert [path.name for path in summarize(EXPERIMENT, settings, results, copy)] == ["isbi.json", "isbi.png"]


def test_means_and_deviations_are_over_groups() -> None:
    def scored(fold: int, value: float) -> Result:
        scores = {method: {name: {"best": value} for name in ("v_rand", "v_info")} for method in METHODS}
        result = small_result({"kind": "steerable", "fold": fold}, scores=scores, slices=[2 * fold - 1, 2 * fold])
        return result | {"run": result["run"] | {"seconds": 60.0 * fold}}

    shown = table(SETTINGS, [scored(1, 0.8), scored(3, 0.9)])
    assert shown.title.endswith("slices 1–2, 5–6")
    assert shown.rows[0] == ["SFCNN", "threshold", "0.8500 ± 0.0707", "0.8500 ± 0.0707", "56,789", "5", "2"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": (0, 1)}, r"folds are counted from 1, got \[0, 1\]"),
        ({"folds": ()}, "folds must name at least one value"),
        ({"epochs": {"deep": 3}}, "epochs are for 'deep', expected one of the kinds"),
        ({"trees": 0}, "trees must be at least 1, got 0"),
    ],
)
def test_settings_are_checked(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SETTINGS, **change)  # type: ignore[arg-type]


def test_a_group_beyond_the_last_slice_is_refused(tmp_path: Path) -> None:
    settings = replace(SETTINGS, folds=(5,))
    with pytest.raises(ValueError, match="cannot hold out 3 slices from number 13 on, there are only 12"):
        list(run_cells(EXPERIMENT, cells(settings), tmp_path / "out", None))
