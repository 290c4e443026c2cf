"""Whether a network finds the same cells in a rotated or mirrored image.

    SFCNN_DATA=DIR python benchmarks/rotated_cells.py --out benchmarks/results/rotated_cells.json

Slices 21 to 24 of ISBI 2012, which the pretrained networks were not trained on, are rotated (bicubic, continued by
reflection) or mirrored and segmented, and the cells are rotated back (nearest pixel). V_rand compares them with the
cells of the slice as it is, inside a disk that stays in the image at any angle. `truth` does the same with the true
cells, which shows what the resampling costs. `--quick` shows that it runs.
"""

import argparse
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

import sfcnn
from sfcnn.cells.scoring import score_labels, truth_cells
from sfcnn.io.files import write_json
from sfcnn.io.provenance import provenance
from sfcnn.segmentation import SlicesConfig, load_slices

NETWORKS = ("isbi2012", "isbi2012-affinities", "isbi2012-plain")
DEGREES = (90.0, 45.0, 30.0)
_MARGIN = 24  # pixels between the disk and the border of the image


def rotate(maps: NDArray[Any], degrees: float, *, nearest: bool = False) -> NDArray[Any]:
    """Rotate a square image (H, H) counter-clockwise about its centre; exact at multiples of 90°."""
    if degrees % 90 == 0:
        return np.rot90(maps, round(degrees / 90))
    turned: NDArray[Any] = ndimage.rotate(maps, degrees, reshape=False, order=0 if nearest else 3, mode="mirror")
    return turned if nearest else turned.clip(0, 1)


def disk(side: int) -> NDArray[np.bool_]:
    """Pixels (side, side) that stay in the image at any angle."""
    axis = np.arange(side) - (side - 1) / 2
    inside: NDArray[np.bool_] = np.hypot(axis[:, None], axis) <= side / 2 - _MARGIN
    return inside


def agreement(before: NDArray[np.int64], after: NDArray[np.int64]) -> float:
    """V_rand of the cells after, with the cells before as truth, inside the disk."""
    inside = disk(len(before))
    return score_labels(np.where(inside, after, 0), np.where(inside, before, 0)).v_rand.best


def measure(images: NDArray[np.float32], truth: NDArray[np.int64], degrees: tuple[float, ...]) -> dict[str, Any]:
    """Mean agreement over slices (Z, H, H), by network and by what is done to the image."""
    found: dict[str, Any] = {"truth": {}, **{name: {} for name in NETWORKS}}
    for angle in degrees:
        there_and_back = [rotate(rotate(cells, angle, nearest=True), -angle, nearest=True) for cells in truth]
        found["truth"][f"{angle:g}"] = fmean(map(agreement, truth, there_and_back))
    for name in NETWORKS:
        network = sfcnn.load(name, device="cpu")

        def cells(image: NDArray[Any], network: Any = network) -> NDArray[np.int64]:
            return sfcnn.cells.segment(network, np.ascontiguousarray(image)).labels

        before = [cells(image) for image in images]
        for angle in degrees:
            after = [rotate(cells(rotate(image, angle)), -angle, nearest=True) for image in images]
            found[name][f"{angle:g}"] = fmean(map(agreement, before, after))
        mirrored = [cells(image[:, ::-1])[:, ::-1] for image in images]
        found[name]["mirrored"] = fmean(map(agreement, before, mirrored))
        print(name, {key: round(value, 4) for key, value in found[name].items()}, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the results to this JSON file")
    parser.add_argument("--quick", action="store_true", help="one small image, one angle")
    options = parser.parse_args()
    if options.quick:
        drawn = sfcnn.segmentation.synthetic_membranes(1, 96)
        images, truth = drawn.images.numpy(), truth_cells(~drawn.membranes.numpy())
    else:
        slices = load_slices(SlicesConfig("isbi", invert_masks=True), None)
        images = np.stack([slices.images[index][0].numpy() for index in range(20, 24)])
        truth = truth_cells(np.stack([slices.masks[index].numpy() == 0 for index in range(20, 24)]))
    found = measure(images, truth, DEGREES[:1] if options.quick else DEGREES)
    if options.out is not None:
        write_json(options.out, {"slices": len(images), "v_rand": found, "provenance": provenance()}, overwrite=True)
        print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
