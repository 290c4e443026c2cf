"""Symmetries compared: as many parameters, the same digits, and as many epochs as the same time allows."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from experiments.conftest import TRAIN, small_result, snapshot
from sfcnn.classification.config import ModelConfig
from sfcnn.classification.data import load_splits
from sfcnn.classification.labelled import first_images
from sfcnn.classification.network import build_network
from sfcnn.classification.predict import load
from sfcnn.experiments import timing
from sfcnn.experiments.matched import NETWORKS, make_model
from sfcnn.experiments.sweep import Result, SweepRun, finished, run_sweep
from sfcnn.experiments.symmetry import EXPERIMENT, SymmetryConfig, compare, draw, prepare, recall, runs, table
from sfcnn.io.settings import read_settings
from sfcnn.models.twins import count_parameters
from sfcnn.train.config import recipe

ROOT = Path(__file__).parents[2]
SETTINGS = SymmetryConfig(
    networks=("C8", "p4m", "plain"),
    budget_seconds=1e-6,  # so that the fewest epochs are trained
    views=4,
    seeds=(0,),
    test_images=30,
    train=replace(TRAIN, images=replace(TRAIN.images, augmentation="continuous", join_validation=True)),
)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SymmetryConfig, list[Result]]:
    """A sweep that was timed, trained and measured; not to be changed."""
    directory = tmp_path_factory.mktemp("symmetry")
    told: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "_TURNS", 1)  # no test depends on how exact the times are
        prepare(SETTINGS, directory, None, told.append)
    assert told == ["timing epochs of C8, p4m, plain"]
    settings = recall(SETTINGS, directory)
    return directory, settings, list(run_sweep(EXPERIMENT, runs(settings), directory))


def parameters(model: ModelConfig) -> int:
    with torch.device("meta"):
        return count_parameters(build_network(model))


def test_by_default_ninety_seconds_for_each_of_seven_networks_on_a_thousand_digits() -> None:
    settings = SymmetryConfig()
    found = runs(settings)
    assert [run.name for run in found] == [f"{network}-s{seed}" for seed in range(3) for network in settings.networks]
    for run in found:
        assert run.train.images.train_images + run.train.images.validation_images == 1000
        assert run.train.images.join_validation
        assert run.train.images.augmentation == "continuous"
        assert run.train.optimization == recipe("fast", batch_size=run.train.optimization.batch_size)
        assert run.test == {"test_images": 5000} | ({"views": 8} if run.place["network"] == "plain" else {})
        assert replace(run.train, model=found[0].train.model, seed=0) == found[0].train  # the rest is the same
    assert settings.budget_seconds == 90


@pytest.mark.parametrize("file", ["results/symmetry.yaml", "src/sfcnn/experiments/configs/symmetry.yaml"])
def test_the_files_are_the_default(file: str) -> None:
    assert read_settings(SymmetryConfig, ROOT / file) == SymmetryConfig()


def test_all_have_about_as_many_parameters_as_c8_of_half_width() -> None:
    base = SymmetryConfig().train.model
    first = make_model("C8", base, 5)
    assert (first.width, first.orientations, first.network) == (0.5, 8, "benchmark")
    for network in NETWORKS:
        assert parameters(make_model(network, base, 5)) == pytest.approx(parameters(first), rel=0.04), network


@pytest.mark.parametrize("network", ["D8", "p4"])
def test_no_other_width_in_hundredths_is_nearer(network: str) -> None:
    base = ModelConfig(width=0.3)
    wanted = parameters(make_model("C8", base, 3))
    model = make_model(network, base, 3)
    around = [replace(model, width=hundredths / 100) for hundredths in range(12, 42)]
    assert abs(parameters(model) - wanted) == min(abs(parameters(other) - wanted) for other in around)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("network", "restrict_after"), [*((network, 5) for network in NETWORKS), ("D4", 0), ("D8", 0), ("p4m", 0)]
)
def test_logits_have_the_symmetry_of_the_name(network: str, restrict_after: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    net = build_network(make_model(network, TRAIN.model, restrict_after)).to(dtype).eval()
    images = torch.rand(2, 1, 28, 28, dtype=dtype)

    def same(turned: Tensor) -> bool:
        return torch.allclose(net(turned), net(images), rtol=0, atol=1e-5 if dtype == torch.float32 else 1e-12)

    assert same(images.rot90(1, (-2, -1))) == (network != "plain")
    assert same(images.flip(-1)) == (network in ("D4", "D8", "p4m") and restrict_after == 0)


def test_epochs_follow_from_the_budget_and_the_times(done: tuple[Path, SymmetryConfig, list[Result]]) -> None:
    directory, settings, results = done
    assert settings.epochs == {"C8": 2, "p4m": 2, "plain": 2}
    assert [result["run"]["epochs"] for result in results] == [2, 2, 2]
    times = json.loads((directory / "times.json").read_text(encoding="utf-8"))
    seconds = {network: kept["seconds_per_epoch"] for network, kept in times.items()}
    assert min(seconds.values()) > 0
    assert all("threads" in kept["provenance"] for kept in times.values())
    budget = 10 * max(seconds.values())
    epochs = recall(replace(SETTINGS, budget_seconds=budget), directory).epochs
    for network, count in epochs.items():
        assert abs(count * seconds[network] - budget) <= seconds[network] / 2 + 1e-9
    given = recall(replace(SETTINGS, budget_seconds=budget, epochs={"p4m": 7}), directory).epochs
    assert given == epochs | {"p4m": 7}


def never(run: SweepRun) -> list[Any]:
    """Nobody watches a run that is not trained."""
    pytest.fail(f"{run.name} is trained")


def test_a_finished_sweep_is_neither_timed_nor_trained_again(
    done: tuple[Path, SymmetryConfig, list[Result]],
) -> None:
    directory, _, results = done
    before = snapshot(directory)
    prepare(SETTINGS, directory, None, pytest.fail)
    again = recall(SETTINGS, directory)
    assert list(run_sweep(EXPERIMENT, runs(again), directory, observers=never)) == results
    assert snapshot(directory) == before


def test_recorded_epochs_repeat_a_run_without_timing(
    done: tuple[Path, SymmetryConfig, list[Result]], tmp_path: Path
) -> None:
    _, settings, results = done
    prepare(settings, tmp_path, None, pytest.fail)
    assert recall(settings, tmp_path) == settings
    (again,) = run_sweep(EXPERIMENT, runs(settings)[:1], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert again["train"] == results[0]["train"]
    assert again["run"]["validation_error"] == results[0]["run"]["validation_error"]
    assert again["tests"][0]["error"] == results[0]["tests"][0]["error"]


def test_views_test_the_same_plain_network(done: tuple[Path, SymmetryConfig, list[Result]]) -> None:
    directory, settings, results = done
    test = first_images(load_splits("digits-rot").test, 30, "test_images")
    for run, result in zip(runs(settings), results, strict=True):
        expected = [1, 4] if run.place["network"] == "plain" else [1]
        assert [tested["views"] for tested in result["tests"]] == expected
        for tested in result["tests"]:
            classifier = load(run.directory(directory))
            assert tested["error"] == classifier.evaluate(test, views=tested["views"]).errors[0]
            assert tested["seconds"] > 0


def test_a_network_can_be_added_later(
    done: tuple[Path, SymmetryConfig, list[Result]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "_TURNS", 1)
    kept = (done[0] / "times.json").read_text(encoding="utf-8")
    (tmp_path / "times.json").write_text(kept, encoding="utf-8")
    told: list[str] = []
    settings = replace(SETTINGS, networks=("C8", "p4"))
    prepare(settings, tmp_path, None, told.append)
    assert told == ["timing epochs of p4"]
    times = json.loads((tmp_path / "times.json").read_text(encoding="utf-8"))
    assert {name: value for name, value in times.items() if name != "p4"} == json.loads(kept)
    assert set(recall(settings, tmp_path).epochs) == {"C8", "p4"}


@pytest.mark.parametrize(
    "change",
    [
        {"train": replace(SETTINGS.train, model=replace(TRAIN.model, width=0.12))},
        {"train": replace(SETTINGS.train, optimization=replace(TRAIN.optimization, batch_size=10))},
        {"restrict_after": 3},
    ],
    ids=["width", "batch size", "restrict_after"],
)
def test_times_of_other_settings_are_refused(
    change: dict[str, Any], done: tuple[Path, SymmetryConfig, list[Result]]
) -> None:
    with pytest.raises(ValueError, match=r"times\.json was measured with other settings: choose another --out$"):
        recall(replace(SETTINGS, **change), done[0])


def test_another_budget_is_refused_once_a_run_is_done(done: tuple[Path, SymmetryConfig, list[Result]]) -> None:
    settings = recall(replace(SETTINGS, budget_seconds=1e6), done[0])
    with pytest.raises(ValueError, match=r"measured\.json was measured with other settings: choose another --out$"):
        finished(runs(settings)[0], done[0])


@pytest.mark.parametrize(
    "damage",
    [
        lambda times: "",
        lambda times: "[]",
        lambda times: json.dumps(times | {"C8": 3}),
        lambda times: json.dumps(times | {"C8": times["C8"] | {"seconds_per_epoch": 0}}),
        lambda times: json.dumps(times | {"C8": times["C8"] | {"seconds_per_epoch": "soon"}}),
        lambda times: json.dumps(times | {"C8": times["C8"] | {"train": {"model": {"width": -1}}}}),
    ],
)
def test_damaged_times_are_named(
    damage: Callable[[Any], str], done: tuple[Path, SymmetryConfig, list[Result]], tmp_path: Path
) -> None:
    times = json.loads((done[0] / "times.json").read_text(encoding="utf-8"))
    (tmp_path / "times.json").write_text(damage(times), encoding="utf-8")
    with pytest.raises(ValueError, match=r"^[^\n]*times\.json does not contain the times of epochs: remove it"):
        recall(SETTINGS, tmp_path)


def test_too_many_test_images_are_noticed_before_anything_is_timed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="test_images must be at most 1500, the number of images available, got 1501"):
        prepare(replace(SETTINGS, test_images=1501), tmp_path, None, pytest.fail)
    assert not list(tmp_path.iterdir())


def result_of(network: str, seed: int, errors: list[float]) -> Result:
    model = make_model(network, TRAIN.model, 5)
    words = ("kind", "orientations", "reflections", "restrict_after", "basis", "views")
    tests = [{"views": views, "error": error, "seconds": 2.0} for views, error in zip((1, 8), errors, strict=False)]
    result = small_result({"network": network, "seed": seed}, tests=tests, test_images=1000)
    result["run"]["seconds"] = 90.0 + 2 * seed
    return result | {"train": {"model": {word: getattr(model, word) for word in words}}}


RESULTS = [
    result_of(network, seed, errors)
    for network, seed, errors in [
        ("plain", 1, [8.0, 5.0]),
        ("p4m", 0, [4.0]),
        ("C8", 1, [3.0]),
        ("plain", 0, [6.0, 5.0]),
        ("C8", 0, [1.0]),
        ("D8", 0, [2.5]),
        ("C16", 0, [2.0]),
    ]
]


def test_the_table_has_a_row_per_network_and_one_for_views() -> None:
    shown = table(replace(SETTINGS, seeds=(0, 1)), RESULTS)
    assert shown.columns == [
        *("network", "symmetry", "parameters", "epochs", "seconds", "test error (%)", "test, ms an image")
    ]
    assert shown.rows == [
        ["C8", "8 rotations", "56,789", "5", "91", "2.00 ± 1.41", "2.0"],
        ["D8", "8 rotations and reflections up to convolution 5", "56,789", "5", "90", "2.50", "2.0"],
        ["C16", "16 rotations", "56,789", "5", "90", "2.00", "2.0"],
        ["p4m", "4 rotations and reflections up to convolution 5, pixel filters", "56,789", "5", "90", "4.00", "2.0"],
        ["plain", "none", "56,789", "5", "91", "7.00 ± 1.41", "2.0"],
        ["plain, 8 views", "none; mean over 8 rotations of an image", "56,789", "5", "91", "5.00 ± 0.00", "2.0"],
    ]
    assert shown.title.endswith("some digits, 1,234 training images, 2 seeds")


def test_errors_come_in_the_order_of_the_seeds() -> None:
    assert [row.errors for row in compare(RESULTS)] == [[1.0, 3.0], [2.5], [2.0], [4.0], [6.0, 8.0], [5.0, 5.0]]


def test_the_figure_has_a_column_per_row() -> None:
    (axes,) = draw(SETTINGS, RESULTS, "anywhere").axes
    labels = [text.get_text() for text in axes.get_xticklabels()]
    assert labels == [f"{row.name}\n5 epochs, {row.seconds:.0f} s" for row in compare(RESULTS)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"networks": ("C8", "C7")}, r"unknown network 'C7', choose one of \['C8', 'D4', "),
        ({"networks": ()}, "networks must have at least one value and no duplicates"),
        ({"budget_seconds": 0.0}, r"budget_seconds must be positive and finite, got 0\.0"),
        ({"budget_seconds": float("nan")}, "budget_seconds must be positive and finite, got nan"),
        ({"epochs": {"D4": 3}}, r"epochs are set for 'D4', expected one of the networks \['C8', 'p4m', 'plain'\]"),
        ({"epochs": {"C8": 0}}, "epochs of C8 must be at least 1, got 0"),
        ({"restrict_after": 6}, "restrict_after must be 0 .* got 6"),
        ({"views": 0}, "views must be a whole number from 1"),
    ],
)
def test_settings_that_make_no_sweep_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SETTINGS, **change)
