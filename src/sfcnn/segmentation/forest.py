"""A random forest that tells from an edge's features how likely it is a border between two cells.

Trees are grown by scikit-learn and kept as plain arrays: written without pickle, so that a file from elsewhere can run
no code, and evaluated here, so that predictions do not depend on the version of scikit-learn.
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.ensemble import RandomForestClassifier

from sfcnn.segmentation.features import Features
from sfcnn.segmentation.graph import RegionGraph
from sfcnn.segmentation.metrics import Labels
from sfcnn.segmentation.superpixels import SuperpixelsConfig
from sfcnn.training.checkpoint import DamagedCheckpointError, read_state, write_state
from sfcnn.training.task import check_seed

_KIND = "sfcnn edge forest 1"
_ARRAYS = {
    "roots": torch.int64,
    "left": torch.int64,
    "right": torch.int64,
    "feature": torch.int64,
    "threshold": torch.float64,
    "probability": torch.float64,
}
_MOST_TREES = 100_000
_CHUNK = 1 << 22  # pairs of edge and tree at a time
_PARTS = 20  # in which a forest is grown, to tell how far it has come


@dataclass(frozen=True)
class ForestConfig:
    """How a forest is grown.

    Args:
        trees: how many; 1000 in Beier et al.
        depth: longest way from a root to a leaf, 0 for no limit
        seed: of the random choices
    """

    trees: int = 1000
    depth: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        """Check that every number makes sense."""
        for name, smallest in (("trees", 1), ("depth", 0), ("seed", 0)):
            if getattr(self, name) < smallest:
                raise ValueError(f"{name} must be at least {smallest}, got {getattr(self, name)}")
        if self.trees > _MOST_TREES:
            raise ValueError(f"trees must be at most {_MOST_TREES}, got {self.trees}")
        check_seed(self.seed)


def edge_targets(
    graph: RegionGraph, labels: Labels, truth: Labels, *, positive: float = 0.6, negative: float = 0.4
) -> NDArray[np.int8]:
    """(E,) what each edge is by true cells (0 = unknown): 1 a border, 0 inside of a cell, −1 not to be learned from.

    An edge's overlap is the probability that a pixel of one region and a pixel of the other, drawn at random among
    those with truth > 0, are of different cells. It is a border above `positive` and none below `negative`. Edges
    between those, of regions without truth, and across slices (cells are drawn slice by slice) are not learned from.
    """
    labels, truth = np.asarray(labels), np.asarray(truth)
    if not labels.shape == truth.shape == graph.shape:
        raise ValueError(f"labels {labels.shape} and truth {truth.shape} must have the shape {graph.shape}")
    if not 0 <= negative <= positive <= 1:
        raise ValueError(f"expected 0 <= negative <= positive <= 1, got {negative} and {positive}")
    known = (labels > 0) & (truth > 0)
    cells, numbers = np.unique(truth[known], return_inverse=True)
    pairs, counts = np.unique((labels[known].astype(np.int64) - 1) * len(cells) + numbers, return_counts=True)
    nodes, numbers = np.divmod(pairs, max(len(cells), 1))
    totals = np.bincount(nodes, counts, minlength=graph.nodes)
    shares = counts / totals[nodes]
    table = csr_array((shares, (nodes, numbers)), shape=(graph.nodes, max(len(cells), 1)))
    u, v = graph.edges.T
    same = (table[u] * table[v]).sum(axis=1)
    targets = np.full(len(graph.edges), -1, dtype=np.int8)
    targets[1 - same > positive] = 1
    targets[1 - same < negative] = 0
    targets[graph.across | (totals[graph.edges] == 0).any(axis=1)] = -1
    return targets


@dataclass(frozen=True, eq=False)
class Forest:
    """Decision trees of all n nodes together; an inner node sends x to the left if x[feature] <= threshold."""

    names: tuple[str, ...]  #: of the F features
    roots: NDArray[np.int64]  #: (T,) first node of each tree
    left: NDArray[np.int64]  #: (n,) next node; a leaf leads to itself
    right: NDArray[np.int64]  #: (n,)
    feature: NDArray[np.int64]  #: (n,)
    threshold: NDArray[np.float64]  #: (n,)
    probability: NDArray[np.float64]  #: (n,) of a border, at this node
    superpixels: SuperpixelsConfig = field(default_factory=SuperpixelsConfig)  #: whose edges it has learned from

    @property
    def needs_raw(self) -> bool:
        """Whether it has learned from the images too, not from their probabilities only."""
        return any(name.startswith("raw ") for name in self.names)

    def predict(self, features: Features) -> NDArray[np.float64]:
        """(E,) mean probability over all trees that each edge is a border."""
        if features.names != self.names:
            raise ValueError(
                f"the forest was grown on other features ({len(self.names)} from {self.names[0]!r} to "
                f"{self.names[-1]!r}) than these {len(features.names)}"
            )
        step = max(_CHUNK // len(self.roots), 1)
        chunks = [
            self._predict(features.values[start : start + step]) for start in range(0, len(features.values), step)
        ]
        return np.concatenate([np.empty(0), *chunks])

    def _predict(self, values: NDArray[np.float32]) -> NDArray[np.float64]:
        nodes = np.tile(self.roots, len(values))  # (E · T)
        edges = np.repeat(np.arange(len(values)), len(self.roots))
        moving = np.arange(len(nodes))
        while len(moving):
            here = nodes[moving]
            smaller = values[edges[moving], self.feature[here]] <= self.threshold[here]
            there = np.where(smaller, self.left[here], self.right[here])
            nodes[moving] = there
            moving = moving[here != there]
        return self.probability[nodes].reshape(len(values), -1).mean(axis=1)

    def save(self, path: Path) -> None:
        """Write the forest to a file, at once or not at all."""
        arrays = {name: torch.from_numpy(getattr(self, name)) for name in _ARRAYS}
        made = asdict(self.superpixels)
        write_state(path, {"kind": _KIND, "names": list(self.names), "superpixels": made, "trees": arrays})

    @classmethod
    def load(cls, path: Path) -> "Forest":
        """Read what `save` wrote; anything else is a DamagedCheckpointError."""
        state = read_state(path)
        if state.get("kind") != _KIND:
            raise DamagedCheckpointError(f"{path} is no forest of edge probabilities")
        names: Any = state.get("names")
        arrays: Any = state.get("trees")
        if not _is_sound(names, arrays):
            raise DamagedCheckpointError(f"{path} holds no forest that can be evaluated")
        try:
            made: Any = state.get("superpixels")
            superpixels = SuperpixelsConfig(**made)
            if not all(type(value) in (int, float) for value in made.values()):
                raise TypeError("not in numbers")
        except (TypeError, ValueError, RuntimeError) as error:
            raise DamagedCheckpointError(f"{path} does not say how its superpixels were made") from error
        return cls(tuple(names), **{name: arrays[name].numpy() for name in _ARRAYS}, superpixels=superpixels)


def grow_forest(examples: Iterable[tuple[Features, NDArray[np.int8]]], settings: ForestConfig | None = None) -> Forest:
    """Grow a forest from features of edges and their targets, as `edge_targets` gives them, of one or more graphs."""
    return grow_and_test(examples, settings)[0]


def grow_and_test(
    examples: Iterable[tuple[Features, NDArray[np.int8]]],
    settings: ForestConfig | None = None,
    report: Callable[[float], None] = lambda done: None,
) -> tuple[Forest, float]:
    """`grow_forest`, and the part of the edges that it takes for the wrong kind, out of bag.

    Each tree is grown from a random draw of the edges, and an edge is tested by the trees that were grown without it.
    They have seen other edges of the same images, so new images are harder than this. It is NaN if every tree has seen
    every edge. `report` is called with the part that is done.
    """
    settings = settings or ForestConfig()
    examples = list(examples)
    if len({features.names for features, _ in examples}) != 1:
        raise ValueError(f"expected examples with the same features, got {len(examples)} that differ or none")
    names = examples[0][0].names
    values = np.concatenate([features.values[targets >= 0] for features, targets in examples])
    targets = np.concatenate([targets[targets >= 0] for _, targets in examples])
    borders = int(targets.sum())
    if not 0 < borders < len(targets):
        raise ValueError(f"expected edges of both kinds to learn from, got {borders} borders among {len(targets)}")
    forest = RandomForestClassifier(
        max_depth=settings.depth or None, random_state=settings.seed, warm_start=True
    )  # which goes on with the trees that there are, and has the same in the end
    for trees in sorted({-(-settings.trees * part // _PARTS) for part in range(1, _PARTS + 1)}):
        forest.set_params(n_estimators=trees, oob_score=trees == settings.trees)
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # of edges that every tree has seen
            forest.fit(values, targets)
        report(trees / settings.trees)
    votes = forest.oob_decision_function_  # (E, 2), 0 where every tree has seen the edge
    tested = votes.sum(axis=1) > 0
    wrong = (votes[tested, 1] > 0.5) != targets[tested]
    return from_scikit_learn(forest, names), float(wrong.mean()) if wrong.size else float("nan")


def from_scikit_learn(forest: Any, names: tuple[str, ...]) -> Forest:
    """The trees of a fitted RandomForestClassifier with the classes 0 and 1."""
    trees = [estimator.tree_ for estimator in forest.estimators_]
    roots = np.cumsum([0, *(tree.node_count for tree in trees[:-1])])
    left, right, feature = [], [], []
    for root, tree in zip(roots, trees, strict=True):
        leaf = tree.children_left < 0
        itself = np.arange(tree.node_count)
        left.append(root + np.where(leaf, itself, tree.children_left))
        right.append(root + np.where(leaf, itself, tree.children_right))
        feature.append(np.where(leaf, 0, tree.feature))
    counts = np.concatenate([tree.value[:, 0, :] for tree in trees])  # (n, 2), counts or shares by version
    return Forest(
        names,
        roots.astype(np.int64),
        np.concatenate(left),
        np.concatenate(right),
        np.concatenate(feature),
        np.concatenate([tree.threshold for tree in trees]),
        counts[:, 1] / counts.sum(axis=1),
    )


def _is_sound(names: Any, arrays: Any) -> bool:
    """Whether every way through the trees ends, and no array is read outside of it."""
    if not (isinstance(names, list) and names and all(isinstance(name, str) for name in names)):
        return False
    if not isinstance(arrays, dict) or any(
        not isinstance(arrays.get(name), torch.Tensor) or arrays[name].dtype != dtype or arrays[name].dim() != 1
        for name, dtype in _ARRAYS.items()
    ):
        return False
    roots, *nodes = (arrays[name] for name in _ARRAYS)
    left, right, feature, threshold, probability = nodes
    count = len(left)
    if not len(roots) or any(len(array) != count for array in nodes):
        return False
    here = torch.arange(count)
    ends = (left == here) & (right == here)
    onwards = (left > here) & (right > here) & (left < count) & (right < count)  # children come after their parents
    return bool(
        (ends | onwards).all()
        and ((roots >= 0) & (roots < count)).all()
        and ((feature >= 0) & (feature < len(names))).all()
        and threshold.isfinite().all()
        and ((probability >= 0) & (probability <= 1)).all()
    )
