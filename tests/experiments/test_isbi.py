"""The experiment on cells: groups of slices held out in turn, every way to find cells scored."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments.conftest import small_result
from sfcnn.cells import choose_settings, predict_slices, segment
from sfcnn.cells.scoring import score_labels, score_probabilities, truth_cells
from sfcnn.experiments.isbi import EXPERIMENT, IsbiConfig, draw, runs, table
from sfcnn.experiments.isbi_rows import METHODS, best_method
from sfcnn.experiments.sweep import Result, run_sweep, summarize
from sfcnn.io.settings import make_settings, read_settings
from sfcnn.io.stacks import read_labels, read_stack
from sfcnn.segmentation import load, load_slices

ROOT = Path(__file__).parents[2]
SETTINGS = make_settings(
    IsbiConfig,
    {
        "kinds": ["steerable", "plain-parameters"],
        "folds": [1, 4],
        "epochs": {"plain-parameters": 2},
        "trees": 5,
        "train": {
            "model": {
                **{"orientations": 4, "channels": 1, "levels": 2},
                **{"input_kernel_size": 5, "kernel_size": 3, "dropout": 0, "affinities": [1, 3]},
            },
            "images": {"source": "synthetic", "validation": 2, "test": 3},
            "optimization": {"epochs": 1, "batch_size": 1, "learning_rate": 0.01},
            "steps": 2,
        },
    },
)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Result]]:
    """One group of the sweep on synthetic slices, trained and measured."""
    directory = tmp_path_factory.mktemp("isbi")
    settings = replace(SETTINGS, folds=(4,))
    return directory, list(run_sweep(EXPERIMENT, runs(settings), directory))


def test_each_group_of_slices_is_scored_once_for_each_network() -> None:
    found = runs(SETTINGS)
    assert [run.name for run in found] == [
        "steerable-slices1-3-s0",
        "plain-parameters-slices1-3-s0",
        "steerable-slices10-12-s0",
        "plain-parameters-slices10-12-s0",
    ]
    for run in found:
        train, validation, test = run.train.images.split(12)
        assert sorted(train + validation + test) == list(range(12))
        first = run.place["fold"] == 1
        assert test == ([0, 1, 2] if first else [9, 10, 11])
        assert validation == ([3, 4] if first else [7, 8])  # just before, or after where there is nothing before
        assert run.train.optimization.epochs == (2 if run.place["kind"] == "plain-parameters" else 1)


@pytest.mark.parametrize(
    "file", ["results/isbi.yaml", *(f"src/sfcnn/experiments/configs/isbi{q}.yaml" for q in ("", "-quick"))]
)
def test_no_epoch_is_chosen_on_slices_that_are_scored(file: str) -> None:
    settings = read_settings(IsbiConfig, ROOT / file)
    count = 24 if file.startswith("results") else 30
    for run in runs(settings):
        train, validation, test = (set(part) for part in run.train.images.split(count))
        assert min(map(len, (train, validation, test))) > 0
        assert len(train | validation | test) == len(train) + len(validation) + len(test)


def test_the_scores_are_those_of_the_files_that_are_left(done: tuple[Path, list[Result]]) -> None:
    directory, results = done
    slices = load_slices(SETTINGS.train.images)
    for result in results:
        files = directory / "runs" / result["name"]
        assert result["slices"] == {"train": [1, 2, 3, 4, 5, 6, 7], "validation": [8, 9], "test": [10, 11, 12]}
        np.testing.assert_array_equal(read_stack(files / "images.tif"), np.concatenate(slices.images[9:]))
        truth, membranes = read_labels(files / "truth.tif"), read_stack(files / "membranes.tif")
        np.testing.assert_array_equal(truth == 0, np.stack(slices.masks[9:]) != 0)
        assert [test["average"] for test in result["tests"]] == ["none", "all"]
        test = result["tests"][0]
        assert test["pixel_error"] == score_probabilities(1 - membranes, truth).pixel_error.best  # type: ignore[union-attr]
        assert {*METHODS} - {"forest"} <= {*test["scores"]} <= {*METHODS}
        for method, found in test["scores"].items():
            scores = score_labels(read_labels(files / f"cells-{method}.tif"), truth)
            assert found["v_rand"] == scores.v_rand.best
            assert found["slices"]["v_info"] == list(scores.v_info.slices)
        best = read_labels(files / f"cells-{best_method([test])}.tif")
        np.testing.assert_array_equal(segment(load(files), np.concatenate(slices.images[9:])).labels, best)


def test_settings_are_chosen_on_slices_that_are_not_scored(done: tuple[Path, list[Result]]) -> None:
    directory, results = done
    slices = load_slices(SETTINGS.train.images)
    images = np.stack([image[0].numpy() for image in slices.images])[7:9]
    truth = truth_cells(np.stack([mask.numpy() == 0 for mask in slices.masks]))[7:9]
    for result in results:
        network = load(directory / "runs" / result["name"])
        expected = choose_settings(predict_slices(network, images, truth))
        for method, found in expected.items():
            kept = result["tests"][0]["scores"][method]
            assert (kept["settings"], kept["chosen_v_rand"]) == (found.settings, found.scores.v_rand.best)


def test_steps_and_threads_are_recorded(done: tuple[Path, list[Result]]) -> None:
    _, results = done
    for result in results:
        assert result["steps"] == result["run"]["epochs"] * result["train"]["steps"]
        assert result["threads"] == result["provenance"]["threads"] == torch.get_num_threads()
    assert [result["steps"] for result in results] == [2, 4]


def test_the_table_has_means_over_groups_and_the_figure_a_row_per_network(
    done: tuple[Path, list[Result]], tmp_path: Path
) -> None:
    directory, results = done
    settings = replace(SETTINGS, folds=(4,))
    shown = table(settings, results)
    assert shown.title == "synthetic membranes (seed 0), V_rand / V_info of slices 10–12"
    names = ["SFCNN"] * 2 + ["U-Net, same parameters"] * 2
    assert [row[:3] for row in shown.rows] == [[name, "7", views] for name, views in zip(names, "1818", strict=True)]
    first = results[0]["tests"][1]["scores"]["threshold"]
    assert shown.rows[1][3] == f"{first['v_rand']:.4f} / {first['v_info']:.4f}"
    assert [row[-2] for row in shown.rows] == ["2", "2", "4", "4"]
    assert all(0 < float(row[-1]) < 5 for row in shown.rows)  # minutes, of runs of seconds
    figure = draw(settings, results, directory)
    names = [axes.get_ylabel() for axes in figure.axes[3::3]]
    scores = results[0]["tests"][0]["scores"]
    best = best_method(results[1]["tests"][:1])
    assert names == [*(f"SFCNN:\n{METHODS[method]}" for method in scores), f"U-Net, same parameters:\n{METHODS[best]}"]
    copy = Path(shutil.copytree(directory, tmp_path / "copy"))
    assert [path.name for path in summarize(EXPERIMENT, settings, results, copy)] == ["isbi.json", "isbi.png"]


def scored(fold: int, value: float, *, slices: int = 18, kind: str = "steerable") -> Result:
    """A result in which every method has the same scores."""
    scores = {method: {"v_rand": value, "v_info": value, "chosen_v_rand": value} for method in METHODS}
    parts = {"train": list(range(1, slices + 1)), "test": [2 * fold - 1, 2 * fold]}
    place = {"kind": kind, "fold": fold, "train_slices": slices}
    tests = [{"average": "none", "scores": scores}]
    result = small_result(place, tests=tests, slices=parts, steps=1000, threads=fold)
    return result | {"run": result["run"] | {"seconds": 60.0 * fold}}


def test_means_and_deviations_are_over_groups() -> None:
    shown = table(SETTINGS, [scored(1, 0.8), scored(3, 0.9)])
    assert shown.title.endswith("slices 1–2, 5–6")
    both = "0.8500 ± 0.0707 / 0.8500 ± 0.0707"
    assert shown.rows == [["SFCNN", "18", "1", *[both] * len(METHODS), "56,789", "1,000", "2"]]


def test_the_best_method_is_the_best_one_on_the_slices_that_choose() -> None:
    test = scored(1, 0.8)["tests"][0]
    test["scores"]["multicut"] |= {"v_rand": 0.7, "chosen_v_rand": 0.81}
    test["scores"]["forest"] |= {"v_rand": 1.0, "chosen_v_rand": None}
    assert best_method([test]) == "multicut"


def test_a_sweep_over_training_slices_has_a_run_and_a_point_for_each_number() -> None:
    settings = replace(SETTINGS, folds=(4,), train_slices=(1, 4))
    found = runs(settings)
    assert [run.name for run in found] == [
        f"{kind}-of{count}-slices10-12-s0" for count in (1, 4) for kind in ("steerable", "plain-parameters")
    ]
    assert [len(run.train.images.split(12)[0]) for run in found] == [1, 1, 4, 4]
    assert {tuple(run.train.images.split(12)[2]) for run in found} == {(9, 10, 11)}
    results = [
        scored(4, value, slices=slices, kind=kind)
        for slices, kind, value in [
            *((1, "steerable", 0.7), (4, "steerable", 0.9)),
            *((1, "plain-parameters", 0.6), (4, "plain-parameters", 0.8)),
        ]
    ]
    (axes,) = draw(settings, results, Path()).axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}  # type: ignore[union-attr]
    assert lines == {
        "SFCNN, 1 view": [[1, 0.7], [4, 0.9]],
        "U-Net, same parameters, 1 view": [[1, 0.6], [4, 0.8]],
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": (0, 1)}, r"folds are counted from 1, got \[0, 1\]"),
        ({"folds": ()}, "folds must have at least one value"),
        ({"train_slices": (-1,)}, r"train_slices must be at least 0, got \[-1\]"),
        ({"averages": ("some",)}, r"unknown average 'some', choose one of \['none'"),
        ({"epochs": {"deep": 3}}, "epochs are set for 'deep', expected one of the kinds"),
        ({"trees": 0}, "trees must be at least 1, got 0"),
    ],
)
def test_settings_are_checked(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SETTINGS, **change)  # type: ignore[arg-type]
    images = replace(SETTINGS.train.images, test=0)
    with pytest.raises(ValueError, match=r"train\.images\.test, the slices of a fold, must be at least 1, got 0"):
        replace(SETTINGS, train=replace(SETTINGS.train, images=images))


def test_a_group_beyond_the_last_slice_is_refused(tmp_path: Path) -> None:
    settings = replace(SETTINGS, folds=(5,))
    with pytest.raises(ValueError, match="12"):
        list(run_sweep(EXPERIMENT, runs(settings), tmp_path / "out"))


def recorded() -> list[dict[str, Any]]:
    """The runs of results/isbi.json."""
    found: list[dict[str, Any]] = json.loads((ROOT / "results" / "isbi.json").read_text(encoding="utf-8"))["runs"]
    return found


def test_the_recorded_table_is_that_of_the_recorded_runs() -> None:
    found = json.loads((ROOT / "results" / "isbi.json").read_text(encoding="utf-8"))["table"]
    expected = table(SETTINGS, recorded())
    assert (found["columns"], found["rows"]) == (expected.columns, expected.rows)
    for run in recorded():
        assert run["steps"] == run["run"]["epochs"] * run["train"]["steps"]
        assert run["threads"] == run["provenance"]["threads"]


WORDS = {"one": 1, "two": 2, "three": 3, "four": 4, "eight": 8}


@pytest.mark.parametrize("page", ["docs/results.md"])
def test_the_text_states_steps_and_threads_of_the_recorded_runs(page: str) -> None:
    """Whatever number the paragraphs about this experiment give of steps or threads must be in the JSON file."""
    text = (ROOT / page).read_text(encoding="utf-8")
    start = text.index("Membranes and cells")
    prose = " ".join(line for line in text[start : text.index("\n![", start)].splitlines() if line[:1] not in "|*<")
    steps, threads = ({run[name] for run in recorded()} for name in ("steps", "threads"))
    stated = {int(number.replace(",", "")) for number in re.findall(r"\b\d{1,3}(?:,\d{3})+\b", prose)}
    assert stated <= steps
    for word, noun in re.findall(r"\b(\w+) threads?\b( each)?", prose):
        if word.lower() in WORDS:
            assert WORDS[word.lower()] in threads
            assert not noun or len(threads) == 1, f"{page} says {word} thread each, the runs had {sorted(threads)}"
