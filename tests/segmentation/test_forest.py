"""Targets against a count of pixel pairs, predictions against scikit-learn's, files that come back or are refused."""

import functools
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

import sfcnn.segmentation.forest
from segmentation.conftest import make_texture
from sfcnn.segmentation.features import Features, edge_features
from sfcnn.segmentation.forest import (
    Forest,
    ForestConfig,
    edge_targets,
    from_scikit_learn,
    grow_and_test,
    grow_forest,
)
from sfcnn.segmentation.graph import region_graph
from sfcnn.segmentation.superpixels import SuperpixelsConfig, superpixels
from sfcnn.training.checkpoint import DamagedCheckpointError, read_state, write_state

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
    return grow_forest([(Features(NAMES, random_examples(60, 0)[0]), random_examples(60, 0)[1])], ForestConfig(trees=5))


@pytest.mark.parametrize("depth", [None, 1, 4])
def test_predictions_equal_those_of_scikit_learn(depth: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sfcnn.segmentation.forest, "_CHUNK", 1000)  # so that there are several chunks
    theirs = RandomForestClassifier(30, max_depth=depth, random_state=0).fit(*random_examples(300, 0))
    ours = from_scikit_learn(theirs, NAMES)
    values = np.concatenate([random_examples(500, 1)[0], ours.threshold[:50, None].repeat(3, axis=1)]).astype(
        np.float32
    )
    predicted = ours.predict(Features(NAMES, values))
    np.testing.assert_allclose(predicted, theirs.predict_proba(values)[:, 1], rtol=0, atol=1e-12)
    assert predicted.std() > 0.05


def test_no_edges_get_no_predictions() -> None:
    assert small_forest().predict(Features(NAMES, np.empty((0, 3), dtype=np.float32))).shape == (0,)


def test_a_forest_learns_borders_and_is_the_same_every_time() -> None:
    learned, unseen = example(0), example(1)
    forest = grow_forest([learned], ForestConfig(trees=20))
    features, targets = unseen
    predicted = forest.predict(features)
    assert predicted[targets == 1].mean() > 0.8
    assert predicted[targets == 0].mean() < 0.5
    again = grow_forest([learned], ForestConfig(trees=20))
    assert np.array_equal(again.predict(features), predicted)
    other = grow_forest([learned], ForestConfig(trees=20, seed=1))
    assert not np.array_equal(other.predict(features), predicted)


@pytest.mark.parametrize("trees", [1, 7, 45])
def test_a_forest_that_tells_how_far_it_is_has_the_same_trees(trees: int) -> None:
    values, targets = random_examples(300, 0)
    done: list[float] = []
    forest, error = grow_and_test([(Features(NAMES, values), targets)], ForestConfig(trees=trees), done.append)
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
    errors = [grow_and_test([twice], ForestConfig(trees=1, seed=seed))[1] for seed in range(8)]
    assert np.isnan(errors).any()
    assert not np.isnan(errors).all()


def test_edges_to_be_ignored_are_ignored() -> None:
    values, targets = random_examples(60, 0)
    more = np.concatenate([values, np.full((40, 3), 9, dtype=np.float32)])
    ignored = np.concatenate([targets, np.full(40, -1, dtype=np.int8)])
    forest = grow_forest([(Features(NAMES, more), ignored)], ForestConfig(trees=5))
    assert np.array_equal(forest.threshold, small_forest().threshold)
    halves = [(Features(NAMES, values[part]), targets[part]) for part in (slice(0, 25), slice(25, 60))]
    assert np.array_equal(grow_forest(halves, ForestConfig(trees=5)).threshold, small_forest().threshold)


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


def test_a_saved_forest_comes_back_to_the_bit(tmp_path: Path) -> None:
    forest = replace(small_forest(), superpixels=SuperpixelsConfig(threshold=0.4, minimum_size=7))
    forest.save(tmp_path / "edges.safetensors")
    kept = Forest.load(tmp_path / "edges.safetensors")
    assert kept.superpixels == forest.superpixels
    values = random_examples(200, 2)[0]
    assert kept.names == forest.names
    assert np.array_equal(kept.predict(Features(NAMES, values)), forest.predict(Features(NAMES, values)))


