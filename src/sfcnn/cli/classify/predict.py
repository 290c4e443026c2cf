"""`sfcnn classify predict`: class, probability, orientation and angle of image files."""

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

from sfcnn.cli.parser import Parser, add_batch_size, add_device, add_overwrite, add_views

if TYPE_CHECKING:
    from torch import Tensor

    from sfcnn.classification import Predictions

#: One line of the answer, by column; no orientation is None.
Row = dict[str, Any]


def parser(prog: str) -> Parser:
    """Options of the command."""
    parser = Parser(
        prog,
        description="Classify image files with the best network of a run: class, probability, and orientation in\n"
        "degrees, counter-clockwise. The zero of orientations is the network's own: only differences between\n"
        "images of one class mean something. Networks with fewer than 3 orientations and plain CNNs have none.\n"
        "If the run has learned angles (`sfcnn classify pose`), the column `angle` says by how many degrees the\n"
        "object is turned counter-clockwise from how it is in the training images; 0 is an upright digit.\n\n"
        "Images are read, resized and padded as in training. For a network of digits a picture should show one\n"
        "digit, of any size and colour on an even ground: it is cut out, brought to 28×28 pixels as MNIST's digits\n"
        "were, and inverted if its ink is dark (--fit pad leaves both as they are).",
        examples=(
            f"{prog} runs/photos unknown.jpg",
            f"{prog} mnist-rot digit.png",
            f"{prog} runs/photos more-photos/ --out predictions.csv",
            f"{prog} runs/small scans/ more/*.tif --invert --out predictions.json --overwrite",
        ),
    )
    parser.add_argument(
        "run", type=Path, metavar="RUN", help="directory that `sfcnn classify train` made, or mnist-rot"
    )
    parser.add_argument(
        "images", type=Path, nargs="+", metavar="IMAGE", help="image files, or directories for all images in them"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write to this .csv or .json file, not to the screen")
    parser.add_argument(
        "--invert", action="store_true", help="black and white are exchanged, compared with the training images"
    )
    parser.add_argument(
        "--fit",
        choices=("ink", "pad", "stretch"),
        help="how images get the network's size (default: ink for networks of digits, else as in training)",
    )
    add_batch_size(parser)
    add_views(parser)
    add_device(parser)
    add_overwrite(parser)
    return parser


def run(prog: str, arguments: argparse.Namespace) -> None:
    """Read all images, predict, and write one line for each."""
    from sfcnn.classification import load
    from sfcnn.io.files import check_output, new_file
    from sfcnn.io.images import image_files
    from sfcnn.pretrained import find_run

    out: Path | None = arguments.out
    formatted = _as_csv if out is None else _formatter(out)
    if out is not None:
        check_output(out, overwrite=arguments.overwrite)
    classifier, files = load(find_run(arguments.run), arguments.device), image_files(arguments.images)
    options = {name: getattr(arguments, name) for name in ("invert", "fit", "batch_size", "views")}
    predictions = classifier.predict(files, **options)
    text = formatted(_rows(files, predictions))
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
    probabilities = [round(probability, 6) for probability in predictions.probabilities.tolist()]
    columns: dict[str, Sequence[Any]] = {
        "file": list(map(str, files)),
        "class": predictions.names,
        "probability": probabilities,
        "orientation": _degrees(predictions.orientations) or [None] * len(files),
    }
    if predictions.angles is not None:
        columns["angle"] = _degrees(predictions.angles)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _degrees(angles: "Tensor | None") -> list[float]:
    """Radians to degrees with one decimal, below 360; nothing if there are none."""
    return [] if angles is None else [round(math.degrees(angle), 1) % 360 for angle in angles.tolist()]


def _formatter(path: Path) -> Callable[[list[Row]], str]:
    """How rows are written to a file, by the ending of its name."""
    formatters = {".csv": _as_csv, ".json": _as_json}
    if path.suffix.lower() not in formatters:
        raise ValueError(f"output {path} must end in one of {list(formatters)}")
    return formatters[path.suffix.lower()]


def _as_csv(rows: list[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)  # None is written as an empty field
    return text.getvalue()


def _as_json(rows: list[Row]) -> str:
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
