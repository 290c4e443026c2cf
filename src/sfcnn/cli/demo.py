"""`sfcnn demo`: train two small networks on upright digits and test them on rotated ones."""

import argparse
from dataclasses import fields
from pathlib import Path

from sfcnn.cli.parser import Parser

_PLACEHOLDERS = {int: "N", float: "X", str: "NAME"}
_HELP = {
    "orientations": "Λ, the number of orientations of the steerable network",
    "train_images": "upright digits to train on",
    "test_images": "other digits, each tested at every angle",
    "angles": "test angles, evenly spaced over the circle",
    "epochs": "passes over the training images",
    "batch_size": "images per step",
    "learning_rate": "of Adam at the start; it falls to zero along a cosine",
    "basis": "preset of the steerable network's atoms: bandlimited, averaged or paper",
    "engine": "how the steerable network computes: auto, direct, atomic or spectral",
    "seed": "of the weights and of all shuffling",
}


def parser() -> Parser:
    """Options of `sfcnn demo`: one per setting of `DemoConfig`."""
    from sfcnn.experiments.demo import DemoConfig

    parser = Parser(
        "sfcnn demo",
        description="Train a small steerable network and a plain CNN with as many parameters on upright digits,\n"
        "and test both on digits rotated by 0°, 15° … 345°. Files of an earlier demo in the same directory\n"
        "are replaced.",
        examples=("sfcnn demo", "sfcnn demo --orientations 4 --epochs 2 --out demo-results"),
    )
    for field in fields(DemoConfig):
        kind = type(field.default)
        parser.add_argument(
            "--" + field.name.replace("_", "-"),
            type=kind,
            default=field.default,
            metavar=_PLACEHOLDERS[kind],
            help=f"{_HELP[field.name]} (default {field.default})",
        )
    parser.add_argument("--out", type=Path, default=Path("demo-results"), help="directory (default demo-results)")
    return parser


def run(arguments: argparse.Namespace) -> None:
    """Train, test, print the table and write the results."""
    from rich.console import Console

    from sfcnn.cli.tables import error_table
    from sfcnn.console import progress
    from sfcnn.experiments.demo import DemoConfig, demo_angles, run, save

    config = DemoConfig(**{field.name: getattr(arguments, field.name) for field in fields(DemoConfig)})
    console = Console()
    console.print(
        f"Training on {config.train_images} upright digits, testing on {config.test_images} others "
        f"at {config.angles} angles."
    )
    with progress(console) as report:
        nets, curves = run(config, report)
    errors = {curve.name: curve.errors for curve in curves}
    table = error_table(demo_angles(config), errors, "Test error by rotation angle")
    table.add_row("parameters", *(f"{curve.parameters:,}" for curve in curves))
    table.add_row("training", *(f"{curve.seconds:.0f} s" for curve in curves))
    console.print(table)
    for path in save(arguments.out, config, nets, curves):
        print(f"wrote {path}")
