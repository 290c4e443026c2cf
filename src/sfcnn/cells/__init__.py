"""From membranes to cells: find them, learn where they border, compare them with the truth.

Needs `pip install 'sfcnn[em]'`; the packages are imported with the first of these names that is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfcnn.cells.apply import Segmentation, segment, segment_files
    from sfcnn.cells.forest import Forest, ForestConfig
    from sfcnn.cells.learning import LearnedForest, learn_forest
    from sfcnn.cells.pipeline import CellsConfig, find_cells
    from sfcnn.cells.reading import score
    from sfcnn.cells.scoring import StackScores, truth_cells
    from sfcnn.cells.superpixels import SuperpixelsConfig
    from sfcnn.cells.tuning import choose_beta

__all__ = [
    "CellsConfig",
    "Forest",
    "ForestConfig",
    "LearnedForest",
    "Segmentation",
    "StackScores",
    "SuperpixelsConfig",
    "choose_beta",
    "find_cells",
    "learn_forest",
    "score",
    "segment",
    "segment_files",
    "truth_cells",
]

_MODULES = {
    "CellsConfig": "pipeline",
    "Forest": "forest",
    "ForestConfig": "forest",
    "LearnedForest": "learning",
    "Segmentation": "apply",
    "StackScores": "scoring",
    "SuperpixelsConfig": "superpixels",
    "choose_beta": "tuning",
    "find_cells": "pipeline",
    "learn_forest": "learning",
    "score": "reading",
    "segment": "apply",
    "segment_files": "apply",
    "truth_cells": "scoring",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
