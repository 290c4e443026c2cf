"""Load the data sets that networks are trained and tested on, with reproducible splits."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from sfcnn.classification.config import ImagesConfig
from sfcnn.classification.digits import load_digit_splits
from sfcnn.classification.folders import load_folder_splits
from sfcnn.classification.labelled import Splits
from sfcnn.io.files import data_directory


def load_splits(images: ImagesConfig | str, directory: Path | None = None, **settings: Any) -> Splits:
    """Load a data set and split it; the same settings and files give bit-identical images.

    Args:
        images: settings, or just the name of the data set.
        directory: of the files of MNIST and mnist-rot; by default the environment variable SFCNN_DATA.
        settings: fields of `ImagesConfig` to change.

    >>> load_splits("digits-rot", seed=1).train.images.shape
    torch.Size([3000, 1, 28, 28])
    """
    images = ImagesConfig(images, **settings) if isinstance(images, str) else replace(images, **settings)
    if images.dataset == "folder":
        return load_folder_splits(images)
    return load_digit_splits(images.dataset, data_directory(directory), seed=images.seed, resampling=images.resampling)


def resolve_images(images: ImagesConfig, splits: Splits) -> ImagesConfig:
    """Complete the settings of a folder with what its images determine: side, channels and class names.

    The result suffices to build a network for such images.
    """
    if images.dataset != "folder":
        return images
    return replace(images, size=images.side, channels=splits.train.images.shape[1], classes=splits.classes)
