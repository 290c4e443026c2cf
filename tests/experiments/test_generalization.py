"""Figure 4 right: upright digits train, rotated ones test."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from experiments.conftest import TRAIN, small_result
from sfcnn.classification.augmentation import AUGMENTATIONS
from sfcnn.experiments.generalization import (
    EXPERIMENT,
    GeneralizationConfig,
    curves,
    draw,
    runs,
    table,
)
from sfcnn.experiments.sweep import run_sweep
from sfcnn.models.twins import KINDS

TINY = GeneralizationConfig(
    kinds=("steerable", "plain-channels"),
    augmentations=("none", "quarter-turns"),
    angles=4,
    test_images=30,
    train=replace(
        TRAIN,
        model=replace(TRAIN.model, orientations=4),
        images=replace(TRAIN.images, dataset="digits"),
        optimization=replace(TRAIN.optimization, batch_size=10),
    ),
)


def test_the_runs_are_the_product_of_the_lists() -> None:
    settings = GeneralizationConfig(kinds=KINDS, augmentations=AUGMENTATIONS, seeds=(0, 4))
    found = runs(settings)
    assert {(run.train.seed, run.train.images.augmentation, run.train.model.kind) for run in found} == set(
        product((0, 4), AUGMENTATIONS, KINDS)
    )
    assert len({run.name for run in found}) == len(found) == 2 * len(AUGMENTATIONS) * len(KINDS)
    for run in found:
        assert run.name == f"{run.train.model.kind}-{run.train.images.augmentation}-s{run.train.seed}"
        assert run.test == {"angles": 72, "test_images": 0}


def test_by_default_the_paper_s_three_networks_and_four_augmentations() -> None:
    found = runs(GeneralizationConfig())
    assert {run.train.model.kind for run in found} == {"steerable", "plain-channels", "plain-parameters"}
    assert {run.train.images.augmentation for run in found} == set(AUGMENTATIONS) - {"between-orientations"}
    assert {run.train.model.orientations for run in found} == {16}


def test_quarter_turns_of_the_images_change_nothing_for_four_orientations(tmp_path: Path) -> None:
    results = list(run_sweep(EXPERIMENT, runs(TINY), tmp_path))
    different = {result["name"]: len(set(result["errors"])) for result in results}
    assert different["steerable-none-s0"] == different["steerable-quarter-turns-s0"] == 1
    assert different["plain-channels-none-s0"] > 1
    for result in results:
        assert result["angles"] == [0, 90, 180, 270]
        assert result["test_images"] == 30


SHUFFLED = [
    small_result({"kind": kind, "augmentation": augmentation, "seed": seed}, angles=[0, 180], errors=[low, low + 40])
    for kind, augmentation, seed, low in [
        ("plain-parameters", "continuous", 0, 5.0),
        ("steerable", "eighth-turns", 0, 3.0),
        ("steerable", "none", 1, 2.0),
        ("plain-effective-channels", "none", 0, 6.0),
        ("steerable", "continuous", 0, 4.0),
        ("steerable", "none", 0, 1.0),
        ("plain-channels", "quarter-turns", 0, 7.0),
    ]
]


def test_the_curves_are_means_over_seeds_in_the_paper_s_order() -> None:
    found = curves(SHUFFLED)
    assert list(found) == [
        ("steerable", "none"),
        ("steerable", "eighth-turns"),
        ("steerable", "continuous"),
        ("plain-channels", "quarter-turns"),
        ("plain-effective-channels", "none"),
        ("plain-parameters", "continuous"),
    ]
    assert found["steerable", "none"] == [1.5, 41.5]


def test_the_table_has_a_row_per_network_and_augmentation() -> None:
    shown = table(TINY, SHUFFLED)
    assert shown.columns == ["network", "augmentation", "upright", "worst angle", "best angle", "mean", "parameters"]
    assert shown.rows[0] == ["SFCNN", "none", "1.5", "41.5", "1.5", "21.5", "56,789"]
    assert [row[:2] for row in shown.rows] == [
        ["SFCNN", "none"],
        ["SFCNN", "π/4"],
        ["SFCNN", "continuous"],
        ["CNN, same channels", "π/2"],
        ["CNN, same effective channels", "none"],
        ["CNN, same parameters", "continuous"],
    ]
    assert "1,234 upright digits" in shown.title
    assert "some digits" in shown.title


def test_the_figure_has_a_panel_per_network_and_a_line_per_augmentation() -> None:
    panels = draw(TINY, SHUFFLED, "some digits").axes
    assert [axes.get_title() for axes in panels] == [
        "SFCNN",
        "CNN, same channels",
        "CNN, same effective channels",
        "CNN, same parameters",
    ]
    assert [line.get_label() for line in panels[0].lines] == ["none", "π/4", "continuous"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"angles": 0}, "number of angles must be at least 1, got 0"),
        ({"angles": -1}, "angles must be at least 0, got -1"),
        ({"kinds": ()}, r"kinds must have at least one value and no duplicates, got \[\]"),
        ({"augmentations": ("none", "none")}, "augmentations must have at least one value and no duplicates"),
    ],
)
def test_settings_that_make_no_sweep_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(TINY, **change)  # type: ignore[arg-type]


def test_an_unknown_network_or_augmentation_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown kind 'round', choose one of"):
        runs(replace(TINY, kinds=("round",)))
    with pytest.raises(ValueError, match="unknown augmentation 'flips', choose one of"):
        runs(replace(TINY, augmentations=("flips",)))
