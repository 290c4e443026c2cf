"""Features of edges between superpixels, for a classifier (Beier et al. 2017, features "raw", "prob", "reg", "topo").

Along an edge: statistics of an image, its Gaussian, its Laplacian of Gaussian and the eigenvalues of its Hessian of
Gaussian, at σ = 1.6, 4.2 and 8.3 pixels. On both sides: statistics of the image in the two regions, their sizes and
radii, combined as minimum, maximum, absolute difference and sum. The features do not depend on the order or numbering
of regions, nor on rotations of the image by 90° (up to rounding). Filters stay within a slice, because slices of
electron microscopy are far apart.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from bioimage_cpp import filters
from numpy.typing import NDArray
from scipy.sparse import csr_array

from sfcnn.cells.graph import RegionGraph
from sfcnn.cells.metrics import Labels

#: σ of the filters, in pixels.
SIGMAS = (1.6, 4.2, 8.3)

#: Columns of `statistics`.
STATISTICS = ("mean", "sum", "min", "max", "variance", "skewness", "kurtosis", "q10", "q25", "q50", "q75", "q90")
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)

Floats = NDArray[np.float64]
Columns = Iterator[tuple[str, Floats]]


@dataclass(frozen=True, eq=False)
class Features:
    """Features of edges."""

    names: tuple[str, ...]  #: of the F columns
    values: NDArray[np.float32]  #: (E, F), all finite


def edge_features(graph: RegionGraph, labels: Labels, images: Mapping[str, NDArray[Any]]) -> Features:
    """Features of a graph's edges from images of the same shape as the labels: {"probability": p, "raw": image}."""
    labels = np.asarray(labels)
    for name, image in images.items():
        if image.shape != graph.shape or labels.shape != graph.shape:
            raise ValueError(
                f"labels {labels.shape} and image {name!r} {image.shape} must have the shape {graph.shape}"
            )
        if not np.isfinite(image).all():
            raise ValueError(f"image {name!r} has non-finite pixels")
    names, columns = [], []
    for name, column in _all_columns(graph, labels, images):
        names.append(name)
        columns.append(column.astype(np.float32))
    return Features(tuple(names), np.stack(columns, axis=1))


@dataclass(frozen=True, eq=False)
class Groups:
    """A grouping of n values into non-empty groups 0 … G − 1, arranged by size.

    Groups of the same size lie next to each other, so their values are the rows of a matrix, which NumPy sorts in one
    call. One arrangement serves all images of a graph.
    """

    order: NDArray[np.int64]  #: (n,) positions of the values of the smallest group, then of the next one, …
    sizes: NDArray[np.int64]  #: (G,) of the groups as arranged, ascending
    places: NDArray[np.int64]  #: (G,) position of each of the groups 0 … G − 1 in the arrangement

    @classmethod
    def arrange(cls, groups: NDArray[np.integer[Any]], count: int) -> "Groups":
        """Arrange values by their groups (n,)."""
        sizes = np.bincount(groups, minlength=count)
        if len(sizes) > count or not sizes.all():
            raise ValueError(f"expected values in each of the groups 0 … {count - 1}")
        ascending = np.argsort(sizes, kind="stable")
        places = np.empty_like(ascending)
        places[ascending] = np.arange(count)
        entries = np.ones(len(groups), dtype=np.int8), (places[groups], np.arange(len(groups)))
        order = csr_array(entries, shape=(count, len(groups))).indices  # a counting sort, faster than numpy.argsort
        return cls(order.astype(np.int64), sizes[ascending], places)

    def sort(self, values: Floats) -> Floats:
        """The values (n,) as arranged, ascending within each group."""
        arranged = values[self.order]
        start = 0
        for size, count in zip(*np.unique(self.sizes, return_counts=True), strict=True):
            end = start + size * count
            arranged[start:end].reshape(count, size).sort(axis=1)  # a view, sorted in place
            start = end
        return arranged


def statistics(values: Floats, groups: NDArray[np.int64], count: int) -> Floats:
    """(count, 12) statistics of the values (n,) in each group 0 … count − 1, in the order of STATISTICS.

    No group may be empty. Variance divides by n, kurtosis is 0 for a normal distribution, and quantiles are
    interpolated as in numpy.quantile.

    >>> statistics(np.array([1.0, 3.0, 8.0]), np.array([0, 0, 1]), 2)[:, :5]
    array([[2., 4., 1., 3., 1.],
           [8., 8., 8., 8., 0.]])
    """
    return _statistics(values, Groups.arrange(groups, count))


