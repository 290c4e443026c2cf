"""A sweep can be stopped and resumed, spreads over processes, and mixes no settings."""

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
from sfcnn.classification.config import ClassificationConfig
from sfcnn.experiments import CONFIGS, EXPERIMENTS, load_experiment, sweep
from sfcnn.experiments.orientations import EXPERIMENT as ORIENTATIONS
from sfcnn.experiments.orientations import OrientationsConfig
from sfcnn.experiments.sweep import (
    SweepRun,
    check_settings,
    choose_runs,
    finished,
    mean_and_deviation,
    run_one,
    run_sweep,
    summarize,
)
from sfcnn.io.provenance import provenance
from sfcnn.io.settings import read_settings
from sfcnn.train.config import recipe
from sfcnn.train.loop import Progress

RUNS = ORIENTATIONS.runs(SETTINGS)


def errors(directory: Path, runs: list[SweepRun] = RUNS) -> list[float]:
    results = [finished(run, directory) for run in runs]
    return [result["test_error"] for result in results if result is not None]


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_settings_of_every_experiment_make_runs_of_different_names(name: str, quick: bool) -> None:
    experiment = load_experiment(name)
    settings = read_settings(experiment.settings, experiment.config_path(quick=quick))
    runs = experiment.runs(settings)
    assert len({run.name for run in runs}) == len(runs) > 1
    assert len({repr(run.train) for run in runs}) == len(runs)
    assert all(run.name == Path(run.name).name for run in runs)  # a directory of its own each
    if name == "isbi":
        assert settings.train.images.source == "isbi"
    else:
        assert "regenerated" in settings.train.images.dataset or settings.train.images.dataset == "mnist"
    if not quick:
        default = type(settings)().train
        assert settings.train.optimization == default.optimization
        assert settings.train.model.orientations == default.model.orientations


def test_no_settings_file_is_left_out() -> None:
    """Those of the experiments are tested above."""
    expected = {
        experiment.config_path(quick=quick)
        for experiment in map(load_experiment, EXPERIMENTS)
        for quick in (False, True)
    }
    single = {CONFIGS / f"mnist-rot-{name}.yaml" for name in ("best", "half", "plain")}
    assert set(CONFIGS.iterdir()) == {*expected, CONFIGS / "demo.yaml", *single}
    for path in single:
        run = read_settings(ClassificationConfig, path)
        assert run.optimization == recipe("fast", epochs=run.optimization.epochs)
        assert (run.model.network, run.images.join_validation) == ("benchmark", True)
        assert run.images.augmentation == "continuous"
    generalization = load_experiment("generalization")
    demo = read_settings(generalization.settings, CONFIGS / "demo.yaml")
    assert demo.train.images.dataset == "digits"  # which need no download
    assert len(generalization.runs(demo)) == 2


def test_a_run_tells_where_its_numbers_come_from(done: Path) -> None:
    for run in RUNS:
        result = finished(run, done)
        assert result is not None
        assert (result["name"], result["seed"], result["orientations"]) == (
            run.name,
            run.place["seed"],
            run.place["orientations"],
        )
        assert result["train"]["seed"] == result["seed"] == run.train.seed
        assert result["run"]["dataset"] == "embedded digits, rotated"
        assert (result["test_images"], result["run"]["train_images"]) == (20, 40)
        assert 0 <= result["test_error"] <= 100
        assert min(result["run"]["seconds"], result["test_seconds"]) > 0
        origin = result["provenance"]
        assert set(origin) == set(provenance())
        assert {"python", "torch", "sfcnn"} <= set(origin["versions"])


def never(run: SweepRun) -> list[Any]:
    """Nobody watches a run that is not trained."""
    pytest.fail(f"{run.name} is trained")


def test_a_finished_sweep_is_not_trained_again(copy: Path) -> None:
    before = snapshot(copy)
    results = list(run_sweep(ORIENTATIONS, RUNS, copy, None, observers=never))
    assert [result["name"] for result in results] == [run.name for run in RUNS]
    assert snapshot(copy) == before


def test_a_run_that_another_process_has_done_is_taken(copy: Path) -> None:
    before = snapshot(copy)
    assert run_one(ORIENTATIONS, RUNS[0], copy, None) == finished(RUNS[0], copy)
    assert snapshot(copy) == before


def test_a_sweep_stopped_between_runs_is_resumed(done: Path, tmp_path: Path) -> None:
    started = run_sweep(ORIENTATIONS, RUNS, tmp_path, None)
    first = next(started)
    started.close()  # type: ignore[attr-defined]
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [first["name"]]
    before = snapshot(tmp_path)
    trained: list[str] = []

    def observers(run: SweepRun) -> list[Any]:
        trained.append(run.name)
        return []

    results = list(run_sweep(ORIENTATIONS, RUNS, tmp_path, None, observers=observers))
    assert results[0] == first
    assert trained == [run.name for run in RUNS[1:]]
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


def test_a_sweep_stopped_within_a_run_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    settings = replace(SETTINGS, seeds=(0,), orientations=(2,), train=replace(TRAIN, checkpoint_steps=1))
    (run,) = runs = ORIENTATIONS.runs(settings)
    list(run_sweep(ORIENTATIONS, runs, tmp_path / "whole", None))
    with pytest.raises(KeyboardInterrupt):
        list(run_sweep(ORIENTATIONS, runs, tmp_path / "part", None, observers=lambda run: [StopAfter(2)]))
    assert finished(run, tmp_path / "part") is None
    steps: list[int] = []

    class Count(StopAfter):
        def step(self, progress: Progress, steps_: int, loss: float) -> None:
            steps.append(progress.step)

    list(run_sweep(ORIENTATIONS, runs, tmp_path / "part", None, observers=lambda run: [Count(0)]))
    assert steps == [2]  # the first step was not done again
    assert errors(tmp_path / "part", runs) == errors(tmp_path / "whole", runs)
    ours, expected = (weights(tmp_path / part, run) for part in ("part", "whole"))
    torch.testing.assert_close(ours, expected, rtol=0, atol=0)


