"""`sfcnn experiment`: the paper's figures and tables."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfcnn.cli.parser import Parser

if TYPE_CHECKING:
    from sfcnn.experiments.sweep import Cell, Experiment, Table
    from sfcnn.training.settings import SettingsParser


def parser() -> Parser:
    """The name of an experiment; what follows is left to the experiment's own parser."""
    from sfcnn.experiments import EXPERIMENTS

    width = max(map(len, EXPERIMENTS)) + 2
    names = "\n".join(f"  {name:<{width}}{experiment.purpose}" for name, experiment in EXPERIMENTS.items())
    parser = Parser(
        "sfcnn experiment",
        usage="sfcnn experiment [-h] EXPERIMENT …",
        description=f"Repeat an experiment of the paper.\n\nexperiments:\n{names}",
        examples=(
            "sfcnn experiment orientations --quick --data ~/data",
            "sfcnn experiment benchmark --list",
            "sfcnn experiment generalization --help",
        ),
    )
    parser.add_argument("name", choices=EXPERIMENTS, help=argparse.SUPPRESS, metavar="EXPERIMENT")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def settings_parser(experiment: "Experiment[Any]", *, quick: bool) -> "SettingsParser":
    """Every setting of an experiment is an option."""
    from sfcnn.training.settings import SettingsParser

    command = f"sfcnn experiment {experiment.name}"
    parser = SettingsParser(
        command,
        f"{experiment.purpose[0].upper()}{experiment.purpose[1:]}. A sweep of training runs, called cells, into a\n"
        "table, a JSON file and a figure. The same command goes on where an interrupted one stopped.",
        (
            f"{command} --quick --processes 2",
            f"{command} --list",
            f"{command} --only NAME     (one cell, for a scheduler; patterns like 'n250-*' too)",
            f"{command} --out results   (when all cells are done: table, JSON and figure)",
        ),
    )
    parser.add_settings(experiment.settings, experiment.config_path(quick=quick))
    parser.add_argument("--quick", action="store_true", help="small settings that take minutes")
    parser.add_argument("--out", type=Path, default=Path("experiments") / experiment.name, help="directory")
    parser.add_argument("--data", type=Path, help="directory of the data files (default: SFCNN_DATA)")
    parser.add_argument("--processes", type=int, default=1, help="cells to train at the same time")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only the cells of this name")
    parser.add_argument("--list", action="store_true", help="say which cells there are and which are done")
    return parser


def run(arguments: argparse.Namespace) -> None:
    """Run the cells that are left; when all are done, write and show what they say."""
    from rich.console import Console

    from sfcnn.data.datasets import data_directory
    from sfcnn.experiments import EXPERIMENTS
    from sfcnn.experiments.sweep import choose_cells, finished, run_cells, summarize
    from sfcnn.training.settings import make_settings

    experiment = EXPERIMENTS[arguments.name]
    own = settings_parser(experiment, quick="--quick" in arguments.arguments)
    values = own.parse_args(arguments.arguments).as_dict()
    options = {name: values.pop(name) for name in ("quick", "out", "data", "processes", "only", "list", "config")}
    settings = make_settings(experiment.settings, values)
    out: Path = options["out"]
    console = Console(soft_wrap=True, highlight=False)
    cells = experiment.cells(settings)
    chosen = choose_cells(cells, options["only"])
    if options["list"]:
        for cell in chosen:
            console.print(f"{cell.name:<32}{'done' if finished(cell, out) else 'open'}")
        return
    data = data_directory(options["data"])
    _run(experiment, settings, chosen, console, run_cells, out, data, options["processes"])
    results = [finished(cell, out) for cell in cells]
    missing = sum(result is None for result in results)
    if missing:
        console.print(f"{missing} of {len(cells)} cells are still open: the same command without --only runs them")
        return
    whole = [result for result in results if result is not None]
    _print(console, experiment.table(settings, whole))
    for path in summarize(experiment, settings, whole, out):
        console.print(f"wrote {path}")


def _run(
    experiment: "Experiment[Any]",
    settings: Any,
    cells: "Sequence[Cell]",
    console: Any,
    run_cells: Any,
    out: Path,
    data: Path | None,
    processes: int,
) -> None:
    """Train the cells, with a bar for each if they come one by one."""
    from sfcnn.training.display import RunDisplay

    displays: list[RunDisplay] = []

    def observers(cell: "Cell") -> list[RunDisplay]:
        for display in displays:
            display.close()
        displays[:] = [RunDisplay(console, cell.train.optimization.epochs, cell.name).open()]
        return displays

    try:
        results = run_cells(experiment, settings, cells, out, data, processes=processes, observers=observers)
        for number, result in enumerate(results, start=1):
            seconds = result["run"]["seconds"] + result["test_seconds"]
            console.print(f"{result['cell']} done, {seconds:.0f} s ({number} of {len(cells)})")
    finally:
        for display in displays:
            display.close()


def _print(console: Any, table: "Table") -> None:
    from rich.table import Table as RichTable

    shown = RichTable(*table.columns, title=table.title)
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown)
