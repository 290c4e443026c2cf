"""Affinities: probabilities that two pixels are in the same cell, for pairs along the orientations of a network.

A(d, a, x) ∈ [0, 1] is the probability that pixels x and x + o(d, a), at radius r_d in direction θ_a = 2πa/Λ, are in the
same cell (`sfcnn.segmentation.offsets`). Short pairs detect membranes. Long pairs bridge them: where a membrane has a
gap, pairs of pixels on either side still show that there are two cells.

Directions a and a + Λ/2 describe the same pair from its two ends, and at short radii several directions lead to the
same pixel. `pixel_pairs` averages these, so that each pair occurs once, and drops pairs that leave the image.

If Λ is divisible by 4, rotating the image by 90° rotates each map and takes a to a + Λ/4. For other Λ, affinities
cannot be rotated, and cells are found in the orientation in which the image is given.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array, csr_array

from sfcnn.cells.metrics import Labels
from sfcnn.cells.superpixels import turn
from sfcnn.segmentation.offsets import Window, oriented_offsets, pair_windows


@dataclass(frozen=True, eq=False)
class Affinities:
    """Affinities predicted by a network.

    >>> found = Affinities(np.ones((2, 8, 30, 40), np.float32), radii=(1, 9))
    >>> found.orientations, found.shape
    (8, (30, 40))
    """

    values: NDArray[np.floating]  #: (D, Λ, H, W), or (Z, D, Λ, H, W) for a stack; pairs that leave the image may be NaN
    radii: tuple[float, ...]  #: (D,) in pixels, ascending; the first one joins neighbouring pixels

    def __post_init__(self) -> None:
        """Check shape and radii; the values are checked where they are used."""
        values = np.asarray(self.values)
        if values.ndim not in (4, 5) or not values.size or not np.issubdtype(values.dtype, np.floating):
            raise ValueError(
                f"expected affinities as floats of shape (D, Λ, H, W) or (Z, D, Λ, H, W), got {values.dtype} "
                f"{values.shape}"
            )
        if values.shape[-4] != len(self.radii):
            raise ValueError(
                f"affinities {values.shape} are for {values.shape[-4]} radii, got {len(self.radii)}: {self.radii}"
            )
        oriented_offsets(self.radii, self.orientations)  # checks both

    @property
    def orientations(self) -> int:
        """Λ."""
        return int(self.values.shape[-3])

    @property
    def shape(self) -> tuple[int, ...]:
        """(H, W) or (Z, H, W)."""
        return (*self.values.shape[:-4], *self.values.shape[-2:])

    @property
    def turnable(self) -> bool:
        """Whether quarter turns are among the Λ rotations."""
        return self.orientations % 4 == 0

    def __len__(self) -> int:
        """Number of slices in a stack."""
        return len(self.values)

    def __getitem__(self, index: int) -> "Affinities":
        """The affinities of one slice of a stack."""
        return Affinities(self.values[index], self.radii)

    def turned(self, turns: int) -> "Affinities":
        """The affinities of the image rotated by `turns` quarter turns, counter-clockwise; Λ must be divisible by 4."""
        if not self.turnable:
            raise ValueError(f"quarter turns need Λ divisible by 4, got {self.orientations} orientations")
        values = np.roll(turn(self.values, turns), turns * self.orientations // 4, axis=-3)
        return Affinities(values, self.radii)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of pixels (x, x + o) of an image, each once."""

    offsets: NDArray[np.int64]  #: (P, 2) rows and columns o: upwards, or in the same row to the right
    values: NDArray[np.float32]  #: (P, H, W) affinity at x; 0 where x + o is outside
    short: int  #: number of leading offsets that belong to the shortest radius

    def part(self, *, short: bool) -> "Pairs":
        """The pairs of the shortest radius, or all others."""
        chosen = slice(self.short) if short else slice(self.short, None)
        return Pairs(self.offsets[chosen], self.values[chosen], self.short if short else 0)

    def __iter__(self) -> Iterator[tuple[Window, Window, NDArray[np.float32]]]:
        """For each offset: the window of x, the window of x + o, and the affinities of these pairs."""
        for offset, values in zip(self.offsets, self.values, strict=True):
            here, there = pair_windows(values.shape, offset)
            yield here, there, values[here]


