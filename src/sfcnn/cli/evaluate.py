"""`sfcnn evaluate`: test the network of a run."""

import argparse
from functools import partial
from pathlib import Path

from sfcnn.cli.parser import Parser


def parser() -> Parser:
    """Options of `sfcnn evaluate`."""
    parser = Parser(
        "sfcnn evaluate",
        description="Test the best network of a run on the data set that it was trained for. With --angles every\n"
        "image is also turned, by evenly spaced angles, and the error is told for each of them.",
        examples=(
            "sfcnn evaluate run",
            "sfcnn evaluate run --split validation --data data",
            "sfcnn evaluate run --angles 24 --images 1000 --out run/angles.json",
        ),
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="directory that `sfcnn train` made")
    parser.add_argument("--split", choices=("test", "validation"), default="test", help="which images (default test)")
    parser.add_argument("--images", type=int, metavar="N", help="use the first N images of them only")
    parser.add_argument("--angles", type=int, metavar="N", help="turn the images by 0, 1/N, 2/N … of a full circle")
    parser.add_argument("--batch-size", type=int, default=100, metavar="N", help="images at a time (default 100)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="directory of the data files (default: SFCNN_DATA)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the numbers to this JSON file")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    return parser


def run(arguments: argparse.Namespace) -> None:
    """Load the run and its data, count mistakes, print them and write them."""
    from rich.console import Console

    from sfcnn.cli.tables import error_table
    from sfcnn.console import progress
    from sfcnn.data.datasets import load_splits
    from sfcnn.data.digits import Digits
    from sfcnn.evaluation import errors_by_angle, even_degrees
    from sfcnn.files import check_output, write_json
    from sfcnn.training.runs import load_run

    if arguments.out is not None:
        check_output(arguments.out, overwrite=arguments.overwrite)
    if arguments.images is not None and arguments.images < 1:
        raise ValueError(f"--images must be at least 1, got {arguments.images}")
    degrees = even_degrees(1 if arguments.angles is None else arguments.angles)
    config, net = load_run(arguments.run)
    data = config.images
    splits = load_splits(data.dataset, arguments.data, seed=data.seed, resampling=data.resampling)
    digits = Digits(*(part[: arguments.images] for part in getattr(splits, arguments.split)))

    console = Console()
    with progress(console) as report:
        tested = partial(report, f"testing {arguments.run}")
        errors = errors_by_angle(net, digits, degrees, arguments.batch_size, mode=data.resampling, progress=tested)
    what = f"{len(digits.labels):,} {arguments.split} images of {splits.name}"
    if arguments.angles is None:
        print(f"error {errors[0]:.2f} % on {what}")
    else:
        print(f"{what}, all turned by each angle")
        console.print(error_table(degrees, {str(arguments.run): errors}))
    if arguments.out is not None:
        numbers = {
            "run": str(arguments.run),
            "dataset": splits.name,
            "split": arguments.split,
            "images": len(digits.labels),
            "degrees": degrees,
            "errors": errors,
            "mean": sum(errors) / len(errors),
            "worst": max(errors),
        }
        write_json(arguments.out, numbers, overwrite=arguments.overwrite)
        print(f"wrote {arguments.out}")
