"""From membranes to cells: find cells, learn to classify their borders, score them against the ground truth.

Requires `pip install 'sfcnn[em]'`; these packages are imported on first use of one of the names below.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfcnn.cells.affinities import Affinities
    from sfcnn.cells.apply import Segmentation, segment
    from sfcnn.cells.comparison import MethodScore, Prediction, choose_settings, compare_methods, predict_slices
    from sfcnn.cells.files import segment_files
    from sfcnn.cells.forest import Forest, ForestConfig
    from sfcnn.cells.learning import LearnedForest, learn_forest
    from sfcnn.cells.lifted import LiftedConfig
    from sfcnn.cells.mutex import MutexConfig
    from sfcnn.cells.pipeline import CellsConfig, find_cells
    from sfcnn.cells.reading import score
    from sfcnn.cells.scoring import StackScores, truth_cells
    from sfcnn.cells.superpixels import SuperpixelsConfig
    from sfcnn.cells.tuning import choose_beta

__all__ = [
    "Affinities",
    "CellsConfig",
    "Forest",
    "ForestConfig",
    "LearnedForest",
    "LiftedConfig",
    "MethodScore",
    "MutexConfig",
    "Prediction",
    "Segmentation",
    "StackScores",
    "SuperpixelsConfig",
    "choose_beta",
    "choose_settings",
    "compare_methods",
    "find_cells",
    "learn_forest",
    "predict_slices",
    "score",
    "segment",
    "segment_files",
    "truth_cells",
]

_MODULES = {
    "Affinities": "affinities",
    "CellsConfig": "pipeline",
    "Forest": "forest",
    "ForestConfig": "forest",
    "LearnedForest": "learning",
    "LiftedConfig": "lifted",
    "MethodScore": "comparison",
    "MutexConfig": "mutex",
    "Prediction": "comparison",
    "Segmentation": "apply",
    "StackScores": "scoring",
    "SuperpixelsConfig": "superpixels",
    "choose_beta": "tuning",
    "choose_settings": "comparison",
    "compare_methods": "comparison",
    "find_cells": "pipeline",
    "learn_forest": "learning",
    "predict_slices": "comparison",
    "score": "reading",
    "segment": "apply",
    "segment_files": "files",
    "truth_cells": "scoring",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
