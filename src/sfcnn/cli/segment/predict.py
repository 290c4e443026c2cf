"""`sfcnn segment predict`: classes of pixels, or membranes and cells, in images of any size."""

import argparse
from dataclasses import replace
from pathlib import Path

from sfcnn.cli.parser import Parser, add_device, add_overwrite
from sfcnn.cli.segment.inputs import add_method


def parser(prog: str) -> Parser:
    """Options of `sfcnn segment predict`."""
    parser = Parser(
        prog,
        description="Segment images with the best network of a run. For each image or stack NAME two TIFF files of\n"
        "its size are written: probabilities from 0 to 1 (NAME-membranes.tif, after the class that the network looks\n"
        "for, or NAME-probabilities.tif with a channel for each of several classes), and NAME-cells.tif with a number\n"
        "for each cell if the network looks for membranes, else NAME-labels.tif with the class of each pixel. Images\n"
        "may have any size: they are processed in tiles, and with the default halo tiles leave no trace.",
        examples=(
            f"{prog} isbi2012 volume.tif --out segmented",
            f"{prog} runs/em slices/ --out segmented --tile 256 --average all --no-cells",
            f"{prog} runs/vessels photograph.jpg --out segmented",
        ),
    )
    parser.add_argument(
        "run", metavar="RUN", help="directory that `sfcnn segment train` made, or isbi2012, which comes with sfcnn"
    )
    parser.add_argument("images", type=Path, nargs="+", metavar="IMAGE", help="TIFF stacks, images, or folders of them")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory for the results")
    parser.add_argument("--invert", action="store_true", help="exchange black and white before the network sees images")
    parser.add_argument(
        "--pixel-size",
        type=float,
        metavar="MICROMETRES",
        help="of the images, which are rescaled to the pixels of the training (default: what the file says; 0: as is)",
    )
    parser.add_argument("--tile", type=int, metavar="N", help="side of a tile (default: the largest for about 2 GB)")
    parser.add_argument(
        "--halo", type=int, metavar="N", help="pixels around a tile (default: as far as the network looks)"
    )
    parser.add_argument(
        "--average", default="none", help="average over turned and mirrored images: none (default), rotations or all"
    )
    parser.add_argument(
        "--cells",
        action=argparse.BooleanOptionalAction,
        help="find cells between membranes (default: if the network looks for membranes)",
    )
    parser.add_argument(
        "--forest",
        type=Path,
        metavar="FOREST.safetensors",
        help="classify cell borders with a model from `train-edges` (default: RUN/edges.safetensors, if there)",
    )
    add_method(parser)
    add_device(parser)
    add_overwrite(parser)
    return parser


def run(prog: str, arguments: argparse.Namespace) -> None:
    """Load the network, segment file by file."""
    from sfcnn.cells.apply import run_forest, segment_files
    from sfcnn.cells.forest import Forest
    from sfcnn.cells.pipeline import CellsConfig
    from sfcnn.cli.console import make_console, progress
    from sfcnn.io.images import image_files
    from sfcnn.pretrained import find_run
    from sfcnn.segmentation import load

    settings = None if arguments.method is None else CellsConfig(method=arguments.method)
    if settings is not None and arguments.cells is False:
        raise ValueError("--method is how cells are found: leave it out, or --no-cells")
    network = load(find_run(arguments.run), device=arguments.device)
    names = ("invert", "average", "tile", "halo", "cells", "pixel_size", "overwrite")
    options = {name: getattr(arguments, name) for name in names}
    if arguments.forest is not None:
        options["forest"] = Forest.load(arguments.forest)
    if settings is not None:
        forest = options.get("forest", run_forest(network))  # it knows superpixels of its kind
        options["settings"] = settings if forest is None else replace(settings, superpixels=forest.superpixels)
    console = make_console()
    with progress(console) as report:
        written = list(
            segment_files(
                network, image_files(arguments.images), arguments.out, report=report, warn=console.print, **options
            )
        )
    for path in written:
        console.print(f"wrote {path}")
