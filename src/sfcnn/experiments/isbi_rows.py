"""Table and figures of the experiment on cells."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from sfcnn.experiments.sweep import Result, Table, mean_text
from sfcnn.io.stacks import as_fraction, read_labels, read_stack
from sfcnn.segmentation.tiles import AVERAGES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Kinds of networks, and their names in the table.
NAMES = {
    "steerable": "SFCNN",
    "plain-channels": "U-Net, same channels",
    "plain-effective-channels": "U-Net, same effective channels",
    "plain-parameters": "U-Net, same parameters",
}

#: Methods to find cells, and their names in the table.
METHODS = {
    "threshold": "threshold",
    "multicut": "multicut",
    "forest": "multicut, forest",
    "lifted-multicut": "lifted multicut",
    "mutex-watershed": "mutex watershed",
}


class Row(NamedTuple):
    """A network, trained on some slices and applied to some views: the runs of all groups and seeds."""

    kind: str
    train_slices: int
    average: str
    runs: list[Result]
    tests: list[Result]  #: of the runs, with this average

    def values(self, method: str, score: str) -> list[float]:
        """A score of each run; empty if not all of them have the method."""
        found = [test["scores"][method][score] for test in self.tests if method in test["scores"]]
        return found if len(found) == len(self.tests) else []


def rows(results: list[Result]) -> list[Row]:
    """The rows of the table, in the order of networks, training slices and averages."""
    found: dict[tuple[str, int, str], list[tuple[Result, Result]]] = defaultdict(list)
    for result in results:
        for test in result["tests"]:
            found[result["kind"], len(result["slices"]["train"]), test["average"]].append((result, test))
    order = sorted(found, key=lambda key: (list(NAMES).index(key[0]), key[1], list(AVERAGES).index(key[2])))
    return [Row(*key, *(list(part) for part in zip(*found[key], strict=True))) for key in order]


def make_table(results: list[Result]) -> Table:
    """One row per network, number of training slices and average; mean and deviation over groups and seeds."""
    found = rows(results)
    shown = [method for method in METHODS if any(row.values(method, "v_rand") for row in found)]
    lines = []
    for row in found:
        minutes = fmean(run["run"]["seconds"] / 60 for run in row.runs)
        lines.append(
            [
                NAMES[row.kind],
                f"{row.train_slices}",
                f"{len(AVERAGES[row.average])}",
                *(_both(row, method) for method in shown),
                f"{row.runs[0]['run']['parameters']:,}",
                f"{row.runs[0]['steps']:,}",
                _minutes(minutes),
            ]
        )
    columns = ["network", "training slices", "views", *(METHODS[method] for method in shown)]
    slices = sorted({number for result in results for number in result["slices"]["test"]})
    title = f"{results[0]['run']['dataset']}, V_rand / V_info of slices {_ranges(slices)}"
    return Table(title, [*columns, "parameters", "steps", "minutes"], lines)


def _both(row: Row, method: str) -> str:
    """V_rand and V_info of a method, or a dash."""
    scores = [row.values(method, score) for score in ("v_rand", "v_info")]
    return " / ".join(mean_text(values, 4) for values in scores) if all(scores) else "–"


def _minutes(minutes: float) -> str:
    """Whole minutes, or two digits for a run of less than ten.

    >>> _minutes(54.4), _minutes(3.21), _minutes(0.052)
    ('54', '3.2', '0.052')
    """
    return f"{minutes:.0f}" if minutes >= 10 else f"{minutes:.2g}"


def _ranges(numbers: Sequence[int]) -> str:
    """Consecutive numbers as first–last.

    >>> _ranges([1, 2, 3, 7])
    '1–3, 7'
    """
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{part[0]}–{part[-1]}" if len(part) > 1 else f"{part[0]}" for part in parts)


def best_method(tests: list[Result]) -> str:
    """The method with the highest V_rand on the slices that chose its settings, which no forest has."""
    chosen: dict[str, list[float]] = defaultdict(list)
    for test in tests:
        for method, found in test["scores"].items():
            if found["chosen_v_rand"] is not None:
                chosen[method].append(found["chosen_v_rand"])
    return max(chosen, key=lambda method: sum(chosen[method]))


def draw_slices(results: list[Result]) -> "Figure":
    """V_rand against the number of training slices, by the method that is best on the slices that choose."""
    from sfcnn.experiments.figures import scores_against_slices

    series: dict[str, dict[int, float]] = defaultdict(dict)
    for row in rows(results):
        views = len(AVERAGES[row.average])
        name = f"{NAMES[row.kind]}, {views} {'view' if views == 1 else 'views'}"
        series[name][row.train_slices] = fmean(row.values(best_method(row.tests), "v_rand"))
    return scores_against_slices(series, f"{results[0]['run']['dataset']}, best method on the slices that choose")


def draw_cells(results: list[Result], directory: Path) -> "Figure":
    """The last slice of the first group: every method of the first network, then the best method of each other one."""
    from sfcnn.experiments.figures import segmentation_rows

    shown: dict[str, Result] = {}
    for row in rows(results):
        shown.setdefault(row.kind, row.runs[0])
    pictures: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}
    first = next(iter(shown.values()))
    for kind, run in shown.items():
        test = run["tests"][0]
        membranes = read_stack(_file(directory, run, "membranes"))[-1]
        for method in test["scores"] if run is first else [best_method([test])]:
            cells = read_labels(_file(directory, run, f"cells-{method}"))[-1]
            pictures[f"{NAMES[kind]}:\n{METHODS[method]}"] = membranes, cells
    image = as_fraction(read_stack(_file(directory, first, "images")), "images.tif")[-1]
    truth = read_labels(_file(directory, first, "truth"))[-1]
    title = f"{first['run']['dataset']}, slice {first['slices']['test'][-1]}, not seen in training"
    return segmentation_rows(image, truth, pictures, title)


def _file(directory: Path, run: Result, name: str) -> Path:
    return directory / "runs" / run["name"] / f"{name}.tif"
