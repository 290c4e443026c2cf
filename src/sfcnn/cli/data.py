"""`sfcnn data`: download data sets, and show which ones are there."""

import argparse
from pathlib import Path

from sfcnn.cli.parser import Parser


def parser() -> Parser:
    """Options of `sfcnn data fetch` and `sfcnn data show`."""
    parser = Parser(
        "sfcnn data",
        description="Download data sets, or show which ones are there.",
        examples=(
            "sfcnn data fetch mnist --data data",
            "sfcnn data fetch mnist-rot",
            "sfcnn data show --data data --picture digits.png",
        ),
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="fetch|show")
    fetch = actions.add_parser(
        "fetch",
        help="download a data set",
        description="Download a data set from its public mirrors and check it. A download that broke is continued;\n"
        "files that are there are kept. The regenerated mnist-rot is made from mnist.",
        examples=("sfcnn data fetch mnist", "sfcnn data fetch mnist-rot --data data"),
    )
    fetch.add_argument("dataset", choices=("mnist", "mnist-rot"), help="mnist (12 MB) or mnist-rot (about 56 MB)")
    show = actions.add_parser(
        "show",
        help="show which data sets are there",
        description="Read every data set that is there and show how many images it has.",
        examples=("sfcnn data show", "sfcnn data show --data data --picture digits.png"),
    )
    show.add_argument("--picture", type=Path, metavar="FILE", help="also draw the first images (PNG, PDF or SVG)")
    show.add_argument("--overwrite", action="store_true", help="replace a picture that exists")
    for action in (fetch, show):
        action.add_argument(
            "--data", type=Path, metavar="DIR", help="directory of the data (default: SFCNN_DATA, else data)"
        )
    return parser


def run(arguments: argparse.Namespace) -> None:
    """Download, or show."""
    from sfcnn.data.datasets import data_directory

    directory = data_directory(arguments.data) or Path("data")
    if arguments.action == "fetch":
        _fetch(arguments.dataset, directory)
    else:
        _show(directory, arguments.picture, overwrite=arguments.overwrite)


def _fetch(dataset: str, directory: Path) -> None:
    from rich.console import Console

    from sfcnn.console import progress
    from sfcnn.data.fetch import fetch

    with progress(Console()) as report:
        files = fetch(dataset, directory, report)
    for file in files:
        print(f"wrote {file.path}" if file.downloaded else f"kept {file.path}: it is there, and its checksum is right")


def _show(directory: Path, picture: Path | None, *, overwrite: bool) -> None:
    from sfcnn.data.datasets import DATASETS, load_splits
    from sfcnn.data.mnist import MissingDataError
    from sfcnn.data.preview import Preview, preview, preview_figure
    from sfcnn.files import check_output
    from sfcnn.pictures import save_figure

    if picture is not None:
        check_output(picture, overwrite=overwrite)
    print(f"data directory: {directory}")
    found: list[Preview] = []
    damaged = []
    for dataset in DATASETS:
        try:
            shown = preview(load_splits(dataset, directory))
        except ValueError as error:
            missing = isinstance(error, MissingDataError) or isinstance(error.__cause__, ImportError)
            print(f"{dataset:<23}{'not found' if missing else 'damaged'}: {error}")
            if not missing:
                damaged.append(dataset)
        else:
            counts = ", ".join(f"{count:,} {split}" for split, count in shown.counts.items())
            print(f"{dataset:<23}{counts}")
            found.append(shown)
    if picture is not None:
        save_figure(preview_figure(found), picture, overwrite=overwrite)
        print(f"wrote {picture}")
    if damaged:
        raise ValueError(f"damaged data: {', '.join(damaged)} (see the lines above)")
