import json
import os
from math import fsum
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sfcnn.cells.metrics import Labels, Mask, f1, pixel_error, v_info, v_rand
from sfcnn.cells.reading import read_truth
from sfcnn.cells.scoring import THRESHOLDS, score_labels, score_probabilities, truth_cells
from sfcnn.cells.thinning import thin_borders
from sfcnn.io.stacks import read_stack
from sfcnn.segmentation.synthetic import synthetic_membranes

SLICES = 4


@pytest.fixture(scope="module")
def interior() -> Mask:
    """Synthetic cells (Z, H, W)."""
    return ~synthetic_membranes(SLICES, 48, seed=3, cell=14).membranes.numpy()


@pytest.fixture(scope="module")
def probabilities(interior: Mask) -> np.ndarray:
    """Noisy probabilities of interior, some exactly 0 and 1."""
    noise = np.random.default_rng(0).normal(0, 0.35, interior.shape)
    return (interior + noise).clip(0, 1).astype(np.float32)


def test_truth_against_itself_is_one(interior: Mask) -> None:
    truth = truth_cells(interior)
    assert truth.max() > 5
    for scores in (score_labels(truth, truth), score_probabilities(interior, truth, (0.0,))):
        assert scores.v_rand.slices == scores.v_info.slices == (1.0,) * SLICES
        assert scores.v_rand.best == scores.v_info.best == 1
    assert scores.f1 is not None
    assert scores.pixel_error is not None
    assert (scores.f1.best, scores.pixel_error.best) == (1, 0)


def test_every_number_is_the_score_of_a_slice(interior: Mask, probabilities: np.ndarray) -> None:
    truth = truth_cells(interior)
    scores = score_probabilities(probabilities, truth)
    assert scores.f1 is not None
    assert scores.pixel_error is not None
    kinds = {
        scores.v_rand: (max, lambda mask, cells: v_rand(thin_borders(mask), cells)),
        scores.v_info: (max, lambda mask, cells: v_info(thin_borders(mask), cells)),
        scores.f1: (max, lambda mask, cells: f1(~mask, cells == 0)),
        scores.pixel_error: (min, lambda mask, cells: pixel_error(mask, cells > 0)),
    }
    for found, (choose, score) in kinds.items():
        values = [
            [score(part > np.float64(t), cells) for part, cells in zip(probabilities, truth, strict=True)]
            for t in THRESHOLDS
        ]
        means = [fsum(row) / SLICES for row in values]
        best = means.index(choose(means))
        assert found.means == tuple(means)
        assert (found.best, found.threshold) == (means[best], THRESHOLDS[best])
        assert found.slices == tuple(values[best])
    assert len({found.threshold for found in kinds}) > 1  # each chooses its own threshold


def test_parts_belong_to_the_best_threshold(interior: Mask, probabilities: np.ndarray) -> None:
    scores = score_probabilities(probabilities, truth_cells(interior))
    for cells in (scores.v_rand, scores.v_info):
        for score, precision, recall in zip(cells.slices, cells.precision, cells.recall, strict=True):
            assert score == pytest.approx(2 * precision * recall / (precision + recall), abs=1e-12)


def test_thresholds_are_those_of_the_challenge() -> None:
    assert len(THRESHOLDS) == 11
    assert np.allclose(THRESHOLDS, np.linspace(0, 1, 11), rtol=0, atol=1e-15)
    assert THRESHOLDS[3] == 0.1 + 0.1 + 0.1 != 0.3
    assert THRESHOLDS[-1] < 1  # pixels of exactly 1 are interior at every threshold


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_are_compared_in_double_precision(dtype: type[np.floating]) -> None:
    """0.1 in float32 is above 0.1; were the threshold rounded to float32 too, it would not be."""
    truth = np.array([[1, 0, 2]])
    interior = np.array([[1, 0.1, 1]], dtype)
    merged = score_probabilities(interior, truth, (0.1,)).v_rand.best < 1
    assert merged == (dtype == np.float32)


