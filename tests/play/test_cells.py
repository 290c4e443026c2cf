"""Cells of turned images: turning and turning back, what is compared, and uploads."""

import numpy as np
import pytest
from numpy.typing import NDArray

from sfcnn.cells.apply import Segmentation
from sfcnn.play.cells import Turned, compare, pictures, sample, seen_twice, turn_back, turn_image, words
from sfcnn.play.networks import get_segmenter, plain_counterpart
from sfcnn.segmentation import synthetic_membranes


def blobs(side: int = 96) -> NDArray[np.float32]:
    return synthetic_membranes(1, side, seed=2, cell=32).images[0].numpy()


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_quarter_turns_are_exact(turns: int) -> None:
    image = blobs()
    np.testing.assert_array_equal(turn_image(image, 90 * turns), np.rot90(image, turns))
    found = Segmentation(np.rot90(image, turns).copy(), np.rot90(np.arange(96 * 96).reshape(96, 96), turns).copy())
    back = turn_back(found, 90 * turns)
    np.testing.assert_array_equal(back.probabilities, image)
    np.testing.assert_array_equal(back.labels, np.arange(96 * 96).reshape(96, 96))
    assert seen_twice(96, 90 * turns).all()


def test_other_angles_come_back_inside_the_disk() -> None:
    side = 128
    rows, columns = np.mgrid[:side, :side]
    smooth = (0.5 + 0.4 * np.sin(rows / 9) * np.cos(columns / 11)).astype(np.float32)
    halves = (columns >= side // 2).astype(np.int64) + 1
    turned = turn_image(smooth, 30)
    assert turned.min() > 0.05  # the mirror image comes in, not black corners
    back = turn_back(Segmentation(turned, halves), 30)
    inside = seen_twice(side, 30)
    assert 0.7 < inside.mean() < np.pi / 4
    assert np.abs(back.probabilities - smooth)[inside].max() < 0.02
    # A vertical border, found in the turned image, is turned clockwise by 30°.
    x, y = columns - (side - 1) / 2, (side - 1) / 2 - rows
    right = x * np.cos(np.pi / 6) - y * np.sin(np.pi / 6) > 0
    assert ((back.labels == 2) == right)[inside].mean() > 0.99
    assert set(np.unique(back.labels[inside])) == {1, 2}


def test_a_quarter_turn_changes_neither_membranes_nor_cells() -> None:
    said: list[tuple[float, str]] = []
    image = blobs()
    found = compare(get_segmenter("isbi2012", "cpu"), image, 90, lambda done, what: said.append((done, what)))
    assert found.membranes_changed == 0
    assert found.cells_kept == 1
    assert found.upright.labels.max() > 2
    assert [done for done, _ in said] == sorted(done for done, _ in said)
    assert "0.00% of the pixels" in words("isbi2012", 90, found)
    membranes, cells, differences = pictures(image, found)
    assert membranes.shape == (96, 96)
    assert cells.shape == differences.shape == (96, 96, 3)
    # Yellow borders of the upright cells cover the others, and nothing is tinted.
    colored = {tuple(color) for color in differences[np.ptp(differences.astype(int), axis=-1) > 0].tolist()}
    assert colored == {(240, 228, 66)}


def test_differences_are_counted() -> None:
    probabilities = np.zeros((8, 8), np.float32)
    probabilities[:, 4] = 0.9
    halves = np.repeat([[1] * 4 + [2] * 4], 8, axis=0)
    same = Segmentation(probabilities, halves)
    everywhere = np.ones((8, 8), np.bool_)
    merged = Segmentation(np.zeros_like(probabilities), np.ones_like(halves))
    found = Turned(same, merged, everywhere)
    assert found.membranes_changed == 1 / 8
    assert found.cells_kept == pytest.approx(2 / 3)  # precision ½, recall 1
    left = everywhere.copy()
    left[:, 4:] = False
    assert Turned(same, merged, left).cells_kept == 1


def test_the_sample_is_a_square_that_says_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SFCNN_DATA", raising=False)
    sample.cache_clear()
    image, notes = sample()
    sample.cache_clear()
    assert image.shape == (256, 256)
    assert "Synthetic" in notes[0]


def test_only_networks_of_the_right_kind_are_taken() -> None:
    with pytest.raises(ValueError, match="mnist-rot classifies images, expected a network that segments"):
        get_segmenter("mnist-rot", "cpu")
    assert plain_counterpart("mnist-rot") == "mnist-rot-plain"
    assert plain_counterpart("nothing") == ""
