"""A sweep: many training runs, called cells, that can be interrupted, spread over processes, or run one by one.

DIRECTORY/cells/<name>/           a run (`sfcnn.training.runs`) and, once it is done, cell.json
DIRECTORY/<experiment>.json       all results, once all cells are done
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
from threading import Thread
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

from sfcnn.files import write_json
from sfcnn.provenance import provenance
from sfcnn.training.loop import Observer
from sfcnn.training.runs import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Settings = TypeVar("Settings")
Result = dict[str, Any]

#: Where the settings of the experiments are kept, as YAML files.
CONFIGS = Path(__file__).parent / "configs"


@dataclass(frozen=True)
class Cell:
    """One training run of a sweep and where it stands in it."""

    name: str  #: also of its directory
    place: dict[str, Any]  #: what sets it apart from the others
    train: Any  #: the settings of the run, a frozen dataclass
    test: dict[str, Any]  #: what else its result depends on


@dataclass(frozen=True)
class Table:
    """Text for a person: a title, a heading for each column, rows."""

    title: str
    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Experiment(Generic[Settings]):
    """A figure or table of the paper: which networks to train, what to measure, how to show it.

    `train` and `measure` are given a cell, its directory and that of the data. Training goes on where it stopped.
    """

    name: str
    settings: type[Settings]
    cells: Callable[[Settings], list[Cell]]
    train: Callable[[Cell, Path, Path | None, Sequence[Observer]], RunResult]
    measure: Callable[[Cell, Path, Path | None], Result]
    table: Callable[[Settings, list[Result]], Table]
    draw: Callable[[Settings, list[Result], Path], "Figure"]  #: from the directory of the experiment, if need be

    def config_path(self, *, quick: bool) -> Path:
        """The file with the full settings or with those that take minutes."""
        return CONFIGS / f"{self.name}{'-quick' if quick else ''}.yaml"


def check_settings(settings: Any) -> None:
    """Raise if a list of the sweep is empty or names a value twice, or a number is negative."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, tuple) and (not value or len(set(value)) < len(value)):
            raise ValueError(f"{field.name} must name at least one value and none twice, got {list(value)}")
        if isinstance(value, int) and value < 0:
            raise ValueError(f"{field.name} must be at least 0, got {value}")


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation of a sample; the deviation of one value is 0.

    >>> mean_and_deviation([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    tensor = torch.tensor(values, dtype=torch.float64)
    return float(tensor.mean()), float(tensor.std()) if len(values) > 1 else 0.0


def mean_text(values: Sequence[float], digits: int) -> str:
    """Mean ± deviation for a table, or the value alone if there is one.

    >>> mean_text([1.0, 3.0], 2), mean_text([1.0], 2)
    ('2.00 ± 1.41', '1.00')
    """
    mean, deviation = mean_and_deviation(values)
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}" if len(values) > 1 else f"{mean:.{digits}f}"


def choose_cells(cells: Sequence[Cell], only: Sequence[str]) -> list[Cell]:
    """The cells whose names match one of the patterns, all of them if there are none."""
    for pattern in only:
        if not any(fnmatch(cell.name, pattern) for cell in cells):
            raise ValueError(f"no cell {pattern!r}, choose one of {[cell.name for cell in cells]}")
    return [cell for cell in cells if not only or any(fnmatch(cell.name, pattern) for pattern in only)]


def finished(cell: Cell, directory: Path) -> Result | None:
    """What a cell measured, if it is done."""
    path = directory / "cells" / cell.name / "cell.json"
    if not path.is_file():
        return None
    try:
        result: Result = json.loads(path.read_text(encoding="utf-8"))
        same = result["train"] == asdict(cell.train) and result["test"] == cell.test
        RunResult(**result["run"])
        float(result["test_seconds"])
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is no result of a cell: remove it to measure the cell again") from error
    if not same:
        raise ValueError(f"{path} was measured with other settings: choose another --out")
    return result


def run_cell(
    experiment: Experiment[Any],
    cell: Cell,
    directory: Path,
    data: Path | None,
    observers: Sequence[Observer] = (),
) -> Result:
    """Train and measure one cell, or go on with it, or take what is there."""
    done = finished(cell, directory)
    if done is not None:
        return done
    path = directory / "cells" / cell.name
    run = experiment.train(cell, path, data, observers)
    start = time.perf_counter()
    measured = experiment.measure(cell, path, data)
    result = {
        "cell": cell.name,
        **cell.place,
        **measured,
        "run": asdict(run),
        "test_seconds": time.perf_counter() - start,
        "train": asdict(cell.train),
        "test": cell.test,
        "provenance": provenance(),
    }
    write_json(path / "cell.json", result, overwrite=True)
    return result


def end_with_parent() -> None:
    """End this process as soon as the one that started it has ended, however that was: nobody waits for its work."""
    parent = parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=wait, daemon=True).start()


def _worker(name: str, cell: Cell, directory: Path, data: Path | None, threads: int) -> Result:
    from sfcnn.experiments import load_experiment

    torch.set_num_threads(threads)
    return run_cell(load_experiment(name), cell, directory, data)


def run_cells(
    experiment: Experiment[Any],
    cells: Sequence[Cell],
    directory: Path,
    data: Path | None,
    *,
    processes: int = 1,
    observers: Callable[[Cell], Sequence[Observer]] = lambda cell: (),
) -> Iterator[Result]:
    """Yield each cell's result when it is there; those that are done already come first."""
    if processes < 1:
        raise ValueError(f"processes must be at least 1, got {processes}")
    waiting = []
    for cell in cells:
        done = finished(cell, directory)
        if done is None:
            waiting.append(cell)
        else:
            yield done
    if processes == 1 or len(waiting) < 2:
        for cell in waiting:
            yield run_cell(experiment, cell, directory, data, observers(cell))
        return
    threads = max(1, (os.cpu_count() or 1) // processes)
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=end_with_parent) as pool:
        jobs = [pool.submit(_worker, experiment.name, cell, directory, data, threads) for cell in waiting]
        try:
            for job in as_completed(jobs):
                yield job.result()
        except BrokenProcessPool as error:
            raise ValueError(
                "a process of the sweep was killed, perhaps for want of memory: the same command goes on"
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def summarize(experiment: Experiment[Settings], settings: Any, results: list[Result], directory: Path) -> list[Path]:
    """Write the results of all cells and their figure; return both paths."""
    from sfcnn.pictures import save_figure

    json_path, picture = (directory / f"{experiment.name}{ending}" for ending in (".json", ".png"))
    table = experiment.table(settings, results)
    summary = {
        "experiment": experiment.name,
        "dataset": results[0]["run"]["dataset"],
        "wall_seconds": sum(result["run"]["seconds"] + result["test_seconds"] for result in results),
        "settings": asdict(settings),
        "table": asdict(table),
        "cells": results,
    }
    write_json(json_path, summary, overwrite=True)
    save_figure(experiment.draw(settings, results, directory), picture, overwrite=True)
    return [json_path, picture]
