"""What numbers mean is decided by the numbers, or said; scores are those of what was read."""

from typing import Any

import numpy as np
import pytest

from sfcnn.cells import find_cells, score, truth_cells
from sfcnn.cells.reading import KINDS, read_prediction, read_truth
from sfcnn.cells.scoring import THRESHOLDS, score_labels, score_probabilities
from sfcnn.segmentation.synthetic import synthetic_membranes


@pytest.fixture(scope="module")
def membrane() -> np.ndarray:
    """Noisy probabilities of synthetic membranes (Z, H, W)."""
    noise = np.random.default_rng(0).normal(0, 0.4, (3, 40, 40))
    return (truth() + noise).clip(0, 1).astype(np.float32)


def truth() -> np.ndarray:
    """Where there is membrane (Z, H, W)."""
    return synthetic_membranes(3, 40, seed=1, cell=13).membranes.numpy()


@pytest.mark.parametrize(
    ("values", "kind", "meaning", "read"),
    [
        ([0, 255], None, "a mask that is 255 inside cells", [False, True]),
        ([0, 255], "interior", "a mask that is 255 inside cells", [False, True]),
        ([0, 255], "membrane", "a mask that is 255 on membranes", [True, False]),
        ([False, True], None, "a mask that is 1 inside cells", [False, True]),
        ([0.0, 1.0], None, "a mask that is 1 inside cells", [False, True]),
        ([0, 0], None, "a mask that is 0 inside cells", [False, False]),
        ([0, 5], "labels", "labels", [0, 5]),
        ([0, 1, 2], None, "labels", [0, 1, 2]),
        ([0.0, 3.0], "labels", "labels", [0, 3]),
        ([0.25, 1.0], None, "probabilities of membrane, values from 0.25 to 1", [0.75, 0.0]),
        ([0.25, 1.0], "membrane", "probabilities of membrane, values from 0.25 to 1", [0.75, 0.0]),
        ([0.25, 1.0], "interior", "probabilities of the interior of cells, values from 0.25 to 1", [0.25, 1.0]),
        (np.array([51, 255], np.uint8), None, "probabilities of membrane, values from 51 to 255", [0.8, 0.0]),
        (np.array([13107, 65535], np.uint16), "interior", "probabilities of the interior of cells, values", [0.2, 1.0]),
    ],
)
def test_what_numbers_mean(values: Any, kind: str | None, meaning: str, read: list[float]) -> None:
    found = read_prediction(np.array([values]), kind)
    assert found.meaning.startswith(meaning)
    assert found.values.dtype in (np.bool_, np.int64, np.float32)
    assert found.values.dtype.kind == np.array(read).dtype.kind
    np.testing.assert_allclose(found.values[0], read, rtol=1e-6)


def test_scores_are_those_of_what_was_read(membrane: np.ndarray) -> None:
    cells = truth_cells(~truth())
    labels = find_cells(membrane)
    assert score(labels, cells) == score_labels(labels, cells)
    assert score(membrane, cells) == score_probabilities(1 - membrane, cells, THRESHOLDS)
    assert score(1 - membrane, cells, "interior") == score_probabilities(1 - membrane, cells, THRESHOLDS)
    assert score(membrane < 0.5, cells) == score_probabilities(membrane < 0.5, cells, (0.0,))
    assert score(membrane < 0.5, cells) == score(membrane >= 0.5, cells, "membrane")


def test_the_truth_is_a_mask_or_labels(membrane: np.ndarray) -> None:
    cells = truth_cells(~truth())
    for mask in (~truth(), np.where(truth(), 0, 255).astype(np.uint8), cells):
        assert score(membrane, mask) == score(membrane, cells, truth_labels=True)
    assert np.array_equal(read_truth(~truth()[0]), cells[0])
    merged = np.where(truth(), 0, 1)  # one label for all cells
    assert score(cells, merged, truth_labels=True).v_rand.best < score(cells, merged).v_rand.best == 1


def test_progress_is_reported_by_slices(membrane: np.ndarray) -> None:
    done: list[float] = []
    score(membrane, ~truth(), report=done.append)
    assert done == pytest.approx([1 / 3, 2 / 3, 1])


def test_mistakes_are_named() -> None:
    image = np.array([[0.0, 0.5, 1.0]])
    with pytest.raises(ValueError, match=rf"unknown kind 'probability', choose one of \['{KINDS[0]}', .* or None"):
        read_prediction(image, "probability")
    with pytest.raises(ValueError, match=r"^my\.tif has values from 0 to 2, expected 0 … 1$"):
        read_prediction(2 * image, name="my.tif")
    with pytest.raises(ValueError, match=r"^my\.tif does not hold labels: expected non-negative integers, got 0 … 1$"):
        read_prediction(image, "labels", "my.tif")
    with pytest.raises(ValueError, match="the truth does not hold labels"):
        score(image, [[-1, 0, 2]])
    with pytest.raises(ValueError, match=r"the truth has 3 values from 0 to 1, expected a two-valued mask"):
        read_truth(image, labels=False)
    for empty in (np.zeros((0, 3)), np.zeros(3)):
        with pytest.raises(ValueError, match=r"expected the prediction to be a stack \(Z, H, W\) or an image"):
            read_prediction(empty)
