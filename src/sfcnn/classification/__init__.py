"""Classify images in any orientation: your own, or the digits of the paper.

>>> from sfcnn.classification import ClassificationConfig, ImagesConfig
>>> ClassificationConfig(images=ImagesConfig("folder", path="shapes")).images.side
64
"""

from typing import TYPE_CHECKING, Any

from sfcnn.classification.config import ClassificationConfig, ImagesConfig, ModelConfig
from sfcnn.classification.data import load_splits
from sfcnn.classification.evaluate import ClassScore, Evaluation
from sfcnn.classification.folders import load_folder
from sfcnn.classification.labelled import LabelledImages, Splits
from sfcnn.classification.network import build_network
from sfcnn.classification.predict import Classifier, Predictions, load

if TYPE_CHECKING:
    from sfcnn.classification.task import train

__all__ = [
    "ClassScore",
    "ClassificationConfig",
    "Classifier",
    "Evaluation",
    "ImagesConfig",
    "LabelledImages",
    "ModelConfig",
    "Predictions",
    "Splits",
    "build_network",
    "load",
    "load_folder",
    "load_splits",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import `train` on first access: loading and predicting do not need the trainer."""
    if name == "train":
        from sfcnn.classification.task import train

        return train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
