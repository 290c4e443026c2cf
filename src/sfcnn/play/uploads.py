"""Uploaded images, prepared for networks, with a note on each change made to them."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfcnn.io.stacks import TIFF, as_fraction, read_image, read_stack

#: Longest side of an image that the page segments.
LONGEST = 512

_SHORTEST = 32
_LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)


class Upload(NamedTuple):
    """An image and how it was changed."""

    image: NDArray[np.float32]  #: (H, W), from black, 0, to white, 1
    notes: tuple[str, ...] = ()  #: one sentence per change


def read_upload(path: Path | str | None) -> Upload:
    """The grey image in a file: the first slice of a stack, and the luminance of colours."""
    if path is None:
        raise ValueError("choose an image first: TIFF, PNG, JPEG …")
    path, notes = Path(path), []
    if path.suffix.lower() in TIFF:
        stack = read_stack(path, colour=True)
        image = stack[0]
        if len(stack) > 1:
            notes.append(f"Only the first of {len(stack)} slices is used.")
    else:
        image = read_image(path, colour=True)
    fraction = as_fraction(image, path.name)
    if fraction.ndim == 3:
        fraction = fraction @ _LUMINANCE
        notes.append("Colours are converted to grey.")
    return Upload(fraction, tuple(notes))


def centre_square(upload: Upload, longest: int = LONGEST) -> Upload:
    """The largest square in the middle of an image, at most `longest` pixels wide: rotation keeps its shape.

    >>> square = centre_square(Upload(np.zeros((60, 80), np.float32)))
    >>> square.image.shape, square.notes
    ((60, 60), ('Only the middle of the image, 60×60 of 80×60 pixels, is used.',))
    """
    height, width = upload.image.shape
    side = min(height, width, longest)
    if side < _SHORTEST:
        raise ValueError(f"the image has {width}×{height} pixels, expected at least {_SHORTEST}×{_SHORTEST}")
    if height == width == side:
        return upload
    top, left = (height - side) // 2, (width - side) // 2
    note = f"Only the middle of the image, {side}×{side} of {width}×{height} pixels, is used."
    return Upload(upload.image[top : top + side, left : left + side], (*upload.notes, note))


def stretched(image: NDArray[Any]) -> NDArray[np.float32]:
    """An image for display, with contrast stretched between its 1st and 99th percentile."""
    low, high = np.percentile(image, (1, 99))
    return ((image - low) / max(high - low, 1e-6)).clip(0, 1).astype(np.float32)
