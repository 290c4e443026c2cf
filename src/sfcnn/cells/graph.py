"""Graphs, and the region adjacency graph of superpixels with the pixels along each edge.

Two regions are joined by an edge if a pixel of one lies beside, above or below a pixel of the other; each such pair of
pixels is a contact. In a stack of 2-D superpixels, contacts between two slices form edges across slices (z edges). They
are distinguished from edges within a slice (xy edges), because no membrane is visible between slices.
"""

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfcnn.cells.metrics import Labels


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph without loops and double edges.

    >>> Graph(3, np.array([[0, 1], [1, 2]])).edges.tolist()
    [[0, 1], [1, 2]]
    """

    nodes: int  #: number N of nodes 0 … N − 1
    edges: NDArray[np.int64]  #: (E, 2) nodes u < v of each edge

    def __post_init__(self) -> None:
        """Check the edges."""
        edges = np.asarray(self.edges)
        if self.nodes < 0:
            raise ValueError(f"the number of nodes must be at least 0, got {self.nodes}")
        if edges.ndim != 2 or edges.shape[1] != 2 or not np.issubdtype(edges.dtype, np.integer):
            raise ValueError(f"expected edges as integers of shape (E, 2), got {edges.dtype} {edges.shape}")
        wrong = np.flatnonzero((edges[:, 0] < 0) | (edges[:, 0] >= edges[:, 1]) | (edges[:, 1] >= self.nodes))
        if wrong.size:
            u, v = edges[wrong[0]]
            raise ValueError(f"edge {wrong[0]} joins nodes {u} and {v}, expected 0 <= u < v < {self.nodes}")
        pairs, counts = np.unique(edges, axis=0, return_counts=True)
        if len(pairs) < len(edges):
            u, v = pairs[counts > 1][0]
            raise ValueError(f"nodes {u} and {v} are joined by {counts.max()} edges, expected at most one")


@dataclass(frozen=True, eq=False)
class RegionGraph(Graph):
    """The region adjacency graph of a label image; node i is the region with label i + 1."""

    shape: tuple[int, ...]  #: of the label image
    across: NDArray[np.bool_]  #: (E,) whether an edge joins regions of different slices
    regions: NDArray[np.int64]  #: (N,) pixels of each region
    pixels: NDArray[np.int64]  #: (C, 2) the two pixels of each contact, as positions in labels.ravel()
    contacts: NDArray[np.int64]  #: (C,) the edge of each contact, ascending

    @functools.cached_property
    def sizes(self) -> NDArray[np.int64]:
        """(E,) contacts of each edge: its length within a slice, its area across slices."""
        return np.bincount(self.contacts, minlength=len(self.edges))

    def along_edges(self, image: ArrayLike) -> NDArray[np.float64]:
        """(C,) values of an image at all contacts, each the mean of its two pixels; the image has the labels' shape."""
        image = np.asarray(image)
        if image.shape != self.shape:
            raise ValueError(f"image {image.shape} and labels {self.shape} must have the same shape")
        first, second = image.ravel()[self.pixels.T].astype(np.float64)
        return (first + second) / 2

    def edge_means(self, image: ArrayLike) -> NDArray[np.float64]:
        """(E,) mean of an image along each edge."""
        return np.bincount(self.contacts, self.along_edges(image), minlength=len(self.edges)) / self.sizes


def region_graph(labels: Labels) -> RegionGraph:
    """The graph of a label image (H, W), or of a stack (Z, H, W) whose slices have no labels in common.

    Labels are 1 … N without gaps; pixels with label 0 belong to no region. Edges are sorted lexicographically.

    >>> graph = region_graph(np.array([[1, 1, 2], [3, 3, 2]]))
    >>> graph.edges.tolist(), graph.sizes.tolist(), graph.regions.tolist()
    ([[0, 1], [0, 2], [1, 2]], [1, 2, 1], [2, 2, 2])
    """
    labels = np.asarray(labels)
    regions = _count_regions(labels)
    count = len(regions)
    axes = [_contacts(labels, axis) for axis in range(labels.ndim)]
    pixels = np.concatenate(axes)
    nodes = np.sort(labels.ravel()[pixels].astype(np.int64) - 1, axis=1)
    keys, contacts = np.unique(nodes[:, 0] * count + nodes[:, 1], return_inverse=True)
    edges = np.stack([keys // count, keys % count], axis=1)
    across = np.zeros(len(edges), dtype=bool)
    if labels.ndim == 3:
        across[contacts[: len(axes[0])]] = True
    order = np.argsort(contacts, kind="stable")
    return RegionGraph(count, edges, labels.shape, across, regions, pixels[order], contacts[order])


def paint(labels: Labels, node_labels: ArrayLike) -> NDArray[np.int64]:
    """A label image in which each region gets the label of its node, plus 1; 0 stays 0.

    >>> paint(np.array([[0, 1, 2, 3]]), [0, 1, 0])
    array([[0, 1, 2, 1]])
    """
    table = np.concatenate([[0], np.asarray(node_labels, dtype=np.int64) + 1])
    return table[labels]


def _contacts(labels: Labels, axis: int) -> NDArray[np.int64]:
    """(C, 2) positions of neighbours along an axis that belong to different regions."""
    last = labels.shape[axis] - 1
    first, second = (labels[(slice(None),) * axis + (slice(start, last + start),)] for start in (0, 1))
    touching = (first != second) & (first > 0) & (second > 0)
    places = list(np.nonzero(touching))
    before = np.ravel_multi_index(places, labels.shape)
    places[axis] += 1
    return np.stack([before, np.ravel_multi_index(places, labels.shape)], axis=1)


def _count_regions(labels: Labels) -> NDArray[np.int64]:
    """(N,) pixels of each region; raises ValueError if the labels are not a slice or stack of superpixels."""
    if labels.ndim not in (2, 3) or not labels.size or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"expected labels as integers of shape (H, W) or (Z, H, W) with pixels, got {labels.dtype} {labels.shape}"
        )
    if labels.min() < 0:
        raise ValueError(f"labels must be at least 0, got {labels.min()}")
    regions = np.bincount(labels.ravel())[1:]
    if not regions.all():
        missing = int(np.argmin(regions)) + 1
        raise ValueError(
            f"expected labels 1 … {len(regions)} without gaps, but no pixel has label {missing}; relabel the image"
        )
    if labels.ndim == 3:
        slices = np.zeros(len(regions) + 1, dtype=np.int64)
        for image in labels:
            slices[np.unique(image)] += 1
        if slices[1:].max(initial=0) > 1:
            shared = int(np.argmax(slices[1:])) + 1
            raise ValueError(f"label {shared} occurs in {slices[shared]} slices, expected each label in only one slice")
    return regions
