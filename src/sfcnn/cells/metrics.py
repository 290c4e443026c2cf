"""The scores of the ISBI 2012 challenge for label images, V_rand and V_info, and pixel scores of masks (§4.2).

Only the n pixels with truth > 0 count. Among them cell i has a_i pixels, segment j of the proposal b_j, both c_ij, and
d pixels have label 0 in the proposal; each of these counts as a segment of its own. With A the partition into cells and
B the one into segments,

V_rand = 2 (Σ c_ij² + d) / (Σ a_i² + Σ b_j² + d)          precision over Σ b_j² + d, recall over Σ a_i²
V_info = 2 I / (H(A) + H(B)),  I = H(A) + H(B) − H(AB)    precision I / H(A), recall I / H(B)

where n H(A) = Σ a_i ln(n/a_i), n H(B) = Σ b_j ln(n/b_j) + d ln n and n H(AB) = Σ c_ij ln(n/c_ij) + d ln n. All lie
between 0 (worst) and 1 (best). Merged cells lower precision, split cells lower recall.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.integer[Any]]
Mask = NDArray[np.bool_]

_LARGEST = 2**62


@dataclass(frozen=True)
class Agreement:
    """How well a segmentation agrees with the truth, from 0 to 1."""

    score: float  #: harmonic mean of the other two
    precision: float  #: lowered by merged cells
    recall: float  #: lowered by split cells


@dataclass(frozen=True)
class Overlaps:
    """How many pixels each pair of a cell and a segment has in common."""

    cells: NDArray[np.int64]  #: (K,) cell of each pair, ascending
    segments: NDArray[np.int64]  #: (K,) segment of each pair, 0 for dams
    counts: NDArray[np.int64]  #: (K,) pixels of each pair, c_ij


def overlaps(labels: Labels, truth: Labels) -> Overlaps:
    """Count the pairs of cell and segment where truth > 0, for two label images (H, W).

    >>> overlaps(np.array([[7, 0, 9]]), np.array([[1, 1, 0]]))
    Overlaps(cells=array([1, 1]), segments=array([0, 7]), counts=array([1, 1]))
    """
    _check(labels, "labels")
    _check(truth, "truth")
    if labels.shape != truth.shape:
        raise ValueError(f"labels {labels.shape} and truth {truth.shape} must have the same shape")
    foreground = truth > 0
    if not foreground.any():
        raise ValueError("truth has no foreground: it is 0 everywhere, so there is no cell to compare with")
    i, j = truth[foreground].astype(np.int64), labels[foreground].astype(np.int64)
    if (int(i.max()) + 1) * (int(j.max()) + 1) <= _LARGEST:
        return _count(i, j)
    # A pair of large labels does not fit into one int64, but a pair of their ranks does.
    (cells, i), (segments, j) = np.unique(i, return_inverse=True), np.unique(j, return_inverse=True)
    ranks = _count(i, j)
    return Overlaps(cells[ranks.cells], segments[ranks.segments], ranks.counts)


def v_rand(labels: Labels, truth: Labels) -> float:
    """V_rand of a label image (H, W) where the truth is not 0; each pixel with label 0 is its own segment.

    >>> truth = np.array([[1, 1, 2, 2]])
    >>> v_rand(np.array([[5, 5, 5, 5]]), truth)  # 2 · 8 / (8 + 16)
    0.6666666666666666
    """
    return rand_agreement(overlaps(labels, truth)).score


def v_info(labels: Labels, truth: Labels) -> float:
    """V_info of a label image (H, W) where the truth is not 0; each pixel with label 0 is its own segment.

    >>> truth = np.array([[1, 1, 2, 2]])
    >>> round(v_info(np.array([[5, 6, 7, 7]]), truth), 12)  # H(A) = I = ln 2, H(B) = 3/2 ln 2
    0.8
    """
    return info_agreement(overlaps(labels, truth)).score


def rand_agreement(table: Overlaps) -> Agreement:
    """V_rand with its precision and recall."""
    dams = int(table.counts[table.segments == 0].sum())
    inside = table.segments > 0
    cells = _squares(_sizes(table.cells, table.counts))
    segments = _squares(_sizes(table.segments[inside], table.counts[inside])) + dams
    both = _squares(table.counts[inside]) + dams
    return Agreement(2 * both / (cells + segments), both / segments, both / cells)


def info_agreement(table: Overlaps) -> Agreement:
    """V_info with its precision and recall.

    A partition into a single part carries no information: if only the truth is one, precision is 0 and recall is 1; if
    only the proposal is one, the reverse; in both cases V_info is 0. If both are, they are equal, and V_info is 1.
    """
    inside = table.segments > 0
    n = int(table.counts.sum())
    cells = _entropy(_sizes(table.cells, table.counts), n)
    segments = _entropy(_sizes(table.segments[inside], table.counts[inside]), n)
    both = _entropy(table.counts[inside], n)
    if cells == 0 or segments == 0:
        return Agreement(float(cells == segments), float(segments == 0), float(cells == 0))
    shared = max(0.0, cells + segments - both)  # rounding can make it slightly negative
    scores = 2 * shared / (cells + segments), shared / cells, shared / segments
    return Agreement(*(min(1.0, score) for score in scores))


def pixel_error(prediction: Mask, truth: Mask) -> float:
    """Fraction of pixels in which two masks of the same shape differ."""
    _check_masks(prediction, truth)
    return float(np.count_nonzero(prediction != truth) / truth.size)


def f1(prediction: Mask, truth: Mask) -> float:
    """Harmonic mean of precision and recall of the pixels that are True; 1 if both masks are empty.

    >>> f1(np.array([True, True, False]), np.array([True, False, False]))
    0.6666666666666666
    >>> empty, left, right = (np.array(mask, dtype=bool) for mask in ([0, 0], [1, 0], [0, 1]))
    >>> f1(left, right), f1(empty, right), f1(empty, empty)
    (0.0, 0.0, 1.0)
    """
    _check_masks(prediction, truth)
    marked = np.count_nonzero(prediction) + np.count_nonzero(truth)
    return float(2 * np.count_nonzero(prediction & truth) / marked) if marked else 1.0


def _count(i: NDArray[np.int64], j: NDArray[np.int64]) -> Overlaps:
    width = int(j.max()) + 1
    pairs, counts = np.unique(i * width + j, return_counts=True)
    return Overlaps(pairs // width, pairs % width, counts)


def _sizes(names: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sum of the counts of each name."""
    _, index = np.unique(names, return_inverse=True)
    return np.bincount(index, weights=counts).astype(np.int64)  # integers, exact in float64 below 2⁵³


