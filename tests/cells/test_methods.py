"""The four ways to find cells: on drawings with known cells, turned, corrupted, beside each other."""

import functools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import ndimage

from cells.conftest import make_texture
from cells.drawings import (
    Drawing,
    as_partition,
    corrupt,
    disks,
    gap_affinities,
    gap_probabilities,
    nested,
    same_cells,
    true_affinities,
    two_rooms,
)
from segmentation.test_predict import make_run
from sfcnn.cells.affinities import Affinities
from sfcnn.cells.apply import segment
from sfcnn.cells.comparison import Prediction, candidates, compare_methods, predict_slices
from sfcnn.cells.forest import ForestConfig
from sfcnn.cells.learning import learn_forest
from sfcnn.cells.lifted import LiftedConfig
from sfcnn.cells.mutex import MutexConfig
from sfcnn.cells.pipeline import BY_AFFINITIES, BY_SUPERPIXELS, METHODS, CellsConfig, find_cells
from sfcnn.cells.scoring import StackScores, score_labels
from sfcnn.cells.superpixels import SuperpixelsConfig, superpixels, turn
from sfcnn.pretrained import load
from sfcnn.segmentation.config import UNetConfig

true = functools.cache(lambda drawing: true_affinities(drawing()))


def v_rand(labels: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    return score_labels(labels, truth).v_rand.best


def best_union(probabilities: NDArray[np.float32], truth: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each superpixel to the true cell that has most of it: no multicut can be better."""
    regions = superpixels(probabilities)
    table = np.zeros((regions.max() + 1, truth.max() + 1), np.int64)
    np.add.at(table, (regions, truth), truth > 0)
    return table.argmax(axis=1)[regions]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("drawing", [disks, nested])
def test_every_method_finds_what_is_drawn(method: str, drawing: Drawing) -> None:
    truth = drawing()
    probabilities = np.where(truth == 0, 0.9, 0.05).astype(np.float32)
    found = find_cells(probabilities, CellsConfig(method=method), affinities=true(drawing))
    assert np.array_equal(np.unique(found), np.arange(1, found.max() + 1))
    best = best_union(probabilities, truth)
    if method == "multicut" and drawing is disks:
        # Superpixels of two disks spill over their membranes and touch in four places, where there is no membrane:
        # only long pairs know better.
        assert found.max() == truth.max() - 1
        assert v_rand(found, truth) < v_rand(best, truth)
    elif method in BY_SUPERPIXELS:
        assert as_partition(found) == as_partition(best)
    else:
        assert same_cells(found, truth)


def test_a_gap_in_a_wall_that_only_long_pairs_see() -> None:
    truth = two_rooms(gap=True)
    probabilities, affinities = gap_probabilities(truth), gap_affinities(truth)
    for method in METHODS:
        settings = CellsConfig(method=method, mutex=MutexConfig(stride=1))
        found = find_cells(probabilities, settings, affinities=affinities)
        if method in BY_AFFINITIES:
            assert v_rand(found, truth) > 0.95
            assert found.max() == 2
        else:
            assert found.max() == 1
    never = CellsConfig(method="lifted-multicut", lifted=LiftedConfig(weight=0))
    assert find_cells(probabilities, never, affinities=affinities).max() == 1


@functools.cache
def corrupted(seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64], Affinities]:
    """A texture with weak membranes, which short pairs do not see either, and long pairs with a lot of noise."""
    one = make_texture((72, 72), 14, seed, noise=1)
    generator = np.random.default_rng(seed)
    weak = ndimage.gaussian_filter(generator.standard_normal((72, 72)), 4)
    probabilities = np.where(weak > 0, 0.1, 1) * one.probabilities
    noisy = corrupt(true_affinities(one.truth), noise=2, seed=seed)
    short = 1 - probabilities  # as good and as bad as the probabilities
    values = np.concatenate([np.broadcast_to(short, (1, 8, 72, 72)), noisy.values[1:]]).astype(np.float32)
    return probabilities.astype(np.float32), one.truth, Affinities(values, noisy.radii)


def test_long_pairs_recover_what_a_multicut_merges() -> None:
    scores: dict[str, list[float]] = {method: [] for method in METHODS}
    for seed in range(3):
        probabilities, truth, affinities = corrupted(seed)
        for method in METHODS:
            settings = CellsConfig(method=method, mutex=MutexConfig(bias=0.0, minimum_size=30))
            scores[method].append(v_rand(find_cells(probabilities, settings, affinities=affinities), truth))
    means = {method: float(np.mean(values)) for method, values in scores.items()}
    assert means["lifted-multicut"] > means["multicut"] + 0.1
    assert means["mutex-watershed"] > means["multicut"] + 0.1
    assert means["threshold"] < means["lifted-multicut"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("height", "width", "orientations"), [(40, 40, 8), (30, 47, 4), (31, 40, 12)])
def test_turning_a_slice_turns_its_cells(method: str, height: int, width: int, orientations: int) -> None:
    one = make_texture((height, width), 8, seed=2, noise=2)
    values = np.random.default_rng(0).random((2, orientations, height, width)).astype(np.float32)
    affinities = Affinities(0.5 * values + 0.5 * (1 - one.probabilities), (1, 4))
    settings = CellsConfig(method=method, mutex=MutexConfig(minimum_size=4))
    labels = find_cells(one.probabilities, settings, affinities=affinities)
    assert labels.max() > 2
    for turns in (1, 2, 3):
        turned = find_cells(turn(one.probabilities, turns), settings, affinities=affinities.turned(turns))
        assert np.array_equal(turned, turn(labels, turns))


@pytest.mark.parametrize("method", BY_AFFINITIES)
@pytest.mark.parametrize("orientations", [2, 5, 6])
def test_other_numbers_of_orientations_are_taken_as_they_come(method: str, orientations: int) -> None:
    truth = two_rooms(24)
    probabilities = np.where(truth == 0, 0.9, 0.05).astype(np.float32)
    affinities = true_affinities(truth, orientations=orientations)
    if orientations == 2 and method == "mutex-watershed":
        with pytest.raises(ValueError, match="must connect neighbouring pixels"):
            find_cells(probabilities, CellsConfig(method=method), affinities=affinities)
    else:
        assert same_cells(find_cells(probabilities, CellsConfig(method=method), affinities=affinities), truth)


@pytest.mark.parametrize("method", METHODS)
def test_slices_of_a_stack_are_found_one_by_one(method: str) -> None:
    labels = np.stack([disks(), nested()])
    probabilities = np.where(labels == 0, 0.9, 0.05).astype(np.float32)
    affinities = Affinities(np.stack([true(disks).values, true(nested).values]), true(disks).radii)
    settings = CellsConfig(method=method)
    found = find_cells(probabilities, settings, affinities=affinities)
    last = 0
    assert len(affinities) == 2
    for index, cells in enumerate(found):
        assert np.array_equal(cells, find_cells(probabilities[index], settings, affinities=affinities[index]) + last)
        last = cells.max()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 12), (20, 15)])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_one_cell_only_and_no_cell_at_all(method: str, shape: tuple[int, int], value: float) -> None:
    affinities = Affinities(np.full((2, 8, *shape), 1 - value, np.float32), (1, 9))
    found = find_cells(np.full(shape, value, np.float32), CellsConfig(method=method), affinities=affinities)
    assert found.shape == shape
    assert (found == 1).all()


def test_the_threshold_is_that_of_superpixels() -> None:
    wall = np.zeros((6, 9), np.float32)
    wall[:, 4] = 0.5
    counts = []
    for threshold in (0.4, 0.6):
        settings = CellsConfig(SuperpixelsConfig(threshold=threshold), method="threshold")
        counts.append(find_cells(wall, settings).max())
    assert counts == [2, 1]


@pytest.mark.parametrize("method", BY_AFFINITIES)
def test_affinities_that_are_missing_or_do_not_fit_are_refused(method: str) -> None:
    probabilities = np.zeros((8, 9), np.float32)
    with pytest.raises(ValueError, match=rf"'{method}' needs affinities.*one of \['threshold', 'multicut'\]"):
        find_cells(probabilities, CellsConfig(method=method))
    affinities = Affinities(np.zeros((1, 4, 9, 8)), (1,))
    with pytest.raises(ValueError, match=r"affinities of an image \(9, 8\) and probabilities \(8, 9\)"):
        find_cells(probabilities, CellsConfig(method=method), affinities=affinities)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"method": "graph-cut"}, r"unknown method 'graph-cut', choose one of \['threshold'"),
        (
            {"method": "lifted-multicut", "solver": "exact"},
            "unknown solver 'exact', choose one of \\['greedy', 'kernighan-lin', 'fusion-moves'\\]",
        ),
        ({"method": "mutex-watershed", "joined": True}, "needs the method 'multicut', got 'mutex-watershed'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CellsConfig(**values)  # type: ignore[arg-type]


def test_the_comparison_chooses_on_some_slices_and_scores_others() -> None:
    predictions = []
    for seed in (0, 1):
        probabilities, truth, affinities = corrupted(seed)
        values = affinities.values[None, ..., :44, :44]
        slices = Affinities(values, affinities.radii)
        predictions.append(Prediction(probabilities[None, :44, :44], truth[None, :44, :44], slices))
    chosen_on, scored_on = predictions

    def scores(slices: Prediction, config: CellsConfig) -> StackScores:
        return score_labels(find_cells(slices.probabilities, config, affinities=slices.affinities), slices.truth)

    settings = CellsConfig(mutex=MutexConfig(minimum_size=30))
    table = compare_methods(chosen_on, scored_on, settings=settings)
    assert list(table) == list(METHODS)
    for method, row in table.items():
        tried = candidates(method, settings)
        found = {name: scores(chosen_on, config).v_rand.best for name, config in tried.items()}
        assert row.chosen_v_rand == found[row.settings] == max(found.values())
        assert row.config == tried[row.settings]
        reported = scores(scored_on, row.config)
        assert (row.scores.v_rand, row.scores.v_info) == (reported.v_rand, reported.v_info)
        assert score_labels(row.cells, scored_on.truth).v_rand == row.scores.v_rand
    best = {method: row.scores.v_rand.best for method, row in table.items()}
    assert best["multicut"] < min(best[method] for method in BY_AFFINITIES)  # long pairs help
    without = replace(scored_on, affinities=None)
    assert list(compare_methods(chosen_on, without, ("threshold", "mutex-watershed"))) == ["threshold"]


def test_a_forest_learns_from_the_slices_that_choose() -> None:
    slices = []
    for seed in (0, 1):
        probabilities, truth, _ = corrupted(seed)
        slices.append(Prediction(probabilities[None], truth[None], images=1 - probabilities[None]))
    chosen_on, scored_on = slices
    settings = ForestConfig(trees=7)
    found = compare_methods(chosen_on, scored_on, (), forest=settings)["forest"]
    learned = learn_forest(chosen_on.probabilities, chosen_on.truth, chosen_on.images, settings=settings).forest
    expected = find_cells(scored_on.probabilities, None, learned, scored_on.images)
    np.testing.assert_array_equal(found.cells, expected)
    assert (found.settings, found.chosen_v_rand) == ("7 trees", None)
    empty = Prediction(np.zeros((1, 40, 40)), np.ones((1, 40, 40), np.int64))
    assert compare_methods(empty, scored_on, (), forest=settings) == {}  # nothing to learn from


@pytest.mark.parametrize("radii", [(), (1.0, 3.0)])
def test_predictions_of_slices_are_those_of_the_network(radii: tuple[float, ...], tmp_path: Path) -> None:
    model = UNetConfig(orientations=4, channels=2, levels=2, input_kernel_size=3, kernel_size=3, affinities=radii)
    make_run(tmp_path, model=model)
    network = load(tmp_path)
    images = np.stack([make_texture((40, 48), 8, seed=seed).probabilities for seed in (0, 1)])
    found = predict_slices(network, images, np.ones(images.shape, np.int64), "all")
    expected = network.predict(images, average="all")
    np.testing.assert_allclose(found.probabilities, expected, rtol=0, atol=1e-6)
    if not radii:
        assert found.affinities is None
        return
    assert found.affinities is not None
    one = network.predict_affinities(images[1], average="all").affinities
    np.testing.assert_array_equal(found.affinities[1].values, one)


@pytest.mark.parametrize("radii", [(), (1.0, 3.0)])
def test_slices_that_are_not_predicted_are_neighbours(radii: tuple[float, ...], tmp_path: Path) -> None:
    model = UNetConfig(orientations=4, channels=2, levels=2, input_kernel_size=3, kernel_size=3, affinities=radii)
    network = make_run(tmp_path, model, neighbours=1)
    images = np.stack([make_texture((40, 48), 8, seed=seed).probabilities for seed in range(3)])
    truth = np.arange(3)[:, None, None] * np.ones(images.shape, np.int64)
    found = predict_slices(network, images, truth, only=[1, 2])
    np.testing.assert_array_equal(found.probabilities, network.predict(images)[1:])
    np.testing.assert_array_equal(found.truth, truth[1:])
    np.testing.assert_array_equal(found.images, images[1:])
    assert not np.allclose(found.probabilities, network.predict(images[1:]))
    settings = CellsConfig(method="mutex-watershed" if radii else "multicut")
    whole, part = (segment(network, images, settings=settings, only=only) for only in (None, [1]))
    np.testing.assert_array_equal(part.probabilities, whole.probabilities[1:2])
    assert as_partition(part.labels[0]) == as_partition(whole.labels[1])


def test_a_network_without_affinities_says_so_and_its_forest_is_for_superpixels_only() -> None:
    network = load("isbi2012")
    image = make_texture((64, 64), 8, seed=1).probabilities
    for method in BY_AFFINITIES:
        with pytest.raises(ValueError, match=rf"'{method}' needs a network that was trained with affinities"):
            segment(network, image, settings=CellsConfig(method=method))
    found = segment(network, image, settings=CellsConfig(method="threshold"), forest=object())
    assert np.array_equal(found.labels, find_cells(found.probabilities, CellsConfig(method="threshold")))


@pytest.mark.parametrize("method", BY_AFFINITIES)
def test_an_image_turned_gives_its_cells_turned(method: str, tmp_path: Path) -> None:
    """From the image on: by the affinities of a network, which has learned nothing but turns as it should."""
    model = UNetConfig(orientations=4, channels=2, levels=2, input_kernel_size=3, kernel_size=3, affinities=(1, 3, 9))
    network = make_run(tmp_path / "run", model)
    image = np.random.default_rng(0).random((32, 48), np.float32)
    settings = CellsConfig(method=method)
    upright, turned = (segment(network, picture, settings=settings) for picture in (image, np.rot90(image)))
    assert upright.labels.max() > 1
    assert as_partition(turned.labels) == as_partition(np.rot90(upright.labels))
    np.testing.assert_allclose(turned.probabilities, np.rot90(upright.probabilities), atol=1e-5)
    twice = segment(network, np.stack([image, image]), settings=settings, stack=True)
    assert np.array_equal(twice.labels[0], twice.labels[1])  # linked to itself
    assert as_partition(twice.labels[0]) == as_partition(upright.labels)
