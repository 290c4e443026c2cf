"""Mutex watershed: cells straight from affinities, without superpixels (Wolf et al. 2018).

All pairs of pixels are sorted by strength. Those of the shortest radius attract with A − bias, longer ones repel with
1 − A. From the strongest on, an attractive pair joins the clusters of its pixels unless a repulsive pair between these
clusters was there before, and a repulsive pair forbids that the clusters of its pixels are ever joined. There is no
threshold and no number of cells: every pair is looked at once, as in Kruskal's spanning tree.

Clusters with fewer pixels than a cell, such as those along membranes, are joined to the neighbour with the strongest
affinity, one after the other: the minimum spanning forest, with costs 1 − A, that has its roots in the larger clusters.
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
    """How a mutex watershed cuts an image.

    Args:
        bias: taken off the affinities of short pairs; more makes more and smaller cells
        stride: only every so many rows and columns have long pairs: faster, and fewer wrong ones that cut cells; to be
            smaller than the longest radius, or else whole borders can be skipped
        minimum_size: cells with fewer pixels are joined to a neighbour
        membrane: pixels with at least this probability of membrane are left out, and go to the cells beside them in the
            end; above 1, none is
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
    """Label each pixel (H, W) with its cell, from 1 on without gaps.

    Args:
        affinities: of a slice; the shortest radius has to join all pixels, as 1 does
        settings: if None, the defaults
        mask: (H, W) pixels that take part; the others go to the cells beside them

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
    labels[left] = labels.max() + np.arange(1, left.sum() + 1)  # pieces of one pixel, joined below
    return join_small(labels, pairs.part(short=True), settings.minimum_size)


def join_small(labels: Labels, pairs: Pairs, minimum_size: int) -> NDArray[np.int64]:
    """Join labels, from 1 on without gaps, of fewer pixels to others by their strongest pairs; all, if all are small.

    >>> values = [0.9, 0.8, 0.2, 0.9]  # of the pairs along a row, seen from both ends
    >>> pairs = pixel_pairs(Affinities(np.array([[[[*values, np.nan]], [[np.nan, *values]]]]), radii=(1,)))
    >>> join_small(np.array([[1, 1, 2, 3, 3]]), pairs, 2)
    array([[1, 1, 1, 2, 2]])
    """
    sizes = np.bincount(labels.ravel())[1:]
    edges, means, _ = region_affinities(labels, pairs)
    large = np.flatnonzero(sizes >= minimum_size)
    count = len(sizes)
    # One more node binds all roots together more strongly than anything else, so that no other path does.
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
    """Raise if steps along short pairs do not lead from each pixel to its neighbours, however many are taken.

    They do if the greatest common divisor of all determinants of two steps is 1; on a line, that of all steps.
    """
    rows, columns = pairs.offsets[: pairs.short].T
    areas = np.outer(rows, columns) - np.outer(columns, rows) if min(shape) > 1 else rows + columns
    if max(shape) > 1 and np.gcd.reduce(np.abs(areas).ravel()) != 1:
        raise ValueError(
            f"affinities of the shortest radius must join neighbouring pixels, got the steps "
            f"{pairs.offsets[: pairs.short].tolist()}: train the network with 1 as the first radius"
        )
