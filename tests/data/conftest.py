"""Files in the formats of MNIST and of mnist-rot, filled with numbers that the tests know."""

import functools
import os
import struct
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sfcnn.data.digits import load_digits
from sfcnn.data.mnist import MNIST_COUNTS, MNIST_FILES

#: For tests on the real files.
REAL = pytest.mark.skipif("SFCNN_DATA" not in os.environ, reason="SFCNN_DATA is not set")

#: The embedded digits, read only once: they lie in a large text file.
shared_digits = functools.cache(load_digits)


def idx_bytes(numbers: Tensor) -> bytes:
    """A uint8 tensor as the bytes of an idx file."""
    header = struct.pack(f">BBBB{numbers.dim()}I", 0, 0, 8, numbers.dim(), *numbers.shape)
    return header + numbers.numpy().tobytes()


def random_mnist(counts: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
    """Noise and labels in the shapes of MNIST's two pairs of files."""
    generator = torch.Generator().manual_seed(0)
    return [
        (
            torch.randint(256, (count, 28, 28), dtype=torch.uint8, generator=generator),
            torch.randint(10, (count,), dtype=torch.uint8, generator=generator),
        )
        for count in counts
    ]


def write_mnist(directory: Path, parts: list[tuple[Tensor, Tensor]]) -> None:
    """Write the four files, not compressed."""
    directory.mkdir(parents=True, exist_ok=True)
    for names, pair in zip(MNIST_FILES, parts, strict=True):
        for name, numbers in zip(names, pair, strict=True):
            (directory / name).write_bytes(idx_bytes(numbers))


def amat_text(pixels: Tensor, labels: Tensor) -> str:
    """Images (N, 784) and labels (N,) as mnist-rot writes them."""
    rows = zip(pixels.tolist(), labels.tolist(), strict=True)
    return "".join("   ".join(["", *(f"{value:.7e}" for value in (*row, label))]) + "\n" for row, label in rows)


@pytest.fixture(scope="session")
def full_mnist(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tensor, Tensor]:
    """A data directory with files as large as MNIST's, and what they hold: (70000, 28, 28) and (70000,), uint8."""
    directory = tmp_path_factory.mktemp("data")
    parts = random_mnist(MNIST_COUNTS)
    write_mnist(directory / "mnist", parts)
    images, labels = zip(*parts, strict=True)
    return directory, torch.cat(images), torch.cat(labels)
