"""`sfcnn predict`: class, probability and orientation of image files."""

import argparse
import csv
import io
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfcnn.cli.parser import Parser

if TYPE_CHECKING:
    from sfcnn.prediction import Predictions

_COLUMNS = ("file", "class", "probability", "orientation")

#: One line of the answer, by column; no orientation is None.
Row = dict[str, Any]


def parser() -> Parser:
    """Options of `sfcnn predict`."""
    parser = Parser(
        "sfcnn predict",
        description="Tell the class of image files with the best network of a run, how probable it is, and the\n"
        "orientation in degrees, counter-clockwise. The zero of orientations is the network's own: only\n"
        "differences between images of one class mean something. Networks with fewer than 3 orientations\n"
        "and plain CNNs tell none.\n\n"
        "Images should look like those the network learned from: one bright digit in the middle of a dark\n"
        "ground, with a margin. They are made grey and brought to 28×28 pixels, with their shape kept.",
        examples=(
            "sfcnn predict run digit.png",
            "sfcnn predict run scans/ more/*.tif --invert --out predictions.csv",
            "sfcnn predict run scans/ --out predictions.json --overwrite",
        ),
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="directory that `sfcnn train` made")
    parser.add_argument(
        "images", type=Path, nargs="+", metavar="IMAGE", help="image files, or directories for all images in them"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write to this .csv or .json file, not to the screen")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    parser.add_argument("--invert", action="store_true", help="exchange black and white: for dark ink on paper")
    parser.add_argument("--batch-size", type=int, default=100, metavar="N", help="images at a time (default 100)")
    return parser


def run(arguments: argparse.Namespace) -> None:
    """Read all images, predict, and write one line for each."""
    from sfcnn.data.images import image_files, read_images
    from sfcnn.files import check_output, new_file
    from sfcnn.prediction import predict
    from sfcnn.training.runs import load_run

    out: Path | None = arguments.out
    formatted = _as_csv if out is None else _formatter(out)
    if out is not None:
        check_output(out, overwrite=arguments.overwrite)
    _, net = load_run(arguments.run)
    files = image_files(arguments.images)
    images = read_images(files, invert=arguments.invert)
    text = formatted(_rows(files, predict(net, images, arguments.batch_size)))
    if out is None:
        _show(text)
        return
    with new_file(out, overwrite=arguments.overwrite) as path:
        path.write_text(text, encoding="utf-8")
    print(f"wrote {out}")


def _show(text: str) -> None:
    """Print to a screen or a pipe, whose reader may stop early, as `head` does."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is left in the buffer


def _rows(files: Sequence[Path], predictions: "Predictions") -> list[Row]:
    classes, probabilities = predictions.classes.tolist(), predictions.probabilities.tolist()
    angles = [None] * len(files) if predictions.orientations is None else predictions.orientations.tolist()
    return [
        dict(zip(_COLUMNS, (str(file), number, round(probability, 6), _degrees(angle)), strict=True))
        for file, number, probability, angle in zip(files, classes, probabilities, angles, strict=True)
    ]


def _degrees(angle: float | None) -> float | None:
    """Radians to degrees with one decimal, below 360."""
    return None if angle is None else round(math.degrees(angle), 1) % 360


def _formatter(path: Path) -> Callable[[list[Row]], str]:
    """How rows are written to a file, by the ending of its name."""
    formatters = {".csv": _as_csv, ".json": _as_json}
    if path.suffix.lower() not in formatters:
        raise ValueError(f"output {path} must end in one of {list(formatters)}")
    return formatters[path.suffix.lower()]


def _as_csv(rows: list[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)  # None is written as an empty field
    return text.getvalue()


def _as_json(rows: list[Row]) -> str:
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
