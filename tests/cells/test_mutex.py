"""The mutex watershed against a slow one, and what becomes of small pieces and membranes."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cells.drawings import Drawing, as_partition, disks, nested, same_cells, slow_mutex_watershed, true_affinities
from sfcnn.cells.affinities import Affinities, Pairs, pixel_pairs
from sfcnn.cells.mutex import MutexConfig, join_small, mutex_watershed

RAW = MutexConfig(bias=0, stride=1, minimum_size=1, membrane=2)


def listed(pairs: Pairs, stride: int = 1) -> list[tuple[float, int, int]]:
    """(affinity, pixel, pixel) of all pairs from rows and columns that are multiples of the stride."""
    shape = pairs.values.shape[1:]
    pixels = np.arange(shape[0] * shape[1]).reshape(shape)
    rows, columns = np.indices(pixels.shape)
    chosen = (rows % stride == 0) & (columns % stride == 0)
    found: list[tuple[float, int, int]] = []
    for here, there, values in pairs:
        taken = chosen[here]
        found += zip(values[taken].tolist(), pixels[here][taken].tolist(), pixels[there][taken].tolist(), strict=True)
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("bias", "stride"), [(0.0, 1), (0.25, 1), (0.25, 2), (0.0, 3)])
def test_clusters_are_those_of_kruskal_with_constraints(bias: float, stride: int, dtype: Any) -> None:
    counts = set()
    for seed in range(12):
        generator = np.random.default_rng(seed)
        shape, orientations = (int(generator.integers(2, 8)), int(generator.integers(2, 8))), (4, 8, 5)[seed % 3]
        maps: NDArray[Any] = generator.random((2, orientations, *shape)).astype(dtype)
        affinities = Affinities(maps, (1, 3))
        pairs = pixel_pairs(affinities)
        attractive = [(value - bias, u, v) for value, u, v in listed(pairs.part(short=True))]
        repulsive = [(1 - value, u, v) for value, u, v in listed(pairs.part(short=False), stride)]
        found = mutex_watershed(affinities, MutexConfig(bias, stride, minimum_size=1, membrane=2))
        assert as_partition(found) == set(slow_mutex_watershed(attractive, repulsive, found.size))
        assert np.array_equal(np.unique(found), np.arange(1, found.max() + 1))
        counts.add(int(found.max()))
    assert len(counts) > 3  # there is something to tell apart


@pytest.mark.parametrize("drawing", [disks, nested])
@pytest.mark.parametrize("stride", [1, 2, 4])
def test_drawn_cells_are_found(drawing: Drawing, stride: int) -> None:
    truth = drawing()
    affinities = true_affinities(truth)
    assert same_cells(mutex_watershed(affinities, MutexConfig(stride=stride)), truth)
    found = mutex_watershed(affinities, MutexConfig(stride=stride), truth > 0)
    assert same_cells(found, truth)
    assert np.array_equal(np.unique(found), np.unique(truth[truth > 0]))  # nothing is left of membranes


def test_pixels_out_of_the_mask_take_no_part_and_go_to_their_neighbours() -> None:
    affinities = Affinities(np.ones((2, 8, 6, 9), np.float32), (1, 3))
    wall = np.ones((6, 9), bool)
    wall[:, 4:6] = False
    assert (mutex_watershed(affinities) == 1).all()
    found = mutex_watershed(affinities, MutexConfig(minimum_size=6), wall)
    assert found.min() == 1
    assert same_cells(found, np.array([[1, 1, 1, 1, 0, 0, 2, 2, 2]] * 6))
    assert (mutex_watershed(affinities, mask=np.zeros((6, 9), bool)) == 1).all()


def test_small_pieces_join_the_strongest_neighbour_one_after_the_other() -> None:
    row = [0.9, 0.1, 0.3, 0.2, 0.8]  # 1 1 | 2 | 3 | 4 4: 2 goes with 3, and both with 4
    values = np.array([[[[*row, np.nan]], [[np.nan, *row]]]])
    pairs = pixel_pairs(Affinities(values, (1,)))
    labels = np.array([[1, 1, 2, 3, 4, 4]])
    assert join_small(labels, pairs, 1).tolist() == [[1, 1, 2, 3, 4, 4]]
    assert join_small(labels, pairs, 2).tolist() == [[1, 1, 2, 2, 2, 2]]
    assert join_small(labels, pairs, 3).tolist() == [[1, 1, 1, 1, 1, 1]]  # nothing is large


def test_joining_leaves_large_pieces_apart_and_no_small_ones() -> None:
    generator = np.random.default_rng(3)
    affinities = Affinities(generator.random((2, 8, 30, 33)), (1, 5))
    pieces = mutex_watershed(affinities, RAW)
    joined = mutex_watershed(affinities, MutexConfig(bias=0, stride=1, minimum_size=8))
    large = np.flatnonzero(np.bincount(pieces.ravel()) >= 8)
    assert 2 < len(large) == joined.max() < pieces.max()
    assert np.bincount(joined.ravel())[1:].min() >= 8
    assert len({int(joined[pieces == piece][0]) for piece in large}) == len(large)
    for piece in np.unique(pieces):
        assert len(np.unique(joined[pieces == piece])) == 1


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (6, 1), (12, 12)])
def test_one_cell_only_and_no_cell_at_all(shape: tuple[int, int]) -> None:
    for value in (0.0, 1.0):
        values = np.full((2, 8, *shape), value, np.float32)
        assert (mutex_watershed(Affinities(values, (1, 4))) == 1).all()
    if max(shape) > 6:  # every pixel is a cell of its own if no pair is in one
        found = mutex_watershed(Affinities(np.zeros((2, 4, *shape)), (1, 2)), RAW)
        assert found.max() > 1


def test_steps_that_do_not_join_neighbours_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must connect neighbouring pixels, got the offsets \[\[0, 2\]"):
        mutex_watershed(Affinities(np.ones((2, 8, 9, 9)), (2, 9)))
    with pytest.raises(ValueError, match="must connect neighbouring pixels"):
        mutex_watershed(Affinities(np.ones((1, 4, 1, 9)), (3,)))
    assert (mutex_watershed(Affinities(np.ones((2, 16, 9, 9)), (2, 3))) == 1).all()  # (0, 2), (−1, 2) and (−1, 1) do


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bias": 1.5}, r"bias must be in \[0, 1\], got 1.5"),
        ({"bias": np.nan}, "bias must be in"),
        ({"stride": 0}, "stride must be at least 1, got 0"),
        ({"minimum_size": 0}, "minimum_size must be at least 1, got 0"),
        ({"membrane": 0}, "membrane must be above 0, got 0"),
    ],
)
def test_settings_without_sense_are_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MutexConfig(**values)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"mask \(2, 2\) and affinities of an image \(3, 3\)"):
        mutex_watershed(Affinities(np.ones((1, 4, 3, 3)), (1,)), mask=np.ones((2, 2), bool))
