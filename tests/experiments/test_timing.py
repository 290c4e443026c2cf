"""An epoch takes as many of its fastest steps as it has, and the fastest validation."""

from dataclasses import replace

import pytest

from experiments.conftest import TRAIN
from sfcnn.classification.config import ClassificationConfig
from sfcnn.classification.data import load_splits
from sfcnn.experiments import timing
from sfcnn.experiments.timing import epoch_seconds
from sfcnn.train.loop import EpochRecord, Progress


def watched(*steps: float, whole: float) -> timing._Stopwatch:
    """What is left of an epoch whose steps took these seconds."""
    watch, progress = timing._Stopwatch(), Progress()
    for seconds in steps:
        progress.seconds += seconds
        watch.step(progress, len(steps), 1.0)
    progress.history.append(EpochRecord(1, 0.1, 1.0, 0.0, 50.0, 1.0, 50.0, whole))
    watch.epoch(progress)
    return watch


def test_a_stopwatch_keeps_the_fastest_step_and_what_follows_the_last() -> None:
    watch = watched(4.0, 1.0, 2.0, whole=7.5)
    assert (watch.step_seconds, watch.validation_seconds) == (1.0, 0.5)


def test_networks_take_turns_and_the_fastest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {2: iter([3.0, 2.0, 5.0, 2.5, 9.0]), 4: iter([1.0, 8.0, 7.0, 6.0, 5.0])}
    turns = []

    def trial(config: ClassificationConfig, splits: object) -> timing._Stopwatch:
        turns.append(config.model.orientations)
        step = next(times[config.model.orientations])
        return watched(step, whole=step + step / 10)

    monkeypatch.setattr(timing, "_trial", trial)  # the only way to know how long something takes
    configs = {"two": TRAIN, "four": replace(TRAIN, model=replace(TRAIN.model, orientations=4))}
    found = epoch_seconds(configs, load_splits("digits-rot"))  # 40 images in batches of 20: 2 steps
    assert turns == [2, 4] * 5
    assert found == pytest.approx({"two": 2 * 2.0 + 0.2, "four": 2 * 1.0 + 0.1})