class Trap:
    """Runs when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return pytest.fail, ("a file was unpickled",)


def test_a_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    path = tmp_path / "edges.safetensors"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DamagedCheckpointError, match="not a whole checkpoint"):
        Forest.load(path)


def test_other_checkpoints_are_refused(tmp_path: Path) -> None:
    write_state(tmp_path / "best.safetensors", {"model": {"weight": torch.ones(2)}})
    with pytest.raises(DamagedCheckpointError, match="no forest of edge probabilities"):
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
        broken("threshold", 0, np.nan),
        broken("probability", 0, 1.5),
        replace(small_forest(), left=small_forest().left[:-1]),
        replace(small_forest(), left=small_forest().left.astype(np.int32)),
        replace(small_forest(), names=()),
        replace(small_forest(), names=("a", "b", 3)),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_trees_that_lead_astray_are_refused(forest: Forest, tmp_path: Path) -> None:
    forest.save(tmp_path / "edges.safetensors")
    with pytest.raises(DamagedCheckpointError, match="no forest that can be evaluated"):
        Forest.load(tmp_path / "edges.safetensors")


def test_a_file_without_trees_is_refused(tmp_path: Path) -> None:
    small_forest().save(tmp_path / "edges.safetensors")
    state = read_state(tmp_path / "edges.safetensors")
    no_roots = {"trees": {**state["trees"], "roots": torch.empty(0, dtype=torch.int64)}}
    changes: list[dict[str, Any]] = [{"names": None}, {"trees": None}, {"trees": {}}, no_roots]
    for change in changes:
        write_state(tmp_path / "part.safetensors", {**state, **change})
        with pytest.raises(DamagedCheckpointError, match="no forest that can be evaluated"):
            Forest.load(tmp_path / "part.safetensors")


@pytest.mark.parametrize("made", [None, 3, {"size": 3}, {"threshold": 2.0}, {"threshold": "high"}, {"threshold": None}])
def test_a_file_that_does_not_tell_of_its_superpixels_is_refused(made: Any, tmp_path: Path) -> None:
    small_forest().save(tmp_path / "edges.safetensors")
    state = read_state(tmp_path / "edges.safetensors")
    write_state(tmp_path / "part.safetensors", {**state, "superpixels": made})
    with pytest.raises(DamagedCheckpointError, match="does not say how its superpixels were made"):
        Forest.load(tmp_path / "part.safetensors")


def test_other_features_than_those_learned_from_are_refused() -> None:
    values, targets = random_examples(60, 0)
    with pytest.raises(ValueError, match="grown on other features"):
        small_forest().predict(Features(("a", "b", "d"), values))
    with pytest.raises(ValueError, match="examples with the same features"):
        grow_forest([(Features(NAMES, values), targets), (Features(("a", "b", "d"), values), targets)])
    with pytest.raises(ValueError, match="or none"):
        grow_forest([])


@pytest.mark.parametrize("only", [0, 1, -1])
def test_edges_of_one_kind_are_not_enough_to_learn_from(only: int) -> None:
    values, targets = random_examples(60, 0)
    with pytest.raises(ValueError, match="edges of both kinds"):
        grow_forest([(Features(NAMES, values), np.full_like(targets, only))])


def test_truth_of_another_shape_and_wrong_limits_are_refused() -> None:
    labels = np.array([[1, 2]])
    with pytest.raises(ValueError, match=r"truth \(2, 1\) must have the shape \(1, 2\)"):
        edge_targets(region_graph(labels), labels, labels.T)
    with pytest.raises(ValueError, match=r"got 0\.7 and 0\.6"):
        edge_targets(region_graph(labels), labels, labels, negative=0.7)


@pytest.mark.parametrize("values", [{"trees": 0}, {"depth": -1}, {"seed": -1}])
def test_settings_without_sense_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(values))} must be at least"):
        ForestConfig(**values)
