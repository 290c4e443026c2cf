"""Mutex watershed: cells directly from affinities, without superpixels (Wolf et al. 2018).

All pairs of pixels are sorted by strength. Pairs of the shortest radius attract with strength A − bias, longer ones
repel with 1 − A. Starting from the strongest, an attractive pair merges the clusters of its two pixels unless an
earlier repulsive pair separates them, and a repulsive pair forbids merging the clusters of its pixels from then on. No
threshold and no number of cells are needed: every pair is visited once, as in Kruskal's spanning tree.

Clusters smaller than a cell, such as those along membranes, are merged one by one into the neighbour with the strongest
affinity: the minimum spanning forest, with costs 1 − A, rooted in the larger clusters.
"""

from dataclasses import dataclass

import numpy as np
from bioimage_cpp.segmentation import mutex_watershed as solve
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from sfcnn.cells.affinities import Affinities, Pairs, pixel_pairs, region_affinities
from sfcnn.cells.metrics import Labels, Mask


@dataclass(frozen=True)
class MutexConfig:
    """Settings of a mutex watershed.

    Args:
        bias: subtracted from the affinities of short pairs; a larger bias gives more and smaller cells
        stride: use long pairs only at every this many rows and columns, which is faster and leaves fewer wrong pairs
            that split cells; must be smaller than the longest radius, or whole borders can be missed
        minimum_size: cells with fewer pixels are merged into a neighbour
        membrane: pixels with at least this membrane probability are left out and finally assigned to adjacent cells;
            above 1, no pixel is left out
    """

    bias: float = 0.2
    stride: int = 4
    minimum_size: int = 50
    membrane: float = 0.5

    def __post_init__(self) -> None:
        """Check that every number makes sense."""
        if not 0 <= self.bias <= 1:
            raise ValueError(f"bias must be in [0, 1], got {self.bias}")
        for name in ("stride", "minimum_size"):
            if not 1 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.membrane < np.inf:
            raise ValueError(f"membrane must be above 0, got {self.membrane}")


def mutex_watershed(
    affinities: Affinities, settings: MutexConfig | None = None, mask: Mask | None = None
) -> NDArray[np.int64]:
    """Label each pixel (H, W) with its cell, from 1 without gaps.

    Args:
        affinities: of one slice; the shortest radius must connect all pixels, as 1 does
        settings: if None, the defaults
        mask: (H, W) pixels that take part; the others are assigned to adjacent cells

    >>> values = np.ones((2, 4, 4, 9), np.float32)
    >>> values[:, 0, :, 4] = values[:, 2, :, 5] = 0  # no pair from column 4 to column 5 is in one cell
    >>> mutex_watershed(Affinities(values, radii=(1, 2)), MutexConfig(minimum_size=2))[0]
    array([1, 1, 1, 1, 1, 2, 2, 2, 2])
    """
    settings = settings or MutexConfig()
    pairs = pixel_pairs(affinities)
    if mask is not None and mask.shape != affinities.shape:
        raise ValueError(f"mask {mask.shape} and affinities of an image {affinities.shape} must have the same shape")
    _check_reach(pairs, affinities.shape)
    if not pairs.short:  # a single pixel
        return np.ones(affinities.shape, dtype=np.int64)
    strengths = 1 - pairs.values
    strengths[: pairs.short] = pairs.values[: pairs.short] - np.float32(settings.bias)
    labels = solve(
        strengths,
        pairs.offsets.tolist(),
        pairs.short,
        strides=(settings.stride, settings.stride),
        mask=None if mask is None else np.ascontiguousarray(mask),
    ).astype(np.int64)
    left = labels == 0
    labels[left] = labels.max() + np.arange(1, left.sum() + 1)  # clusters of one pixel, merged below
    return join_small(labels, pairs.part(short=True), settings.minimum_size)


def join_small(labels: Labels, pairs: Pairs, minimum_size: int) -> NDArray[np.int64]:
    """Merge labels (from 1, no gaps) with too few pixels into others by their strongest pairs; all, if all are small.

    >>> values = [0.9, 0.8, 0.2, 0.9]  # of the pairs along a row, seen from both ends
    >>> pairs = pixel_pairs(Affinities(np.array([[[[*values, np.nan]], [[np.nan, *values]]]]), radii=(1,)))
    >>> join_small(np.array([[1, 1, 2, 3, 3]]), pairs, 2)
    array([[1, 1, 1, 2, 2]])
    """
    sizes = np.bincount(labels.ravel())[1:]
    edges, means, _ = region_affinities(labels, pairs)
    large = np.flatnonzero(sizes >= minimum_size)
    count = len(sizes)
    # One extra node connects all roots more strongly than anything else, so that no other path connects them.
    u = np.concatenate([edges[:, 0], np.full(len(large), count)])
    v = np.concatenate([edges[:, 1], large])
    costs = np.concatenate([2 - means, np.full(len(large), 0.5)])
    tree = minimum_spanning_tree(coo_array((costs, (u, v)), shape=(count + 1, count + 1)).tocsr()).tocoo()
    kept = (tree.row != count) & (tree.col != count)
    links = coo_array((tree.data[kept], (tree.row[kept], tree.col[kept])), shape=(count, count))
    parts = connected_components(links, directed=False)[1]
    _, first, numbers = np.unique(parts[labels - 1], return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(first))  # numbered by their first pixels
    return (order[numbers] + 1).reshape(labels.shape).astype(np.int64)


def _check_reach(pairs: Pairs, shape: tuple[int, ...]) -> None:
    """Raise if no sequence of short offsets leads from a pixel to its neighbours.

    One does if the determinants of all pairs of offsets have greatest common divisor 1; on a line, if the offsets do.
    """
    rows, columns = pairs.offsets[: pairs.short].T
    areas = np.outer(rows, columns) - np.outer(columns, rows) if min(shape) > 1 else rows + columns
    if max(shape) > 1 and np.gcd.reduce(np.abs(areas).ravel()) != 1:
        raise ValueError(
            f"affinities of the shortest radius must connect neighbouring pixels, got the offsets "
            f"{pairs.offsets[: pairs.short].tolist()}: train the network with 1 as the first radius"
        )
