"""Scores of whole stacks: slice by slice, the mean over slices, the best threshold (the evaluation of ISBI 2012).

A probability map is divided at each threshold t into interior (value > t) and membrane, its borders are thinned, and
each slice is scored separately. The score of a stack at t is the mean over its slices, and the score of a stack is the
best over t, chosen separately for V_rand and V_info. A mask needs one threshold, a label image none.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, repeat
from math import fsum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfcnn.cells.metrics import (
    Agreement,
    Labels,
    Mask,
    f1,
    info_agreement,
    overlaps,
    pixel_error,
    rand_agreement,
)
from sfcnn.cells.thinning import components, thin_borders

#: 0, 0.1, …, 1 as sums of 0.1, as in the challenge: the last one is just below 1, so pixels of 1 are above it.
THRESHOLDS = tuple(accumulate(repeat(0.1, 10), initial=0.0))


@dataclass(frozen=True)
class Score:
    """One kind of score of a stack."""

    best: float  #: mean over slices, at the best threshold
    threshold: float | None  #: the best threshold, the first if there are several; None for label images
    means: tuple[float, ...]  #: over slices, at each threshold
    slices: tuple[float, ...]  #: of each slice, at the best threshold


@dataclass(frozen=True)
class CellScore(Score):
    """A score that compares cells, and its parts for each slice at the best threshold."""

    precision: tuple[float, ...]  #: lowered by merged cells
    recall: tuple[float, ...]  #: lowered by split cells


@dataclass(frozen=True)
class StackScores:
    """All scores of a stack. Pixel scores compare membranes and are None for label images, which have none."""

    thresholds: tuple[float, ...]  #: empty for label images
    v_rand: CellScore
    v_info: CellScore
    f1: Score | None  #: of the membrane pixels, before thinning
    pixel_error: Score | None  #: fraction of wrong pixels, before thinning; smaller is better

    def as_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        return asdict(self)


def truth_cells(interior: Mask) -> NDArray[np.int64]:
    """Label the cells of a true interior mask (Z, H, W), slice by slice: its 4-connected components."""
    return np.stack([components(part) for part in _as_stack(interior)])


def score_labels(labels: Labels, truth: Labels) -> StackScores:
    """Score label images (Z, H, W) or (H, W) as they are; the truth holds labels too, 0 for membrane.

    >>> truth = np.array([[1, 1, 0, 2, 2]])
    >>> score_labels(np.ones_like(truth), truth).v_rand.best
    0.6666666666666666
    """
    labels, truth = _check(labels, truth)
    tables = [overlaps(*pair) for pair in zip(labels, truth, strict=True)]
    kinds = (rand_agreement, info_agreement)
    v_rand, v_info = (_cell_score([[agreement(table) for table in tables]], ()) for agreement in kinds)
    return StackScores((), v_rand, v_info, None, None)


def score_probabilities(
    interior: NDArray[Any],
    truth: Labels,
    thresholds: Sequence[float] = THRESHOLDS,
    report: Callable[[float], None] = lambda done: None,
) -> StackScores:
    """Score probabilities of cell interior (Z, H, W) or (H, W), in [0, 1]; the truth holds labels, 0 for membrane.

    A mask of 0 and 1 is scored with `thresholds=(0.0,)`. `report` is called with the fraction of slices that are done.

    >>> truth = np.array([[1, 1, 0, 2, 2]])
    >>> scores = score_probabilities(np.array([[1.0, 0.9, 0.4, 0.7, 1.0]]), truth)
    >>> scores.v_rand.best, scores.v_rand.threshold
    (1.0, 0.4)
    """
    interior, truth = _check(interior, truth)
    if not thresholds:
        raise ValueError("expected at least one threshold, got an empty list")
    if not 0 <= interior.min() <= interior.max() <= 1:  # false for NaN too
        raise ValueError(f"probabilities must be in 0 … 1, got {interior.min():g} … {interior.max():g}")
    slices = []
    for number, (probabilities, cells) in enumerate(zip(interior, truth, strict=True), start=1):
        # In float64, so that thresholds are not rounded to the precision of the map.
        slices.append([_score_slice(probabilities.astype(np.float64) > t, cells) for t in thresholds])
        report(number / len(interior))
    # A table [threshold][slice] for each score.
    rand, info, hits, mistakes = ([[part[k] for part in row] for row in zip(*slices, strict=True)] for k in range(4))
    return StackScores(
        tuple(thresholds),
        _cell_score(rand, thresholds),
        _cell_score(info, thresholds),
        _score(hits, thresholds, max),
        _score(mistakes, thresholds, min),
    )


def _score_slice(interior: Mask, cells: Labels) -> tuple[Any, ...]:
    """V_rand, V_info, F1 and pixel error of one slice at one threshold."""
    table, membrane = overlaps(thin_borders(interior), cells), cells == 0
    return (
        rand_agreement(table),
        info_agreement(table),
        f1(~interior, membrane),
        pixel_error(~interior, membrane),
    )


def _score(values: list[list[float]], thresholds: Sequence[float], choose: Callable[..., float]) -> Score:
    """The best row of [threshold][slice]; the first if there are several."""
    means = [fsum(row) / len(row) for row in values]
    best = means.index(choose(means))
    return Score(means[best], thresholds[best] if thresholds else None, tuple(means), tuple(values[best]))


def _cell_score(values: list[list[Agreement]], thresholds: Sequence[float]) -> CellScore:
    score = _score([[part.score for part in row] for row in values], thresholds, max)
    parts = values[score.means.index(score.best)]
    precision, recall = tuple(part.precision for part in parts), tuple(part.recall for part in parts)
    return CellScore(score.best, score.threshold, score.means, score.slices, precision, recall)


def _as_stack(array: NDArray[Any]) -> NDArray[Any]:
    """An image (H, W) as a stack of one."""
    if array.ndim not in (2, 3) or not array.size:
        raise ValueError(f"expected a stack (Z, H, W) or an image (H, W), got shape {array.shape}")
    return array if array.ndim == 3 else array[None]


def _check(prediction: NDArray[Any], truth: Labels) -> tuple[NDArray[Any], Labels]:
    prediction, truth = _as_stack(prediction), _as_stack(truth)
    if prediction.shape != truth.shape:
        raise ValueError(f"prediction {prediction.shape} and truth {truth.shape} must have the same shape (Z, H, W)")
    for number, part in enumerate(truth, start=1):
        if not (part > 0).any():
            raise ValueError(f"slice {number} of the truth has no foreground: it is 0 everywhere")
    return prediction, truth
