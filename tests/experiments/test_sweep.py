"""A sweep can be stopped and goes on, spreads over processes, and mixes no settings."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.conftest import SETTINGS, TRAIN, snapshot, weights
from sfcnn.experiments import CONFIGS, EXPERIMENTS, load_experiment, sweep
from sfcnn.experiments.orientations import EXPERIMENT as ORIENTATIONS
from sfcnn.experiments.orientations import OrientationsConfig
from sfcnn.experiments.sweep import (
    Cell,
    check_settings,
    choose_cells,
    finished,
    mean_and_deviation,
    run_cell,
    run_cells,
    summarize,
)
from sfcnn.provenance import provenance
from sfcnn.training.loop import Progress
from sfcnn.training.settings import read_settings

CELLS = ORIENTATIONS.cells(SETTINGS)


def errors(directory: Path, cells: list[Cell] = CELLS) -> list[float]:
    results = [finished(cell, directory) for cell in cells]
    return [result["test_error"] for result in results if result is not None]


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_settings_of_every_experiment_make_cells_of_different_names(name: str, quick: bool) -> None:
    experiment = load_experiment(name)
    settings = read_settings(experiment.settings, experiment.config_path(quick=quick))
    cells = experiment.cells(settings)
    assert len({cell.name for cell in cells}) == len(cells) > 1
    assert len({repr(cell.train) for cell in cells}) == len(cells)
    assert all(cell.name == Path(cell.name).name for cell in cells)  # a directory of its own each
    if name == "isbi":
        assert settings.train.images.source == "isbi"
    else:
        assert "regenerated" in settings.train.images.dataset or settings.train.images.dataset == "mnist"
    if not quick:
        default = type(settings.train)()
        assert settings.train.optimization == default.optimization
        assert settings.train.model.orientations == default.model.orientations


def test_no_settings_file_is_left_out() -> None:
    """Those of the experiments are tested above."""
    expected = {
        experiment.config_path(quick=quick)
        for experiment in map(load_experiment, EXPERIMENTS)
        for quick in (False, True)
    }
    assert set(CONFIGS.iterdir()) == {*expected, CONFIGS / "demo.yaml"}
    generalization = load_experiment("generalization")
    demo = read_settings(generalization.settings, CONFIGS / "demo.yaml")
    assert demo.train.images.dataset == "digits"  # which need no download
    assert len(generalization.cells(demo)) == 2


def test_a_cell_tells_where_its_numbers_come_from(done: Path) -> None:
    for cell in CELLS:
        result = finished(cell, done)
        assert result is not None
        assert (result["cell"], result["seed"], result["orientations"]) == (
            cell.name,
            cell.place["seed"],
            cell.place["orientations"],
        )
        assert result["train"]["seed"] == result["seed"] == cell.train.seed
        assert result["run"]["dataset"] == "embedded digits, rotated"
        assert (result["test_images"], result["run"]["train_images"]) == (20, 40)
        assert 0 <= result["test_error"] <= 100
        assert min(result["run"]["seconds"], result["test_seconds"]) > 0
        origin = result["provenance"]
        assert set(origin) == set(provenance())
        assert {"python", "torch", "sfcnn"} <= set(origin["versions"])


def never(cell: Cell) -> list[Any]:
    """Nobody watches a cell that is not trained."""
    pytest.fail(f"{cell.name} is trained")


def test_a_finished_sweep_is_not_trained_again(copy: Path) -> None:
    before = snapshot(copy)
    results = list(run_cells(ORIENTATIONS, CELLS, copy, None, observers=never))
    assert [result["cell"] for result in results] == [cell.name for cell in CELLS]
    assert snapshot(copy) == before


def test_a_cell_that_another_process_has_done_is_taken(copy: Path) -> None:
    before = snapshot(copy)
    assert run_cell(ORIENTATIONS, CELLS[0], copy, None) == finished(CELLS[0], copy)
    assert snapshot(copy) == before


def test_a_sweep_stopped_between_cells_goes_on(done: Path, tmp_path: Path) -> None:
    started = run_cells(ORIENTATIONS, CELLS, tmp_path, None)
    first = next(started)
    started.close()  # type: ignore[attr-defined]
    assert [path.name for path in (tmp_path / "cells").iterdir()] == [first["cell"]]
    before = snapshot(tmp_path)
    trained: list[str] = []

    def observers(cell: Cell) -> list[Any]:
        trained.append(cell.name)
        return []

    results = list(run_cells(ORIENTATIONS, CELLS, tmp_path, None, observers=observers))
    assert results[0] == first
    assert trained == [cell.name for cell in CELLS[1:]]
    after = snapshot(tmp_path)
    assert {name: after[name] for name in before} == before
    assert errors(tmp_path) == errors(done)


class StopAfter:
    """Ctrl-C after a number of steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def step(self, progress: Progress, steps: int, loss: float) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt

    def epoch(self, progress: Progress) -> None:
        pass


