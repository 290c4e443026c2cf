"""`sfcnn segment predict`: classes of pixels, or membranes and cells, in images of any size."""

import argparse
from pathlib import Path

from sfcnn.cli.parser import Parser, add_device, add_overwrite
from sfcnn.cli.segment.inputs import add_method


def parser(prog: str) -> Parser:
    """Options of `sfcnn segment predict`."""
    parser = Parser(
        prog,
        description="Segment images with the best network of a run. For each image or stack NAME, two TIFF files of\n"
        "its size are written: probabilities from 0 to 1 (NAME-CLASS.tif, such as NAME-membranes.tif, or for several\n"
        "classes NAME-probabilities.tif with a channel for each), and NAME-labels.tif with the class of each pixel,\n"
        "or for networks that predict membranes NAME-cells.tif with a number for each cell. Images may have any\n"
        "size: they are processed in tiles, and with the default halo, tiling leaves no seams.\n\n"
        "Volumes larger than memory, OME-Zarr or TIFF stacks, are segmented slice by slice with --out OUT.zarr, into\n"
        "an OME-Zarr volume. Run the command again to resume. Slices that cannot be read are reported\n"
        "at the end, with exit code 2; all others are processed.",
        examples=(
            f"{prog} isbi2012 volume.tif --out segmented",
            f"{prog} runs/em slices/ --out segmented --tile 256 --average all --no-cells",
            f"{prog} runs/vessels photograph.jpg --out segmented",
            f"{prog} isbi2012 volume.zarr --out cells.zarr --stack --workers 4",
            f"{prog} isbi2012 volume.zarr --out cells.zarr --scheduler tcp://host:8786",
        ),
    )
    parser.add_argument(
        "run", metavar="RUN", help="run directory of `sfcnn segment train`, or a pretrained network such as isbi2012"
    )
    parser.add_argument(
        "images", type=Path, nargs="+", metavar="IMAGE", help="TIFF stacks, images, folders of them, or a .zarr volume"
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="directory for the results, or OUT.zarr for a volume"
    )
    parser.add_argument("--invert", action="store_true", help="swap black and white before applying the network")
    parser.add_argument(
        "--pixel-size",
        type=float,
        metavar="MICROMETRES",
        help="pixel size of the images, to rescale them like the training images (default: from the file; 0: as is)",
    )
    parser.add_argument("--tile", type=int, metavar="N", help="side of a tile (default: the largest for about 2 GB)")
    parser.add_argument(
        "--halo", type=int, metavar="N", help="pixels around a tile (default: the receptive field of the network)"
    )
    parser.add_argument(
        "--average", default="none", help="average over rotated and mirrored images: none (default), rotations or all"
    )
    parser.add_argument(
        "--cells",
        action=argparse.BooleanOptionalAction,
        help="find cells between membranes (default: if the network predicts membranes)",
    )
    parser.add_argument(
        "--forest",
        type=Path,
        metavar="FOREST.safetensors",
        help="classify cell borders with a model from `train-edges` (default: RUN/edges.safetensors, if there)",
    )
    parser.add_argument(
        "--stack", action="store_true", help="link cells across slices, and report how well neighbouring slices agree"
    )
    add_method(parser)
    add_device(parser)
    add_overwrite(parser)
    volumes = parser.add_argument_group("volumes, with --out OUT.zarr")
    volumes.add_argument(
        "--slices", type=_range, metavar="START:STOP", help="segment these only, counted from 0 (default: all)"
    )
    volumes.add_argument(
        "--workers", type=int, metavar="N", help="slices to process in parallel on this machine (default: 1)"
    )
    volumes.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="address of a Dask cluster, or `processes` (default) or `threads` for --workers on this machine",
    )
    volumes.add_argument(
        "--fill-missing", action="store_true", help="read missing chunks as Zarr's fill value instead of failing"
    )
    return parser


def _range(text: str) -> range:
    """START:STOP."""
    start, colon, stop = text.partition(":")
    if not colon or not start.isdecimal() or not stop.isdecimal() or len(text) > 20:
        raise argparse.ArgumentTypeError(f"expected START:STOP like 0:10, got {text!r}")
    return range(int(start), int(stop))


