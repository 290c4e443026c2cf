"""Border thinning: membranes of any width become lines of one pixel, as in the evaluation of the ISBI 2012 challenge.

Scores that compare cells should not depend on how thick a membrane was drawn. The proposal is therefore thinned before
it is scored: its 4-connected components grow into the membrane, all at the same speed, until they meet. The truth is
not thinned.

Conversely, `draw_borders` separates the cells of a label image by lines, as the challenge expects of submissions.
"""

import numpy as np
from numpy.typing import NDArray
from skimage.measure import label
from skimage.segmentation import watershed

from sfcnn.cells.metrics import Labels, Mask

_OUTSIDE = -1


def components(interior: Mask) -> NDArray[np.int64]:
    """Label the 4-connected components of a mask (H, W): 0 outside, then 1, 2, … in row order.

    >>> components(np.array([[True, False], [False, True]]))
    array([[1, 0],
           [0, 2]])
    """
    _check(interior)
    return label(interior, connectivity=1).astype(np.int64, copy=False)


def thin_borders(interior: Mask) -> NDArray[np.int64]:
    """Grow the components of a cell interior mask (H, W) until only dams, label 0, separate them.

    Labels stay connected, and no two 4-neighbours have different labels above 0. Dams are one pixel wide: each of their
    pixels touches two labels, except those that no label reaches because dams surround them. They lie in the middle of
    the membrane, or half a pixel off if its width is even. A mask without interior becomes one component that fills the
    image: flooding finds a single basin in a flat landscape.

    >>> thin_borders(np.array([[True, False, False, False, True]]))
    array([[1, 1, 0, 2, 2]])
    """
    basins = components(interior)
    if not interior.any():
        return np.ones_like(basins)
    padded = np.pad(basins, 1, constant_values=_OUTSIDE)
    _grow(padded.reshape(-1), padded.shape[1])
    return padded[1:-1, 1:-1].copy()


def fill_borders(labels: Labels) -> NDArray[np.int64]:
    """Grow the labels of an image (H, W) over all pixels with label 0, so that no dams are left.

    >>> fill_borders(np.array([[3, 0, 0, 5]]))
    array([[3, 3, 5, 5]])
    """
    return watershed(np.zeros(labels.shape, np.uint8), labels.astype(np.int64), connectivity=1)


def draw_borders(labels: Labels) -> Mask:
    """The interior of cells in label images (H, W) or (Z, H, W): all pixels except lines between touching cells.

    Of two 4-neighbours with different labels, the one with the larger label becomes border, so lines are one pixel wide
    and rotate with the image. Slices are processed separately; pixels with label 0 are border too.

    >>> draw_borders(np.array([[1, 1, 2, 2, 0]])).astype(int)
    array([[1, 1, 0, 1, 0]])
    """
    interior: Mask = labels > 0
    for axis in (-2, -1):
        shifted = np.moveaxis(labels, axis, 0)
        before, after = shifted[:-1], shifted[1:]
        inside = np.moveaxis(interior, axis, 0)  # a view, so this writes to `interior`
        inside[:-1] &= (before <= after) | (after == 0)
        inside[1:] &= (after <= before) | (before == 0)
    return interior


def _grow(pixels: NDArray[np.int64], width: int) -> None:
    """Grow labels in place over pixels of 0; `pixels` are rows of `width`, in a frame of `_OUTSIDE`.

    On a chessboard, all 4-neighbours of a square have the other colour. All black pixels reached by a single label take
    it at once, then all white ones, and so on: fronts advance by one pixel each time, and different labels never become
    neighbours. (`watershed_line=True` in scikit-image lets labels leak through dams and makes some two pixels wide.)
    """
    steps = np.array([-width, -1, 1, width])
    membrane = np.flatnonzero(pixels == 0)
    front = membrane[(pixels[membrane[:, None] + steps] > 0).any(axis=1)]
    white = (front // width + front % width) % 2 == 1
    now, then = front[~white], front[white]
    while now.size or then.size:
        around = pixels[now[:, None] + steps]
        labels = around.max(axis=1)
        alone = ((around <= 0) | (around == labels[:, None])).all(axis=1)  # otherwise it is a dam and stays one
        pixels[now[alone]] = labels[alone]
        beyond = (now[alone, None] + steps).reshape(-1)
        now, then = np.union1d(then, beyond[pixels[beyond] == 0]), now[:0]


def _check(interior: Mask) -> None:
    if interior.ndim != 2 or not interior.size:
        raise ValueError(f"interior must be an image (H, W), got shape {interior.shape}")
    if interior.dtype != np.bool_:
        raise ValueError(f"interior must be a boolean mask, got {interior.dtype}: compare it with a threshold")
