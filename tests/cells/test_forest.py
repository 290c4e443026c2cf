"""Predictions against scikit-learn's; files that come back or are refused."""

import functools
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

import sfcnn.cells.forest
from cells.conftest import make_texture
from sfcnn.cells.features import Features, edge_features
from sfcnn.cells.forest import (
    Forest,
    ForestConfig,
    OneKindOfEdgeError,
    from_scikit_learn,
    grow_forest,
)
from sfcnn.cells.graph import region_graph
from sfcnn.cells.learning import edge_targets
from sfcnn.cells.superpixels import SuperpixelsConfig, superpixels
from sfcnn.io.state import DamagedStateError, read_state, write_state
from sfcnn.pretrained import find_run

NAMES = ("a", "b", "c")


def example(seed: int) -> tuple[Features, NDArray[np.int8]]:
    one = make_texture((96, 96), 25, seed, noise=2)
    labels = superpixels(one.probabilities)
    graph = region_graph(labels)
    features = edge_features(graph, labels, {"probability": one.probabilities})
    return features, edge_targets(graph, labels, one.truth)


def random_examples(count: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    generator = np.random.default_rng(seed)
    values = generator.integers(-3, 4, (count, 3)) / 4  # many values lie on a threshold or beside it
    targets = values.sum(axis=1) + generator.normal(0, 0.5, count) > 0
    return values.astype(np.float32), targets.astype(np.int8)


@functools.cache
def small_forest() -> Forest:
    values, targets = random_examples(60, 0)
    return grow_forest([(Features(NAMES, values), targets)], ForestConfig(trees=5))[0]


@pytest.mark.parametrize("depth", [None, 1, 4])
def test_predictions_equal_those_of_scikit_learn(depth: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sfcnn.cells.forest, "_CHUNK", 1000)  # so that there are several chunks
    theirs = RandomForestClassifier(30, max_depth=depth, random_state=0).fit(*random_examples(300, 0))
    ours = from_scikit_learn(theirs, NAMES)
    values = np.concatenate([random_examples(500, 1)[0], ours.threshold[:50, None].repeat(3, axis=1)]).astype(
        np.float32
    )
    predicted = ours.predict(Features(NAMES, values))
    np.testing.assert_allclose(predicted, theirs.predict_proba(values)[:, 1], rtol=0, atol=1e-12)
    assert predicted.std() > 0.05


def test_predictions_are_means_of_the_leaves_that_edges_come_to(monkeypatch: pytest.MonkeyPatch) -> None:
    forest, values = small_forest(), random_examples(90, 3)[0]

    def leaf(node: int, edge: NDArray[np.float32]) -> float:
        while forest.left[node] != node:
            smaller = edge[forest.feature[node]] <= forest.threshold[node]
            node = forest.left[node] if smaller else forest.right[node]
        return float(forest.probability[node])

    walked = [np.mean([leaf(root, edge) for root in forest.roots]) for edge in values]
    for chunk in (1, 100, 10**6):
        monkeypatch.setattr(sfcnn.cells.forest, "_CHUNK", chunk)
        assert np.array_equal(forest.predict(Features(NAMES, values)), walked)


def test_no_edges_get_no_predictions() -> None:
    assert small_forest().predict(Features(NAMES, np.empty((0, 3), dtype=np.float32))).shape == (0,)


def test_a_forest_learns_borders_and_is_the_same_every_time() -> None:
    learned, unseen = example(0), example(1)
    forest, _ = grow_forest([learned], ForestConfig(trees=20))
    features, targets = unseen
    predicted = forest.predict(features)
    assert predicted[targets == 1].mean() > 0.8
    assert predicted[targets == 0].mean() < 0.5
    again, _ = grow_forest([learned], ForestConfig(trees=20))
    assert np.array_equal(again.predict(features), predicted)
    other, _ = grow_forest([learned], ForestConfig(trees=20, seed=1))
    assert not np.array_equal(other.predict(features), predicted)


@pytest.mark.parametrize("trees", [1, 7, 45])
def test_a_forest_that_tells_how_far_it_is_has_the_same_trees(trees: int) -> None:
    values, targets = random_examples(300, 0)
    done: list[float] = []
    forest, error = grow_forest([(Features(NAMES, values), targets)], ForestConfig(trees=trees), done.append)
    assert done == sorted(set(done))
    assert len(done) == min(trees, 20)
    assert done[-1] == 1
    theirs = RandomForestClassifier(trees, random_state=0).fit(values, targets)
    assert np.array_equal(forest.threshold, from_scikit_learn(theirs, NAMES).threshold)
    assert np.array_equal(forest.probability, from_scikit_learn(theirs, NAMES).probability)
    votes = np.zeros((2, len(targets)))
    for tree, drawn in zip(theirs.estimators_, theirs.estimators_samples_, strict=True):
        unseen = np.setdiff1d(np.arange(len(targets)), drawn)
        votes[:, unseen] += tree.predict_proba(values[unseen]).T
    tested = votes.sum(axis=0) > 0
    assert error == np.mean(((votes[1] > votes[0]) != targets)[tested])
    assert 0 < error < 0.5


def test_no_error_is_told_of_edges_that_every_tree_has_seen() -> None:
    twice = Features(NAMES, np.eye(2, 3, dtype=np.float32)), np.array([0, 1], np.int8)
    errors = [grow_forest([twice], ForestConfig(trees=1, seed=seed))[1] for seed in range(8)]
    assert np.isnan(errors).any()
    assert not np.isnan(errors).all()


def test_edges_to_be_ignored_are_ignored() -> None:
    values, targets = random_examples(60, 0)
    more = np.concatenate([values, np.full((40, 3), 9, dtype=np.float32)])
    ignored = np.concatenate([targets, np.full(40, -1, dtype=np.int8)])
    forest, _ = grow_forest([(Features(NAMES, more), ignored)], ForestConfig(trees=5))
    assert np.array_equal(forest.threshold, small_forest().threshold)
    halves = [(Features(NAMES, values[part]), targets[part]) for part in (slice(0, 25), slice(25, 60))]
    assert np.array_equal(grow_forest(halves, ForestConfig(trees=5))[0].threshold, small_forest().threshold)


def test_a_saved_forest_comes_back_to_the_bit(tmp_path: Path) -> None:
    forest = replace(small_forest(), superpixels=SuperpixelsConfig(threshold=0.4, minimum_size=7))
    forest.save(tmp_path / "edges.safetensors")
    kept = Forest.load(tmp_path / "edges.safetensors")
    assert (kept.superpixels, kept.standardized) == (forest.superpixels, True)
    values = random_examples(200, 2)[0]
    assert kept.names == forest.names
    assert np.array_equal(kept.predict(Features(NAMES, values)), forest.predict(Features(NAMES, values)))


def test_the_forest_that_ships_does_not_depend_on_brightness() -> None:
    forest = Forest.load(find_run("isbi2012") / "edges.safetensors")
    assert forest.standardized
    assert forest.needs_raw
    assert len(forest.roots) == 200


def test_a_file_of_the_first_kind_has_learned_from_images_as_they_are(tmp_path: Path) -> None:
    """Version 0.1 did not standardise them."""
    path = tmp_path / "edges.safetensors"
    small_forest().save(path)
    write_state(path, read_state(path) | {"kind": "sfcnn edge forest 1"})
    old = Forest.load(path)
    assert not old.standardized
    old.save(path)
    assert read_state(path)["kind"] == "sfcnn edge forest 1"
    write_state(path, read_state(path) | {"kind": "sfcnn edge forest 3"})
    with pytest.raises(DamagedStateError, match="is not a forest of edge probabilities"):
        Forest.load(path)


class Trap:
    """Runs when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return pytest.fail, ("a file was unpickled",)


def test_a_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    path = tmp_path / "edges.safetensors"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DamagedStateError, match="not a complete state"):
        Forest.load(path)


def test_other_checkpoints_are_refused(tmp_path: Path) -> None:
    write_state(tmp_path / "best.safetensors", {"model": {"weight": torch.ones(2)}})
    with pytest.raises(DamagedStateError, match="is not a forest of edge probabilities"):
        Forest.load(tmp_path / "best.safetensors")


def broken(name: str, place: int, value: float) -> Forest:
    array = getattr(small_forest(), name).copy()
    array[place] = value
    return replace(small_forest(), **{name: array})


@pytest.mark.parametrize(
    "forest",
    [
        broken("left", 0, 10**6),
        broken("right", 0, -1),
        broken("left", 1, 0),  # back to the root: a way without an end
        broken("feature", 0, 3),
        broken("feature", 0, -1),
        broken("roots", 0, 10**6),
        replace(small_forest(), roots=np.empty(0, np.int64)),
        replace(small_forest(), names=()),
        replace(small_forest(), left=small_forest().left[:-1]),
        replace(small_forest(), feature=small_forest().feature.astype(np.float64)),
    ],
)
def test_trees_that_lead_astray_are_refused(forest: Forest, tmp_path: Path) -> None:
    forest.save(tmp_path / "edges.safetensors")
    with pytest.raises(DamagedStateError, match="does not contain a complete forest"):
        Forest.load(tmp_path / "edges.safetensors")


@pytest.mark.parametrize(
    "change",
    [
        {"names": None},
        {"trees": None},
        {"trees": {}},
        {"superpixels": None},
        {"superpixels": {"size": 3}},
        {"superpixels": {"threshold": 2.0}},
        {"superpixels": {"threshold": "high"}},
    ],
    ids=str,
)
def test_a_file_that_lacks_a_part_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    small_forest().save(tmp_path / "edges.safetensors")
    write_state(tmp_path / "part.safetensors", {**read_state(tmp_path / "edges.safetensors"), **change})
    with pytest.raises(DamagedStateError, match=r"part\.safetensors does not contain a complete forest"):
        Forest.load(tmp_path / "part.safetensors")


def test_other_features_than_those_learned_from_are_refused() -> None:
    values, targets = random_examples(60, 0)
    with pytest.raises(ValueError, match="features that the forest was trained on"):
        small_forest().predict(Features(("a", "b", "d"), values))
    with pytest.raises(ValueError, match="examples with the same features"):
        grow_forest([(Features(NAMES, values), targets), (Features(("a", "b", "d"), values), targets)])
    with pytest.raises(ValueError, match="or none"):
        grow_forest([])


@pytest.mark.parametrize("only", [0, 1, -1])
def test_edges_of_one_kind_are_not_enough_to_learn_from(only: int) -> None:
    values, targets = random_examples(60, 0)
    with pytest.raises(OneKindOfEdgeError, match="both borders and other edges"):
        grow_forest([(Features(NAMES, values), np.full_like(targets, only))])


@pytest.mark.parametrize("values", [{"trees": 0}, {"depth": -1}, {"seed": -1}])
def test_settings_without_sense_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(values))} must be at least"):
        ForestConfig(**values)
