"""Recipes compared: the same network and digits, and the minutes until a validation error is reached."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.conftest import TRAIN, small_result
from sfcnn.experiments.recipes import EXPERIMENT, RecipesConfig, draw, minutes_to, runs, scaled, table
from sfcnn.experiments.sweep import Result, run_sweep
from sfcnn.train.config import RECIPES, OptimizationConfig, recipe
from sfcnn.train.optimization import learning_rate

SETTINGS = RecipesConfig(epochs={"paper": 2, "fast": 3}, thresholds=(50.0,), test_images=20, train=TRAIN)


def result(name: str, seed: int, seconds: float, history: list[list[float]], error: float) -> Result:
    found = small_result({"recipe": name, "seed": seed}, history=history, test_error=error)
    found["run"] |= {"seconds": seconds, "validation_images": 2000}
    return found


def test_runs_differ_in_their_recipe_only() -> None:
    found = runs(replace(SETTINGS, seeds=(3, 4)))
    assert [run.name for run in found] == ["paper-s3", "fast-s3", "paper-s4", "fast-s4"]
    for run in found:
        assert (run.train.images, run.train.seed) == (TRAIN.images, run.place["seed"])
        assert run.train.model == TRAIN.model.resolved()
        assert run.train.optimization.batch_size == TRAIN.optimization.batch_size
    fast = found[1].train.optimization
    assert fast == recipe("fast", epochs=3, batch_size=TRAIN.optimization.batch_size)


def test_by_default_every_recipe_has_its_own_length() -> None:
    found = {run.place["recipe"]: run.train.optimization for run in runs(RecipesConfig())}
    assert found == {name: recipe(name) for name in RECIPES}


@pytest.mark.parametrize("epochs", [1, 2, 5, 10, 15, 39, 40, 80])
def test_a_scaled_schedule_keeps_its_shape(epochs: int) -> None:
    """It starts and ends with the learning rates of the paper, and starts to fall after the same fraction."""
    paper, short = OptimizationConfig(), scaled(OptimizationConfig(), epochs)
    assert short.epochs == epochs
    rates = [learning_rate(short, epoch) for epoch in range(epochs)]
    if epochs > 1:
        assert rates[0] == paper.learning_rate or short.decay_from == 1
    assert rates[-1] == pytest.approx(learning_rate(paper, 39))
    assert abs(short.decay_from / epochs - 15 / 40) <= 1 / epochs
    assert rates == sorted(rates, reverse=True)


def test_the_paper_at_full_length_is_the_paper() -> None:
    assert scaled(OptimizationConfig(), 40) == OptimizationConfig()


def test_a_sweep_records_every_epoch(tmp_path: Path) -> None:
    results = list(run_sweep(EXPERIMENT, runs(SETTINGS), tmp_path))
    for found, epochs in zip(results, (2, 3), strict=True):
        minutes = [passed for passed, _ in found["history"]]
        assert len(minutes) == epochs
        assert minutes == sorted(minutes)
        assert minutes[-1] == pytest.approx(found["run"]["seconds"] / 60)
        assert found["run"]["validation_error"] in [error for _, error in found["history"]]
        assert 0 <= found["test_error"] <= 100


def test_a_threshold_is_reached_by_the_first_epoch_at_or_below_it() -> None:
    history = [[1.0, 3.0], [2.5, 1.0], [4.0, 2.0], [5.5, 0.5]]
    assert [minutes_to(threshold, history) for threshold in (3.5, 1.0, 0.9, 0.4)] == [1.0, 2.5, 5.5, None]


def test_the_table_has_minutes_or_a_dash_where_a_run_does_not_get_there() -> None:
    settings = RecipesConfig(thresholds=(1.0, 0.75), seeds=(0, 1))
    results = [
        result("fast", 0, 240, [[2.0, 1.0], [4.0, 0.7]], 0.8),
        result("paper", 0, 600, [[5.0, 1.2], [10.0, 0.9]], 1.0),
        result("fast", 1, 240, [[2.0, 1.1], [4.0, 0.7]], 1.0),
        result("paper", 1, 600, [[5.0, 0.7], [10.0, 0.9]], 1.2),
    ]
    shown = table(settings, results)
    assert shown.columns[3:5] == ["minutes to 1 %", "minutes to 0.75 %"]
    paper, fast = shown.rows
    assert paper == ["paper", "5", "10.0", "7.5", "–", "0.80 ± 0.14", "1.10 ± 0.14"]
    assert fast == ["fast", "5", "4.0", "3.0", "4.0", "0.70 ± 0.00", "0.90 ± 0.14"]
    (axes,) = draw(settings, results, None).axes
    labels = axes.get_legend_handles_labels()[1]
    assert labels == ["paper, seed 0", "paper, seed 1", "fast, seed 0", "fast, seed 1"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recipes": ("paper", "slow")}, "unknown recipe 'slow', choose one of ['paper', 'fast']"),
        ({"recipes": ("fast",), "epochs": {"paper": 3}}, "epochs are set for 'paper', expected one of"),
        ({"epochs": {"fast": 0}}, "epochs of fast must be at least 1, got 0"),
        ({"thresholds": (0.0,)}, "thresholds must be between 0 and 100 per cent, got 0.0"),
    ],
)
def test_wrong_settings_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        RecipesConfig(**changes)