def test_a_run_trained_but_not_measured_is_only_measured(copy: Path, done: Path) -> None:
    run = RUNS[0]
    (copy / "runs" / run.name / "measured.json").unlink()
    file = copy / "runs" / run.name / "best.safetensors"
    before = file.stat().st_mtime_ns
    list(run_sweep(ORIENTATIONS, [run], copy, None))
    assert file.stat().st_mtime_ns == before
    assert errors(copy) == errors(done)


def test_two_processes_find_the_same_as_one(done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)  # so that each has one thread, as here
    results = list(run_sweep(ORIENTATIONS, RUNS[:2], tmp_path, None, processes=2))
    assert {result["name"] for result in results} == {run.name for run in RUNS[:2]}
    assert errors(tmp_path) == errors(done)[:2]
    for run in RUNS[:2]:
        torch.testing.assert_close(weights(tmp_path, run), weights(done, run), rtol=0, atol=0)


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
    with pytest.raises(ValueError, match=r"a process of the sweep was killed.*: run the command again to resume"):
        list(run_sweep(ORIENTATIONS, RUNS, tmp_path, None, processes=2))


def test_processes_must_be_at_least_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="processes must be at least 1, got 0"):
        list(run_sweep(ORIENTATIONS, RUNS, tmp_path, None, processes=0))


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
    with pytest.raises(
        ValueError, match=r"^[^\n]*measured\.json was measured with other settings: choose another --out$"
    ):
        list(run_sweep(ORIENTATIONS, ORIENTATIONS.runs(changed), copy, None))
    assert snapshot(copy) == before


def test_more_seeds_can_be_run_in_the_same_directory(done: Path) -> None:
    runs = ORIENTATIONS.runs(replace(SETTINGS, seeds=(1, 2, 0)))
    assert [run.name for run in runs if finished(run, done) is None] == ["n40-L1-s2", "n40-L2-s2"]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "3", '{"train": 1}'])
def test_a_damaged_result_is_named(content: str, copy: Path) -> None:
    (copy / "runs" / RUNS[0].name / "measured.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=rf"^[^\n]*{RUNS[0].name}/measured\.json (is not the result|was measured)"):
        finished(RUNS[0], copy)


def test_too_many_test_images_are_noticed_before_training(tmp_path: Path) -> None:
    settings = replace(SETTINGS, test_images=1501)
    with pytest.raises(ValueError, match="test_images must be at most 1500, the number of images available, got 1501"):
        list(run_sweep(ORIENTATIONS, ORIENTATIONS.runs(settings), tmp_path, None))
    assert not list(tmp_path.iterdir())


def test_missing_data_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SFCNN_DATA", raising=False)
    settings = replace(SETTINGS, train=replace(TRAIN, images=replace(TRAIN.images, dataset="mnist")))
    with pytest.raises(ValueError, match="data set mnist needs a directory"):
        list(run_sweep(ORIENTATIONS, ORIENTATIONS.runs(settings), tmp_path, None))


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
def test_runs_are_chosen_by_patterns(patterns: list[str], numbers: list[int]) -> None:
    assert choose_runs(RUNS, patterns) == [RUNS[number] for number in numbers]


def test_an_unknown_run_names_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"^no run 'n41-\*', choose one of ") as caught:
        choose_runs(RUNS, ["n40-L1-s0", "n41-*"])
    assert all(repr(run.name) in str(caught.value) for run in RUNS)


def test_the_summary_holds_all_that_was_measured(done: Path, tmp_path: Path) -> None:
    results = [result for run in RUNS if (result := finished(run, done)) is not None]
    paths = summarize(ORIENTATIONS, SETTINGS, results, tmp_path)
    assert [path.name for path in paths] == ["orientations.json", "orientations.png"]
    summary = json.loads(paths[0].read_text(encoding="utf-8"))
    assert summary["runs"] == results
    assert summary["settings"]["seeds"] == [0, 1]
    assert summary["dataset"] == "embedded digits, rotated"
    assert summary["wall_seconds"] == pytest.approx(sum(r["run"]["seconds"] + r["test_seconds"] for r in results))
    assert len(summary["table"]["rows"]) == 1
    assert paths[1].read_bytes().startswith(b"\x89PNG")
    summarize(ORIENTATIONS, SETTINGS, results[:2], tmp_path)  # and again, over the old ones
    assert len(json.loads(paths[0].read_text(encoding="utf-8"))["runs"]) == 2


def test_mean_and_deviation() -> None:
    assert mean_and_deviation([2.0]) == (2.0, 0.0)
    assert mean_and_deviation([1.0, 2.0, 6.0]) == pytest.approx((3.0, 7**0.5))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("seeds", (), r"seeds must have at least one value and no duplicates, got \[\]"),
        ("seeds", (0, 1, 0), r"seeds must have at least one value and no duplicates, got \[0, 1, 0\]"),
        ("orientations", (2, 2), r"orientations must have .* got \[2, 2\]"),
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
