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
from sfcnn.cells import CellsConfig, find_cells
from sfcnn.cells.scoring import score_labels, score_probabilities
from sfcnn.experiments.isbi import EXPERIMENT, METHODS, IsbiConfig, draw, runs, table
from sfcnn.experiments.sweep import Result, run_sweep, summarize
from sfcnn.io.settings import make_settings, read_settings
from sfcnn.io.stacks import read_labels, read_stack
from sfcnn.segmentation import load_slices

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
                **{"input_kernel_size": 5, "kernel_size": 3, "dropout": 0},
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
        expected = {
            "threshold": score_probabilities(1 - membranes, truth),
            "beta": score_labels(find_cells(membranes, CellsConfig(beta=result["beta"])), truth),
            "forest": score_labels(read_labels(files / "cells.tif"), truth),
        }
        assert set(result["scores"]) == set(METHODS)
        for method, scores in expected.items():
            assert result["scores"][method]["v_rand"]["best"] == scores.v_rand.best
            assert result["scores"][method]["v_info"]["slices"] == list(scores.v_info.slices)


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
    assert shown.title == "synthetic membranes (seed 0), scored on slices 10–12"
    assert [row[:2] for row in shown.rows[:4]] == [["SFCNN", name] for name in METHODS.values()]
    assert [row[5:7] for row in shown.rows[::4]] == [["2", "1"], ["4", "1"]]
    assert all(0 < float(row[7]) < 5 for row in shown.rows)  # minutes, of runs of seconds
    figure = draw(settings, results, directory)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["image", "true cells", "", *["membrane", "cells", "mistakes"] * 2]
    assert [axes.get_ylabel() for axes in figure.axes[3::3]] == ["SFCNN", "U-Net, same parameters"]
    copy = Path(shutil.copytree(directory, tmp_path / "copy"))
    assert [path.name for path in summarize(EXPERIMENT, settings, results, copy)] == ["isbi.json", "isbi.png"]


def test_means_and_deviations_are_over_groups() -> None:
    def scored(fold: int, value: float) -> Result:
        scores = {method: {name: {"best": value} for name in ("v_rand", "v_info")} for method in METHODS}
        slices = {"test": [2 * fold - 1, 2 * fold]}
        place = {"kind": "steerable", "fold": fold}
        result = small_result(place, scores=scores, slices=slices, steps=1000, threads=fold)
        return result | {"run": result["run"] | {"seconds": 60.0 * fold}}

    shown = table(SETTINGS, [scored(1, 0.8), scored(3, 0.9)])
    assert shown.title.endswith("slices 1–2, 5–6")
    assert shown.rows[0] == [
        *("SFCNN", "threshold", "0.8500 ± 0.0707", "0.8500 ± 0.0707"),
        *("56,789", "1,000", "1, 3", "2"),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": (0, 1)}, r"folds are counted from 1, got \[0, 1\]"),
        ({"folds": ()}, "folds must have at least one value"),
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
