"""Choose multicut settings on slices with known cells."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfcnn.cells.pipeline import CellsConfig, find_cells
from sfcnn.cells.scoring import score_labels

#: Values of β to choose from.
BETAS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def choose_beta(
    probabilities: ArrayLike,
    truth: NDArray[np.int64],
    settings: CellsConfig | None = None,
    betas: Sequence[float] = BETAS,
) -> float:
    """The β with the highest V_rand, for cells from mean probabilities along edges; ties go to the one nearest to ½.

    The mean probability along an edge is not the probability that it is a border: β corrects for the difference, which
    varies from network to network. A forest needs no such correction.

    Args:
        probabilities: of membrane, (Z, H, W)
        truth: the cells of these slices, 0 on membranes
        settings: settings of the cells, except β
        betas: candidate values

    >>> from sfcnn.segmentation.synthetic import synthetic_membranes
    >>> from sfcnn.cells.scoring import truth_cells
    >>> _, membranes = synthetic_membranes(1, 96, cell=30)
    >>> faint = 0.4 * membranes.numpy()  # borders are never more likely than not
    >>> choose_beta(faint, truth_cells(~membranes.numpy()), betas=(0.5, 0.8))
    0.8
    """
    settings = settings or CellsConfig()

    def score(beta: float) -> float:
        return score_labels(find_cells(probabilities, replace(settings, beta=beta)), truth).v_rand.best

    return max(sorted(betas, key=lambda beta: abs(beta - 0.5)), key=score)
