"""Cells are linked through slices one to one, by the overlap that is best for both."""

import numpy as np
import pytest
from numpy.typing import NDArray

from sfcnn.cells.linking import describe_agreement, link_slices, link_stack, number_cells
from sfcnn.cells.metrics import v_rand

RANDOM = np.random.default_rng(0)


def random_slices(count: int = 2, cells: int = 9) -> list[NDArray[np.int64]]:
    """Blocks of cells with noise, with some pixels of no cell."""
    blocks = np.kron(np.arange(1, cells + 1).reshape(3, 3), np.ones((8, 8), np.int64))
    noise = RANDOM.integers(0, cells + 1, (count, *blocks.shape))
    return list(np.where(RANDOM.random(noise.shape) < 0.2, noise, blocks))


def by_hand(before: NDArray[np.int64], after: NDArray[np.int64], least: float) -> set[tuple[int, int]]:
    """The definition, pair by pair."""
    names = [[int(name) for name in np.unique(labels) if name] for labels in (before, after)]
    iou = {
        (i, j): np.sum((before == i) & (after == j)) / np.sum((before == i) | (after == j))
        for i in names[0]
        for j in names[1]
    }
    return {
        (i, j)
        for (i, j), value in iou.items()
        if value >= least
        and value > 0
        and value == max(iou[i, other] for other in names[1])
        and value == max(iou[other, j] for other in names[0])
    }


@pytest.mark.parametrize("least", [0.01, 0.3, 0.6])
def test_links_are_those_of_the_definition(least: float) -> None:
    for _ in range(5):
        before, after = random_slices()
        links = link_slices(before, after, least)
        assert set(zip(links.before.tolist(), links.after.tolist(), strict=True)) == by_hand(before, after, least)
        assert len(set(links.before)) == len(set(links.after)) == len(links.before)


def test_links_do_not_depend_on_names_and_go_both_ways() -> None:
    before, after = random_slices()
    names = np.concatenate([[0], RANDOM.permutation(100)[:9] + 1])
    links, back, renamed = link_slices(before, after), link_slices(after, before), link_slices(before, names[after])
    pairs = set(zip(links.before, links.after, strict=True))
    assert len(pairs) > 3
    assert {(j, i) for i, j in zip(back.before, back.after, strict=True)} == pairs
    assert set(zip(renamed.before, renamed.after, strict=True)) == {(i, names[j]) for i, j in pairs}
    for name in ("same", "linked", "iou", "v_rand"):
        assert getattr(renamed.agreement, name) == pytest.approx(getattr(links.agreement, name))
    assert links.agreement.v_rand == v_rand(after, before)


def test_a_cell_that_divides_goes_on_in_its_larger_part() -> None:
    stack, agreement = link_stack(np.array([[[1, 1, 1, 1, 1, 2]], [[3, 3, 3, 4, 4, 5]], [[1, 1, 1, 2, 2, 3]]]))
    assert stack.tolist() == [[[1, 1, 1, 1, 1, 2]], [[1, 1, 1, 3, 3, 2]], [[1, 1, 1, 3, 3, 2]]]
    assert [pair.same for pair in agreement] == [4 / 6, 1]
    assert agreement[0].linked == 4 / 5
    assert agreement[0].iou == pytest.approx(0.8)
    assert "z = 0 and 1, with 66.7 % of pixels" in describe_agreement(dict(enumerate(agreement)))


def test_without_links_cells_are_numbered_slice_by_slice() -> None:
    tables = list(number_cells([2, 0, 3], [None, None]))
    assert [table.tolist() for table in tables] == [[0, 1, 2], [0], [0, 3, 4, 5]]


def test_empty_slices_link_nothing() -> None:
    empty, cell = np.zeros((2, 2), np.int64), np.ones((2, 2), np.int64)
    assert link_slices(empty, empty).agreement.same == 1
    for pair in ((empty, cell), (cell, empty)):
        links = link_slices(*pair)
        assert len(links.before) == 0
        assert links.agreement.same == links.agreement.linked == 0
    for least in (0.0, 1.1, float("nan")):
        with pytest.raises(ValueError, match="the minimum overlap of linked cells must be in"):
            link_slices(cell, cell, least)
