"""`sfcnn segment`: cells in images of electron microscopes. Each action is a module of its own with `add(actions)`."""

import argparse

from sfcnn.cli import segment_score
from sfcnn.cli.parser import Parser


def parser() -> Parser:
    """Options of all actions; each sets `carry_out`, the function that gets them."""
    parser = Parser(
        "sfcnn segment",
        description="Cells in images of electron microscopes.",
        examples=("sfcnn segment score membranes.tif truth.tif", "sfcnn segment score --help"),
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="score")
    segment_score.add(actions)
    return parser


def run(arguments: argparse.Namespace) -> None:
    """Carry out the action that was typed."""
    arguments.carry_out(arguments)
