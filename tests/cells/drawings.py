"""Drawn cells, the affinities that are true of them, and slow ways to do what the library does fast."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from sfcnn.cells.affinities import Affinities
from sfcnn.segmentation.offsets import oriented_offsets

RADII = (1.0, 3.0, 9.0)
Labels = NDArray[np.int64]

GAP = slice(10, 38)  #: rows of `two_rooms` in which there may be no wall


def true_affinities(labels: Labels, radii: Sequence[float] = RADII, orientations: int = 8) -> Affinities:
    """Pair by pair: 1 in the same cell, 0 if not or on a membrane (label 0), NaN out of the image."""
    offsets = oriented_offsets(radii, orientations)
    height, width = labels.shape
    drawn = labels.tolist()  # numbers of Python are faster one by one
    values = np.full((*offsets.shape[:2], height, width), np.nan, np.float32)
    for d, a in np.ndindex(offsets.shape[:2]):
        down, right = offsets[d, a].tolist()
        for row in range(max(0, -down), min(height, height - down)):
            for column in range(max(0, -right), min(width, width - right)):
                values[d, a, row, column] = drawn[row][column] == drawn[row + down][column + right] > 0
    return Affinities(values, tuple(radii))


def corrupt(affinities: Affinities, noise: float, seed: int = 0, certainty: float = 3.0) -> Affinities:
    """Log-odds ±certainty with normal noise on them, another one for each pair and direction."""
    generator = np.random.default_rng(seed)
    logits = certainty * (2 * affinities.values - 1) + noise * generator.standard_normal(affinities.values.shape)
    return Affinities((1 / (1 + np.exp(-logits))).astype(np.float32), affinities.radii)


def disks(side: int = 64) -> Labels:
    """Four disks in a background, which is the fifth cell, with membranes of two pixels around them."""
    rows, columns = np.mgrid[:side, :side]
    labels = np.ones((side, side), np.int64)
    places = [(0.27, 0.25, 0.16), (0.26, 0.72, 0.18), (0.72, 0.3, 0.2), (0.75, 0.76, 0.13)]
    for number, (row, column, radius) in enumerate(places, start=2):
        distance = np.hypot(rows - row * side, columns - column * side)
        labels[distance < radius * side + 2] = 0
        labels[distance < radius * side] = number
    return labels


def nested(side: int = 64) -> Labels:
    """A cell in a cell in a cell, not quite in the middle."""
    rows, columns = np.mgrid[:side, :side]
    distance = np.maximum(np.abs(rows - 0.46 * side), np.abs(columns - 0.53 * side))
    labels = np.ones((side, side), np.int64)
    for number, radius in ((2, 0.35), (3, 0.16)):
        labels[distance < radius * side + 2] = 0
        labels[distance < radius * side] = number
    return labels


def two_rooms(height: int = 48, *, gap: bool = False) -> Labels:
    """Two cells and a wall of three pixels between them, or where there is a gap in it, only a border."""
    labels = np.ones((height, 61), np.int64)
    labels[:, 31:] = 2
    cells = labels[GAP].copy()
    labels[:, 29:32] = 0
    if gap:
        labels[GAP] = cells
    return labels


def gap_probabilities(labels: Labels) -> NDArray[np.float32]:
    """Membranes are certain where the labels are 0."""
    return np.where(labels == 0, 0.95, 0.02).astype(np.float32)


def gap_affinities(labels: Labels) -> Affinities:
    """True affinities, but in the rows of the gap all short pairs are said to be in one cell: only long ones know."""
    affinities = true_affinities(labels)
    values = affinities.values.copy()
    values[0, :, GAP] = np.where(np.isnan(values[0, :, GAP]), np.nan, 1)
    return Affinities(values, affinities.radii)


def slow_mutex_watershed(
    attractive: Sequence[tuple[float, int, int]], repulsive: Sequence[tuple[float, int, int]], pixels: int
) -> list[frozenset[int]]:
    """Kruskal with constraints: (strength, pixel, pixel) of all pairs, no two as strong → clusters of pixels."""
    cluster = {pixel: frozenset([pixel]) for pixel in range(pixels)}
    forbidden: list[tuple[int, int]] = []
    pairs = [(*pair, True) for pair in attractive] + [(*pair, False) for pair in repulsive]
    for _, one, other, attracts in sorted(pairs, reverse=True):
        mine, yours = cluster[one], cluster[other]
        if mine == yours:
            continue
        if not attracts:
            forbidden.append((one, other))
        elif not any((u in mine and v in yours) or (u in yours and v in mine) for u, v in forbidden):
            for pixel in mine | yours:
                cluster[pixel] = mine | yours
    return list(set(cluster.values()))


def as_partition(labels: Labels) -> set[frozenset[int]]:
    """Sets of pixels, as positions in labels.ravel(), that have the same label."""
    flat = labels.ravel()
    return {frozenset(np.flatnonzero(flat == label).tolist()) for label in np.unique(flat)}


def same_cells(found: Labels, truth: Labels) -> bool:
    """Whether two label images have the same cells where the truth is not membrane."""
    inside = truth > 0
    return as_partition(found[inside]) == as_partition(truth[inside])


Drawing = Callable[[], Labels]
