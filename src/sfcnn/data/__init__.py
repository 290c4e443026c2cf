"""Images to train on."""

from sfcnn.data.augmentation import AUGMENTATIONS, RESAMPLINGS, random_angles, rotate_each
from sfcnn.data.datasets import DATASETS, Splits, data_directory, load_splits
from sfcnn.data.digits import Digits, load_digits
from sfcnn.data.mnist import MissingDataError

__all__ = [
    "AUGMENTATIONS",
    "DATASETS",
    "RESAMPLINGS",
    "Digits",
    "MissingDataError",
    "Splits",
    "data_directory",
    "load_digits",
    "load_splits",
    "random_angles",
    "rotate_each",
]
