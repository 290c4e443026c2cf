"""`sfcnn demo`: the experiment on generalisation in small, on digits that come with the package."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfcnn.training.settings import SettingsParser


def parser() -> "SettingsParser":
    """Every setting of the experiment is an option."""
    from sfcnn.cli.experiment import sweep_parser
    from sfcnn.experiments import CONFIGS, load_experiment

    return sweep_parser(
        load_experiment("generalization"),
        CONFIGS / "demo.yaml",
        "sfcnn demo",
        "Train a small steerable network and a plain CNN with as many parameters on upright digits, and test\n"
        "both on digits rotated by 0°, 15° … 345°. A finished demo in the directory is shown again; an\n"
        "interrupted one goes on.",
        (
            "sfcnn demo",
            "sfcnn demo --train.model.orientations 4 --train.optimization.epochs 2 --out small-demo",
            "sfcnn evaluate demo-results/cells/steerable-none-s0",
        ),
        Path("demo-results"),
    )


def run(arguments: Any) -> None:
    """Train, test, print the table and write the results."""
    from sfcnn.cli.experiment import carry_out
    from sfcnn.console import make_console
    from sfcnn.experiments import load_experiment
    from sfcnn.training.settings import make_settings

    values = arguments.as_dict()
    out, data, processes, _ = (values.pop(name) for name in ("out", "data", "processes", "config"))
    experiment = load_experiment("generalization")
    settings = make_settings(experiment.settings, values)
    carry_out(experiment, settings, make_console(), out, data, processes)