def test_a_sweep_stopped_within_a_cell_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    settings = replace(SETTINGS, seeds=(0,), orientations=(2,), train=replace(TRAIN, checkpoint_steps=1))
    (cell,) = cells = ORIENTATIONS.cells(settings)
    list(run_cells(ORIENTATIONS, cells, tmp_path / "whole", None))
    with pytest.raises(KeyboardInterrupt):
        list(run_cells(ORIENTATIONS, cells, tmp_path / "part", None, observers=lambda cell: [StopAfter(2)]))
    assert finished(cell, tmp_path / "part") is None
    steps: list[int] = []

    class Count(StopAfter):
        def step(self, progress: Progress, steps_: int, loss: float) -> None:
            steps.append(progress.step)

    list(run_cells(ORIENTATIONS, cells, tmp_path / "part", None, observers=lambda cell: [Count(0)]))
    assert steps == [2]  # the first step was not done again
    assert errors(tmp_path / "part", cells) == errors(tmp_path / "whole", cells)
    ours, expected = (weights(tmp_path / run, cell) for run in ("part", "whole"))
    torch.testing.assert_close(ours, expected, rtol=0, atol=0)


def test_a_cell_trained_but_not_measured_is_only_measured(copy: Path, done: Path) -> None:
    cell = CELLS[0]
    (copy / "cells" / cell.name / "cell.json").unlink()
    file = copy / "cells" / cell.name / "best.safetensors"
    before = file.stat().st_mtime_ns
    list(run_cells(ORIENTATIONS, [cell], copy, None))
    assert file.stat().st_mtime_ns == before
    assert errors(copy) == errors(done)


def test_two_processes_find_the_same_as_one(done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)  # so that each has one thread, as here
    results = list(run_cells(ORIENTATIONS, CELLS[:2], tmp_path, None, processes=2))
    assert {result["cell"] for result in results} == {cell.name for cell in CELLS[:2]}
    assert errors(tmp_path) == errors(done)[:2]
    for cell in CELLS[:2]:
        torch.testing.assert_close(weights(tmp_path, cell), weights(done, cell), rtol=0, atol=0)


def test_a_process_that_was_killed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pool:
        def __init__(self, *arguments: object, **options: object) -> None:
            pass

        def __enter__(self) -> "Pool":
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def submit(self, *arguments: object) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_exception(BrokenProcessPool("terminated abruptly"))
            return future

    monkeypatch.setattr(sweep, "ProcessPoolExecutor", Pool)
    with pytest.raises(ValueError, match=r"a process of the sweep was killed.*: the same command goes on"):
        list(run_cells(ORIENTATIONS, CELLS, tmp_path, None, processes=2))


def test_processes_must_be_at_least_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="processes must be at least 1, got 0"):
        list(run_cells(ORIENTATIONS, CELLS, tmp_path, None, processes=0))


@pytest.mark.parametrize(
    "changed",
    [
        replace(SETTINGS, test_images=10),
        replace(SETTINGS, test_images=0),
        replace(SETTINGS, train=replace(TRAIN, optimization=replace(TRAIN.optimization, epochs=2))),
        replace(SETTINGS, train=replace(TRAIN, images=replace(TRAIN.images, validation_images=10))),
    ],
    ids=["test images", "all test images", "epochs", "validation images"],
)
def test_other_settings_in_the_same_directory_are_refused(changed: OrientationsConfig, copy: Path) -> None:
    before = snapshot(copy)
    with pytest.raises(ValueError, match=r"^[^\n]*cell\.json was measured with other settings: choose another --out$"):
        list(run_cells(ORIENTATIONS, ORIENTATIONS.cells(changed), copy, None))
    assert snapshot(copy) == before


