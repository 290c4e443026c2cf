"""Statistics against NumPy and SciPy, filters against SciPy's, and features that do not know which region is first."""

import numpy as np
import pytest
from bioimage_cpp import filters
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import ndimage, stats

from cells.conftest import make_texture
from sfcnn.cells.features import SIGMAS, STATISTICS, Features, edge_features, statistics
from sfcnn.cells.graph import RegionGraph, region_graph
from sfcnn.cells.superpixels import superpixels, turn


def describe(shape: tuple[int, ...]) -> tuple[NDArray[np.float32], NDArray[np.int64], RegionGraph, Features]:
    probabilities = make_texture(shape, 8, seed=1, noise=2).probabilities
    labels = superpixels(probabilities)
    graph = region_graph(labels)
    return probabilities, labels, graph, edge_features(graph, labels, {"probability": probabilities})


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(0, 1000), st.floats(-100, 100))
def test_statistics_equal_those_of_numpy_and_scipy(sizes: list[int], seed: int, offset: float) -> None:
    generator = np.random.default_rng(seed)
    groups = generator.permutation(np.repeat(np.arange(len(sizes)), sizes))
    values = generator.standard_normal(len(groups)) + offset
    ours = statistics(values, groups, len(sizes))
    for group, row in enumerate(ours):
        own = values[groups == group]
        shape = [stats.skew(own), stats.kurtosis(own)] if len(own) > 1 else [0, 0]
        theirs = [own.mean(), own.sum(), own.min(), own.max(), own.var(), *shape]
        np.testing.assert_allclose(row, [*theirs, *np.quantile(own, [0.1, 0.25, 0.5, 0.75, 0.9])], rtol=1e-6, atol=1e-9)


def test_equal_values_have_no_variance_and_no_shape() -> None:
    row = dict(zip(STATISTICS, statistics(np.full(7, 0.1), np.zeros(7, dtype=np.int64), 1)[0], strict=True))
    assert row["variance"] < 1e-30
    assert row["skewness"] == row["kurtosis"] == 0
    assert row["q10"] == row["q90"] == row["min"] == 0.1


def test_no_groups_and_empty_groups() -> None:
    assert statistics(np.empty(0), np.empty(0, dtype=np.int64), 0).shape == (0, len(STATISTICS))
    with pytest.raises(ValueError, match="each of the groups 0 … 2"):
        statistics(np.ones(2), np.array([0, 2]), 3)
    with pytest.raises(ValueError, match="each of the groups 0 … 0"):
        statistics(np.ones(2), np.array([0, 1]), 1)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_filters_are_those_of_scipy(sigma: float) -> None:
    image = np.random.default_rng(0).random((90, 80)).astype(np.float32)

    def theirs(*orders: int) -> NDArray[np.float64]:
        return ndimage.gaussian_filter(image.astype(np.float64), sigma, orders, mode="mirror", truncate=5)

    yy, xy, xx = theirs(2, 0), theirs(1, 1), theirs(0, 2)
    hessian = np.linalg.eigvalsh(np.stack([np.stack([yy, xy], -1), np.stack([xy, xx], -1)], -1))[..., ::-1]
    for ours, expected in (
        (filters.gaussian_smoothing(image, sigma), theirs(0, 0)),
        (filters.laplacian_of_gaussian(image, sigma), yy + xx),
        (filters.hessian_of_gaussian_eigenvalues(image, sigma), hessian),
    ):
        # Kernels are cut off at 3 to 4 σ there, at 5 σ here.
        assert np.abs(ours - expected).max() < 0.03 * expected.std()


