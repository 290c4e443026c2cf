"""`sfcnn classify predict`: class, probability, orientation and angle of image files."""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sfcnn.cli.parser import Parser, add_batch_size, add_device, add_overwrite, add_views

if TYPE_CHECKING:
    from sfcnn.classification.rows import Row


def parser(prog: str) -> Parser:
    """Options of the command."""
    parser = Parser(
        prog,
        description="Classify image files with the best network of a run: class, probability, and orientation in\n"
        "degrees, counter-clockwise. The zero of the orientation is arbitrary: only differences between images\n"
        "of the same class are meaningful. Networks with fewer than 3 orientations and plain CNNs have none.\n"
        "If the run has learned angles (`sfcnn classify pose`), the column `angle` is the counter-clockwise rotation\n"
        "in degrees, relative to the objects in the training images; 0 is an upright digit.\n\n"
        "Images are read, resized and padded as in training. For a digit classifier, an image should show one digit,\n"
        "of any size and colour, on a uniform background: it is cropped, rescaled to 28×28 pixels like the digits of\n"
        "MNIST, and inverted if its ink is dark (--fit pad skips both).",
        examples=(
            f"{prog} runs/photos unknown.jpg",
            f"{prog} mnist-rot digit.png",
            f"{prog} runs/photos more-photos/ --out predictions.csv",
            f"{prog} runs/small scans/ more/*.tif --invert --out predictions.json --overwrite",
        ),
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="run directory of `sfcnn classify train`, or mnist-rot")
    parser.add_argument(
        "images", type=Path, nargs="+", metavar="IMAGE", help="image files, or directories for all images in them"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write to this .csv or .json file instead of standard output"
    )
    parser.add_argument(
        "--invert", action="store_true", help="swap black and white, if they are the reverse of the training images"
    )
    parser.add_argument(
        "--fit",
        choices=("ink", "pad", "stretch"),
        help="how images are resized to the network's input (default: ink for digit classifiers, else as in training)",
    )
    add_batch_size(parser)
    add_views(parser)
    add_device(parser)
    add_overwrite(parser)
    return parser


def run(prog: str, arguments: argparse.Namespace) -> None:
    """Read all images, predict, and write one line for each."""
    from sfcnn.classification import load
    from sfcnn.classification.rows import as_csv, prediction_rows
    from sfcnn.io.files import check_output, new_file
    from sfcnn.io.images import image_files
    from sfcnn.pretrained import find_run

    out: Path | None = arguments.out
    formatted = as_csv if out is None else _formatter(out)
    if out is not None:
        check_output(out, overwrite=arguments.overwrite)
    classifier, files = load(find_run(arguments.run), arguments.device), image_files(arguments.images)
    options = {name: getattr(arguments, name) for name in ("invert", "fit", "batch_size", "views")}
    predictions = classifier.predict(files, **options)
    text = formatted(prediction_rows(files, predictions))
    if out is None:
        _show(text)
        return
    with new_file(out, overwrite=arguments.overwrite) as path:
        path.write_text(text, encoding="utf-8")
    counts = Counter(predictions.names)
    print(f"wrote {out} ({', '.join(f'{name}: {counts[name]:,}' for name in sorted(counts))})")


def _show(text: str) -> None:
    """Print to a terminal or a pipe, whose reader may stop early, as `head` does."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is left in the buffer


def _formatter(path: Path) -> "Callable[[list[Row]], str]":
    """The function that formats rows for a file, chosen by its suffix."""
    from sfcnn.classification.rows import as_csv

    formatters: dict[str, Callable[[list[Row]], str]] = {".csv": as_csv, ".json": _as_json}
    if path.suffix.lower() not in formatters:
        raise ValueError(f"output {path} must end in one of {list(formatters)}")
    return formatters[path.suffix.lower()]


def _as_json(rows: "list[Row]") -> str:
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
