"""The data sets that networks are trained and tested on, each split the same way every time."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from sfcnn.classification.config import ImagesConfig
from sfcnn.classification.digits import load_digit_splits
from sfcnn.classification.folders import load_folder_splits
from sfcnn.classification.labelled import Splits
from sfcnn.io.files import data_directory


def load_splits(images: ImagesConfig | str, directory: Path | None = None, **settings: Any) -> Splits:
    """The images that settings name, split; the same settings and files give the same numbers, bit for bit.

    Args:
        images: settings, or only the name of the data set.
        directory: where the files of MNIST and of mnist-rot are; by default the environment's SFCNN_DATA.
        settings: fields of `ImagesConfig` that are to be others.

    >>> load_splits("digits-rot", seed=1).train.images.shape
    torch.Size([3000, 1, 28, 28])
    """
    images = ImagesConfig(images, **settings) if isinstance(images, str) else replace(images, **settings)
    if images.dataset == "folder":
        return load_folder_splits(images)
    return load_digit_splits(images.dataset, data_directory(directory), seed=images.seed, resampling=images.resampling)


def resolve_images(images: ImagesConfig, splits: Splits) -> ImagesConfig:
    """The settings with what was left to the images of a folder: side, channels and names of classes.

    From these alone a network for such images can be built.
    """
    if images.dataset != "folder":
        return images
    return replace(images, size=images.side, channels=splits.train.images.shape[1], classes=splits.classes)
