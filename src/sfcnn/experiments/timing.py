"""Time an epoch of several networks: a few steps of each in turn, of which the fastest counts.

The networks take turns so that changes in the machine's speed affect all of them, and the shortest of several times is
the one least disturbed by other work on the machine. Times are stored in a JSON file with the settings they are for.
"""

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sfcnn.classification.config import ClassificationConfig
from sfcnn.classification.labelled import Splits
from sfcnn.classification.network import build_network
from sfcnn.classification.task import Classification
from sfcnn.io.files import OutputExistsError, write_json
from sfcnn.io.provenance import provenance
from sfcnn.io.runs import from_older
from sfcnn.io.settings import make_settings
from sfcnn.train.loop import Progress
from sfcnn.train.run import Job, train_run

_TURNS = 5  # of each network
_STEPS = 3  # per turn; the first also allocates memory and makes plans


class _Stopwatch:
    """Observes a run of one epoch: seconds of its fastest step, and of the validation."""

    def __init__(self) -> None:
        self.step_seconds, self.validation_seconds = float("inf"), float("inf")
        self._before = 0.0

    def step(self, progress: Progress, steps: int, loss: float) -> None:
        self.step_seconds = min(self.step_seconds, progress.seconds - self._before)
        self._before = progress.seconds

    def epoch(self, progress: Progress) -> None:
        self.validation_seconds = progress.history[-1].seconds - self._before


def epoch_seconds(configs: Mapping[str, ClassificationConfig], splits: Splits) -> dict[str, float]:
    """Seconds per epoch of each network in this process: all steps and the validation."""
    trials: dict[str, list[_Stopwatch]] = defaultdict(list)
    steps = {name: Classification(splits, config).steps for name, config in configs.items()}
    for _ in range(_TURNS):
        for name, config in configs.items():
            trials[name].append(_trial(config, splits))
    return {
        name: steps[name] * min(trial.step_seconds for trial in turns)
        + min(trial.validation_seconds for trial in turns)
        for name, turns in trials.items()
    }


def _trial(config: ClassificationConfig, splits: Splits) -> _Stopwatch:
    """Time the first steps of a regular run, and its validation."""
    config = replace(config, optimization=replace(config.optimization, epochs=1))
    watch = _Stopwatch()

    def few_steps() -> Classification:
        task = Classification(splits, config)
        task.steps = min(task.steps, _STEPS)
        return task

    job = Job(config, lambda: build_network(config.model, config.images), few_steps, splits.name)
    with TemporaryDirectory() as directory:
        train_run(job, Path(directory), observers=[watch])
    return watch


def kept_times(path: Path, configs: Mapping[str, ClassificationConfig]) -> dict[str, float]:
    """Seconds per epoch of the networks in the file; empty if there is no file."""
    times = {}
    for name, (seconds, config) in _read(path).items():
        if name in configs:
            if config != configs[name]:
                raise ValueError(f"{path} was measured with other settings: choose another --out")
            times[name] = seconds
    return times


def keep_times(path: Path, configs: Mapping[str, ClassificationConfig], splits: Splits) -> None:
    """Time an epoch of each network and add the times to the file."""
    before: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if _read(path) else {}
    origin = provenance()
    found = {
        name: {"seconds_per_epoch": seconds, "train": asdict(configs[name]), "provenance": origin}
        for name, seconds in epoch_seconds(configs, splits).items()
    }
    try:
        write_json(path, before | found, overwrite=bool(before))
    except OutputExistsError:  # another process of the same sweep was faster; its times are used
        return


def _read(path: Path) -> dict[str, tuple[float, ClassificationConfig]]:
    """Seconds per epoch, and the settings they were measured with."""
    if not path.is_file():
        return {}
    try:
        found = {
            name: (float(kept["seconds_per_epoch"]), make_settings(ClassificationConfig, _settings(kept["train"])))
            for name, kept in json.loads(path.read_text(encoding="utf-8")).items()
        }
        if not all(0 < seconds < math.inf for seconds, _ in found.values()):
            raise ValueError("a time is not positive and finite")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} does not contain the times of epochs: remove it to measure them again") from error
    return found


def _settings(values: dict[str, Any]) -> dict[str, Any]:
    return from_older(ClassificationConfig.task, values)
