"""Link cells across slices: each cell of a slice is linked to the cell of the next slice that it overlaps most.

Cell i of a slice has a_i pixels, cell j of the next one b_j, and c_ij pixels are in both. The two are linked if each
is the other's best match by

IoU_ij = c_ij / (a_i + b_j − c_ij)

and the IoU reaches a threshold. Links are one to one, so cells form chains across slices; a cell that divides continues
in the part with the larger IoU. Only two slices are needed at a time, regardless of the length of the stack.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfcnn.cells.metrics import Labels, overlaps, rand_agreement

#: Default minimum IoU for linking cells of neighbouring slices.
LEAST_OVERLAP = 0.3

_MOST_CELLS = 2**32 - 1


@dataclass(frozen=True)
class SliceAgreement:
    """How well a slice and the next one agree, from 0 to 1; 1 if they have the same cells."""

    same: float  #: fraction of pixels that stay in the same cell in the next slice
    linked: float  #: fraction of the cells of both slices that are linked
    iou: float  #: mean IoU of the links
    v_rand: float  #: V_rand of the two slices, regardless of links (see `sfcnn.cells.metrics`)


@dataclass(frozen=True)
class Links:
    """Cells of a slice that continue in the next one."""

    before: NDArray[np.int64]  #: (M,) cells of the slice, ascending
    after: NDArray[np.int64]  #: (M,) the cell of the next slice that each is linked to
    agreement: SliceAgreement


def check_overlap(least: float) -> None:
    """Raise unless `least` is a valid IoU threshold."""
    if not 0 < least <= 1:
        raise ValueError(f"the minimum overlap of linked cells must be in (0, 1], got {least}")


def link_slices(before: Labels, after: Labels, least: float = LEAST_OVERLAP) -> Links:
    """Link the cells of a slice (H, W) to those of the next one; labels start at 1, 0 is no cell.

    >>> links = link_slices(np.array([[1, 1, 1, 2]]), np.array([[4, 4, 3, 3]]))
    >>> links.before, links.after, links.agreement.same  # IoU of 1 and 4 is ⅔, of 2 and 3 is ½
    (array([1, 2]), array([4, 3]), 0.75)
    """
    check_overlap(least)
    if not before.any():
        empty = np.empty(0, np.int64)
        agree = float(not after.any())
        return Links(empty, empty, SliceAgreement(agree, agree, agree, agree))
    table = overlaps(after, before)
    agreement = rand_agreement(table)
    shared = table.segments > 0
    i, j, counts = table.cells[shared], table.segments[shared], table.counts[shared]
    sizes = [np.bincount(labels.ravel().astype(np.int64)) for labels in (before, after)]
    iou = counts / (sizes[0][i] + sizes[1][j] - counts)
    best = _first(i, np.lexsort((j, -iou))) & _first(j, np.lexsort((i, -iou))) & (iou >= least)
    cells = sum(int(np.count_nonzero(size[1:])) for size in sizes)
    links = int(best.sum())
    return Links(
        i[best],
        j[best],
        SliceAgreement(
            same=float(counts[best].sum() / before.size),
            linked=2 * links / cells,
            iou=float(iou[best].mean()) if links else 0.0,
            v_rand=agreement.score,
        ),
    )


def _first(names: NDArray[np.int64], order: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Which entries come first in `order` among those of the same name."""
    _, places = np.unique(names[order], return_index=True)
    chosen = np.zeros(len(names), np.bool_)
    chosen[order[places]] = True
    return chosen


def number_cells(counts: Sequence[int], links: Iterable[Links | None]) -> Iterator[NDArray[np.uint32]]:
    """Yield, for each slice, the numbers (n + 1,) in the stack of its cells 0, 1 … n: a cell takes the number of the
    cell it continues, or else the next free one; 0 stays 0.

    Args:
        counts: n, the largest label of each slice.
        links: from each slice to the next, one fewer than `counts`; None links nothing.

    >>> before, after = np.array([[1, 1, 2]]), np.array([[2, 2, 1]])
    >>> [table.tolist() for table in number_cells([2, 2], [link_slices(before, after)])]
    [[0, 1, 2], [0, 2, 1]]
    """
    last, table = 0, np.zeros(1, np.uint32)
    pairs = iter(links)
    for index, count in enumerate(counts):
        pair = next(pairs) if index else None
        new = np.zeros(count + 1, np.uint32)
        if pair is not None:
            new[pair.after] = table[pair.before]
        free = np.flatnonzero(new[1:] == 0) + 1
        if last + len(free) > _MOST_CELLS:
            raise ValueError(f"slices 1 to {index + 1} have more than {_MOST_CELLS} cells, the most that are supported")
        new[free] = np.arange(last + 1, last + 1 + len(free), dtype=np.uint32)
        last, table = last + len(free), new
        yield table


def link_stack(
    labels: NDArray[np.integer[Any]], least: float = LEAST_OVERLAP
) -> tuple[NDArray[np.int64], list[SliceAgreement]]:
    """Link the cells of slices (Z, H, W), and measure how well each slice agrees with the next.

    >>> stack, agreement = link_stack(np.array([[[1, 1, 2]], [[3, 3, 4]]]))
    >>> stack.tolist(), [pair.same for pair in agreement]
    ([[[1, 1, 2]], [[1, 1, 2]]], [1.0])
    """
    own = [_ranks(image) for image in labels]
    links = [link_slices(*pair, least) for pair in pairwise(own)]
    tables = number_cells([int(image.max()) for image in own], links)
    linked = np.stack([table[image] for table, image in zip(tables, own, strict=True)])
    return linked.astype(np.int64), [pair.agreement for pair in links]


def _ranks(image: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Relabel an image as 1, 2 … without gaps, in the order of its labels; 0 stays 0."""
    names, ranks = np.unique(image, return_inverse=True)
    return ranks.reshape(image.shape).astype(np.int64) + int(names[0] != 0)


def describe_agreement(pairs: Mapping[int, SliceAgreement]) -> str:
    """One line on how well each slice z agrees with the next: means, and the worst pair.

    >>> describe_agreement({0: SliceAgreement(0.9, 0.8, 0.85, 0.95)})[:58]
    'neighbouring slices: 90.0 % of pixels stay in their cell, '
    """
    names = ("same", "linked", "iou", "v_rand")
    means = [fsum(getattr(pair, name) for pair in pairs.values()) / len(pairs) for name in names]
    worst = min(pairs, key=lambda z: pairs[z].same)
    return (
        f"neighbouring slices: {100 * means[0]:.1f} % of pixels stay in their cell, {100 * means[1]:.1f} % of cells "
        f"are linked, mean IoU {means[2]:.3f}, V_rand {means[3]:.3f}; worst pair z = {worst} and {worst + 1}, with "
        f"{100 * pairs[worst].same:.1f} % of pixels"
    )
