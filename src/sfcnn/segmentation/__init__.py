"""Semantic segmentation: membranes, vessels, anything with a mask. Requires `pip install 'sfcnn[em]'`."""

from typing import Any

from sfcnn.segmentation.config import SegmentationConfig, SlicesConfig, UNetConfig
from sfcnn.segmentation.crops import CropConfig
from sfcnn.segmentation.data import Slices, load_slices
from sfcnn.segmentation.offsets import oriented_offsets
from sfcnn.segmentation.predict import AffinityPrediction, Segmenter, load
from sfcnn.segmentation.synthetic import synthetic_membranes

__all__ = [
    "AffinityPrediction",
    "CropConfig",
    "SegmentationConfig",
    "Segmenter",
    "Slices",
    "SlicesConfig",
    "UNetConfig",
    "load",
    "load_slices",
    "oriented_offsets",
    "synthetic_membranes",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "train":  # so that prediction does not import the trainer
        from sfcnn.segmentation.task import train

        return train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
