"""A sweep: many training runs that can be interrupted, spread over processes, or run one by one.

DIRECTORY/runs/<name>/            a run (`sfcnn.train.run`) and, once it is done, measured.json
DIRECTORY/times.json              seconds per epoch, for experiments with a time budget
DIRECTORY/<experiment>.json       all results, once all runs are done
DIRECTORY/<experiment>.png        their figure
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatch
from multiprocessing import get_context, parent_process
from pathlib import Path
from statistics import fmean, stdev
from threading import Thread
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

from sfcnn.io.files import write_json
from sfcnn.io.provenance import provenance
from sfcnn.io.runs import from_older
from sfcnn.io.settings import make_settings
from sfcnn.train.loop import Observer
from sfcnn.train.run import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Settings = TypeVar("Settings")
Result = dict[str, Any]

#: The settings of the experiments, as YAML files.
CONFIGS = Path(__file__).parent / "configs"


@dataclass(frozen=True)
class SweepRun:
    """One training run of a sweep, and its place in it."""

    name: str  #: also of its directory
    place: dict[str, Any]  #: what distinguishes it from the others
    train: Any  #: the settings of the run, a frozen dataclass
    test: dict[str, Any]  #: what else its result depends on

    def directory(self, sweep: Path) -> Path:
        """Its directory in the directory of the sweep."""
        return sweep / "runs" / self.name


@dataclass(frozen=True)
class Table:
    """A table to print: a title, column headings, rows."""

    title: str
    columns: list[str]
    rows: list[list[str]]


def _nothing(settings: Any, directory: Path, data: Path | None, tell: Callable[[str], None]) -> None:
    """By default nothing is measured in advance."""


def _as_given(settings: Settings, directory: Path) -> Settings:
    """By default the settings are complete."""
    return settings


@dataclass(frozen=True)
class Experiment(Generic[Settings]):
    """A figure or table: which networks to train, what to measure, how to show it.

    `train` and `measure` take a run, its directory and the data directory. Training resumes where it stopped. If runs
    depend on the machine, `prepare` measures what they depend on and stores it in the directory of the sweep, unless it
    is already there, and `recall` returns the settings completed with it.
    """

    name: str
    settings: type[Settings]
    runs: Callable[[Settings], list[SweepRun]]
    train: Callable[[SweepRun, Path, Path | None, Sequence[Observer]], RunResult]
    measure: Callable[[SweepRun, Path, Path | None], Result]
    table: Callable[[Settings, list[Result]], Table]
    draw: Callable[[Settings, list[Result], Path], "Figure"]  #: may read from the directory of the sweep
    prepare: Callable[[Settings, Path, Path | None, Callable[[str], None]], None] = _nothing
    recall: Callable[[Settings, Path], Settings] = _as_given

    def config_path(self, *, quick: bool) -> Path:
        """The file with the full settings, or with quick ones that take minutes."""
        return CONFIGS / f"{self.name}{'-quick' if quick else ''}.yaml"


def check_settings(settings: Any) -> None:
    """Raise if a list is empty or has duplicates, or a number is negative."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, tuple) and (not value or len(set(value)) < len(value)):
            raise ValueError(f"{field.name} must have at least one value and no duplicates, got {list(value)}")
        if isinstance(value, int) and value < 0:
            raise ValueError(f"{field.name} must be at least 0, got {value}")


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation of a sample; the deviation of one value is 0.

    >>> mean_and_deviation([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    return fmean(values), stdev(values) if len(values) > 1 else 0.0


def mean_text(values: Sequence[float], digits: int) -> str:
    """Mean ± deviation for a table, or the value alone if there is one.

    >>> mean_text([1.0, 3.0], 2), mean_text([1.0], 2)
    ('2.00 ± 1.41', '1.00')
    """
    mean, deviation = mean_and_deviation(values)
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}" if len(values) > 1 else f"{mean:.{digits}f}"


def choose_runs(runs: Sequence[SweepRun], only: Sequence[str]) -> list[SweepRun]:
    """The runs whose names match one of the patterns, or all runs if there are no patterns."""
    for pattern in only:
        if not any(fnmatch(run.name, pattern) for run in runs):
            raise ValueError(f"no run {pattern!r}, choose one of {[run.name for run in runs]}")
    return [run for run in runs if not only or any(fnmatch(run.name, pattern) for pattern in only)]


def finished(run: SweepRun, directory: Path) -> Result | None:
    """The result of a run of the sweep in `directory`, or None if it is not finished."""
    path = run.directory(directory) / "measured.json"
    if not path.is_file():
        return None
    try:
        result: Result = json.loads(path.read_text(encoding="utf-8"))
        kept = make_settings(type(run.train), from_older(run.train.task, result["train"]))
        same = kept == run.train and result["test"] == run.test
        RunResult(**result["run"])
        float(result["test_seconds"])
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is not the result of a run: remove it to measure the run again") from error
    if not same:
        raise ValueError(f"{path} was measured with other settings: choose another --out")
    return result


def _as_json(values: Any) -> Any:
    """Values as they would be read back from a JSON file, with lists for tuples."""
    return json.loads(json.dumps(values))


def run_one(
    experiment: Experiment[Any],
    run: SweepRun,
    directory: Path,
    data: Path | None,
    observers: Sequence[Observer] = (),
) -> Result:
    """Train and measure one run of the sweep in `directory`, resuming it if possible, or read its result."""
    done = finished(run, directory)
    if done is not None:
        return done
    path = run.directory(directory)
    trained = experiment.train(run, path, data, observers)
    start = time.perf_counter()
    measured = experiment.measure(run, path, data)
    result: Result = _as_json(
        {
            "name": run.name,
            **run.place,
            **measured,
            "run": asdict(trained),
            "test_seconds": time.perf_counter() - start,
            "train": asdict(run.train),
            "test": run.test,
            "provenance": provenance(),
        }
    )
    write_json(path / "measured.json", result, overwrite=True)
    return result


def end_with_parent() -> None:
    """End this process as soon as its parent has ended, for whatever reason."""
    parent = parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=wait, daemon=True).start()


