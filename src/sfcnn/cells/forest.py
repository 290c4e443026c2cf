"""A random forest: the probability that an edge is a border between two cells, from the edge's features.

Trees are grown by scikit-learn and stored as plain arrays: without pickle, so that untrusted files cannot run code, and
evaluated here, so that predictions do not depend on the version of scikit-learn.
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sfcnn.cells.features import Features
from sfcnn.cells.superpixels import SuperpixelsConfig
from sfcnn.io.state import DamagedStateError, read_state, write_state
from sfcnn.randomness import check_seed

#: File formats, and whether their forests were trained on standardised images.
_KINDS = {"sfcnn edge forest 1": False, "sfcnn edge forest 2": True}
_ARRAYS = ("roots", "left", "right", "feature", "threshold", "probability")
_MOST_TREES = 100_000
_CHUNK = 1 << 22  # (edge, tree) pairs evaluated at a time
_PARTS = 20  # number of steps in which a forest is grown, to report progress


@dataclass(frozen=True)
class ForestConfig:
    """How a forest is grown.

    Args:
        trees: number of trees; 1000 in Beier et al.
        depth: maximum depth of a tree, 0 for no limit
        seed: random seed
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


class OneKindOfEdgeError(ValueError):
    """The training edges include no borders, or nothing but borders."""


