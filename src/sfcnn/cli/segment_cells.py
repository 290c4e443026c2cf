"""`sfcnn segment cells`: from membrane probabilities to cells."""

import argparse
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfcnn.cli.segment_inputs import (
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
    from rich.console import Console

    from sfcnn.segmentation.cells import CellsConfig
    from sfcnn.segmentation.forest import Forest

_ENDINGS = (".tif", ".tiff")


def add(actions: Any) -> None:
    """Add `cells` and its options to the actions of `sfcnn segment`."""
    cells = actions.add_parser(
        "cells",
        help="find cells from membrane probabilities",
        description="Find cells from membrane probabilities: small regions (superpixels) are joined where there is no\n"
        "membrane between them, by the multicut that costs least (Beier et al. 2017).\n\n"
        "PROBABILITIES is a TIFF stack, 8 or 16 bits from black to white, or floats from 0 to 1. LABELS.tif\n"
        "has its size and a number from 1 on for each cell. Each slice has cells of its own, unless --stack\n"
        "joins them through the slices.",
        examples=(
            "sfcnn segment cells membranes.tif --out cells.tif",
            "sfcnn segment cells membranes.tif --out cells.tif --stack --beta 0.6",
            "sfcnn segment cells membranes.tif --out cells.tif --forest edges.safetensors --image raw.tif",
        ),
    )
    add_probabilities(cells)
    cells.add_argument("--out", type=Path, required=True, metavar="LABELS.tif", help="file for the cells")
    cells.add_argument(
        "--boundaries", type=Path, metavar="FILE.tif", help="also write a mask: 255 inside cells, 0 on borders"
    )
    cells.add_argument("--overwrite", action="store_true", help="replace files that exist")
    cells.add_argument(
        "--forest", type=Path, metavar="FOREST.safetensors", help="tell borders by what `train-edges` has learned"
    )
    cells.add_argument(
        "--image", type=Path, metavar="RAW.tif", help="images of the probabilities, if the forest has learned from such"
    )
    cells.add_argument("--stack", action="store_true", help="find cells that go through the slices")
    multicut = cells.add_argument_group("multicut")
    multicut.add_argument("--beta", type=float, metavar="B", help="in (0, 1), more makes more cells (default: 0.5)")
    multicut.add_argument(
        "--solver",
        metavar="NAME",
        help="greedy, kernighan-lin, fusion-moves or exact, from quick to good (default: kernighan-lin)",
    )
    multicut.add_argument(
        "--time-limit", type=float, metavar="SECONDS", help="of the exact solver, for each slice (default: 60.0)"
    )
    multicut.add_argument(
        "--across-weight", type=float, metavar="W", help="of contacts between slices, with --stack (default: 16.0)"
    )
    add_superpixels(cells)
    cells.set_defaults(carry_out=_cells)


def _cells(arguments: argparse.Namespace) -> None:
    """Check and read everything, find cells, write."""
    from sfcnn.console import make_console

    settings = _settings(arguments)
    outputs = [path for path in (arguments.out, arguments.boundaries) if path is not None]
    for path in outputs:
        if path.suffix.lower() not in _ENDINGS:
            raise ValueError(f"output {path} must end in {' or '.join(_ENDINGS)}")
    inputs = (arguments.probabilities, arguments.image, arguments.forest)
    check_outputs(outputs, inputs, overwrite=arguments.overwrite)
    probabilities, raw, forest = _read(arguments)
    if forest is not None:  # it knows superpixels of its kind
        settings = replace(settings, superpixels=superpixel_settings(arguments, forest.superpixels))
    console = make_console()
    kind = "the interior of cells" if arguments.interior else "membrane"
    part = (probabilities >= settings.superpixels.threshold).mean()
    console.print(f"{arguments.probabilities} read as probabilities of {kind}: {part:.0%} of the pixels are membrane")
    labels = _find(probabilities, settings, forest, raw, console)
    _write(arguments, labels)
    console.print(f"{labels.max()} cells in {len(labels)} slice{'s' if len(labels) > 1 else ''}")
    for path in outputs:
        console.print(f"wrote {path}")


def _settings(arguments: argparse.Namespace) -> "CellsConfig":
    from sfcnn.segmentation.cells import CellsConfig

    if arguments.image is not None and arguments.forest is None:
        raise ValueError("--image is for a forest that has learned from images: pass --forest too")
    if arguments.across_weight is not None and not arguments.stack:
        raise ValueError("--across-weight is for cells that go through the slices: pass --stack too")
    if arguments.time_limit is not None and arguments.solver != "exact":
        raise ValueError("--time-limit is for the exact solver: pass --solver exact too")
    chosen = typed(arguments, ("beta", "solver", "time_limit", "across_weight"))
    return CellsConfig(superpixel_settings(arguments), joined=arguments.stack, **chosen)


def _read(
    arguments: argparse.Namespace,
) -> "tuple[NDArray[np.float32], NDArray[np.float32] | None, Forest | None]":
    """Probabilities of membrane, raw images and a forest that fits them."""
    from sfcnn.segmentation.forest import Forest

    forest = None if arguments.forest is None else Forest.load(arguments.forest)
    if forest is not None:
        if forest.needs_raw and arguments.image is None:
            raise ValueError(f"{arguments.forest} has learned from images: pass them with --image RAW.tif")
        if arguments.image is not None and not forest.needs_raw:
            raise ValueError(f"{arguments.forest} has learned without images: leave out --image, or train it with them")
    probabilities = read_probabilities(arguments.probabilities, interior=arguments.interior)
    raw = read_images(arguments.image)
    if raw is not None:
        check_sizes(arguments.image, raw.shape, arguments.probabilities, probabilities.shape)
    return probabilities, raw, forest


def _find(
    probabilities: "NDArray[np.float32]",
    settings: "CellsConfig",
    forest: "Forest | None",
    raw: "NDArray[np.float32] | None",
    console: "Console",
) -> "NDArray[np.int64]":
    from sfcnn.console import progress
    from sfcnn.segmentation.cells import cells
    from sfcnn.segmentation.multicut import NotProvedWarning

    work = "all slices together" if settings.joined else "slices"
    with (
        warnings.catch_warnings(record=True, action="always", category=NotProvedWarning) as notes,
        progress(console) as report,
    ):
        report(work, 0.0)
        labels = cells(probabilities, settings, forest, raw, lambda done: report(work, done))
    if notes:
        times = f" (and {len(notes) - 1} times more)" if len(notes) > 1 else ""
        console.print(f"note: {notes[0].message}{times}")
    return labels


def _write(arguments: argparse.Namespace, labels: "NDArray[np.int64]") -> None:
    """Write the labels and what lies between them, both or none."""
    import numpy as np

    from sfcnn.data.geometry import read_geometry
    from sfcnn.data.stacks import as_writable_labels, write_stacks
    from sfcnn.segmentation.thinning import draw_borders

    stacks = {arguments.out: as_writable_labels(labels, arguments.out)}
    if arguments.boundaries is not None:
        stacks[arguments.boundaries] = np.where(draw_borders(labels), 255, 0).astype(np.uint8)
    write_stacks(stacks, geometry=read_geometry(arguments.probabilities), overwrite=arguments.overwrite)
