import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray

from sfcnn.cells.metrics import Labels, Mask
from sfcnn.cells.thinning import components, draw_borders, fill_borders, thin_borders

masks = arrays(np.bool_, array_shapes(min_dims=2, max_dims=2, max_side=12))


def neighbours(image: NDArray[np.int64]) -> NDArray[np.int64]:
    """The four neighbours of each pixel (4, H, W), −1 beyond the border."""
    padded = np.pad(image, 1, constant_values=-1)
    return np.stack([padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]])


def flood(interior: Mask) -> list[set[tuple[int, int]]]:
    """4-connected components by following neighbours."""
    left = {(int(row), int(column)) for row, column in np.argwhere(interior)}
    found = []
    while left:
        part, front = set[tuple[int, int]](), {left.pop()}
        while front:
            part |= front
            front = {(r + i, c + j) for r, c in front for i, j in ((0, 1), (1, 0), (0, -1), (-1, 0))} & left
            left -= front
        found.append(part)
    return found


def parts(labels: Labels) -> set[frozenset[tuple[int, int]]]:
    """The pixels of each label above 0."""
    names = range(1, int(labels.max()) + 1)
    return {frozenset((int(r), int(c)) for r, c in np.argwhere(labels == name)) for name in names}


@given(masks)
def test_components_are_4_connected(interior: Mask) -> None:
    labels = components(interior)
    assert labels.dtype == np.int64
    assert parts(labels) == {frozenset(part) for part in flood(interior)}
    assert np.array_equal(labels > 0, interior)


@given(masks)
def test_components_grow_to_lines_of_one_pixel(interior: Mask) -> None:
    before, after = components(interior), thin_borders(interior)
    if not interior.any():
        return
    assert np.array_equal(after[interior], before[interior])  # every basin keeps its pixels: dams lie on membrane
    assert set(np.unique(after)) - {0} == set(np.unique(before)) - {0}
    assert len(flood(after > 0)) == before.max()  # and every label is in one piece
    around = neighbours(after)
    labelled = around > 0
    assert (~labelled | (around == after))[:, after > 0].all()  # different labels do not touch
    # A pixel of a dam touches different labels, or none since dams surround it.
    largest = around.max(axis=0)
    different = (labelled & (around != largest)).any(axis=0)
    assert (different | ~labelled.any(axis=0))[after == 0].all()


@given(masks)
def test_thinning_again_changes_nothing(interior: Mask) -> None:
    once = thin_borders(interior)
    assert np.array_equal(thin_borders(once > 0) > 0, once > 0)


@given(masks, st.integers(1, 4))
def test_a_single_cell_fills_the_image(interior: Mask, side: int) -> None:
    """Without a second cell there is nothing to part from; flooding a flat image finds a single basin too."""
    interior[:] = False
    assert (thin_borders(interior) == 1).all()
    interior[:side, :side] = True
    assert (thin_borders(interior) == 1).all()


@pytest.mark.parametrize("gap", range(1, 7))
@pytest.mark.parametrize("turned", [False, True])
def test_basins_meet_in_the_middle(gap: int, turned: bool) -> None:
    interior = np.ones((9, 4 + gap), bool)
    interior[:, 2:-2] = False
    labels = thin_borders(interior.T).T if turned else thin_borders(interior)
    row, dam = np.nonzero(labels == 0)
    assert row.tolist() == list(range(9))  # one pixel wide
    assert np.abs(dam - (3 + gap) / 2).max() == (0 if gap % 2 else 0.5)


def test_corners_do_not_connect() -> None:
    interior = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]], bool)
    assert components(interior).max() == 2
    assert thin_borders(interior).max() == 2


@given(masks)
def test_filling_leaves_no_dams_and_changes_no_label(interior: Mask) -> None:
    labels = thin_borders(interior) * 7
    filled = fill_borders(labels)
    assert (filled > 0).all()
    assert np.array_equal(filled[labels > 0], labels[labels > 0])


def test_nothing_can_fill_an_image_without_labels() -> None:
    assert not fill_borders(np.zeros((3, 4), int)).any()


@pytest.mark.parametrize("function", [components, thin_borders])
def test_mistakes_are_named(function: type[int]) -> None:
    with pytest.raises(ValueError, match=r"must be an image \(H, W\), got shape \(2, 3, 4\)"):
        function(np.ones((2, 3, 4), bool))
    with pytest.raises(ValueError, match=r"got shape \(0, 4\)"):
        function(np.ones((0, 4), bool))
    with pytest.raises(ValueError, match="must be a boolean mask, got float64: compare it with a threshold"):
        function(np.ones((3, 4)))


stacks = arrays(np.int64, array_shapes(min_dims=2, max_dims=3, max_side=8), elements=st.integers(0, 4))


@given(stacks)
def test_borders_part_cells_by_as_few_pixels_as_one_of_two(labels: Labels) -> None:
    interior = draw_borders(labels)
    slices = (labels, interior) if labels.ndim == 3 else (labels[None], interior[None])
    for cells, inside in zip(*slices, strict=True):
        cut = neighbours(np.where(inside, cells, 0))
        assert not ((cut > 0) & (cut != cells) & inside).any()  # no two cells touch
        around = neighbours(cells)
        assert np.array_equal(inside, (cells > 0) & ~((around > 0) & (around < cells)).any(axis=0))
        assert np.array_equal(draw_borders(np.rot90(cells)), np.rot90(inside))


def test_thin_borders_find_the_cells_again() -> None:
    labels = np.repeat([[1, 2], [3, 4]], 6, axis=1).repeat(5, axis=0)
    thin = thin_borders(draw_borders(labels))
    inside = thin > 0
    assert len(np.unique(np.stack([thin, labels])[:, inside], axis=1).T) == 4
    assert inside.mean() > 0.8
