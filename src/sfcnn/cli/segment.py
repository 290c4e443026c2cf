"""`sfcnn segment`: cells in images of electron microscopes. Each action is a module of its own with `add(actions)`."""

import argparse

from sfcnn.cli import segment_cells, segment_edges, segment_predict, segment_score, segment_train
from sfcnn.cli.parser import Parser


def parser() -> Parser:
    """Options of all actions; each sets `carry_out`, the function that gets them."""
    parser = Parser(
        "sfcnn segment",
        description="Cells in images of electron microscopes.",
        examples=(
            "sfcnn segment predict runs/em volume.tif --out segmented",
            "sfcnn segment cells membranes.tif --out cells.tif",
            "sfcnn segment score cells.tif truth.tif --labels",
            "sfcnn segment cells --help",
        ),
    )
    actions = parser.add_subparsers(dest="action", required=True)
    for action in (segment_train, segment_predict, segment_edges, segment_cells, segment_score):
        action.add(actions)
    return parser


def run(arguments: argparse.Namespace) -> None:
    """Carry out the action that was typed."""
    arguments.carry_out(arguments)