@dataclass(frozen=True, eq=False)
class Forest:
    """Decision trees with n nodes in total; an inner node sends x to the left if x[feature] <= threshold."""

    names: tuple[str, ...]  #: of the F features
    roots: NDArray[np.int64]  #: (T,) first node of each tree
    left: NDArray[np.int64]  #: (n,) next node; a leaf leads to itself
    right: NDArray[np.int64]  #: (n,)
    feature: NDArray[np.int64]  #: (n,)
    threshold: NDArray[np.float64]  #: (n,)
    probability: NDArray[np.float64]  #: (n,) of a border, at this node
    superpixels: SuperpixelsConfig = field(default_factory=SuperpixelsConfig)  #: whose edges it was trained on
    standardized: bool = True  #: whether its raw images were standardised; False in files of version 0.1

    @property
    def needs_raw(self) -> bool:
        """Whether it was trained on raw images as well as on probabilities."""
        return any(name.startswith("raw ") for name in self.names)

    def predict(self, features: Features) -> NDArray[np.float64]:
        """(E,) mean probability over all trees that each edge is a border."""
        if features.names != self.names:
            raise ValueError(
                f"expected the {len(self.names)} features that the forest was trained on, from {self.names[0]!r} to "
                f"{self.names[-1]!r}, got {len(features.names)} other ones"
            )
        step = max(_CHUNK // len(self.roots), 1)
        starts = range(0, len(features.values), step)
        chunks = [self._predict(features.values[start : start + step]) for start in starts]
        return np.concatenate([np.empty(0), *chunks])

    def _predict(self, values: NDArray[np.float32]) -> NDArray[np.float64]:
        count = len(values)
        columns = values.T.ravel()  # feature by feature, so that memory accesses are local
        nodes = np.repeat(self.roots, count)  # (T · E)
        edges = np.tile(np.arange(count), len(self.roots))
        moving, here = np.arange(len(nodes)), nodes
        while len(moving):
            smaller = columns.take(count * self.feature.take(here) + edges) <= self.threshold.take(here)
            there = np.where(smaller, self.left.take(here), self.right.take(here))
            nodes[moving] = there
            onwards = np.flatnonzero(self.left.take(there) != there)
            moving, edges, here = moving.take(onwards), edges.take(onwards), there.take(onwards)
        found = self.probability.take(nodes).reshape(len(self.roots), count)
        return np.ascontiguousarray(found.T).mean(axis=1)

    def save(self, path: Path) -> None:
        """Write the forest to a file atomically."""
        kind = next(kind for kind, standardized in _KINDS.items() if standardized == self.standardized)
        arrays = {name: torch.from_numpy(getattr(self, name)) for name in _ARRAYS}
        made = asdict(self.superpixels)
        write_state(path, {"kind": kind, "names": list(self.names), "superpixels": made, "trees": arrays})

    @classmethod
    def load(cls, path: Path) -> "Forest":
        """Read a file written by `save`; raise DamagedStateError for any other file."""
        state = read_state(path)
        standardized = _KINDS.get(str(state.get("kind")))
        if standardized is None:
            raise DamagedStateError(f"{path} is not a forest of edge probabilities")
        try:
            arrays = {name: state["trees"][name].numpy() for name in _ARRAYS}
            made = SuperpixelsConfig(**state["superpixels"])
            forest = cls(tuple(map(str, state["names"])), **arrays, superpixels=made, standardized=standardized)
            if not forest._leads_to_leaves():
                raise ValueError("its trees contain cycles or invalid nodes")
            forest.predict(Features(forest.names, np.zeros((1, len(forest.names)), np.float32)))  # a trial
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise DamagedStateError(f"{path} does not contain a complete forest") from error
        return forest

    def _leads_to_leaves(self) -> bool:
        """Whether every path through the trees ends: each node leads to itself, or to later nodes."""
        here = np.arange(len(self.probability))
        first, last = np.minimum(self.left, self.right), np.maximum(self.left, self.right)
        onwards = ((first > here) & (last < len(here))) | ((first == here) & (last == here))
        places = ((self.roots, len(here)), (self.feature, len(self.names)))
        return bool(len(self.roots) and onwards.all() and all(((p >= 0) & (p < n)).all() for p, n in places))


def grow_forest(
    examples: Iterable[tuple[Features, NDArray[np.int8]]],
    settings: ForestConfig | None = None,
    report: Callable[[float], None] = lambda done: None,
) -> tuple[Forest, float]:
    """Grow a forest from edge features and targets; also return its out-of-bag error, the fraction misclassified.

    Targets are those of `sfcnn.cells.learning.edge_targets`, for one or more graphs. Each tree is grown from a random
    sample of the edges, and each edge is tested by the trees grown without it. Those trees have seen other edges of the
    same images, so the error on new images is higher. It is NaN if every tree has seen every edge. `report` is called
    with the fraction of trees grown so far.
    """
    from sklearn.ensemble import RandomForestClassifier  # needed only to grow forests, not to use them

    settings = settings or ForestConfig()
    examples = list(examples)
    if len({features.names for features, _ in examples}) != 1:
        raise ValueError(f"expected examples with the same features, got {len(examples)} that differ or none")
    values = np.concatenate([features.values[targets >= 0] for features, targets in examples])
    targets = np.concatenate([targets[targets >= 0] for _, targets in examples])
    borders = int(targets.sum())
    if not 0 < borders < len(targets):
        raise OneKindOfEdgeError(
            f"expected both borders and other edges to learn from, got {borders} borders among {len(targets)} edges"
        )
    # A warm start keeps existing trees; the forest is identical to one grown in a single call.
    forest = RandomForestClassifier(max_depth=settings.depth or None, random_state=settings.seed, warm_start=True)
    for trees in sorted({-(-settings.trees * part // _PARTS) for part in range(1, _PARTS + 1)}):
        forest.set_params(n_estimators=trees, oob_score=trees == settings.trees)
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # about edges that every tree has seen
            forest.fit(values, targets)
        report(trees / settings.trees)
    votes = forest.oob_decision_function_  # (E, 2), 0 where every tree has seen the edge
    tested = votes.sum(axis=1) > 0
    wrong = (votes[tested, 1] > 0.5) != targets[tested]
    return from_scikit_learn(forest, examples[0][0].names), float(wrong.mean()) if wrong.size else float("nan")


def from_scikit_learn(forest: Any, names: tuple[str, ...]) -> Forest:
    """The trees of a fitted RandomForestClassifier with the classes 0 and 1."""
    trees = [estimator.tree_ for estimator in forest.estimators_]
    counts = np.array([tree.node_count for tree in trees])
    roots = np.cumsum(counts) - counts
    offset = np.repeat(roots, counts)  # (n,) of the tree of each node

    def joined(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(tree, name) for tree in trees])

    leaf = joined("children_left") < 0
    here = np.arange(len(leaf))
    shares = joined("value")[:, 0, :]  # (n, 2), counts or fractions, depending on the version
    return Forest(
        names,
        roots,
        np.where(leaf, here, joined("children_left") + offset),
        np.where(leaf, here, joined("children_right") + offset),
        np.where(leaf, 0, joined("feature")),
        joined("threshold"),
        shares[:, 1] / shares.sum(axis=1),
    )