def test_the_first_of_equal_thresholds_is_taken() -> None:
    truth = np.array([[1, 0, 2]])
    scores = score_probabilities(np.array([[1, 0.45, 0.95]]), truth)
    assert scores.v_rand.threshold == THRESHOLDS[5]
    assert scores.v_rand.means.count(1.0) == 5


@given(arrays(np.int64, (3, 4, 5), elements=st.integers(0, 4)), st.permutations(range(3)))
def test_the_order_of_slices_does_not_matter(labels: Labels, order: list[int]) -> None:
    truth = labels[:, ::-1].copy()
    truth[:, 0, 0] = 1
    there, back = score_labels(labels, truth), score_labels(labels[order], truth[order])
    assert back.v_rand.best == there.v_rand.best
    assert back.v_info.best == there.v_info.best
    assert back.v_rand.slices == tuple(there.v_rand.slices[z] for z in order)
    assert back.v_info.recall == tuple(there.v_info.recall[z] for z in order)


def test_labels_are_taken_as_they_are() -> None:
    """A thick membrane in a label image is not thinned: each of its pixels in a cell is a segment of its own."""
    truth = np.array([[[1, 1, 1, 1, 2, 2]]])
    labels = np.array([[[1, 1, 0, 0, 2, 2]]])
    scores = score_labels(labels, truth)
    assert scores.v_rand.best == v_rand(labels[0], truth[0]) < 1
    assert scores.thresholds == ()
    assert (scores.f1, scores.pixel_error, scores.v_rand.threshold) == (None, None, None)


def test_one_image_is_a_stack_of_one(interior: Mask, probabilities: np.ndarray) -> None:
    truth = truth_cells(interior[0])
    assert truth.shape == (1, 48, 48)
    assert score_probabilities(probabilities[0], truth[0]) == score_probabilities(probabilities[:1], truth)


def test_scores_become_json(interior: Mask, probabilities: np.ndarray) -> None:
    truth = truth_cells(interior)
    scores = score_probabilities(probabilities, truth)
    values = json.loads(json.dumps(scores.as_json(), allow_nan=False))
    assert values["v_info"]["slices"] == list(scores.v_info.slices)
    assert values["thresholds"] == list(THRESHOLDS)
    assert json.loads(json.dumps(score_labels(truth, truth).as_json()))["f1"] is None


def test_progress_is_told(interior: Mask) -> None:
    told: list[float] = []
    score_probabilities(interior, truth_cells(interior), (0.0,), told.append)
    assert told == [0.25, 0.5, 0.75, 1.0]


def test_mistakes_are_named() -> None:
    cells = np.ones((2, 3, 4), int)
    good = np.full((2, 3, 4), 0.5)
    with pytest.raises(ValueError, match=r"prediction \(2, 4, 3\) and truth \(2, 3, 4\) must have the same shape"):
        score_probabilities(good.reshape(2, 4, 3), cells)
    for bad in (1.5, -0.1, np.nan):
        with pytest.raises(ValueError, match=r"probabilities must be in 0 … 1, got"):
            score_probabilities(np.where(np.arange(4) == 2, bad, good), cells)
    with pytest.raises(ValueError, match="at least one threshold"):
        score_probabilities(good, cells, ())
    empty = cells.copy()
    empty[1] = 0
    with pytest.raises(ValueError, match="slice 2 of the truth has no foreground"):
        score_labels(cells, empty)
    with pytest.raises(ValueError, match=r"expected a stack \(Z, H, W\) or an image \(H, W\), got shape \(3,\)"):
        score_labels(np.ones(3, int), cells)


@pytest.mark.skipif("SFCNN_DATA" not in os.environ, reason="SFCNN_DATA is not set")
def test_the_true_labels_of_the_challenge_against_themselves() -> None:
    path = Path(os.environ["SFCNN_DATA"]) / "isbi2012" / "train-labels.tif"
    interior = read_truth(read_stack(path)[:3], name=path) > 0
    scores = score_probabilities(interior, truth_cells(interior), (0.0,))
    assert scores.v_rand.slices == scores.v_info.slices == (1.0,) * 3  # dams lie on the true membrane
