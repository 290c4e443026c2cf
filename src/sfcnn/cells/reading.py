"""Score any segmentation, given as cell labels, a mask, or probabilities."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfcnn.cells.metrics import Mask
from sfcnn.cells.scoring import THRESHOLDS, StackScores, score_labels, score_probabilities, truth_cells
from sfcnn.io.stacks import as_fraction

#: What a segmentation can be: bright on membranes, bright inside cells, or with a number for each cell.
KINDS = ("membrane", "interior", "labels")


class Reading(NamedTuple):
    """A segmentation and how it was interpreted."""

    meaning: str  #: in words
    values: NDArray[Any]  #: labels (int64), a mask of interior (bool) or probabilities of interior (float32)


def score(
    prediction: ArrayLike,
    truth: ArrayLike,
    kind: str | None = None,
    *,
    truth_labels: bool | None = None,
    report: Callable[[float], None] = lambda done: None,
) -> StackScores:
    """Compare a segmentation (Z, H, W) or (H, W) with the truth by the scores of the ISBI 2012 challenge.

    Probabilities are scored at the thresholds 0, 0.1, …, 1. Borders of masks and probabilities are thinned; labels are
    used as they are. See `read_prediction` for how values are interpreted.

    Args:
        prediction: labels, a mask, or probabilities
        truth: labels with a number for each cell and 0 on membranes, or a mask that is not 0 inside cells
        kind: of the prediction, one of KINDS; None to infer it from the values
        truth_labels: whether the truth holds labels; None to infer it from the values
        report: called with the fraction of slices that is done

    >>> from sfcnn.cells import score
    >>> truth = np.array([[True, True, False, True, True]])
    >>> score([[0.1, 0.2, 0.9, 0.3, 0.0]], truth).v_rand.best, score([[4, 4, 4, 6, 6]], truth).v_rand.best
    (1.0, 1.0)
    """
    found = read_prediction(prediction, kind).values
    cells = read_truth(truth, labels=truth_labels)
    if found.dtype == np.int64:
        return score_labels(found, cells)
    return score_probabilities(found, cells, (0.0,) if found.dtype == np.bool_ else THRESHOLDS, report)


def read_prediction(prediction: ArrayLike, kind: str | None = None, name: object = "the prediction") -> Reading:
    """Interpret the values of a segmentation.

    Two values, one of them 0, are a mask. Other integers are labels, except 8-bit and 16-bit ones: these are
    probabilities from black to white, like floats from 0 to 1. Unless `kind` says otherwise, masks are bright inside
    cells, and probabilities are those of membrane. `name` is used in error messages.

    >>> read_prediction([[0, 255]]).meaning, read_prediction([[0.0, 0.7, 1.0]]).meaning
    ('a mask that is 255 inside cells', 'probabilities of membrane, values from 0 to 1')
    """
    if kind is not None and kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}, choose one of {list(KINDS)} or None")
    array = _with_pixels(prediction, name)
    if kind == "labels":
        return Reading("labels", _as_labels(array, name))
    if _has_two_values(array):
        bright = f"{float(array.max()):g}"
        if kind == "membrane":
            return Reading(f"a mask that is {bright} on membranes", array == 0)
        return Reading(f"a mask that is {bright} inside cells", array > 0)
    if kind is None and array.dtype.kind in "iu" and array.dtype.itemsize > 2:
        return Reading("labels", _as_labels(array, name))
    fraction = as_fraction(array.astype(np.float32) if array.dtype.kind == "f" else array, name)
    values = f"values from {array.min():g} to {array.max():g}"
    if kind == "interior":
        return Reading(f"probabilities of the interior of cells, {values}", fraction)
    return Reading(f"probabilities of membrane, {values}", 1 - fraction)


def read_truth(truth: ArrayLike, *, labels: bool | None = None, name: object = "the truth") -> NDArray[np.int64]:
    """True cells, 0 on membranes: the labels of an array, or the labelled components of an interior mask.

    >>> read_truth([[9, 9, 0, 9]]), read_truth([[9, 9, 0, 9]], labels=True)
    (array([[1, 1, 0, 2]]), array([[9, 9, 0, 9]]))
    """
    array = _with_pixels(truth, name)
    if labels or (labels is None and not _has_two_values(array)):
        return _as_labels(array, name)
    if not _has_two_values(array):
        values = np.unique(array)
        raise ValueError(
            f"{name} has {len(values)} values from {values[0]:g} to {values[-1]:g}, "
            "expected a two-valued mask: 0 for membrane, another value for the interior of cells"
        )
    return truth_cells(array != 0).reshape(array.shape)


def _with_pixels(values: ArrayLike, name: object) -> NDArray[Any]:
    array = np.asarray(values)
    if array.ndim not in (2, 3) or not array.size:
        raise ValueError(f"expected {name} to be a stack (Z, H, W) or an image (H, W), got shape {array.shape}")
    return array


def _has_two_values(array: NDArray[Any]) -> bool:
    """Whether it holds only 0 and at most one positive value."""
    mask: Mask = (array == 0) | (array == array.max())
    return bool(mask.all() and array.max() >= 0)


def _as_labels(array: NDArray[Any], name: object) -> NDArray[np.int64]:
    if array.min() < 0 or (array.dtype.kind == "f" and (array % 1 != 0).any()):
        raise ValueError(
            f"{name} does not hold labels: expected non-negative integers, got {array.min():g} … {array.max():g}"
        )
    return array.astype(np.int64)
