"""What the actions of `sfcnn segment` have in common: the files that they read, and how superpixels are made."""

import argparse
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sfcnn.segmentation.superpixels import SuperpixelsConfig

_SUPERPIXELS = ("threshold", "minimum_membrane", "minimum_size", "seed_sigma", "flood_sigma")


def add_probabilities(action: Any) -> None:
    """Add the file of probabilities, and what its values mean."""
    action.add_argument("probabilities", type=Path, metavar="PROBABILITIES", help="TIFF stack, bright on membranes")
    action.add_argument("--interior", action="store_true", help="PROBABILITIES is bright inside cells")


def add_superpixels(action: Any) -> None:
    """Add how superpixels are made; what is not typed stays as it is in `SuperpixelsConfig`."""
    group = action.add_argument_group("superpixels, the small regions that are joined to cells")
    group.add_argument(
        "--threshold", type=float, metavar="T", help="membrane is where the probability is at least this (default: 0.3)"
    )
    group.add_argument(
        "--minimum-membrane", type=int, metavar="N", help="leave out pieces of membrane of fewer pixels (default: 1)"
    )
    group.add_argument(
        "--minimum-size", type=int, metavar="N", help="give superpixels of fewer pixels to others (default: 1)"
    )
    group.add_argument(
        "--seed-sigma", type=float, metavar="S", help="more makes larger superpixels, in pixels (default: 2.0)"
    )
    group.add_argument(
        "--flood-sigma", type=float, metavar="S", help="more makes smoother borders, in pixels (default: 2.6)"
    )


def typed(arguments: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Those of the options that were typed, by name."""
    return {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}


def superpixel_settings(
    arguments: argparse.Namespace, defaults: "SuperpixelsConfig | None" = None
) -> "SuperpixelsConfig":
    """The options of `add_superpixels`; what was not typed is taken from the defaults."""
    from sfcnn.segmentation.superpixels import SuperpixelsConfig

    return replace(defaults or SuperpixelsConfig(), **typed(arguments, _SUPERPIXELS))


def read_probabilities(path: Path, *, interior: bool) -> "NDArray[np.float32]":
    """Probabilities of membrane (Z, H, W), from a file with those of membrane or of interior."""
    from sfcnn.data.stacks import as_fraction, read_stack

    fraction = as_fraction(read_stack(path), path)
    return 1 - fraction if interior else fraction


def read_truth(path: Path, *, labels: bool) -> "NDArray[np.int64]":
    """Cells (Z, H, W), 0 on membranes, from a file with labels or with a mask of interior."""
    from sfcnn.data.pairs import as_interior
    from sfcnn.data.stacks import read_labels, read_stack
    from sfcnn.segmentation.scoring import truth_cells

    return read_labels(path) if labels else truth_cells(as_interior(read_stack(path), path))


def read_images(path: Path | None) -> "NDArray[np.float32] | None":
    """Raw images (Z, H, W) from black, 0, to white, 1, so that 8 and 16 bits mean the same; None without a file."""
    from sfcnn.data.stacks import as_fraction, read_stack

    return None if path is None else as_fraction(read_stack(path), path)


def check_sizes(path: Path, shape: tuple[int, ...], other: Path, other_shape: tuple[int, ...]) -> None:
    """Raise if two files have not the same size."""
    if shape != other_shape:
        raise ValueError(f"{path} is {shape}, but {other} is {other_shape}, expected the same size")


def check_outputs(outputs: Iterable[Path], inputs: Iterable[Path | None], *, overwrite: bool) -> None:
    """Raise if a file cannot be written, or is named twice."""
    from sfcnn.files import check_output

    taken = {path.resolve() for path in inputs if path is not None}
    for path in outputs:
        if path.resolve() in taken:
            raise ValueError(f"{path} is named twice, expected another file for each output")
        taken.add(path.resolve())
        check_output(path, overwrite=overwrite)