def pixel_pairs(affinities: Affinities) -> Pairs:
    """Each pair of pixels once, with its affinity averaged over all directions and both ends that describe it.

    Offsets longer than the image are dropped.

    >>> pairs = pixel_pairs(Affinities(np.full((2, 8, 5, 6), 0.5), radii=(1, 3)))
    >>> pairs.offsets[: pairs.short].tolist(), len(pairs.offsets)
    ([[0, 1], [-1, 1], [-1, 0], [-1, -1]], 8)
    """
    maps = affinities.values
    if maps.ndim != 4:
        raise ValueError(f"expected affinities of one slice (D, Λ, H, W), got {maps.shape}")
    shape = affinities.shape
    sums: dict[tuple[int, int], NDArray[np.float64]] = {}
    views: dict[tuple[int, int], int] = {}
    short = 0
    for steps, oriented in zip(oriented_offsets(affinities.radii, affinities.orientations), maps, strict=True):
        for (row, column), values in zip(steps.tolist(), oriented, strict=True):
            reverse = row > 0 or (row == 0 and column < 0)
            offset = (-row, -column) if reverse else (row, column)
            here, there = pair_windows(shape, offset)
            found = _checked(values[there if reverse else here])
            if not found.size:
                continue
            if offset not in sums:
                sums[offset], views[offset] = np.zeros(shape), 0
            sums[offset][here] += found
            views[offset] += 1
        short = short or len(sums)
    values = [(total / views[offset]).astype(np.float32) for offset, total in sums.items()]
    return Pairs(
        np.array(list(sums), dtype=np.int64).reshape(-1, 2),
        np.stack(values) if values else np.zeros((0, *shape), np.float32),
        short,
    )


def region_affinities(labels: Labels, pairs: Pairs) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Mean affinity between the regions of a label image (H, W): nodes (E, 2), means (E,), number of pairs (E,).

    Labels start at 1; node i is the region with label i + 1, as in `region_graph`. Nodes u < v are sorted
    lexicographically.

    >>> pairs = pixel_pairs(Affinities(np.full((1, 4, 2, 3), 0.25), radii=(1,)))
    >>> [part.tolist() for part in region_affinities(np.array([[1, 1, 2], [3, 3, 2]]), pairs)]
    [[[0, 1], [0, 2], [1, 2]], [0.25, 0.25, 0.25], [1, 2, 1]]
    """
    labels = np.asarray(labels)
    if labels.shape != pairs.values.shape[1:]:
        raise ValueError(
            f"labels {labels.shape} and affinities {pairs.values.shape} must have the same height and width"
        )
    count = int(labels.max(initial=0))
    nodes = labels.astype(np.int64) - 1
    sums = csr_array((count, count), dtype=np.float64)
    numbers = csr_array((count, count), dtype=np.int64)
    for here, there, values in pairs:
        u, v = nodes[here], nodes[there]
        apart = (u != v) & (u >= 0) & (v >= 0)
        u, v = u[apart], v[apart]
        place = np.minimum(u, v), np.maximum(u, v)
        sums += coo_array((values[apart].astype(np.float64), place), shape=sums.shape).tocsr()
        numbers += coo_array((np.ones(len(u), np.int64), place), shape=sums.shape).tocsr()
    found = numbers.tocoo()  # sums has no entry where all affinities are 0
    edges = np.stack([found.row, found.col], axis=1).astype(np.int64)
    totals: NDArray[Any] = np.asarray(sums[found.row, found.col]) if len(edges) else np.zeros(0)
    return edges, totals / found.data, found.data


def _checked(values: ArrayLike) -> NDArray[Any]:
    values = np.asarray(values)
    if values.size and not (values.min() >= 0 and values.max() <= 1):  # NaN makes both NaN
        raise ValueError(
            f"expected affinities in [0, 1] for pairs inside the image, got {values.min():g} … {values.max():g}"
        )
    return values
