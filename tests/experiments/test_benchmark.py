"""Table 1: three variants of the second network, beside what was published."""

from itertools import product

import numpy as np
import pytest

from experiments.conftest import TRAIN, small_result
from sfcnn.classification.config import ModelConfig
from sfcnn.experiments.benchmark import PUBLISHED, VARIANTS, BenchmarkConfig, draw, errors, runs, table

SETTINGS = BenchmarkConfig(seeds=(1, 0))
RESULTS = [
    small_result({"variant": variant, "seed": seed}, test_error=error)
    for variant, seed, error in [
        ("coeff", 1, 3.0),
        ("he", 1, 4.0),
        ("coeff-augmented", 0, 1.0),
        ("he", 0, 6.0),
        ("coeff", 0, 2.0),
        ("coeff-augmented", 1, 1.0),
    ]
]


def test_the_runs_are_the_product_of_the_lists() -> None:
    found = runs(BenchmarkConfig())
    assert [(run.place["seed"], run.place["variant"]) for run in found] == list(product(range(5), VARIANTS))
    assert len({run.name for run in found}) == 15
    for run in found:
        assert run.name == f"{run.place['variant']}-s{run.train.seed}"
        assert run.train.model.network == "benchmark"
        assert (run.train.model.orientations, run.train.model.kind) == (16, "steerable")


@pytest.mark.parametrize(
    ("variant", "init", "augmentation"),
    [("he", "he", "none"), ("coeff", "coeff", "none"), ("coeff-augmented", "coeff", "continuous")],
)
def test_a_variant_sets_the_initial_weights_and_the_augmentation(variant: str, init: str, augmentation: str) -> None:
    (run,) = runs(BenchmarkConfig(variants=(variant,), seeds=(3,), test_images=5, train=TRAIN))
    assert (run.train.model.init, run.train.images.augmentation, run.train.seed) == (init, augmentation, 3)
    assert (run.train.model.width, run.test) == (TRAIN.model.width, {"test_images": 5})


def test_the_published_numbers_stand_beside_ours() -> None:
    """Table 1 of the paper, row by row."""
    shown = table(SETTINGS, RESULTS)
    assert shown.columns == ["method", "measured here", "published, mnist-rot"]
    assert shown.rows[:3] == [
        ["HeInit", "5.000 ± 1.414", "0.957 ± 0.025"],
        ["CoeffInit", "2.500 ± 0.707", "0.880 ± 0.029"],
        ["CoeffInit, augmentation", "1.000 ± 0.000", "0.714 ± 0.022"],
    ]
    assert shown.rows[3:] == [[method, "", value] for method, value in PUBLISHED]
    assert [value for _, value in PUBLISHED] == [
        "1.01",
        "1.09",
        "1.2",
        "1.69",
        "2.28 ± 0.0004",
        "4.0",
        "4.2",
        "5.03 ± 0.0020",
        "10.4 ± 0.27",
    ]
    for part in ("some digits", "1,234 training images", "5 epochs"):
        assert part in shown.title


def test_errors_come_by_variant_in_the_order_of_the_seeds() -> None:
    assert dict(errors(RESULTS)) == {"he": [6.0, 4.0], "coeff": [2.0, 3.0], "coeff-augmented": [1.0, 1.0]}
    assert list(errors(RESULTS)) == list(VARIANTS)


def test_the_figure_has_a_column_per_variant() -> None:
    (axes,) = draw(SETTINGS, RESULTS, "some digits").axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["HeInit", "CoeffInit", "CoeffInit, augmentation"]
    assert list(np.asarray(axes.lines[0].get_ydata())) == [6.0, 4.0]
    assert "some digits" in axes.get_title()


def test_an_unknown_variant_names_the_choices() -> None:
    with pytest.raises(ValueError, match=r"unknown variant 'she', choose one of \['he', 'coeff', 'coeff-augmented'\]"):
        BenchmarkConfig(variants=("he", "she"))


def test_the_default_network_is_the_second_table_s() -> None:
    assert BenchmarkConfig().train.model == ModelConfig(network="benchmark")