def _squares(counts: NDArray[np.int64]) -> int:
    return int(np.dot(counts, counts))


def _entropy(sizes: NDArray[np.int64], n: int) -> float:
    """Entropy (natural logarithm) of a partition of n pixels; pixels not counted in `sizes` are parts of one pixel.

    The terms s/n · ln(n/s) are all positive, so there is no cancellation, and `fsum` rounds their sum once, regardless
    of their order: equal partitions have bit-identical entropies.
    """
    alone = n - int(sizes.sum())
    return (math.fsum(sizes * np.log(n / sizes)) + alone * math.log(n)) / n


def _check(labels: Labels, name: str) -> None:
    if labels.ndim != 2:
        hint = "; sfcnn.cells.scoring scores stacks" if labels.ndim == 3 else ""
        raise ValueError(f"{name} must be an image (H, W), got shape {labels.shape}{hint}")
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"{name} must be integers, got {labels.dtype}; use sfcnn.cells.thinning.components to label the cells of "
            "a mask"
        )
    if labels.size and not 0 <= int(labels.min()) <= int(labels.max()) < _LARGEST:
        raise ValueError(f"{name} must be in 0 … 2⁶² - 1, got {labels.min()} … {labels.max()}")


def _check_masks(prediction: Mask, truth: Mask) -> None:
    if prediction.shape != truth.shape:
        raise ValueError(f"prediction {prediction.shape} and truth {truth.shape} must have the same shape")
    if prediction.dtype != np.bool_ or truth.dtype != np.bool_:
        raise ValueError(f"prediction and truth must be boolean masks, got {prediction.dtype} and {truth.dtype}")
    if not truth.size:
        raise ValueError(f"masks must have at least one pixel, got shape {truth.shape}")
