"""`sfcnn experiment`: the paper's figures and tables."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfcnn.cli.parser import Parser

if TYPE_CHECKING:
    from rich.console import Console

    from sfcnn.experiments.sweep import Cell, Experiment
    from sfcnn.training.settings import SettingsParser


def parser() -> Parser:
    """The name of an experiment; what follows is left to the experiment's own parser."""
    from sfcnn.experiments import EXPERIMENTS

    width = max(map(len, EXPERIMENTS)) + 2
    names = "\n".join(f"  {name:<{width}}{purpose}" for name, purpose in EXPERIMENTS.items())
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


def settings_parser(experiment: "Experiment[Any]", defaults: Path) -> "SettingsParser":
    """Every setting of an experiment is an option."""
    from sfcnn.experiments import EXPERIMENTS

    purpose = EXPERIMENTS[experiment.name]
    command = f"sfcnn experiment {experiment.name}"
    parser = sweep_parser(
        experiment,
        defaults,
        command,
        f"{purpose[0].upper()}{purpose[1:]}. A sweep of training runs, called cells, into a\n"
        "table, a JSON file and a figure. The same command goes on where an interrupted one stopped.",
        (
            f"{command} --quick --processes 2",
            f"{command} --list",
            f"{command} --only NAME     (one cell, for a scheduler; patterns like 'n250-*' too)",
            f"{command}                 (when all cells are done: table, JSON and figure)",
        ),
        Path("experiments") / defaults.stem,
    )
    parser.add_argument("--quick", action="store_true", help="small settings that take minutes")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only the cells of this name")
    parser.add_argument("--list", action="store_true", help="say which cells there are and which are done")
    return parser


def sweep_parser(
    experiment: "Experiment[Any]", defaults: Path, prog: str, description: str, examples: Sequence[str], out: Path
) -> "SettingsParser":
    """The options of anything that carries out an experiment."""
    from sfcnn.training.settings import SettingsParser

    parser = SettingsParser(prog, description, examples)
    parser.add_settings(experiment.settings, defaults)
    parser.add_argument("--out", type=Path, default=out, help="directory")
    parser.add_argument("--data", type=Path, help="directory of the data files (default: SFCNN_DATA)")
    parser.add_argument("--processes", type=int, default=1, help="cells to train at the same time")
    return parser


def run(arguments: argparse.Namespace) -> None:
    """Run the cells that are left; when all are done, write and show what they say."""
    from sfcnn.console import make_console
    from sfcnn.experiments import load_experiment
    from sfcnn.experiments.sweep import choose_cells, finished
    from sfcnn.training.settings import make_settings

    experiment = load_experiment(arguments.name)
    defaults = experiment.config_path(quick="--quick" in arguments.arguments)
    values = settings_parser(experiment, defaults).parse_args(arguments.arguments).as_dict()
    names = ("quick", "out", "data", "processes", "only", "list", "config")
    _, out, data, processes, only, listing, _ = (values.pop(name) for name in names)
    settings = make_settings(experiment.settings, values)
    console = make_console()
    if not listing:
        carry_out(experiment, settings, console, out, data, processes, only)
        return
    cells = choose_cells(experiment.cells(settings), only)
    width = max(len(cell.name) for cell in cells) + 2
    for cell in cells:
        console.print(f"{cell.name:<{width}}{'done' if finished(cell, out) else 'open'}")


def carry_out(
    experiment: "Experiment[Any]",
    settings: Any,
    console: "Console",
    out: Path,
    data: Path | None,
    processes: int,
    only: Sequence[str] = (),
) -> None:
    """Train the cells that are left; if none is missing then, write the results, and print them."""
    from rich.table import Table

    from sfcnn.data.datasets import data_directory
    from sfcnn.experiments.sweep import choose_cells, finished, summarize

    cells = experiment.cells(settings)
    _train(experiment, choose_cells(cells, only), console, out, data_directory(data), processes)
    results = [result for result in (finished(cell, out) for cell in cells) if result is not None]
    missing = len(cells) - len(results)
    if missing:
        console.print(f"{missing} of {len(cells)} cells are still open: the same command without --only runs them")
        return
    table = experiment.table(settings, results)
    shown = Table(*table.columns, title=table.title)
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown)
    for path in summarize(experiment, settings, results, out):
        console.print(f"wrote {path}")


def _train(
    experiment: "Experiment[Any]",
    cells: "Sequence[Cell]",
    console: "Console",
    out: Path,
    data: Path | None,
    processes: int,
) -> None:
    """Train cells, with a bar for each if they come one by one."""
    from sfcnn.experiments.sweep import run_cells
    from sfcnn.training.display import RunDisplay

    displays: list[RunDisplay] = []

    def observers(cell: "Cell") -> list[RunDisplay]:
        for display in displays:
            display.close()
        displays[:] = [RunDisplay(console, cell.train.optimization.epochs, cell.name).open()]
        return displays

    try:
        results = run_cells(experiment, cells, out, data, processes=processes, observers=observers)
        for number, result in enumerate(results, start=1):
            seconds = result["run"]["seconds"] + result["test_seconds"]
            console.print(f"{result['cell']} done, {seconds:.0f} s ({number} of {len(cells)})")
    finally:
        for display in displays:
            display.close()
