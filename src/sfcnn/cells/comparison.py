"""Compare the methods for finding cells: settings are chosen on some slices, scores are reported on others."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from sfcnn.cells.affinities import Affinities
from sfcnn.cells.forest import Forest, ForestConfig, OneKindOfEdgeError
from sfcnn.cells.learning import learn_forest
from sfcnn.cells.metrics import Labels
from sfcnn.cells.pipeline import BY_AFFINITIES, BY_SUPERPIXELS, METHODS, CellsConfig, find_cells
from sfcnn.cells.scoring import StackScores, score_labels
from sfcnn.cells.tuning import BETAS
from sfcnn.segmentation import Segmenter

#: Candidate values: thresholds, λ of lifted edges, bias and stride of mutex watersheds; β is as in `choose_beta`.
THRESHOLDS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
WEIGHTS = (1.0, 3.0, 10.0, 30.0)
BIASES = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
STRIDES = (2, 4, 8, 12, 16)


@dataclass(frozen=True, eq=False)
class Prediction:
    """Slices with known cells, and a network's prediction for them."""

    probabilities: NDArray[np.floating]  #: of membrane, (Z, H, W)
    truth: Labels  #: (Z, H, W), 0 on membranes
    affinities: Affinities | None = None  #: (Z, D, Λ, H, W)
    images: NDArray[np.floating] | None = None  #: that the prediction is for, (Z, H, W)


@dataclass(frozen=True, eq=False)
class MethodScore:
    """A method with its settings, and what it finds in the scored slices."""

    settings: str  #: in words
    config: CellsConfig
    cells: NDArray[np.int64]  #: of the scored slices, (Z, H, W)
    scores: StackScores
    seconds: float  #: CPU time per megapixel
    chosen_v_rand: float | None = None  #: on the slices that the settings were chosen on; forests have no settings


def predict_slices(
    network: Segmenter,
    images: NDArray[np.floating],
    truth: Labels,
    average: str = "none",
    only: Sequence[int] | None = None,
) -> Prediction:
    """A network's prediction for images (Z, H, W) with known cells, with affinities if it predicts any.

    `only` names the slices to predict, by default all; the others are neighbours that the network may see.
    """
    chosen = list(range(len(images)) if only is None else only)
    if not network.config.model.affinities:
        return Prediction(network.predict(images, only=chosen, average=average), truth[chosen], images=images[chosen])
    found = [network.predict_affinities(images, z=z, average=average) for z in chosen]
    pairs = Affinities(np.stack([one.affinities for one in found]), network.config.model.affinities)
    return Prediction(np.stack([one.probabilities for one in found]), truth[chosen], pairs, images[chosen])


def candidates(method: str, settings: CellsConfig | None = None) -> dict[str, CellsConfig]:
    """Candidate settings of a method, keyed by what differs between them.

    >>> list(candidates("multicut"))[:2]
    ['beta 0.3', 'beta 0.4']
    """
    base = replace(settings or CellsConfig(), method=method)
    if method == "threshold":
        return {f"threshold {t}": replace(base, superpixels=replace(base.superpixels, threshold=t)) for t in THRESHOLDS}
    if method == "mutex-watershed":
        return {
            f"bias {bias}, stride {stride}": replace(base, mutex=replace(base.mutex, bias=bias, stride=stride))
            for bias, stride in product(BIASES, STRIDES)
        }
    if method == "multicut":
        return {f"beta {beta}": replace(base, beta=beta) for beta in BETAS}
    return {
        f"beta {beta}, weight {weight}": replace(base, beta=beta, lifted=replace(base.lifted, weight=weight))
        for beta, weight in product(BETAS, WEIGHTS)
    }


def choose_settings(
    slices: Prediction,
    methods: Sequence[str] = METHODS,
    settings: CellsConfig | None = None,
    forest: Forest | None = None,
) -> dict[str, MethodScore]:
    """The settings of each method that maximise V_rand; ties go to the first. A forest is used by multicuts.

    Methods that need affinities are skipped if there are none.
    """
    found = {}
    for method in methods:
        if method in BY_AFFINITIES and slices.affinities is None:
            continue
        trees = forest if method in BY_SUPERPIXELS else None
        scores = [_score(slices, name, config, trees) for name, config in candidates(method, settings).items()]
        found[method] = max(scores, key=lambda score: score.scores.v_rand.best)
    return found


def compare_methods(
    chosen_on: Prediction,
    scored_on: Prediction,
    methods: Sequence[str] = METHODS,
    settings: CellsConfig | None = None,
    forest: ForestConfig | None = None,
) -> dict[str, MethodScore]:
    """Score each method on `scored_on`, with the settings that `choose_settings` finds on `chosen_on`.

    Methods that need affinities are skipped if either prediction has none. With settings of a forest, the method
    "forest" is added: a multicut with a forest that learns from `chosen_on`, unless this has only one kind of edge.

    >>> from sfcnn.cells.scoring import truth_cells
    >>> from sfcnn.segmentation.synthetic import synthetic_membranes
    >>> membranes = synthetic_membranes(2, 64, cell=20)[1].numpy()
    >>> drawn = [Prediction(0.4 * membranes[[i]], truth_cells(~membranes[[i]])) for i in (0, 1)]
    >>> sorted(compare_methods(*drawn))
    ['multicut', 'threshold']
    """
    if scored_on.affinities is None:
        methods = [method for method in methods if method not in BY_AFFINITIES]
    found = {
        method: replace(_score(scored_on, best.settings, best.config), chosen_v_rand=best.scores.v_rand.best)
        for method, best in choose_settings(chosen_on, methods, settings).items()
    }
    if forest is not None:
        try:
            learned = learn_forest(chosen_on.probabilities, chosen_on.truth, chosen_on.images, settings=forest).forest
        except OneKindOfEdgeError:  # of a network that has hardly been trained
            return found
        base = replace(settings or CellsConfig(), method="multicut")
        found["forest"] = _score(scored_on, f"{forest.trees} trees", base, learned)
    return found


def _score(slices: Prediction, name: str, config: CellsConfig, forest: Forest | None = None) -> MethodScore:
    start = time.process_time()
    cells = find_cells(slices.probabilities, config, forest, slices.images, affinities=slices.affinities)
    seconds = (time.process_time() - start) / (slices.probabilities.size / 1e6)
    return MethodScore(name, config, cells, score_labels(cells, slices.truth), seconds)
