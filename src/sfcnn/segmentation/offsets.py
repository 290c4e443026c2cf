"""Pairs of pixels along the orientations of a network, given by the offset from one pixel to the other.

Orientation a of Λ is the direction θ_a = 2πa/Λ, counter-clockwise from the x axis (x to the right, y upwards). Its
offset at distance r is

    (row, column) = (−round(r sin θ_a), round(r cos θ_a))

with halves rounded away from zero. A rotation by 90° then maps the offset of a exactly to that of a + Λ/4, and for even
Λ the offset of a + Λ/2 is exactly the negative of that of a.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

#: Rows and columns of an image.
Window = tuple[slice, slice]

_SNAP = 1e-9  # a coordinate closer than this to a half is treated as a half


def check_radii(radii: Sequence[float]) -> None:
    """Raise unless `radii` are increasing distances of at least one pixel."""
    wrong = [radius for radius in radii if not (math.isfinite(radius) and radius >= 1)]
    if wrong:
        raise ValueError(f"radii must be at least 1 pixel, got {wrong[0]:g} in {list(radii)}")
    if any(later <= earlier for earlier, later in pairwise(radii)):
        raise ValueError(f"radii must increase, got {list(radii)}")


def oriented_offsets(radii: Sequence[float], orientations: int) -> NDArray[np.int64]:
    """Offsets (D, Λ, 2) in rows and columns, from a pixel to the one at each of D radii in each of Λ directions.

    Args:
        radii: distances in pixels, at least 1 and increasing.
        orientations: Λ, at least 2. If it is even, each end of a pair has an offset to the other.

    >>> oriented_offsets([1, 3], 4).tolist()
    [[[0, 1], [-1, 0], [0, -1], [1, 0]], [[0, 3], [-3, 0], [0, -3], [3, 0]]]
    """
    if not len(radii):
        raise ValueError("expected at least one radius, got an empty list")
    check_radii(radii)
    if orientations < 2:
        raise ValueError(f"orientations must be at least 2, got {orientations}")
    angles = 2 * np.pi * np.arange(orientations) / orientations
    directions = np.stack([-np.sin(angles), np.cos(angles)], axis=-1)
    steps = np.asarray(radii, dtype=np.float64)[:, None, None] * directions
    rounded = np.floor(np.abs(steps) + 0.5 + _SNAP)  # the same for both signs
    return (np.sign(steps) * rounded).astype(np.int64)


def pair_windows(size: Sequence[int], step: Sequence[int] | NDArray[np.int64]) -> tuple[Window, Window]:
    """The window of an image (H, W) whose pixels x have a partner x + step in the image, and the partners' window.

    >>> pair_windows((5, 9), (-1, 3))
    ((slice(1, 5, None), slice(0, 6, None)), (slice(0, 4, None), slice(3, 9, None)))
    """
    here, there = [], []
    for side, along in zip(size, step, strict=True):
        first, last = min(max(0, -along), side), max(min(side, side - along), 0)
        here.append(slice(first, last) if first < last else slice(0, 0))
        there.append(slice(first + along, last + along) if first < last else slice(0, 0))
    return (here[0], here[1]), (there[0], there[1])
