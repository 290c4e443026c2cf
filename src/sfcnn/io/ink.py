"""Convert images of single digits to the format of MNIST: bright ink on black, 28×28 pixels.

Networks for digits are trained on this format only. MNIST's digits were scaled to fit a box of 20 pixels, with their
centre of mass in the middle. The same is done here for images of any size, colours and orientation:

1. The background is the median of the image's border. Ink is what differs from it, darker or brighter, whichever
   differs more; differences below a quarter of the largest are paper, above three quarters full ink.
2. The size of a digit is the longer side of the bounding box of its ink, averaged over all directions of the box,
   because the image may be rotated by any angle. It is scaled to 20.6 pixels, the mean for MNIST's digits.
3. The centre of mass of the ink is moved to the middle of the image, and the brightest pixel becomes white.

An image that already has the network's size is used as it is, except that dark ink on a bright background is inverted.
The image should contain one digit and nothing else, on a roughly uniform background.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from sfcnn.io.images import image_files, read_pixels

Grey = NDArray[np.float32]  # (H, W), black 0 and white 1

_SIDE = 28
_BOX = 20.6  # mean longer side of the bounding boxes of MNIST's digits, in pixels
_PAPER, _INK = 0.25, 0.75  # as fractions of the largest difference from the background
_DIRECTIONS = np.deg2rad(np.arange(0, 180, 10))  # a right angle is nine steps


def is_dark(pixels: Grey) -> bool:
    """Whether the pixels of an image (H, W) that differ most from its background are darker than it."""
    ground = _ground(pixels)
    return bool(ground - pixels.min() > pixels.max() - ground)


def _ground(pixels: Grey) -> float:
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    return float(np.median(border))


def find_ink(pixels: Grey, dark: bool) -> Grey:
    """The amount of ink at each pixel (H, W), from 0 to 1; 0 everywhere for an image of one colour."""
    difference = (_ground(pixels) - pixels) * (1 if dark else -1)
    largest = max(float(difference.max()), 1 / 255)  # smaller differences are rounding
    return ((difference / largest - _PAPER) / (_INK - _PAPER)).clip(0, 1).astype(np.float32)


def box_side(ink: Grey) -> float:
    """The longer side of the bounding box of ink (H, W), in pixels, averaged over the directions of the box."""
    rows = np.flatnonzero((ink > 0.5).any(1))
    lines = ink[rows] > 0.5
    ends = lines.argmax(1), ink.shape[1] - 1 - lines[:, ::-1].argmax(1)  # only the ends of a row can touch the box
    points = np.stack([np.concatenate(ends), np.tile(rows, 2)])
    along = np.stack([np.cos(_DIRECTIONS), np.sin(_DIRECTIONS)], 1) @ points
    extents = np.ptp(along, axis=1) + 1
    return float(extents.reshape(2, -1).max(0).mean())


def fit_ink(ink: Grey, side: int = _SIDE) -> Grey:
    """Ink (H, W) as an image (side, side), with the size and position of MNIST's digits."""
    if not (ink > 0.5).any():
        return np.zeros((side, side), np.float32)
    reach = box_side(ink) / _BOX * _SIDE / 2  # from the centre to the border of the result, in pixels of the input
    total = ink.sum(dtype=np.float64)
    centre = [
        float(ink.sum(axis, dtype=np.float64) @ (np.arange(ink.shape[1 - axis]) + 0.5) / total) for axis in (1, 0)
    ]
    # The window around the centre, zero outside the image.
    starts = [int(np.floor(middle - reach)) - 1 for middle in centre]
    size = int(np.ceil(2 * reach)) + 3
    window = np.zeros((size, size), np.float32)
    inside = [
        slice(max(0, start), max(0, min(start + size, most))) for start, most in zip(starts, ink.shape, strict=True)
    ]
    places = tuple(slice(part.start - start, part.stop - start) for part, start in zip(inside, starts, strict=True))
    window[places] = ink[tuple(inside)]
    top, left = (middle - start for middle, start in zip(centre, starts, strict=True))
    corners = (left - reach, top - reach, left + reach, top + reach)
    image = Image.fromarray(window).resize((side, side), Image.Resampling.BILINEAR, box=corners)
    fitted: Grey = np.asarray(image, np.float32).clip(0, 1)
    return fitted / np.float32(max(fitted.max(), 1 / 255))


def read_digit(path: Path, side: int = _SIDE, *, invert: bool = False) -> Tensor:
    """The digit in an image file in the format that a network expects: (1, side, side), uint8, white ink on black.

    Args:
        path: of the file.
        side: height and width of the network's images.
        invert: the ink is dark; otherwise this is detected.
    """
    pixels = read_pixels(path, 1, background=1.0)[..., 0]
    if not invert and pixels.min() == pixels.max():  # white ink on a transparent background
        pixels = read_pixels(path, 1, background=0.0)[..., 0]
    dark = invert or is_dark(pixels)
    if pixels.shape == (side, side):
        image = torch.from_numpy((pixels * 255).round().astype(np.uint8))[None]
        return 255 - image if dark else image
    return torch.from_numpy((fit_ink(find_ink(pixels, dark), side) * 255).round().astype(np.uint8))[None]


def read_digits(paths: Iterable[Path], side: int = _SIDE, *, invert: bool = False) -> Tensor:
    """Image files, and those in directories (see `image_files`), as one batch (N, 1, side, side), uint8."""
    return torch.stack([read_digit(path, side, invert=invert) for path in image_files(paths)])