def _statistics(values: Floats, groups: Groups) -> Floats:
    sizes = groups.sizes
    if not len(sizes):
        return np.empty((0, len(STATISTICS)))
    values = groups.sort(values)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    sums = np.add.reduceat(values, starts)
    means = sums / sizes
    low, high = values[starts], values[ends - 1]
    quantiles = []
    for fraction in _QUANTILES:
        place = fraction * (sizes - 1)
        below = place.astype(np.int64)
        above = np.minimum(below + 1, sizes - 1)
        first, second = values[starts + below], values[starts + above]
        quantiles.append(first + (place - below) * (second - first))
    powers = values - np.repeat(means, sizes)  # deviations, later their cubes: in place, to save memory
    squares = powers * powers
    variance = np.add.reduceat(squares, starts) / sizes
    powers *= squares
    third = np.add.reduceat(powers, starts) / sizes
    squares *= squares
    fourth = np.add.reduceat(squares, starts) / sizes
    # Constant groups have no skewness or kurtosis; their deviations are only rounding errors.
    flat = variance <= (1e-12 * np.maximum(np.abs(low), np.abs(high))) ** 2
    spread = np.where(flat, 1, variance)
    skewness = np.where(flat, 0, third / spread**1.5)
    kurtosis = np.where(flat, 0, fourth / spread**2 - 3)
    table = np.stack([means, sums, low, high, variance, skewness, kurtosis, *quantiles], axis=1)
    return table[groups.places]


def _all_columns(graph: RegionGraph, labels: Labels, images: Mapping[str, NDArray[Any]]) -> Columns:
    inside = np.flatnonzero(labels)
    nodes = labels.ravel()[inside].astype(np.int64) - 1
    edges, regions = Groups.arrange(graph.contacts, len(graph.edges)), Groups.arrange(nodes, graph.nodes)
    for name, image in images.items():
        for filtered_name, (first, second) in _filtered(np.ascontiguousarray(image, np.float32), graph.pixels.T):
            along = _statistics((first.astype(np.float64) + second) / 2, edges)  # a contact has two pixels
            for statistic, column in zip(STATISTICS, along.T, strict=True):
                yield f"{name} {filtered_name} edge {statistic}", column
        within = _statistics(image.ravel()[inside].astype(np.float64), regions)
        for statistic, column in zip(STATISTICS, within.T, strict=True):
            yield from _both_sides(f"{name} region {statistic}", column, graph)
    yield from _shapes(graph, inside, nodes)


def _filtered(image: NDArray[np.float32], pixels: NDArray[np.int64]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """The image and its filter responses, slice by slice, sampled at `pixels`; each has the shape of `pixels`."""
    slices = image if image.ndim == 3 else image[None]

    def derivative(sigma: float, *orders: int) -> NDArray[np.float32]:
        filtered = [filters.gaussian_derivative(one, sigma, orders) for one in slices]
        return (np.stack(filtered) if len(filtered) > 1 else filtered[0]).ravel()[pixels]

    half = np.float32(0.5)
    yield "value", image.ravel()[pixels]
    for sigma in SIGMAS:
        yield f"gaussian {sigma}", derivative(sigma, 0, 0)
        yy, xy, xx = derivative(sigma, 2, 0), derivative(sigma, 1, 1), derivative(sigma, 0, 2)
        middle, difference = half * (yy + xx), half * (yy - xx)
        spread = np.sqrt(difference * difference + xy * xy)  # eigenvalues of the Hessian are middle ± spread
        yield f"laplacian {sigma}", yy + xx
        yield f"hessian larger {sigma}", middle + spread
        yield f"hessian smaller {sigma}", middle - spread


def _both_sides(name: str, column: Floats, graph: RegionGraph) -> Columns:
    """Turn one value per region (N,) into four values per edge that are symmetric in its two regions."""
    first, second = column[graph.edges.T]
    yield f"{name} min", np.minimum(first, second)
    yield f"{name} max", np.maximum(first, second)
    yield f"{name} difference", np.abs(first - second)
    yield f"{name} sum", first + second


def _shapes(graph: RegionGraph, inside: NDArray[np.int64], nodes: NDArray[np.int64]) -> Columns:
    """Features of size, shape and position."""
    height, width = graph.shape[-2:]
    y, x = (
        np.broadcast_to(places, graph.shape).ravel()[inside]
        for places in (np.arange(height, dtype=np.float64)[:, None], np.arange(width, dtype=np.float64))
    )

    def mean(values: Floats) -> Floats:
        return np.bincount(nodes, values, minlength=graph.nodes) / graph.regions

    centre_y, centre_x = mean(y), mean(x)
    y -= centre_y[nodes]
    x -= centre_x[nodes]
    yy, xy, xx = mean(y * y), mean(y * x), mean(x * x)
    middle, spread = (yy + xx) / 2, np.hypot((yy - xx) / 2, xy)  # eigenvalues of the covariance are middle ± spread
    yield from _both_sides("region pixels", graph.regions.astype(np.float64), graph)
    yield from _both_sides("region long radius", np.sqrt(middle + spread), graph)
    yield from _both_sides("region short radius", np.sqrt(np.maximum(middle - spread, 0)), graph)
    u, v = graph.edges.T
    yield "centres squared distance", (centre_y[u] - centre_y[v]) ** 2 + (centre_x[u] - centre_x[v]) ** 2
    smaller = np.minimum(graph.regions[u], graph.regions[v])
    yield "edge length", graph.sizes.astype(np.float64)
    yield "edge length of smaller region", graph.sizes / smaller
    yield "edge length of both regions", graph.sizes / (graph.regions[u] + graph.regions[v])
    yield "edge across slices", graph.across.astype(np.float64)
