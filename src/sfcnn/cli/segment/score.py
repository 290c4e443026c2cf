"""`sfcnn segment score`: compare a segmentation with the truth."""

import argparse
from collections.abc import Sequence
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfcnn.cli.parser import Parser, add_overwrite
from sfcnn.cli.segment.inputs import check_sizes, read_images, read_true_cells

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.table import Table

    from sfcnn.cells import StackScores


def parser(prog: str) -> Parser:
    """Options of `sfcnn segment score`."""
    score = Parser(
        prog,
        description="Compare a segmentation with the truth by the scores of the ISBI 2012 challenge, V_rand and\n"
        "V_info, slice by slice and over the stack. 1 is best.\n\n"
        "Both files are TIFF stacks of the same size. TRUTH is a mask of two values, white inside cells and\n"
        "black on membranes. PREDICTION holds probabilities (8 or 16 bits from black to white, or floats\n"
        "from 0 to 1), a mask, or labels. By default, probabilities are those of membrane, and\n"
        "masks are white inside cells. Probabilities are scored at the thresholds 0, 0.1, …, 1, and the borders\n"
        "of masks and probabilities are thinned; labels are taken as they are.",
        examples=(
            f"{prog} membranes.tif truth.tif",
            f"{prog} cells.tif truth.tif --labels --out scores.json",
            f"{prog} membranes.tif truth.tif --overlay mistakes.png --image raw.tif --slice 3",
        ),
    )
    score.add_argument("prediction", type=Path, metavar="PREDICTION", help="TIFF stack to score")
    score.add_argument("truth", type=Path, metavar="TRUTH", help="TIFF stack to compare with")
    kinds = score.add_mutually_exclusive_group()
    for kind, meaning in (
        ("interior", "is bright inside cells"),
        ("membrane", "is bright on membranes"),
        ("labels", "has a number for each cell, 0 on membranes"),
    ):
        kinds.add_argument(f"--{kind}", dest="kind", action="store_const", const=kind, help=f"PREDICTION {meaning}")
    score.add_argument("--truth-labels", action="store_true", help="TRUTH has a number for each cell, 0 on membranes")
    score.add_argument("--out", type=Path, metavar="FILE", help="write all scores to this JSON file")
    score.add_argument("--overlay", type=Path, metavar="FILE", help="draw where cells are split and merged, as PNG")
    score.add_argument("--image", type=Path, metavar="STACK", help="images to draw on (default: PREDICTION)")
    score.add_argument("--slice", type=int, metavar="N", help="slice to draw, from 1 (default: of smallest V_rand)")
    add_overwrite(score)
    return score


def run(prog: str, arguments: argparse.Namespace) -> None:
    """Read, score, print and write."""
    from sfcnn.cells import score
    from sfcnn.cells.overlay import draw_mistakes
    from sfcnn.cells.reading import read_prediction
    from sfcnn.cli.console import make_console, progress
    from sfcnn.io.files import write_json
    from sfcnn.io.provenance import provenance
    from sfcnn.io.stacks import read_stack

    _check(arguments)
    stack = read_stack(arguments.prediction)
    truth = read_true_cells(arguments.truth, labels=arguments.truth_labels)
    check_sizes(arguments.prediction, stack.shape, arguments.truth, truth.shape)
    found = read_prediction(stack, arguments.kind, arguments.prediction)
    if arguments.slice is not None and not 1 <= arguments.slice <= len(truth):
        raise ValueError(f"--slice must be in 1 … {len(truth)}, got {arguments.slice}")
    grey = None if arguments.overlay is None else _grey(arguments, found.values)
    console = make_console()
    console.print(f"{arguments.prediction} read as {found.meaning}")
    with progress(console) as report:
        scores = score(stack, truth, arguments.kind, truth_labels=True, report=lambda done: report("slices", done))
    console.print(_table(scores))
    if arguments.out is not None:
        files = {
            "prediction": str(arguments.prediction),
            "truth": str(arguments.truth),
            "read_as": found.meaning,
        }
        write_json(
            arguments.out, {**files, **scores.as_json(), "provenance": provenance()}, overwrite=arguments.overwrite
        )
        console.print(f"wrote {arguments.out}")
    if grey is not None:
        index = None if arguments.slice is None else arguments.slice - 1
        draw_mistakes(arguments.overlay, grey, found.values, truth, scores, index, overwrite=arguments.overwrite)
        console.print(f"wrote {arguments.overlay}")


def _check(arguments: argparse.Namespace) -> None:
    """Raise if options are incompatible, or a file cannot be written."""
    from sfcnn.cells.overlay import check_picture
    from sfcnn.io.files import check_output

    if arguments.overlay is None and (arguments.image, arguments.slice) != (None, None):
        raise ValueError("--image and --slice are for --overlay: pass --overlay FILE too")
    if arguments.out is not None:
        check_output(arguments.out, overwrite=arguments.overwrite)
    if arguments.overlay is not None:
        check_picture(arguments.overlay, overwrite=arguments.overwrite)


def _grey(arguments: argparse.Namespace, prediction: "NDArray[Any]") -> "NDArray[Any]":
    """The background to draw on: the images, or else the prediction, which is uniform grey for labels."""
    import numpy as np

    if arguments.image is None:
        return np.full(prediction.shape, 0.6) if prediction.dtype == np.int64 else prediction.astype(np.float64)
    images = read_images(arguments.image)
    check_sizes(arguments.image, images.shape, arguments.prediction, prediction.shape)
    return images


def _table(scores: "StackScores") -> "Table":
    """One row for each slice, then their mean and the threshold of each column."""
    from rich.table import Table

    columns: dict[str, tuple[Sequence[float], float | None]] = {}
    for name, cells in (("V_rand", scores.v_rand), ("V_info", scores.v_info)):
        columns[name] = cells.slices, cells.threshold
        columns[f"{name}\nprecision"] = cells.precision, cells.threshold
        columns[f"{name}\nrecall"] = cells.recall, cells.threshold
    for name, pixels in (("membrane\nF1", scores.f1), ("pixel\nerror", scores.pixel_error)):
        if pixels is not None:
            columns[name] = pixels.slices, pixels.threshold
    table = Table("slice", *columns)
    for number, row in enumerate(zip(*(values for values, _ in columns.values()), strict=True), start=1):
        table.add_row(str(number), *(f"{value:.4f}" for value in row))
    table.add_section()
    table.add_row("mean", *(f"{fsum(values) / len(values):.4f}" for values, _ in columns.values()))
    if len(scores.thresholds) > 1:
        table.add_row("threshold", *(f"{threshold:.1f}" for _, threshold in columns.values()))
    return table
