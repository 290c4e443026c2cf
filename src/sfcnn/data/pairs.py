"""Microscope images with their masks: a stack and the stack of its masks, or a folder of pairs.

A folder of pairs has two folders inside, `images` and `masks`, with PNG or TIFF files of the same names but for their
endings: `masks/a.tif` belongs to `images/a.png`. Each pair may have a size of its own. In a mask 0 is membrane, and any
one other value the interior of cells.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfcnn.data.stacks import read_image, read_stack

#: Endings of the files in a folder of pairs.
ENDINGS = (".png", ".tif", ".tiff")


class Pair(NamedTuple):
    """An image and which of its pixels are the interior of cells."""

    name: str
    image: NDArray[Any]  #: (H, W), as stored
    interior: NDArray[np.bool_]  #: (H, W)


def as_interior(mask: NDArray[Any], name: object) -> NDArray[np.bool_]:
    """True where a mask has its one value that is not 0; `name` is used in errors.

    >>> as_interior(np.array([[0, 255]]), "my mask")
    array([[False,  True]])
    """
    interior: NDArray[np.bool_] = mask != 0
    if mask.min() < 0 or (mask[interior] != mask.max()).any():
        values = np.unique(mask)
        raise ValueError(
            f"{name} has {len(values)} values from {values[0]:g} to {values[-1]:g}, "
            "expected a mask of two: 0 for membrane, and another for the interior of cells"
        )
    return interior


def read_pairs(folder: Path) -> list[Pair]:
    """All pairs of a folder, in the order of their names: `folder/images/NAME.png` and `folder/masks/NAME.png`."""
    images, masks = _by_stem(folder / "images"), _by_stem(folder / "masks")
    for files, others, kind in ((images, masks, "mask"), (masks, images, "image")):
        alone = [str(file) for stem, file in files.items() if stem not in others]
        if alone:
            rest = f" and {len(alone) - 1} more" if len(alone) > 1 else ""
            raise ValueError(f"{alone[0]}{rest} has no {kind} of the same name in {folder / (kind + 's')}")
    return [_pair(stem, file, masks[stem]) for stem, file in images.items()]


def read_stack_pairs(images: Path, masks: Path) -> list[Pair]:
    """The slices of a TIFF stack and of the stack of their masks, which has as many and as large ones."""
    image_stack, mask_stack = read_stack(images), read_stack(masks)
    if image_stack.shape != mask_stack.shape:
        raise ValueError(f"{images} is {image_stack.shape}, but {masks} is {mask_stack.shape}, expected the same size")
    interior = as_interior(mask_stack, masks)
    slices = zip(image_stack, interior, strict=True)
    return [Pair(f"{images.stem}, slice {number}", *pair) for number, pair in enumerate(slices, start=1)]


def _pair(name: str, image_path: Path, mask_path: Path) -> Pair:
    image, mask = read_image(image_path), read_image(mask_path)
    if image.shape != mask.shape:
        raise ValueError(f"{image_path} is {image.shape}, but {mask_path} is {mask.shape}, expected the same size")
    return Pair(name, image, as_interior(mask, mask_path))


def _by_stem(folder: Path) -> dict[str, Path]:
    """The image files in a folder by their names without endings, sorted."""
    if not folder.is_dir():
        raise ValueError(f"no folder {folder}: expected folders images and masks in {folder.parent}")
    files: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        if file.name.startswith(".") or file.suffix.lower() not in ENDINGS:
            continue
        if file.stem in files:
            raise ValueError(f"{files[file.stem]} and {file} have the same name, expected one of them")
        files[file.stem] = file
    if not files:
        raise ValueError(f"folder {folder} has no image files ({', '.join(ENDINGS)})")
    return files
