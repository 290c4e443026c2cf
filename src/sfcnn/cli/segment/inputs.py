"""Shared by the commands that find cells: the files they read, and how superpixels are made."""

import argparse
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sfcnn.cells import SuperpixelsConfig

#: Settings of superpixels: type, name of the value, and help.
_SUPERPIXELS: dict[str, tuple[type, str, str]] = {
    "threshold": (float, "T", "pixels with at least this probability are membrane (default: 0.3)"),
    "minimum_membrane": (int, "N", "remove membrane fragments of fewer pixels than this (default: 1)"),
    "minimum_size": (int, "N", "merge superpixels of fewer pixels into others (default: 1)"),
    "seed_sigma": (float, "S", "in pixels, larger values give larger superpixels (default: 2.0)"),
    "flood_sigma": (float, "S", "in pixels, larger values give smoother borders (default: 2.6)"),
}


def add_probabilities(parser: Any) -> None:
    """Add the file of probabilities, and what its values mean."""
    parser.add_argument("probabilities", type=Path, metavar="PROBABILITIES", help="TIFF stack, bright on membranes")
    parser.add_argument("--interior", action="store_true", help="PROBABILITIES is bright inside cells")


def add_method(parser: Any) -> None:
    """Add the method to find cells; the default is that of `CellsConfig`."""
    parser.add_argument(
        "--method",
        metavar="NAME",
        help="how to find cells: threshold, multicut, or, in `predict` with a network that predicts affinities, "
        "lifted-multicut or mutex-watershed (default: as tuned for the network, else multicut)",
    )


def add_superpixels(parser: Any) -> None:
    """Add the options of superpixels; the defaults are those of `SuperpixelsConfig`."""
    group = parser.add_argument_group("superpixels, the small regions that are joined to cells")
    for name, (kind, metavar, text) in _SUPERPIXELS.items():
        group.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=metavar, help=text)


def typed(arguments: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """The options that were given, by name."""
    return {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}


def superpixel_settings(
    arguments: argparse.Namespace, defaults: "SuperpixelsConfig | None" = None
) -> "SuperpixelsConfig":
    """The options of `add_superpixels`; options that were not given are taken from `defaults`."""
    from sfcnn.cells import SuperpixelsConfig

    return replace(defaults or SuperpixelsConfig(), **typed(arguments, _SUPERPIXELS))


def read_probabilities(path: Path, *, interior: bool) -> "NDArray[np.float32]":
    """Probabilities of membrane (Z, H, W), from a file with those of membrane or of interior."""
    fraction = read_images(path)
    return 1 - fraction if interior else fraction


def read_images(path: Path) -> "NDArray[np.float32]":
    """Images (Z, H, W) scaled from 0, black, to 1, white, for both 8 and 16 bits."""
    from sfcnn.io.stacks import as_fraction, read_stack

    return as_fraction(read_stack(path), path)


def read_true_cells(path: Path, *, labels: bool) -> "NDArray[np.int64]":
    """Cells (Z, H, W), 0 on membranes, from a file with labels or with a mask of interior."""
    from sfcnn.cells.reading import read_truth
    from sfcnn.io.stacks import read_stack

    return read_truth(read_stack(path), labels=labels, name=path)


def check_sizes(path: Path, shape: tuple[int, ...], other: Path, other_shape: tuple[int, ...]) -> None:
    """Raise unless two files have the same size."""
    if shape != other_shape:
        raise ValueError(f"{path} is {shape}, but {other} is {other_shape}, expected the same size")


def check_outputs(outputs: Iterable[Path], inputs: Iterable[Path | None], *, overwrite: bool) -> None:
    """Raise if a file cannot be written, or is named twice."""
    from sfcnn.io.files import check_output

    taken = {path.resolve() for path in inputs if path is not None}
    for path in outputs:
        if path.resolve() in taken:
            raise ValueError(f"{path} is named twice, expected another file for each output")
        taken.add(path.resolve())
        check_output(path, overwrite=overwrite)
