import numpy as np
import pytest

from sfcnn.cells.pipeline import CellsConfig, find_cells
from sfcnn.cells.scoring import score_labels, truth_cells
from sfcnn.cells.tuning import BETAS, choose_beta
from sfcnn.segmentation.synthetic import synthetic_membranes


@pytest.mark.parametrize("strength", [0.35, 0.9])
def test_no_other_beta_scores_better(strength: float) -> None:
    membranes = synthetic_membranes(2, 96, cell=30)[1].numpy()
    truth = truth_cells(~membranes)
    noise = np.random.default_rng(0).normal(0, 0.1, membranes.shape)
    probabilities = (strength * membranes + noise).clip(0, 1).astype(np.float32)
    scores = {
        beta: score_labels(find_cells(probabilities, CellsConfig(beta=beta)), truth).v_rand.best for beta in BETAS
    }
    chosen = choose_beta(probabilities, truth)
    assert scores[chosen] == max(scores.values())
    assert min(scores.values()) < max(scores.values())
    nearer = [beta for beta in BETAS if abs(beta - 0.5) < abs(chosen - 0.5)]
    assert all(scores[beta] < scores[chosen] for beta in nearer)
