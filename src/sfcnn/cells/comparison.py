"""Compare the methods for finding cells: settings are chosen on some slices, scores are reported on others."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfcnn.cells.affinities import Affinities
from sfcnn.cells.metrics import Labels
from sfcnn.cells.pipeline import BY_AFFINITIES, METHODS, CellsConfig, find_cells
from sfcnn.cells.scoring import StackScores, score_labels
from sfcnn.cells.tuning import BETAS

#: Candidate values: thresholds, λ of lifted edges, bias and stride of mutex watersheds; β is as in `choose_beta`.
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
WEIGHTS = (1.0, 3.0, 10.0)
BIASES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
STRIDES = (2, 4, 8)


@dataclass(frozen=True, eq=False)
class Prediction:
    """Slices with known cells, and a network's prediction for them."""

    probabilities: NDArray[np.floating]  #: of membrane, (Z, H, W)
    truth: Labels  #: (Z, H, W), 0 on membranes
    affinities: Affinities | None = None  #: (Z, D, Λ, H, W)


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


def compare_methods(
    chosen_on: Prediction,
    scored_on: Prediction,
    methods: Sequence[str] = METHODS,
    settings: CellsConfig | None = None,
) -> dict[str, dict[str, Any]]:
    """V_rand and V_info of each method on `scored_on`, with the settings that maximise V_rand on `chosen_on`.

    Methods that need affinities are skipped if either prediction has none. Ties go to the first settings. For each
    method: `settings` in words, `config`, `v_rand` and `v_info` (means over slices), `slices` with both for each slice,
    `chosen_v_rand` on the slices the settings were chosen on, and `seconds` of CPU time per megapixel.

    >>> from sfcnn.cells.scoring import truth_cells
    >>> from sfcnn.segmentation.synthetic import synthetic_membranes
    >>> membranes = synthetic_membranes(2, 64, cell=20)[1].numpy()
    >>> drawn = [Prediction(0.4 * membranes[[i]], truth_cells(~membranes[[i]])) for i in (0, 1)]
    >>> sorted(compare_methods(*drawn))
    ['multicut', 'threshold']
    """
    without = chosen_on.affinities is None or scored_on.affinities is None
    table = {}
    for method in methods:
        if method in BY_AFFINITIES and without:
            continue
        tried = candidates(method, settings)
        found = {name: _score(chosen_on, config)[0].v_rand.best for name, config in tried.items()}
        best = max(found, key=found.__getitem__)
        scores, seconds = _score(scored_on, tried[best])
        table[method] = {
            "settings": best,
            "config": tried[best],
            "v_rand": scores.v_rand.best,
            "v_info": scores.v_info.best,
            "slices": {"v_rand": list(scores.v_rand.slices), "v_info": list(scores.v_info.slices)},
            "chosen_v_rand": found[best],
            "seconds": seconds,
        }
    return table


def _score(slices: Prediction, config: CellsConfig) -> tuple[StackScores, float]:
    """Scores, and CPU time in seconds per megapixel."""
    start = time.process_time()
    cells = find_cells(slices.probabilities, config, affinities=slices.affinities)
    seconds = (time.process_time() - start) / (slices.probabilities.size / 1e6)
    return score_labels(cells, slices.truth), seconds