def _worker(name: str, run: SweepRun, directory: Path, data: Path | None, threads: int) -> Result:
    from sfcnn.experiments import load_experiment

    torch.set_num_threads(threads)
    return run_one(load_experiment(name), run, directory, data)


def run_sweep(
    experiment: Experiment[Any],
    runs: Sequence[SweepRun],
    directory: Path,
    data: Path | None = None,
    *,
    processes: int = 1,
    observers: Callable[[SweepRun], Sequence[Observer]] = lambda run: (),
) -> Iterator[Result]:
    """Yield the result of each run as soon as it is available; runs that were already finished come first."""
    if processes < 1:
        raise ValueError(f"processes must be at least 1, got {processes}")
    waiting = []
    for run in runs:
        done = finished(run, directory)
        if done is None:
            waiting.append(run)
        else:
            yield done
    if processes == 1 or len(waiting) < 2:
        for run in waiting:
            yield run_one(experiment, run, directory, data, observers(run))
        return
    threads = max(1, (os.cpu_count() or 1) // processes)
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=end_with_parent) as pool:
        jobs = [pool.submit(_worker, experiment.name, run, directory, data, threads) for run in waiting]
        try:
            for job in as_completed(jobs):
                yield job.result()
        except BrokenProcessPool as error:
            raise ValueError(
                "a process of the sweep was killed, possibly for lack of memory: run the command again to resume"
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def summarize(experiment: Experiment[Settings], settings: Any, results: list[Result], directory: Path) -> list[Path]:
    """Write the results of all runs and their figure; return both paths."""
    from sfcnn.pictures import save_figure

    json_path, picture = (directory / f"{experiment.name}{ending}" for ending in (".json", ".png"))
    summary = {
        "experiment": experiment.name,
        "dataset": results[0]["run"]["dataset"],
        "wall_seconds": sum(result["run"]["seconds"] + result["test_seconds"] for result in results),
        "settings": asdict(settings),
        "table": asdict(experiment.table(settings, results)),
        "runs": results,
    }
    write_json(json_path, summary, overwrite=True)
    save_figure(experiment.draw(settings, results, directory), picture, overwrite=True)
    return [json_path, picture]
