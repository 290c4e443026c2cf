"""The MNIST files and the original mnist-rot files in a directory of the user's."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from sfcnn.data.amat import read_amat
from sfcnn.data.digits import Digits
from sfcnn.data.idx import read_idx

#: Images and labels of MNIST's training file, then of its test file.
MNIST_FILES = (
    ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)
MNIST_COUNTS = (60_000, 10_000)

ROT_ARCHIVE = "mnist_rotation_new.zip"
#: The two text files of mnist-rot, in the archive or extracted: training and validation together, test.
ROT_FILES = ("mnist_all_rotation_normalized_float_train_valid.amat", "mnist_all_rotation_normalized_float_test.amat")
ROT_COUNTS = (12_000, 50_000)

#: Subdirectories of the data directory in which each set is looked for, besides the directory itself.
_FOLDERS = {"mnist": ("mnist",), "mnist-rot": ("mnist-rot", "mnist")}


class MissingDataError(ValueError):
    """Files of a data set are not where they were looked for."""


def search_places(dataset: str, directory: Path) -> list[Path]:
    """The directories in which the files of `dataset` ("mnist" or "mnist-rot") are looked for, first to last.

    >>> [str(place) for place in search_places("mnist-rot", Path("data"))]
    ['data', 'data/mnist-rot', 'data/mnist']
    """
    return [directory, *(directory / folder for folder in _FOLDERS[dataset])]


def find_file(dataset: str, directory: Path, names: Sequence[str]) -> Path:
    """The first of `names` that is a file in one of the places for `dataset`."""
    places = search_places(dataset, directory)
    for place in places:
        for name in names:
            if (place / name).is_file():
                return place / name
    advice = f"run sfcnn data fetch {dataset} --data {directory}, or name another directory with --data or SFCNN_DATA"
    if not directory.is_dir():
        raise MissingDataError(f"data directory {directory} does not exist, so {dataset} is not there: {advice}")
    looked = ", ".join(map(str, places))
    raise MissingDataError(f"no file {' or '.join(names)} in {looked}: {advice}")


def read_mnist(directory: Path, counts: Sequence[int] = MNIST_COUNTS) -> tuple[Tensor, Tensor]:
    """All of MNIST: images (70000, 28, 28) uint8 and labels (70000,) int64, the training file's first."""
    # All are looked for before the first is read, so that a missing file shows at once.
    paths = [[find_file("mnist", directory, (name, f"{name}.gz")) for name in pair] for pair in MNIST_FILES]
    parts = [_read_pair(images, labels, count) for (images, labels), count in zip(paths, counts, strict=True)]
    return torch.cat([images for images, _ in parts]), torch.cat([labels for _, labels in parts])


def _read_pair(image_path: Path, label_path: Path, count: int) -> tuple[Tensor, Tensor]:
    images, labels = read_idx(image_path), read_idx(label_path)
    if images.shape != (count, 28, 28):
        raise ValueError(f"{image_path} holds numbers of shape {tuple(images.shape)}, expected {(count, 28, 28)}")
    if labels.shape != (count,):
        raise ValueError(f"{label_path} holds numbers of shape {tuple(labels.shape)}, expected {(count,)}")
    if count and int(labels.max()) > 9:
        raise ValueError(f"{label_path} holds the label {int(labels.max())}, expected 0 to 9")
    return images, labels.long()


def read_mnist_rot(directory: Path, counts: Sequence[int] = ROT_COUNTS) -> tuple[Digits, Digits]:
    """The original mnist-rot: its 12,000 images for training and validation, and its 50,000 test images."""
    paths = [find_file("mnist-rot", directory, (name, ROT_ARCHIVE)) for name in ROT_FILES]
    first, second = (
        read_amat(path, count, member=name if path.name == ROT_ARCHIVE else None)
        for path, name, count in zip(paths, ROT_FILES, counts, strict=True)
    )
    return first, second
