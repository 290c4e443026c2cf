"""`sfcnn data fetch` and `sfcnn data show`: download data sets of digits, and show the available ones."""

import argparse
from pathlib import Path

from sfcnn.cli.parser import Parser, add_overwrite


def parser(prog: str) -> Parser:
    """Options of `data fetch` or `data show`, whichever `prog` ends with."""
    if prog.endswith("fetch"):
        parser = Parser(
            prog,
            description="Download a data set from its public mirrors and verify it. Existing files are kept. The set\n"
            "mnist-rot-regenerated is generated from mnist.",
            examples=(f"{prog} mnist", f"{prog} mnist-rot --data data"),
        )
        parser.add_argument("dataset", choices=("mnist", "mnist-rot"), help="mnist (12 MB) or mnist-rot (about 56 MB)")
    else:
        parser = Parser(
            prog,
            description="Read all available data sets, or a folder of your own images, and show how many images each\n"
            "contains.",
            examples=(
                f"{prog}",
                f"{prog} --data data --picture digits.png",
                f"{prog} --folder photos --picture seen.png",
            ),
        )
        parser.add_argument(
            "--folder",
            metavar="DIR",
            help="show the images in this folder, as a network with 64×64 pixel inputs sees them",
        )
        parser.add_argument("--picture", type=Path, metavar="FILE", help="also draw the first images (PNG, PDF or SVG)")
        add_overwrite(parser)
    parser.add_argument("--data", type=Path, metavar="DIR", help="data directory (default: SFCNN_DATA, else data)")
    return parser


def run(prog: str, arguments: argparse.Namespace) -> None:
    """Download, or show."""
    from sfcnn.io.files import data_directory

    directory = data_directory(arguments.data) or Path("data")
    if prog.endswith("fetch"):
        _fetch(arguments.dataset, directory)
    else:
        _show(directory, arguments.folder, arguments.picture, overwrite=arguments.overwrite)


def _fetch(dataset: str, directory: Path) -> None:
    from sfcnn.classification.fetch import fetch
    from sfcnn.cli.console import make_console, progress

    with progress(make_console()) as report:
        files = fetch(dataset, directory, report)
    for file in files:
        print(f"wrote {file.path}" if file.downloaded else f"kept {file.path}: already there, checksum verified")


def _show(directory: Path, folder: str | None, picture: Path | None, *, overwrite: bool) -> None:
    from sfcnn.classification.config import DATASETS
    from sfcnn.classification.data import load_splits
    from sfcnn.classification.digits import MissingDataError
    from sfcnn.classification.preview import Preview, darkness, preview, preview_figure
    from sfcnn.io.files import check_output
    from sfcnn.pictures import save_figure

    if picture is not None:
        check_output(picture, overwrite=overwrite)
    found: list[Preview] = []
    damaged = []
    if folder is not None:
        splits = load_splits("folder", path=folder)
        found.append(preview(splits))
        print(f"{folder}: {found[0].summary()}, {len(found[0].classes)} classes: {', '.join(found[0].classes)}")
        if warning := darkness(splits.train.images):
            print(warning)
    else:
        print(f"data directory: {directory}")
    for dataset in () if folder is not None else [name for name in DATASETS if name != "folder"]:
        try:
            shown = preview(load_splits(dataset, directory))
        except ValueError as error:
            missing = isinstance(error, MissingDataError) or isinstance(error.__cause__, ImportError)
            print(f"{dataset:<23}{'not found' if missing else 'damaged'}: {error}")
            if not missing:
                damaged.append(dataset)
        else:
            print(f"{dataset:<23}{shown.summary()}")
            found.append(shown)
    if picture is not None:
        save_figure(preview_figure(found), picture, overwrite=overwrite)
        print(f"wrote {picture}")
    if damaged:
        raise ValueError(f"damaged data: {', '.join(damaged)} (see the lines above)")
