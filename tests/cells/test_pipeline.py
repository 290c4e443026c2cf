"""Cells are found in textures with broken membranes, turn with the image, and depend on nothing else."""

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from scipy import ndimage
from skimage.metrics import adapted_rand_error

from cells.conftest import make_texture
from sfcnn.cells.forest import Forest, ForestConfig
from sfcnn.cells.graph import RegionGraph, region_graph
from sfcnn.cells.learning import learn_forest
from sfcnn.cells.multicut import SOLVERS, edge_costs, multicut
from sfcnn.cells.pipeline import CellsConfig, describe, find_cells
from sfcnn.cells.superpixels import SuperpixelsConfig, superpixels, turn, upright_turns

STACK = CellsConfig(joined=True)


def rand_error(labels: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    return float(adapted_rand_error(truth, labels, ignore_labels=(0,))[0])


@functools.cache
def grown_forest(with_raw: bool = False) -> Forest:
    slices = [make_texture((96, 96), 25, seed, noise=2) for seed in (100, 101)]
    probabilities, truth = (np.stack([getattr(one, name) for one in slices]) for name in ("probabilities", "truth"))
    return learn_forest(probabilities, truth, 1 - probabilities if with_raw else None, None, ForestConfig(15)).forest


@pytest.mark.parametrize("seed", range(3))
def test_multicut_beats_superpixels_and_components(seed: int) -> None:
    one = make_texture((128, 128), 35, seed, noise=2)
    components, _ = ndimage.label(one.probabilities < 0.5)
    ours = rand_error(find_cells(one.probabilities), one.truth)
    assert ours < rand_error(superpixels(one.probabilities), one.truth)
    assert ours < rand_error(components, one.truth)
    assert ours < 0.2


def test_cells_are_unions_of_superpixels_numbered_from_one() -> None:
    probabilities = make_texture((96, 96), 25, seed=3).probabilities
    regions, labels = superpixels(probabilities), find_cells(probabilities)
    assert labels.dtype == np.int64
    assert np.array_equal(np.unique(labels), np.arange(1, labels.max() + 1))
    pairs = np.unique(np.stack([regions.ravel(), labels.ravel()]), axis=1)
    assert pairs.shape[1] == regions.max() > labels.max() > 1


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("shape", [(96, 96), (70, 101)])
def test_turning_a_slice_turns_its_cells(solver: str, shape: tuple[int, int]) -> None:
    probabilities = make_texture(shape, 25, seed=4, noise=2).probabilities
    labels = find_cells(probabilities, CellsConfig(solver=solver))
    for turns in (1, 2, 3):
        assert np.array_equal(find_cells(turn(probabilities, turns), CellsConfig(solver=solver)), turn(labels, turns))


@pytest.mark.parametrize("settings", [CellsConfig(), STACK], ids=["slices", "joined"])
@pytest.mark.parametrize("with_forest", [False, True])
def test_turning_a_stack_turns_its_cells(settings: CellsConfig, with_forest: bool) -> None:
    probabilities = make_texture((3, 56, 48), 12, seed=5, noise=2).probabilities
    raw = (255 * np.random.default_rng(0).random(probabilities.shape)).astype(np.uint8)
    forest = grown_forest(with_raw=True) if with_forest else None
    labels = find_cells(probabilities, settings, forest, raw)
    for turns in (1, 2, 3):
        assert np.array_equal(
            find_cells(turn(probabilities, turns), settings, forest, turn(raw, turns)), turn(labels, turns)
        )


@given(
    arrays.arrays(
        np.float32,
        arrays.array_shapes(min_dims=2, max_dims=3, max_side=8),
        elements=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    ),
    st.integers(1, 3),
    st.booleans(),
)
def test_cells_turn_however_many_ties_there_are(probabilities: NDArray[np.float32], turns: int, joined: bool) -> None:
    settings = CellsConfig(SuperpixelsConfig(seed_sigma=0, flood_sigma=1), joined=joined)
    alone = [probabilities] if joined or probabilities.ndim == 2 else probabilities
    assume(not any(np.array_equal(one, turn(one, 2)) for one in alone))
    assert np.array_equal(
        find_cells(turn(probabilities, turns), settings), turn(find_cells(probabilities, settings), turns)
    )


def test_rounding_errors_in_the_probabilities_change_nothing() -> None:
    probabilities = make_texture((96, 96), 25, seed=4).probabilities
    noise = np.random.default_rng(0).uniform(-1e-6, 1e-6, probabilities.shape).astype(np.float32)
    turned = np.clip(turn(probabilities, 1) + noise, 0, 1)
    assert np.array_equal(find_cells(turned), turn(find_cells(probabilities), 1))


def test_slices_are_on_their_own_unless_they_are_joined() -> None:
    probabilities = make_texture((3, 64, 64), 10, seed=6, noise=0.5).probabilities
    apart, joined = find_cells(probabilities), find_cells(probabilities, STACK)
    for index, image in enumerate(probabilities):
        alone = find_cells(image)
        assert np.array_equal(apart[index] - apart[index].min() + 1, alone)
    assert not np.intersect1d(apart[0], apart[1]).size
    assert np.intersect1d(joined[0], joined[1]).size > 3
    assert np.array_equal(np.unique(apart), np.arange(1, apart.max() + 1))


@pytest.mark.parametrize(("settings", "parts"), [(CellsConfig(), [0.25, 0.5, 0.75, 1]), (STACK, [1])])
def test_progress_is_told_slice_by_slice(settings: CellsConfig, parts: list[float]) -> None:
    done: list[float] = []
    find_cells(np.random.default_rng(0).random((4, 16, 16)), settings, report=done.append)
    assert done == parts


def test_joined_cells_follow_the_cells_through_the_stack() -> None:
    one = make_texture((4, 80, 80), 15, seed=7, noise=0.5)
    assert rand_error(find_cells(one.probabilities, STACK), one.truth) < 0.1
    assert rand_error(find_cells(one.probabilities), one.truth) > 0.4  # no label in two slices


def test_costs_across_slices_are_weighed_by_area(monkeypatch: pytest.MonkeyPatch) -> None:
    probabilities = make_texture((3, 48, 48), 8, seed=12).probabilities
    seen = []

    def spy(graph: RegionGraph, costs: NDArray[np.float64], *arguments: Any, **options: Any) -> NDArray[np.int64]:
        seen.append((graph, costs))
        return multicut(graph, costs, *arguments, **options)

    monkeypatch.setattr("sfcnn.cells.pipeline.multicut", spy)
    find_cells(probabilities, CellsConfig(joined=True, beta=0.4, across_weight=3))
    [(graph, costs)] = seen
    labels = superpixels(turn(probabilities, upright_turns(probabilities, 0.3)))
    assert np.array_equal(region_graph(labels).edges, graph.edges)
    plain = edge_costs(graph.edge_means(turn(probabilities, upright_turns(probabilities, 0.3))), 0.4)
    areas = graph.sizes / graph.sizes[graph.across].max()
    np.testing.assert_allclose(costs, np.where(graph.across, 3 * areas * plain, plain))
    apart = find_cells(probabilities, CellsConfig(joined=True, across_weight=0))
    assert not np.intersect1d(apart[0], apart[1]).size


def test_a_stack_of_one_slice_is_that_slice() -> None:
    probabilities = make_texture((64, 60), 10, seed=8).probabilities
    for settings in (CellsConfig(), STACK):
        assert np.array_equal(find_cells(probabilities[None], settings)[0], find_cells(probabilities, settings))


def test_a_forest_finds_cells_too() -> None:
    errors = []
    for seed in range(3):
        one = make_texture((96, 96), 25, seed, noise=2)
        errors.append(rand_error(find_cells(one.probabilities, forest=grown_forest()), one.truth))
    assert np.mean(errors) < 0.2


def test_a_forest_says_nothing_about_edges_across_slices() -> None:
    probabilities = make_texture((2, 64, 64), 10, seed=9).probabilities
    probabilities[1] = probabilities[0]
    leaf = np.zeros(1, dtype=np.int64)
    never = Forest(describe(probabilities)[2].names, leaf, leaf, leaf, leaf, np.zeros(1), np.ones(1))  # all are borders
    labels = find_cells(probabilities, STACK, never)
    assert labels[0].max() == superpixels(probabilities[0]).max()  # within slices all are cut
    assert np.array_equal(labels[0], labels[1])  # and each region stays with its twin in the other slice


def test_a_larger_beta_makes_more_cells() -> None:
    probabilities = make_texture((128, 128), 35, seed=10, noise=2).probabilities
    counts = [find_cells(probabilities, CellsConfig(beta=beta)).max() for beta in (0.02, 0.5, 0.98)]
    assert counts[0] < counts[1] < counts[2]


@pytest.mark.parametrize("shape", [(1, 1), (6, 5), (2, 6, 5)])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_constant_images_are_one_cell_per_slice(shape: tuple[int, ...], value: float) -> None:
    labels = find_cells(np.full(shape, value, dtype=np.float32))
    assert labels.shape == shape
    assert labels.max() == (shape[0] if len(shape) == 3 else 1)


def test_images_and_forests_that_do_not_fit_are_refused() -> None:
    probabilities = make_texture((48, 48), 8, seed=11).probabilities
    with pytest.raises(ValueError, match=r"from 0 to 2"):
        find_cells(np.array([[0.0, 2.0]]))
    with pytest.raises(ValueError, match=r"raw image \(3, 3\) and probabilities \(48, 48\)"):
        find_cells(probabilities, raw=np.zeros((3, 3)))
    with pytest.raises(ValueError, match="the forest was trained on raw images: pass the raw image"):
        find_cells(probabilities, forest=grown_forest(with_raw=True))


def test_raw_images_are_for_forests_that_have_learned_from_such() -> None:
    probabilities = make_texture((48, 48), 8, seed=11).probabilities
    for forest in (None, grown_forest()):
        expected = find_cells(probabilities, forest=forest)
        assert np.array_equal(find_cells(probabilities, forest=forest, raw=1 - probabilities), expected)


def test_superpixels_are_those_of_the_forest_unless_settings_are_given() -> None:
    probabilities = make_texture((96, 96), 25, seed=3, noise=2).probabilities
    made = SuperpixelsConfig(threshold=0.7, seed_sigma=1.0)
    forest = replace(grown_forest(), superpixels=made)
    assert np.array_equal(
        find_cells(probabilities, forest=forest), find_cells(probabilities, CellsConfig(made), grown_forest())
    )
    assert np.array_equal(
        find_cells(probabilities, CellsConfig(), forest), find_cells(probabilities, forest=grown_forest())
    )
    assert not np.array_equal(find_cells(probabilities, CellsConfig(), forest), find_cells(probabilities, None, forest))


def test_a_forest_of_version_0_1_gets_images_as_they_are() -> None:
    """One that takes edges with values below 0 for borders finds none in images from black, 0, to white, 1."""
    probabilities = make_texture((48, 48), 8, seed=11).probabilities
    raw = 1 - probabilities  # dark membranes
    names = describe(probabilities, raw=raw)[2].names
    root, leaf = np.array([0]), names.index("raw value edge mean")
    feature, border = np.array([leaf, 0, 0]), np.array([0.5, 1.0, 0.0])
    new = Forest(names, root, np.array([1, 1, 2]), np.array([2, 1, 2]), feature, np.zeros(3), border)
    assert find_cells(probabilities, forest=new, raw=raw).max() > 3
    assert find_cells(probabilities, forest=replace(new, standardized=False), raw=raw).max() == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"solver": "ilp"}, "unknown solver 'ilp', choose one of"),
        ({"beta": 1}, "beta must be in"),
        ({"time_limit": -1}, "time_limit must be at least 0"),
        ({"across_weight": np.nan}, "across_weight must be at least 0"),
    ],
)
def test_settings_without_sense_are_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CellsConfig(**values)  # type: ignore[arg-type]