def test_more_seeds_go_on_in_the_same_directory(done: Path) -> None:
    cells = ORIENTATIONS.cells(replace(SETTINGS, seeds=(1, 2, 0)))
    assert [cell.name for cell in cells if finished(cell, done) is None] == ["n40-L1-s2", "n40-L2-s2"]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "3", '{"train": 1}'])
def test_a_damaged_result_is_named(content: str, copy: Path) -> None:
    (copy / "cells" / CELLS[0].name / "cell.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=rf"^[^\n]*{CELLS[0].name}/cell\.json (is no result|was measured)"):
        finished(CELLS[0], copy)


def test_too_many_test_images_are_noticed_before_training(tmp_path: Path) -> None:
    settings = replace(SETTINGS, test_images=1501)
    with pytest.raises(ValueError, match="test_images must be at most 1500, the number of such images, got 1501"):
        list(run_cells(ORIENTATIONS, ORIENTATIONS.cells(settings), tmp_path, None))
    assert not list(tmp_path.iterdir())


def test_missing_data_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SFCNN_DATA", raising=False)
    settings = replace(SETTINGS, train=replace(TRAIN, images=replace(TRAIN.images, dataset="mnist")))
    with pytest.raises(ValueError, match="data set mnist needs a directory"):
        list(run_cells(ORIENTATIONS, ORIENTATIONS.cells(settings), tmp_path, None))


@pytest.mark.parametrize(
    ("patterns", "numbers"),
    [
        ([], [0, 1, 2, 3]),
        (["n40-L1-s0"], [0]),
        (["*-s1"], [2, 3]),
        (["*-L1-*", "*-s1"], [0, 2, 3]),
        (["n40-L[12]-s0"], [0, 1]),
        (["*"], [0, 1, 2, 3]),
    ],
)
def test_cells_are_chosen_by_patterns(patterns: list[str], numbers: list[int]) -> None:
    assert choose_cells(CELLS, patterns) == [CELLS[number] for number in numbers]


def test_an_unknown_cell_names_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"^no cell 'n41-\*', choose one of ") as caught:
        choose_cells(CELLS, ["n40-L1-s0", "n41-*"])
    assert all(repr(cell.name) in str(caught.value) for cell in CELLS)


def test_the_summary_holds_all_that_was_measured(done: Path, tmp_path: Path) -> None:
    results = [result for cell in CELLS if (result := finished(cell, done)) is not None]
    paths = summarize(ORIENTATIONS, SETTINGS, results, tmp_path)
    assert [path.name for path in paths] == ["orientations.json", "orientations.png"]
    summary = json.loads(paths[0].read_text(encoding="utf-8"))
    assert summary["cells"] == results
    assert summary["settings"]["seeds"] == [0, 1]
    assert summary["dataset"] == "embedded digits, rotated"
    assert summary["wall_seconds"] == pytest.approx(sum(r["run"]["seconds"] + r["test_seconds"] for r in results))
    assert len(summary["table"]["rows"]) == 1
    assert paths[1].read_bytes().startswith(b"\x89PNG")
    summarize(ORIENTATIONS, SETTINGS, results[:2], tmp_path)  # and again, over the old ones
    assert len(json.loads(paths[0].read_text(encoding="utf-8"))["cells"]) == 2


def test_mean_and_deviation() -> None:
    assert mean_and_deviation([2.0]) == (2.0, 0.0)
    assert mean_and_deviation([1.0, 2.0, 6.0]) == pytest.approx((3.0, 7**0.5))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("seeds", (), r"seeds must name at least one value and none twice, got \[\]"),
        ("seeds", (0, 1, 0), r"seeds must name at least one value and none twice, got \[0, 1, 0\]"),
        ("orientations", (2, 2), r"orientations must name .* got \[2, 2\]"),
        ("test_images", -1, "test_images must be at least 0, got -1"),
    ],
)
def test_lists_that_make_no_sweep_are_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        replace(SETTINGS, **{name: value})
    check_settings(SETTINGS)


KILLED = """
import os, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from sfcnn.experiments.sweep import end_with_parent
if __name__ == "__main__":
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=end_with_parent) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        pool.submit(time.sleep, 600).result()
"""


def test_the_processes_of_a_killed_sweep_end_with_it(tmp_path: Path) -> None:
    script = tmp_path / "sweep.py"
    script.write_text(KILLED)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert is_running(worker)
        parent.kill()
    deadline = time.monotonic() + 20
    while is_running(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(worker)


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