def test_along_a_wall_the_features_are_those_of_the_wall() -> None:
    probabilities = np.zeros((20, 24), dtype=np.float32)
    probabilities[:, 11:13] = 0.75
    labels = np.where(np.arange(24) < 12, 1, 2)[None].repeat(20, axis=0)
    graph = region_graph(labels)
    features = edge_features(graph, labels, {"probability": probabilities})
    values = dict(zip(features.names, features.values[0], strict=True))
    assert values["probability value edge mean"] == values["probability value edge min"] == 0.75
    assert values["probability value edge variance"] == 0
    assert values["probability laplacian 1.6 edge max"] < 0  # a ridge
    assert abs(values["probability hessian larger 1.6 edge mean"]) < 1e-6  # flat along it
    assert values["probability region mean difference"] == pytest.approx(0, abs=1e-9)
    assert values["probability region sum sum"] == pytest.approx(40 * 0.75)
    assert values["edge length"] == 20
    assert values["region pixels min"] == values["region pixels max"] == 240
    assert values["region pixels sum"] == 480
    assert values["region long radius min"] == pytest.approx(np.std(np.arange(20)))
    assert values["region short radius max"] == pytest.approx(np.std(np.arange(12)))
    assert values["centres squared distance"] == 144
    assert values["edge length of smaller region"] == pytest.approx(20 / 240)
    assert values["edge length of both regions"] == pytest.approx(20 / 480)
    assert values["edge across slices"] == 0


@pytest.mark.parametrize("shape", [(48, 56), (3, 40, 36)])
def test_renaming_the_regions_changes_nothing(shape: tuple[int, ...]) -> None:
    probabilities, labels, graph, features = describe(shape)
    order = np.random.default_rng(0).permutation(graph.nodes)  # new name of each node
    renamed = order[labels - 1] + 1
    twin = region_graph(renamed)
    others = edge_features(twin, renamed, {"probability": probabilities})
    place = {tuple(edge): row for row, edge in enumerate(twin.edges.tolist())}
    rows = [place[tuple(sorted(order[edge]))] for edge in graph.edges]
    assert others.names == features.names
    assert np.array_equal(others.values[rows], features.values)


@pytest.mark.parametrize("shape", [(48, 56), (3, 40, 36)])
def test_turning_the_images_changes_nothing(shape: tuple[int, ...]) -> None:
    probabilities, labels, _, features = describe(shape)
    turned = turn(labels, 1)
    others = edge_features(region_graph(turned), turned, {"probability": turn(probabilities, 1)})
    # Skewness and kurtosis of a few nearly equal values of a filter magnify its rounding.
    steady = [not name.endswith(("skewness", "kurtosis")) for name in features.names]
    np.testing.assert_allclose(others.values[:, steady], features.values[:, steady], rtol=1e-3, atol=1e-5)


def test_edges_across_slices_are_marked_and_filters_stay_in_their_slice() -> None:
    probabilities, labels, graph, features = describe((3, 40, 36))
    assert 0 < graph.across.sum() < len(graph.edges)
    assert np.array_equal(features.values[:, features.names.index("edge across slices")], graph.across)
    first = labels[0]
    alone = edge_features(region_graph(first), first, {"probability": probabilities[0]})
    inside = (graph.edges < first.max()).all(axis=1)
    assert np.array_equal(features.values[inside], alone.values)


def test_each_image_adds_its_own_columns() -> None:
    probabilities, labels, graph, features = describe((48, 56))
    both = edge_features(graph, labels, {"probability": probabilities, "raw": (255 * probabilities).astype(np.uint8)})
    assert len(set(both.names)) == len(both.names) == both.values.shape[1]
    own = [both.names.index(name) for name in features.names]
    assert np.array_equal(both.values[:, own], features.values)
    assert {name for name in both.names if name.startswith("raw ")} == set(both.names) - set(features.names)
    assert np.isfinite(both.values).all()
    assert both.values.dtype == np.float32


def test_a_single_region_has_no_edges_to_describe() -> None:
    labels = np.ones((5, 6), dtype=np.int64)
    features = edge_features(region_graph(labels), labels, {"probability": np.zeros((5, 6))})
    assert features.values.shape == (0, len(features.names))


def test_images_that_do_not_fit_are_refused() -> None:
    labels = np.array([[1, 2]])
    graph = region_graph(labels)
    with pytest.raises(ValueError, match=r"image 'raw' \(2, 1\) must have the shape \(1, 2\)"):
        edge_features(graph, labels, {"raw": np.zeros((2, 1))})
    with pytest.raises(ValueError, match="'raw' has pixels that are not finite"):
        edge_features(graph, labels, {"raw": np.array([[0, np.inf]])})
