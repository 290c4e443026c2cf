"""Figure 4 left: one run for each seed, size and Λ, mean and deviation over seeds."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import nn

from experiments.conftest import SETTINGS, TRAIN, small_result
from sfcnn.classification.labelled import LabelledImages
from sfcnn.experiments.orientations import EXPERIMENT as ORIENTATIONS
from sfcnn.experiments.orientations import OrientationsConfig, draw, errors, measure, runs, table

FULL = OrientationsConfig()
GRID = OrientationsConfig(orientations=(4, 1), train_images=(2000, 50), seeds=(3, 5))
RESULTS = [
    small_result(run.place, test_error=100 / run.place["orientations"] + run.place["train_images"] / 100 + seed)
    for run, seed in zip(runs(GRID), (0, 0, 0, 0, 2, 2, 2, 2), strict=True)
]


def test_the_runs_are_the_product_of_the_lists() -> None:
    found = runs(FULL)
    assert {(run.train.seed, run.train.images.train_images, run.train.model.orientations) for run in found} == set(
        product(FULL.seeds, FULL.train_images, FULL.orientations)
    )
    assert len(found) == 3 * 4 * 7
    for run in found:
        assert run.name == f"n{run.place['train_images']}-L{run.place['orientations']}-s{run.place['seed']}"
        assert run.place == {
            "orientations": run.train.model.orientations,
            "train_images": run.train.images.train_images,
            "seed": run.train.seed,
        }


def test_all_else_about_the_runs_is_as_asked() -> None:
    for run in runs(SETTINGS):
        assert run.train.optimization == TRAIN.optimization
        assert (run.train.model.width, run.train.images.dataset) == (0.1, "digits-rot")
        assert run.test == {"test_images": 20}


def test_what_is_measured_is_the_error() -> None:
    class Nine(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return nn.functional.one_hot(torch.full((len(images),), 9), 10).float()

    digits = LabelledImages(torch.rand(8, 1, 28, 28), torch.tensor([9, 9, 1, 2, 9, 9, 9, 9]))
    assert measure(runs(SETTINGS)[0], Nine(), digits) == {"test_error": 25.0}


def test_errors_are_sorted_by_size_and_orientations() -> None:
    found = errors(RESULTS)
    assert list(found) == [50, 2000]
    for count, by_orientations in found.items():
        assert list(by_orientations) == [1, 4]
        for orientations, values in by_orientations.items():
            assert sum(values) / 2 == pytest.approx(100 / orientations + count / 100 + 1)
            assert abs(values[0] - values[1]) == pytest.approx(2)


def test_the_table_has_a_row_per_size_and_a_column_per_number_of_orientations() -> None:
    shown = table(GRID, RESULTS)
    assert shown.columns == ["training images", "Λ = 1", "Λ = 4"]
    assert shown.rows == [["50", "101.50 ± 1.41", "26.50 ± 1.41"], ["2,000", "121.00 ± 1.41", "46.00 ± 1.41"]]
    assert "some digits" in shown.title
    assert shown.title.endswith(", 2 seeds")


def test_one_seed_has_no_deviation() -> None:
    shown = table(replace(GRID, seeds=(3,)), [result for result in RESULTS if result["seed"] == 3])
    assert not any("±" in entry for row in shown.rows for entry in row)
    assert shown.title.endswith(", 1 seed")


def test_the_figure_has_a_line_per_size() -> None:
    (axes,) = draw(GRID, RESULTS, "some digits").axes
    means = [list(bars[0].get_ydata()) for bars in axes.containers]
    assert means == [[101.5, 26.5], [121.0, 46.0]]
    assert axes.get_legend_handles_labels()[1] == ["50 training images", "2,000 training images"]
    assert "some digits" in axes.get_title()


def test_it_is_listed_by_its_name() -> None:
    assert (ORIENTATIONS.name, ORIENTATIONS.settings) == ("orientations", OrientationsConfig)
