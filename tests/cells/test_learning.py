"""Targets against a count of pixel pairs; what is learned, and from what."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cells.conftest import Texture, make_texture
from sfcnn.cells import ForestConfig, SuperpixelsConfig, find_cells, learn_forest
from sfcnn.cells.forest import OneKindOfEdgeError, grow_forest
from sfcnn.cells.graph import region_graph
from sfcnn.cells.learning import edge_targets
from sfcnn.cells.pipeline import describe
from sfcnn.cells.superpixels import superpixels

FEW = ForestConfig(trees=12)


@pytest.fixture(scope="module")
def texture() -> Texture:
    return make_texture((2, 72, 64), 14, seed=1, noise=2)


@given(st.data())
def test_overlaps_are_those_of_all_pairs_of_pixels(data: st.DataObject) -> None:
    shape = data.draw(arrays.array_shapes(min_dims=2, max_dims=2, max_side=6))
    labels = data.draw(arrays.arrays(np.int64, shape, elements=st.integers(0, 3)))
    labels = np.where(labels, np.searchsorted(np.unique(labels[labels > 0]), labels) + 1, 0)
    truth = data.draw(arrays.arrays(np.int64, shape, elements=st.sampled_from([0, 1, 2, 900])))
    graph = region_graph(labels)
    targets = edge_targets(graph, labels, truth)
    for (u, v), target in zip(graph.edges, targets, strict=True):
        first, second = (truth[(labels == node + 1) & (truth > 0)] for node in (u, v))
        if not (len(first) and len(second)):
            assert target == -1
            continue
        overlap = (first[:, None] != second[None, :]).mean()
        if min(abs(overlap - 0.6), abs(overlap - 0.4)) > 1e-9:
            assert target == (1 if overlap > 0.6 else 0 if overlap < 0.4 else -1)


def test_targets_of_a_texture_are_of_both_kinds_and_none_across_slices() -> None:
    one = make_texture((3, 64, 64), 12, seed=2, noise=2)
    labels = superpixels(one.probabilities)
    graph = region_graph(labels)
    targets = edge_targets(graph, labels, one.truth)
    assert graph.across.any()
    assert (targets[graph.across] == -1).all()
    assert {0, 1} <= set(targets[~graph.across].tolist())


def test_a_forest_is_grown_from_the_edges_of_all_slices(texture: Texture) -> None:
    made = SuperpixelsConfig(threshold=0.4)
    raw = np.random.default_rng(0).random(texture.probabilities.shape)
    examples = []
    for image, cells, one in zip(texture.probabilities, texture.truth, raw, strict=True):
        labels, graph, features = describe(image, made, one)
        examples.append((features, edge_targets(graph, labels, cells)))
    forest, error = grow_forest(examples, FEW)
    learned = learn_forest(texture.probabilities, texture.truth, raw, made, FEW)
    assert np.array_equal(learned.forest.threshold, forest.threshold)
    assert learned.forest.names == forest.names
    assert (learned.forest.superpixels, learned.forest.needs_raw, learned.error) == (made, True, error)
    targets = np.concatenate([part for _, part in examples])
    assert (learned.borders, learned.within, learned.ignored) == tuple((targets == kind).sum() for kind in (1, 0, -1))


def test_the_mean_probability_is_measured_for_comparison(texture: Texture) -> None:
    wrong = total = 0
    for image, cells in zip(texture.probabilities, texture.truth, strict=True):
        regions, graph, _ = describe(image)
        targets = edge_targets(graph, regions, cells)
        wrong += int(((graph.edge_means(image) > 0.5) != targets)[targets >= 0].sum())
        total += int((targets >= 0).sum())
    learned = learn_forest(texture.probabilities, texture.truth, settings=FEW)
    assert learned.mean_error == pytest.approx(wrong / total)
    assert not learned.forest.needs_raw


def test_one_slice_is_a_stack_of_one(texture: Texture) -> None:
    one, stack = (
        learn_forest(texture.probabilities[part], texture.truth[part], settings=FEW) for part in (0, slice(1))
    )
    assert np.array_equal(one.forest.threshold, stack.forest.threshold)


def test_progress_is_reported(texture: Texture) -> None:
    seen: list[tuple[str, float]] = []
    learn_forest(
        texture.probabilities, texture.truth, settings=FEW, report=lambda work, done: seen.append((work, done))
    )
    assert seen[:2] == [("slices", 0.5), ("slices", 1.0)]
    assert seen[-1] == ("trees", 1.0)


@pytest.mark.parametrize(("factor", "shift"), [(0.5, 0.0), (0.6, 0.3), (255.0, 0.0)])
def test_neither_brightness_nor_contrast_of_raw_images_matters(texture: Texture, factor: float, shift: float) -> None:
    """Membranes do not change, since the network standardises images: nor must cells."""
    noise = np.random.default_rng(0).normal(0, 0.1, texture.probabilities.shape)
    raw = 1 - texture.probabilities + noise
    forest = learn_forest(texture.probabilities, texture.truth, raw, settings=FEW).forest
    other = make_texture((2, 72, 64), 14, seed=2, noise=2).probabilities
    image = 1 - other + noise
    expected = find_cells(other, forest=forest, raw=image)
    assert np.array_equal(find_cells(other, forest=forest, raw=factor * image + shift), expected)
    assert not np.array_equal(find_cells(other, forest=forest, raw=image[::-1]), expected)  # it does look at them


def test_slices_are_standardised_one_by_one(texture: Texture) -> None:
    raw = np.random.default_rng(0).random(texture.probabilities.shape)
    uneven = raw * np.array([1.0, 0.25])[:, None, None]
    even, other = (
        learn_forest(texture.probabilities, texture.truth, images, settings=FEW).forest for images in (raw, uneven)
    )
    assert np.array_equal(even.threshold, other.threshold)


def test_truth_of_another_shape_and_wrong_limits_are_refused() -> None:
    labels = np.array([[1, 2]])
    with pytest.raises(ValueError, match=r"truth \(2, 1\) must have the shape \(1, 2\)"):
        edge_targets(region_graph(labels), labels, labels.T)
    with pytest.raises(ValueError, match=r"got 0\.7 and 0\.6"):
        edge_targets(region_graph(labels), labels, labels, negative=0.7)


def test_slices_that_do_not_fit_are_refused(texture: Texture) -> None:
    probabilities, cells = texture.probabilities, texture.truth
    with pytest.raises(ValueError, match=r"truth \(1, 72, 64\) and probabilities \(2, 72, 64\) must have the same"):
        learn_forest(probabilities, cells[:1])
    with pytest.raises(ValueError, match=r"raw image \(1, 72, 64\) and probabilities \(2, 72, 64\) must have"):
        learn_forest(probabilities, cells, probabilities[:1])
    with pytest.raises(
        OneKindOfEdgeError, match="expected both borders and other edges to learn from, got 0 borders among 0"
    ):
        learn_forest(probabilities, np.zeros_like(cells))
