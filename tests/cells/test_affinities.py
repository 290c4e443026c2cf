"""Each pair is there once, whichever direction speaks of it, and regions have the means of the pairs between them."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cells.drawings import disks, true_affinities
from sfcnn.cells.affinities import Affinities, pixel_pairs, region_affinities
from sfcnn.cells.superpixels import turn
from sfcnn.segmentation.offsets import oriented_offsets


@pytest.mark.parametrize("orientations", [2, 5, 8, 16, 17])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_pair_is_the_mean_of_all_that_speak_of_it(orientations: int, dtype: Any) -> None:
    radii, (height, width) = (1.0, 2.0, 5.0), (9, 4)  # the longest steps leave an image as narrow as this
    values: NDArray[Any] = np.random.default_rng(0).random((3, orientations, height, width)).astype(dtype)
    offsets = oriented_offsets(radii, orientations)
    spoken: dict[frozenset[tuple[int, int]], list[float]] = {}
    for d, a, row, column in np.ndindex(values.shape):
        other = (row + int(offsets[d, a, 0]), column + int(offsets[d, a, 1]))
        if 0 <= other[0] < height and 0 <= other[1] < width:
            spoken.setdefault(frozenset([(row, column), other]), []).append(float(values[d, a, row, column]))
        else:
            values[d, a, row, column] = np.nan  # whatever is here is ignored
    pairs = pixel_pairs(Affinities(values, radii))
    assert pairs.values.dtype == np.float32
    found = {}
    for (row_step, column_step), (here, there, affinity) in zip(pairs.offsets.tolist(), pairs, strict=True):
        assert row_step < 0 or (row_step == 0 and column_step > 0)
        rows, columns = np.mgrid[:height, :width]
        ends = zip(
            rows[here].flat, columns[here].flat, rows[there].flat, columns[there].flat, affinity.flat, strict=True
        )
        for row, column, other_row, other_column, value in ends:
            key = frozenset([(int(row), int(column)), (int(other_row), int(other_column))])
            assert key not in found
            found[key] = float(value)
    assert found.keys() == spoken.keys()
    for key, said in spoken.items():
        assert found[key] == pytest.approx(np.mean(said), abs=1e-6)
    short = {(abs(row), abs(column)) for row, column in pairs.offsets[: pairs.short].tolist()}
    assert short == {(abs(row), abs(column)) for row, column in offsets[0].tolist()}


def test_true_affinities_are_the_same_from_both_ends_and_turn_with_the_drawing() -> None:
    labels = disks(32)[:, :25]
    affinities = true_affinities(labels)
    pairs = pixel_pairs(affinities)
    assert set(np.unique(pairs.values)) == {0, 1}  # two ends that differ would make ½
    for turns in range(4):
        np.testing.assert_array_equal(affinities.turned(turns).values, true_affinities(turn(labels, turns)).values)
    assert np.array_equal(affinities.turned(1).turned(3).values, affinities.values, equal_nan=True)


def test_regions_have_the_means_of_the_pairs_between_them() -> None:
    generator = np.random.default_rng(1)
    labels = generator.integers(0, 6, (11, 7))
    pairs = pixel_pairs(Affinities(generator.random((2, 8, 11, 7)), (1, 4)))
    for part in (pairs, pairs.part(short=True), pairs.part(short=False)):
        expected: dict[tuple[int, int], list[float]] = {}
        for (row_step, column_step), values in zip(part.offsets.tolist(), part.values, strict=True):
            for row, column in np.ndindex(labels.shape):
                other = row + row_step, column + column_step
                if not (0 <= other[0] < 11 and 0 <= other[1] < 7):
                    continue
                u, v = sorted((int(labels[row, column]), int(labels[other])))
                if 0 < u < v:
                    expected.setdefault((u - 1, v - 1), []).append(float(values[row, column]))
        edges, means, numbers = region_affinities(labels, part)
        assert [tuple(edge) for edge in edges.tolist()] == sorted(expected)
        np.testing.assert_allclose(means, [np.mean(expected[key]) for key in sorted(expected)])
        assert numbers.tolist() == [len(expected[key]) for key in sorted(expected)]


def test_regions_without_pairs_between_them_have_no_edges() -> None:
    pairs = pixel_pairs(Affinities(np.zeros((1, 4, 3, 3)), (1,)))
    edges, means, numbers = region_affinities(np.ones((3, 3), np.int64), pairs)
    assert edges.shape == (0, 2)
    assert len(means) == len(numbers) == 0
    edges, means, numbers = region_affinities(np.array([[1, 1, 2]] * 3), pairs)
    assert (edges.tolist(), means.tolist(), numbers.tolist()) == ([[0, 1]], [0.0], [3])


@pytest.mark.parametrize(
    ("shape", "radii", "message"),
    [
        ((8, 5, 5), (1,), r"shape \(D, Λ, H, W\) or \(Z, D, Λ, H, W\), got float64 \(8, 5, 5\)"),
        ((2, 8, 5, 5), (1, 3, 9), r"are for 2 radii, got 3: \(1, 3, 9\)"),
        ((2, 8, 5, 5), (3, 1), "radii must increase"),
        ((1, 8, 5, 5), (0.2,), "radii must be at least 1 pixel, got 0.2"),
        ((1, 1, 5, 5), (1,), "orientations must be at least 2, got 1"),
        ((1, 8, 0, 5), (1,), r"got float64 \(1, 8, 0, 5\)"),
    ],
)
def test_wrong_shapes_and_radii_are_refused(shape: tuple[int, ...], radii: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Affinities(np.zeros(shape), radii)


def test_what_is_no_probability_is_refused_inside_of_the_image_only() -> None:
    with pytest.raises(ValueError, match=r"got uint8 \(1, 4, 3, 3\)"):
        Affinities(np.zeros((1, 4, 3, 3), np.uint8), (1,))
    values = np.zeros((1, 4, 3, 3))
    values[0, 0, :, 2] = 7  # to the right of the last column
    assert pixel_pairs(Affinities(values, (1,))).values.max() == 0
    for wrong in (1.5, -0.1, np.nan):
        values[0, 1, 2, 1] = wrong
        with pytest.raises(ValueError, match=r"expected affinities in \[0, 1\]"):
            pixel_pairs(Affinities(values, (1,)))
    with pytest.raises(ValueError, match="quarter turns need Λ divisible by 4, got 6"):
        Affinities(np.zeros((1, 6, 3, 3)), (1,)).turned(1)
    with pytest.raises(ValueError, match=r"of one slice \(D, Λ, H, W\), got \(2, 1, 4, 3, 3\)"):
        pixel_pairs(Affinities(np.zeros((2, 1, 4, 3, 3)), (1,)))
