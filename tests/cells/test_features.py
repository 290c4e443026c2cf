"""Statistics against NumPy and SciPy, filters against SciPy's, and features that do not know which region is first."""

import math

import numpy as np
import pytest
from bioimage_cpp import filters
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import ndimage, stats

from cells.conftest import make_texture
from sfcnn.cells.features import SIGMAS, STATISTICS, Features, Groups, _filtered, edge_features, statistics
from sfcnn.cells.graph import RegionGraph, region_graph
from sfcnn.cells.superpixels import superpixels, turn


def describe(shape: tuple[int, ...]) -> tuple[NDArray[np.float32], NDArray[np.int64], RegionGraph, Features]:
    probabilities = make_texture(shape, 8, seed=1, noise=2).probabilities
    labels = superpixels(probabilities)
    graph = region_graph(labels)
    return probabilities, labels, graph, edge_features(graph, labels, {"probability": probabilities})


@st.composite
def grouped_values(draw: st.DrawFn) -> tuple[NDArray[np.float64], NDArray[np.int64], int]:
    """Few different values in groups of few different sizes: negative ones, zeros of both signs, tiny and huge ones."""
    sizes = draw(st.lists(st.sampled_from([1, 1, 2, 3, 3, 17, 40]), min_size=1, max_size=12))
    generator = np.random.default_rng(draw(st.integers(0, 1000)))
    groups = generator.permutation(np.repeat(np.arange(len(sizes)), sizes))
    scales = generator.choice([1e-30, 1.0, 3e38], len(sizes))
    values = generator.choice([-1.0, -0.75, -0.0, 0.0, 0.25, 1.0], len(groups)) * scales[groups]
    return values, groups, len(sizes)


def plain_statistics(values: NDArray[np.float64]) -> list[float]:
    """Those of one group, by the definitions, with sums that are rounded once."""
    mean = math.fsum(values) / len(values)
    second, third, fourth = (math.fsum((values - mean) ** power) / len(values) for power in (2, 3, 4))
    shape = [third / second**1.5, fourth / second**2 - 3] if np.ptp(values) else [0.0, 0.0]
    quantiles = np.quantile(values, [0.1, 0.25, 0.5, 0.75, 0.9]).tolist()
    return [mean, math.fsum(values), values.min(), values.max(), second, *shape, *quantiles]


@given(grouped_values())
def test_statistics_of_ties_and_of_tiny_and_huge_values_equal_the_definitions(
    example: tuple[NDArray[np.float64], NDArray[np.int64], int],
) -> None:
    values, groups, count = example
    for group, row in enumerate(statistics(values, groups, count)):
        own = values[groups == group]
        size = np.abs(own).max()
        ours, theirs = (dict(zip(STATISTICS, numbers, strict=True)) for numbers in (row, plain_statistics(own)))
        for name, value in ours.items():
            unit = {"variance": size**2, "skewness": 1, "kurtosis": 1, "sum": len(own) * size}.get(name, size)
            assert abs(value - theirs[name]) <= 1e-13 * unit * len(own), name


@given(grouped_values(), st.integers(0, 1000))
def test_a_group_knows_no_order_no_number_and_no_other_groups(
    example: tuple[NDArray[np.float64], NDArray[np.int64], int], seed: int
) -> None:
    values, groups, count = example
    ours = statistics(values, groups, count)
    generator = np.random.default_rng(seed)
    pixels, numbers = generator.permutation(len(values)), generator.permutation(count)
    assert np.array_equal(statistics(values[pixels], numbers[groups][pixels], count)[numbers], ours)
    alone = values[groups == 0]
    assert np.array_equal(statistics(alone, np.zeros(len(alone), dtype=np.int64), 1)[0], ours[0])


@given(grouped_values())
def test_arranged_values_are_those_of_a_sort_by_size_group_and_value(
    example: tuple[NDArray[np.float64], NDArray[np.int64], int],
) -> None:
    values, groups, count = example
    arranged = Groups.arrange(groups, count)
    sizes = np.bincount(groups)
    assert np.array_equal(arranged.sort(values), values[np.lexsort((values, groups, sizes[groups]))])
    assert np.array_equal(arranged.sizes[arranged.places], sizes)


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


def filtered_images(image: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    return dict(_filtered(image, np.arange(image.size).reshape(image.shape)))


@pytest.mark.parametrize("sigma", SIGMAS)
def test_filters_are_those_of_scipy(sigma: float) -> None:
    image = np.random.default_rng(0).random((90, 80)).astype(np.float32)

    def theirs(*orders: int) -> NDArray[np.float64]:
        return ndimage.gaussian_filter(image.astype(np.float64), sigma, orders, mode="mirror", truncate=5)

    yy, xy, xx = theirs(2, 0), theirs(1, 1), theirs(0, 2)
    hessian = np.linalg.eigvalsh(np.stack([np.stack([yy, xy], -1), np.stack([xy, xx], -1)], -1))[..., ::-1]
    ours = filtered_images(image)
    eigenvalues = np.stack([ours[f"hessian {which} {sigma}"] for which in ("larger", "smaller")], -1)
    for filtered, expected in (
        (ours[f"gaussian {sigma}"], theirs(0, 0)),
        (ours[f"laplacian {sigma}"], yy + xx),
        (eigenvalues, hessian),
    ):
        # Kernels are cut off at 3 to 4 σ there, at 5 σ here.
        assert np.abs(filtered - expected).max() < 0.03 * expected.std()


@pytest.mark.parametrize("shape", [(50, 61), (2, 40, 33)])
def test_filters_are_those_that_forests_have_learned_from(shape: tuple[int, ...]) -> None:
    """Forests on disk were grown with the Laplacian and Hessian of bioimage-cpp."""
    image = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    ours = filtered_images(image)
    assert np.array_equal(ours["value"], image)
    slices = image.reshape(-1, *shape[-2:])
    for sigma in SIGMAS:
        values = np.stack([filters.hessian_of_gaussian_eigenvalues(one, sigma) for one in slices])
        for name, theirs in (
            ("gaussian", np.stack([filters.gaussian_smoothing(one, sigma) for one in slices])),
            ("laplacian", np.stack([filters.laplacian_of_gaussian(one, sigma) for one in slices])),
            ("hessian larger", values[..., 0]),
            ("hessian smaller", values[..., 1]),
        ):
            rounding = 4 * np.finfo(np.float32).eps * np.abs(theirs).max()
            np.testing.assert_allclose(ours[f"{name} {sigma}"], theirs.reshape(shape), rtol=0, atol=rounding)


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
    with pytest.raises(ValueError, match="'raw' has non-finite pixels"):
        edge_features(graph, labels, {"raw": np.array([[0, np.inf]])})