def run(prog: str, arguments: argparse.Namespace) -> None:
    """Load the network, segment file by file, or a volume slice by slice."""
    if arguments.method is not None and arguments.cells is False:
        raise ValueError("--method is for finding cells: leave out --method or --no-cells")
    _use_forest(arguments)
    if arguments.out.suffix.lower() == ".zarr":
        _run_volume(arguments)
        return
    _check_files(arguments)
    from sfcnn.cells.apply import cells_settings, run_forest
    from sfcnn.cells.files import segment_files
    from sfcnn.cells.forest import Forest
    from sfcnn.cli.console import make_console, progress
    from sfcnn.io.images import image_files
    from sfcnn.pretrained import find_run
    from sfcnn.segmentation import load

    network = load(find_run(arguments.run), device=arguments.device)
    names = ("invert", "average", "tile", "halo", "cells", "pixel_size", "overwrite", "stack")
    options = {name: getattr(arguments, name) for name in names}
    if arguments.forest is not None:
        options["forest"] = Forest.load(arguments.forest)
    if arguments.method is not None:
        options["settings"] = cells_settings(network, arguments.method, options.get("forest", run_forest(network)))
    console = make_console()
    with progress(console) as report:
        written = list(
            segment_files(
                network, image_files(arguments.images), arguments.out, report=report, warn=console.print, **options
            )
        )
    for path in written:
        console.print(f"wrote {path}")


def _use_forest(arguments: argparse.Namespace) -> None:
    """A forest that was asked for needs a multicut, even if another method was tuned for the network."""
    if arguments.forest is not None and arguments.method is None:
        from sfcnn.cells.apply import SETTINGS_FILE
        from sfcnn.pretrained import find_run

        if (find_run(arguments.run) / SETTINGS_FILE).is_file():
            arguments.method = "multicut"


def _check_files(arguments: argparse.Namespace) -> None:
    """Raise if files are named that need an output of another kind, or options that are for volumes alone."""
    from sfcnn.io.files import is_zarr

    for path in arguments.images:
        if is_zarr(path):
            raise ValueError(
                f"{path} is a Zarr volume, so its result is one, too: pass --out OUT.zarr, got {arguments.out}"
            )
    for name in ("slices", "workers", "scheduler", "fill_missing"):
        if getattr(arguments, name):
            raise ValueError(f"--{name.replace('_', '-')} is for volumes: pass --out OUT.zarr")


def _run_volume(arguments: argparse.Namespace) -> None:
    """Segment one volume, and fail at the end if slices did."""
    from sfcnn.cells.linking import describe_agreement
    from sfcnn.cli.console import make_console, progress
    from sfcnn.pretrained import find_run
    from sfcnn.segmentation import load
    from sfcnn.volumes import segment_volume

    if len(arguments.images) > 1:
        raise ValueError(f"--out {arguments.out} takes one volume, got {len(arguments.images)} images")
    (source,) = arguments.images
    network = load(find_run(arguments.run), device=arguments.device)
    given = vars(arguments)
    options = {name: given[name] for name in given.keys() - {"run", "images", "out", "device"}}
    console = make_console()
    with progress(console) as report:
        found = segment_volume(network, source, arguments.out, report=report, warn=console.print, **options)
    kept = f", {found.kept} of them before" if found.kept else ""
    cells = f", {found.cells} cells" if found.cells else ""
    console.print(f"wrote {arguments.out}: {found.done} of {found.slices} slices{kept}{cells}")
    if found.agreement:
        console.print(describe_agreement(found.agreement))
    if found.failed:
        z, reason = next(iter(found.failed.items()))
        others = [str(other) for other in found.failed if other != z]
        more = f"; so did z = {', '.join(others[:20])}{' …' if len(others) > 20 else ''}" if others else ""
        raise ValueError(
            f"{len(found.failed)} of {found.slices} slices failed, run it again to retry: z = {z}: {reason}{more}"
        )
