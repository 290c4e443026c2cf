"""Superpixels of a membrane map by a watershed on its distance transform (Beier et al. 2017, superpixels "wsdt").

p ≥ threshold is membrane; d is the signed distance to it, positive outside; local maxima of the smoothed d are seeds,
and a watershed floods the smoothed −d from them. There are far more superpixels than cells: a multicut joins them.

Rotation. If two seeds reach a pixel at the same height, flooding assigns it to the first one in row order, and the last
bits of a separable Gaussian filter depend on the order of its axes. Instead of making each step symmetric, the image is
rotated by quarter turns into one fixed orientation, and the result is rotated back. So L(R p) = R L(p) for rotations R
by 90°, exactly and with the same labels, for every p that is not symmetric under 180°: in a symmetric p, a pixel midway
between two seeds must go to one of them, and the result is one of two that differ by a half turn.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from bioimage_cpp.distance import distance_transform
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage
from skimage.morphology import local_maxima
from skimage.segmentation import watershed

Number = TypeVar("Number", bound=np.generic)

_EIGHT = np.ones((3, 3), dtype=bool)  # pixels touch at corners too


@dataclass(frozen=True)
class SuperpixelsConfig:
    """How superpixels are computed; the defaults are those of Beier et al. for ISBI 2012.

    Args:
        threshold: pixels with at least this probability are membrane
        minimum_membrane: membrane fragments with fewer pixels are removed
        minimum_size: superpixels with fewer pixels are merged into their neighbours
        seed_sigma: σ of the Gaussian that smooths the distance before seeds are found, in pixels
        flood_sigma: σ of the Gaussian that smooths the distance before flooding, in pixels
    """

    threshold: float = 0.3
    minimum_membrane: int = 1
    minimum_size: int = 1
    seed_sigma: float = 2.0
    flood_sigma: float = 2.6

    def __post_init__(self) -> None:
        """Check that every number makes sense."""
        if not 0 < self.threshold <= 1:
            raise ValueError(f"threshold must be in (0, 1], got {self.threshold}")
        for name, smallest in (("minimum_membrane", 1), ("minimum_size", 1), ("seed_sigma", 0), ("flood_sigma", 0)):
            if not smallest <= getattr(self, name) < np.inf:
                raise ValueError(f"{name} must be at least {smallest}, got {getattr(self, name)}")


def superpixels(probabilities: ArrayLike, settings: SuperpixelsConfig | None = None) -> NDArray[np.int64]:
    """Label each pixel of a slice (H, W), or of each slice of a stack (Z, H, W), from 1 without gaps.

    Slices are independent; the labels of each slice continue those of the slice before.

    >>> wall = np.zeros((4, 9))
    >>> wall[:, 5] = 1
    >>> superpixels(wall, SuperpixelsConfig(seed_sigma=1, flood_sigma=1))[0]
    array([1, 1, 1, 1, 1, 1, 2, 2, 2])
    """
    settings = settings or SuperpixelsConfig()
    probabilities = check_probabilities(probabilities)
    if probabilities.ndim == 2:
        turns = upright_turns(probabilities, settings.threshold)
        return turn(_of_slice(turn(probabilities, turns), settings), -turns)
    labels = np.empty(probabilities.shape, dtype=np.int64)
    last = 0
    for index, image in enumerate(probabilities):
        labels[index] = superpixels(image, settings) + last
        last = labels[index].max()
    return labels


def check_probabilities(probabilities: ArrayLike) -> NDArray[np.floating]:
    """Return a slice or stack of membrane probabilities as an array; raise ValueError if it is not one."""
    array = np.asarray(probabilities)
    if array.ndim not in (2, 3) or not array.size:
        raise ValueError(f"expected non-empty probabilities of shape (H, W) or (Z, H, W), got {array.shape}")
    if not np.issubdtype(array.dtype, np.floating):
        raise ValueError(f"expected probabilities as floats in [0, 1], got {array.dtype}; divide 8-bit images by 255")
    low, high = array.min(), array.max()
    if not (low >= 0 and high <= 1):  # NaN makes both NaN
        raise ValueError(f"expected probabilities in [0, 1], got values from {low:g} to {high:g}")
    return array


def turn(image: NDArray[Number], turns: int) -> NDArray[Number]:
    """Rotate slices (..., H, W) by a number of quarter turns, counter-clockwise."""
    return np.rot90(image, turns, axes=(-2, -1))


def upright_turns(probabilities: NDArray[np.floating], threshold: float) -> int:
    """Quarter turns k to the fixed orientation of an image or stack: turn(p, k) is the same for p and all turn(p, j).

    It is the orientation whose membrane mask comes first when ordered by shape, then by bytes; only images with a
    symmetric mask are ordered by their probabilities. Small errors in p, such as rounding, therefore rarely change it.
    """

    membrane = probabilities >= threshold

    def masks(turns: int) -> tuple[tuple[int, ...], bytes]:
        turned = turn(membrane, turns)
        return turned.shape, turned.tobytes()

    keys = [masks(turns) for turns in range(4)]
    first = [turns for turns in range(4) if keys[turns] == min(keys)]
    return first[0] if len(first) == 1 else min(first, key=lambda turns: turn(probabilities, turns).tobytes())


def _of_slice(probabilities: NDArray[np.floating], settings: SuperpixelsConfig) -> NDArray[np.int64]:
    pieces, _ = ndimage.label(probabilities >= settings.threshold, _EIGHT)
    membrane = _drop_small(pieces, settings.minimum_membrane) > 0
    if membrane.all() or not membrane.any():
        return np.ones(probabilities.shape, dtype=np.int64)
    distance = signed_distance(membrane)
    seeds, count = ndimage.label(local_maxima(_smooth(distance, settings.seed_sigma)), _EIGHT)
    if not count:  # smoothed until flat
        return np.ones(probabilities.shape, dtype=np.int64)
    height = -_smooth(distance, settings.flood_sigma)
    labels = watershed(height, seeds)
    kept = _drop_small(labels, settings.minimum_size)
    if not kept.any():
        return np.ones(probabilities.shape, dtype=np.int64)
    if not kept.all():
        labels = watershed(height, kept)
    numbers = np.cumsum(np.bincount(labels.ravel()) > 0)  # without gaps; no pixel has label 0
    return numbers[labels]


def signed_distance(membrane: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Distance of pixels (H, W) to the nearest membrane pixel; inside it, 1 − distance to the nearest other pixel.

    It is 1 next to the membrane, 0 on its outermost pixels and negative deeper inside. Both kinds of pixels must occur.
    """
    return _distance(~membrane) - np.maximum(_distance(membrane) - 1, 0)


def _distance(mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Distance of each pixel to the nearest pixel outside the mask."""
    # bioimage-cpp computes distances in float32, but its nearest pixels are exact, as are the squares in int32.
    y, x = distance_transform(mask, return_distances=False, return_indices=True)
    y -= np.arange(mask.shape[0], dtype=np.int32)[:, None]
    x -= np.arange(mask.shape[1], dtype=np.int32)
    y *= y
    x *= x
    y += x
    return np.sqrt(y, dtype=np.float64)


def _smooth(image: NDArray[np.float64], sigma: float) -> NDArray[np.float64]:
    return ndimage.gaussian_filter(image, sigma, mode="mirror") if sigma else image


def _drop_small(labels: NDArray[np.integer], minimum: int) -> NDArray[np.integer]:
    """Set labels with fewer than `minimum` pixels to 0."""
    if minimum <= 1:
        return labels
    keep = np.bincount(labels.ravel()) >= minimum
    keep[0] = False
    return np.where(keep[labels], labels, 0)
