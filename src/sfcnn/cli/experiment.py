"""`sfcnn experiment`: the paper's figures and tables, and a comparison of symmetries."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfcnn.cli.parser import add_data

if TYPE_CHECKING:
    from rich.console import Console

    from sfcnn.cli.settings_parser import SettingsParser
    from sfcnn.experiments.sweep import Experiment, SweepRun


def parser(prog: str) -> "SettingsParser":
    """Every setting of the experiment, named by the last word of `prog`, is an option."""
    from sfcnn.experiments import EXPERIMENTS, load_experiment
    from sfcnn.io.settings import load_yaml

    experiment = load_experiment(prog.split()[-1])
    purpose = EXPERIMENTS[experiment.name]

    def first(words: Sequence[str], given: object) -> dict[Path, dict[str, Any]]:
        path = experiment.config_path(quick="--quick" in words)
        return {path: load_yaml(path)}

    result = sweep_parser(
        prog,
        experiment,
        f"{purpose[0].upper()}{purpose[1:]}. Trains a sweep of runs and writes a\n"
        "table, a JSON file and a figure. Run the command again to resume an interrupted sweep.",
        (
            f"{prog} --quick --processes 2",
            f"{prog} --list",
            f"{prog} --only NAME     (one run, for a scheduler; patterns like 'n250-*' also work)",
            f"{prog}                 (when all runs are done: table, JSON and figure)",
        ),
        first=first,
    )
    result.add_argument(
        "--out", type=Path, help=f"output directory (default: experiments/{experiment.name}, or …-quick with --quick)"
    )
    result.add_argument("--quick", action="store_true", help="small settings that take minutes")
    result.add_argument("--only", action="append", default=[], metavar="NAME", help="run only the runs with this name")
    result.add_argument("--list", action="store_true", help="list the runs and whether they are done")
    return result


def sweep_parser(
    prog: str, experiment: "Experiment[Any]", description: str, examples: Sequence[str], **options: Any
) -> "SettingsParser":
    """The options of every command that runs a sweep; `options` are those of SettingsParser."""
    from sfcnn.cli.settings_parser import SettingsParser

    result = SettingsParser(prog, experiment.settings, description, examples, **options)
    add_data(result)
    result.add_argument("--processes", type=int, default=1, help="runs to train at the same time")
    return result


def run(prog: str, arguments: Any) -> None:
    """Train the remaining runs; once all are done, write and print the results."""
    from sfcnn.cli.console import make_console
    from sfcnn.experiments import load_experiment
    from sfcnn.experiments.sweep import choose_runs, finished
    from sfcnn.io.settings import make_settings

    experiment = load_experiment(prog.split()[-1])
    values = arguments.as_dict()
    names = ("quick", "out", "data", "processes", "only", "list", "config")
    quick, out, data, processes, only, listing, _ = (values.pop(name) for name in names)
    out = out or Path("experiments") / experiment.config_path(quick=quick).stem
    settings = make_settings(experiment.settings, values)
    console = make_console()
    if not listing:
        carry_out(experiment, settings, console, out, data, processes, only)
        return
    runs = choose_runs(experiment.runs(experiment.recall(settings, out)), only)
    width = max(len(run.name) for run in runs) + 2
    for run in runs:
        console.print(f"{run.name:<{width}}{'done' if finished(run, out) else 'open'}")


def carry_out(
    experiment: "Experiment[Any]",
    settings: Any,
    console: "Console",
    out: Path,
    data: Path | None,
    processes: int,
    only: Sequence[str] = (),
) -> None:
    """Train the remaining runs; if all runs are then done, print and write the results."""
    from rich.table import Table

    from sfcnn.experiments.sweep import choose_runs, finished, summarize

    choose_runs(experiment.runs(settings), only)  # fail early if a name is wrong
    experiment.prepare(settings, out, data, console.print)
    settings = experiment.recall(settings, out)
    runs = experiment.runs(settings)
    _train(experiment, choose_runs(runs, only), console, out, data, processes)
    results = [result for result in (finished(run, out) for run in runs) if result is not None]
    missing = len(runs) - len(results)
    if missing:
        console.print(f"{missing} of {len(runs)} runs are still open: run the command without --only to train them")
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
    runs: "Sequence[SweepRun]",
    console: "Console",
    out: Path,
    data: Path | None,
    processes: int,
) -> None:
    """Train runs, with a progress bar for each if they run one at a time."""
    from sfcnn.experiments.sweep import finished, run_sweep
    from sfcnn.train.display import RunDisplay

    waiting = [run for run in runs if finished(run, out) is None]
    before = len(runs) - len(waiting)
    if before:
        console.print(f"{before} of {len(runs)} runs were already finished")
    displays: list[RunDisplay] = []

    def observers(run: "SweepRun") -> list[RunDisplay]:
        for display in displays:
            display.close()
        displays[:] = [RunDisplay(console, run.train.optimization.epochs, run.name).open()]
        return displays

    try:
        results = run_sweep(experiment, waiting, out, data, processes=processes, observers=observers)
        for number, result in enumerate(results, start=before + 1):
            seconds = result["run"]["seconds"] + result["test_seconds"]
            console.print(f"{result['name']} done, {seconds:.0f} s ({number} of {len(runs)})")
    finally:
        for display in displays:
            display.close()
