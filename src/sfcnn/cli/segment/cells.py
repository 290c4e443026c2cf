"""`sfcnn segment cells`: from membrane probabilities to cells."""

import argparse
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sfcnn.cli.parser import Parser, add_overwrite
from sfcnn.cli.segment.inputs import (
    add_method,
    add_probabilities,
    add_superpixels,
    check_outputs,
    check_sizes,
    read_images,
    read_probabilities,
    superpixel_settings,
    typed,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sfcnn.cells import CellsConfig, Forest

_ENDINGS = (".tif", ".tiff")


def parser(prog: str) -> Parser:
    """Options of `sfcnn segment cells`."""
    cells = Parser(
        prog,
        description="Find cells from membrane probabilities: small regions (superpixels) are joined where there is no\n"
        "membrane between them, by the multicut that costs least (Beier et al. 2017).\n\n"
        "PROBABILITIES is a TIFF stack, 8 or 16 bits from black to white, or floats from 0 to 1. LABELS.tif\n"
        "has the same size, with cells numbered from 1. Cells are found in each slice separately, unless --stack\n"
        "joins them across slices.",
        examples=(
            f"{prog} membranes.tif --out cells.tif",
            f"{prog} membranes.tif --out cells.tif --stack --beta 0.6",
            f"{prog} membranes.tif --out cells.tif --method threshold --threshold 0.5",
            f"{prog} membranes.tif --out cells.tif --forest edges.safetensors --image raw.tif",
        ),
    )
    add_probabilities(cells)
    cells.add_argument("--out", type=Path, required=True, metavar="LABELS.tif", help="file for the cells")
    cells.add_argument(
        "--boundaries", type=Path, metavar="FILE.tif", help="also write a mask: 255 inside cells, 0 on borders"
    )
    add_overwrite(cells)
    cells.add_argument(
        "--forest",
        type=Path,
        metavar="FOREST.safetensors",
        help="classify cell borders with a model from `train-edges`",
    )
    cells.add_argument(
        "--image",
        type=Path,
        metavar="RAW.tif",
        help="images of the probabilities, for a forest that has learned from images",
    )
    cells.add_argument("--stack", action="store_true", help="find cells that continue across slices")
    add_method(cells)
    multicut = cells.add_argument_group("multicut")
    multicut.add_argument(
        "--beta", type=float, metavar="B", help="in (0, 1), larger values give more cells (default: 0.5)"
    )
    multicut.add_argument(
        "--solver",
        metavar="NAME",
        help="greedy, kernighan-lin, fusion-moves or exact, from fastest to best (default: kernighan-lin)",
    )
    multicut.add_argument(
        "--time-limit", type=float, metavar="SECONDS", help="limit of the exact solver, for each slice (default: 60.0)"
    )
    multicut.add_argument(
        "--across-weight",
        type=float,
        metavar="W",
        help="weight of contacts between slices, with --stack (default: 16.0)",
    )
    add_superpixels(cells)
    return cells


def run(prog: str, arguments: argparse.Namespace) -> None:
    """Check and read everything, find cells, write."""
    from sfcnn.cells import find_cells
    from sfcnn.cells.multicut import NotProvedWarning
    from sfcnn.cli.console import make_console, progress

    settings = _settings(arguments)
    outputs = [path for path in (arguments.out, arguments.boundaries) if path is not None]
    for path in outputs:
        if path.suffix.lower() not in _ENDINGS:
            raise ValueError(f"output {path} must end in {' or '.join(_ENDINGS)}")
    inputs = (arguments.probabilities, arguments.image, arguments.forest)
    check_outputs(outputs, inputs, overwrite=arguments.overwrite)
    probabilities, raw, forest = _read(arguments)
    if forest is not None:  # superpixels must be made as for the forest's training
        settings = replace(settings, superpixels=superpixel_settings(arguments, forest.superpixels))
    console = make_console()
    kind = "the interior of cells" if arguments.interior else "membrane"
    part = (probabilities >= settings.superpixels.threshold).mean()
    console.print(f"{arguments.probabilities} read as probabilities of {kind}: {part:.0%} of the pixels are membrane")
    work = "all slices together" if settings.joined else "slices"
    with (
        warnings.catch_warnings(record=True, action="always", category=NotProvedWarning) as notes,
        progress(console) as report,
    ):
        report(work, 0.0)
        labels = find_cells(probabilities, settings, forest, raw, lambda done: report(work, done))
    if notes:
        times = f" (and {len(notes) - 1} times more)" if len(notes) > 1 else ""
        console.print(f"note: {notes[0].message}{times}")
    _write(arguments, labels)
    console.print(f"{labels.max()} cells in {len(labels)} slice{'s' if len(labels) > 1 else ''}")
    for path in outputs:
        console.print(f"wrote {path}")


def _settings(arguments: argparse.Namespace) -> "CellsConfig":
    from sfcnn.cells import CellsConfig
    from sfcnn.cells.pipeline import BY_AFFINITIES

    if arguments.method in BY_AFFINITIES:
        raise ValueError(
            f"the method {arguments.method!r} needs more than probabilities, the affinities of a network: use "
            f"`sfcnn segment predict RUN IMAGE --method {arguments.method}`"
        )
    if arguments.method == "threshold" and arguments.forest is not None:
        raise ValueError("--forest is for the method multicut: leave it out, or --method threshold")
    if arguments.image is not None and arguments.forest is None:
        raise ValueError("--image is for a forest that has learned from images: pass --forest too")
    if arguments.across_weight is not None and not arguments.stack:
        raise ValueError("--across-weight is for cells that continue through the slices: pass --stack too")
    if arguments.time_limit is not None and arguments.solver != "exact":
        raise ValueError("--time-limit is for the exact solver: pass --solver exact too")
    chosen = typed(arguments, ("method", "beta", "solver", "time_limit", "across_weight"))
    return CellsConfig(superpixel_settings(arguments), joined=arguments.stack, **chosen)


def _read(
    arguments: argparse.Namespace,
) -> "tuple[NDArray[np.float32], NDArray[np.float32] | None, Forest | None]":
    """Probabilities of membrane, raw images and a forest that fits them."""
    from sfcnn.cells import Forest

    forest = None if arguments.forest is None else Forest.load(arguments.forest)
    if forest is not None and forest.needs_raw != (arguments.image is not None):
        if forest.needs_raw:
            raise ValueError(f"{arguments.forest} has learned from images: pass them with --image RAW.tif")
        raise ValueError(f"{arguments.forest} has learned without images: leave out --image, or train it with them")
    probabilities = read_probabilities(arguments.probabilities, interior=arguments.interior)
    if arguments.image is None:
        return probabilities, None, forest
    raw = read_images(arguments.image)
    check_sizes(arguments.image, raw.shape, arguments.probabilities, probabilities.shape)
    return probabilities, raw, forest


def _write(arguments: argparse.Namespace, labels: "NDArray[np.int64]") -> None:
    """Write the labels and the borders between them, either both or neither."""
    import numpy as np

    from sfcnn.cells.thinning import draw_borders
    from sfcnn.io.pixelsize import read_pixel_size
    from sfcnn.io.stacks import as_writable_labels, write_stacks

    stacks = {arguments.out: as_writable_labels(labels, arguments.out)}
    if arguments.boundaries is not None:
        stacks[arguments.boundaries] = np.where(draw_borders(labels), 255, 0).astype(np.uint8)
    write_stacks(stacks, pixels=read_pixel_size(arguments.probabilities), overwrite=arguments.overwrite)
