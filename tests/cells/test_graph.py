"""The graph of an image against a count pixel by pixel and against bioimage-cpp's."""

from collections import Counter

import numpy as np
import pytest
from bioimage_cpp.graph import region_adjacency_graph
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from sfcnn.cells.graph import Graph, paint, region_graph

IMAGES = arrays.arrays(np.int64, arrays.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.integers(0, 4))
STACKS = arrays.arrays(np.int64, arrays.array_shapes(min_dims=3, max_dims=3, max_side=4), elements=st.integers(0, 3))


def consecutive(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Labels without gaps, 0 staying 0; slices of a stack get labels of their own."""
    if labels.ndim == 3:
        labels = np.where(labels, labels + 10 * np.arange(len(labels))[:, None, None], 0)
    names = np.unique(labels[labels > 0])
    return np.where(labels, np.searchsorted(names, labels) + 1, 0)


@given(IMAGES | STACKS)
def test_edges_and_contacts_are_those_of_a_count_pixel_by_pixel(raw: NDArray[np.int64]) -> None:
    labels = consecutive(raw)
    contacts: Counter[tuple[int, int, bool]] = Counter()
    for place in np.ndindex(labels.shape):
        for axis in range(labels.ndim):
            beside = tuple(position + (axis == here) for here, position in enumerate(place))
            if beside[axis] < labels.shape[axis]:
                u, v = sorted((labels[place] - 1, labels[beside] - 1))
                if -1 < u < v:
                    contacts[u, v, labels.ndim == 3 and axis == 0] += 1
    graph = region_graph(labels)
    ours = {(*edge, across): size for edge, across, size in zip(
        map(tuple, graph.edges.tolist()), graph.across.tolist(), graph.sizes.tolist(), strict=True)}  # fmt: skip
    assert ours == contacts
    assert graph.edges.tolist() == sorted(graph.edges.tolist())
    assert graph.regions.tolist() == [(labels == label).sum() for label in range(1, labels.max() + 1)]


@given(IMAGES | STACKS)
def test_contacts_lie_on_both_sides_of_their_edges(raw: NDArray[np.int64]) -> None:
    labels = consecutive(raw)
    graph = region_graph(labels)
    assert np.array_equal(np.sort(labels.ravel()[graph.pixels], axis=1) - 1, graph.edges[graph.contacts])
    assert (np.diff(graph.contacts) >= 0).all()


@given(IMAGES | STACKS)
def test_edges_equal_those_of_bioimage_cpp(raw: NDArray[np.int64]) -> None:
    labels = consecutive(raw + 1)  # there 0 is a region like any other
    theirs = region_adjacency_graph(labels - 1, number_of_threads=1)
    graph = region_graph(labels)
    assert graph.nodes == theirs.number_of_nodes
    assert np.array_equal(graph.edges, np.asarray(theirs.uv_ids()).reshape(-1, 2))


def test_edge_means_are_means_over_contacts_of_means_over_two_pixels() -> None:
    labels = np.array([[1, 2], [1, 2]])
    graph = region_graph(labels)
    assert graph.along_edges(np.array([[0.0, 1.0], [4.0, 6.0]])).tolist() == [0.5, 5.0]
    assert graph.edge_means(np.array([[0.0, 1.0], [4.0, 6.0]])).tolist() == [2.75]


def test_paint_undoes_numbering() -> None:
    labels = np.array([[[0, 1, 2]], [[3, 4, 0]]])
    assert paint(labels, [0, 1, 1, 0]).tolist() == [[[0, 1, 2]], [[2, 1, 0]]]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.ones(3, dtype=np.int64), r"got int64 \(3,\)"),
        (np.ones((3, 0), dtype=np.int64), r"got int64 \(3, 0\)"),
        (np.ones((3, 3)), "got float64"),
        (np.array([[-1, 1]]), "got -1"),
        (np.array([[1, 3]]), "no pixel has label 2"),
        (np.array([[[1, 2]], [[3, 2]]]), "label 2 occurs in 2 slices"),
    ],
)
def test_what_are_no_superpixels_is_refused(labels: NDArray[np.int64], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        region_graph(labels)


def test_an_image_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="must have the same shape"):
        region_graph(np.array([[1, 2]])).along_edges(np.zeros((2, 1)))


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        (-1, np.empty((0, 2), dtype=np.int64), "got -1"),
        (3, np.array([0, 1]), r"shape \(E, 2\)"),
        (3, np.array([[0.0, 1.0]]), "integers"),
        (3, np.array([[0, 1], [1, 1]]), "edge 1 joins nodes 1 and 1"),
        (3, np.array([[2, 1]]), "edge 0 joins nodes 2 and 1"),
        (3, np.array([[0, 3]]), "< 3"),
        (3, np.array([[-1, 1]]), "nodes -1 and 1"),
        (3, np.array([[0, 1], [0, 1]]), "joined by 2 edges"),
    ],
)
def test_what_is_no_graph_is_refused(nodes: int, edges: NDArray[np.int64], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Graph(nodes, edges)
