"""Files in the formats of MNIST and of mnist-rot, filled with numbers that the tests know, and folders of drawings."""

import functools
import os
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from sfcnn.classification.digits import MNIST_COUNTS, MNIST_FILES, load_digits

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


#: Classes of `draw_folder`.
SHAPES = ("circle", "cross", "ring", "square", "triangle")


def draw(shape: str, rng: np.random.Generator) -> Image.Image:
    """A bright shape on a dark ground in random colours, turned at random, not square."""
    ground, ink = (tuple(map(int, rng.integers(*limits, 3))) for limits in ((0, 90), (150, 256)))
    image = Image.new("RGB", (60, 60), ground)
    pen = ImageDraw.Draw(image)
    if shape == "cross":
        pen.line((30, 12, 30, 48), ink, 8)
        pen.line((12, 30, 48, 30), ink, 8)
    elif shape == "square":
        pen.rectangle((18, 18, 42, 42), ink)
    elif shape == "triangle":
        pen.polygon([(30, 12), (46, 42), (14, 42)], ink)
    else:
        pen.ellipse((14, 14, 46, 46), ink if shape == "circle" else None, ink, 5)
    return image.rotate(float(rng.uniform(0, 360)), fillcolor=ground).resize((44, 40))


def draw_folder(folder: Path, count: int, *, seed: int = 0, mode: str = "RGB", shapes: Sequence[str] = SHAPES) -> Path:
    """A folder with `count` drawings of each shape in a subfolder of its name."""
    rng = np.random.default_rng(seed)
    for shape in shapes:
        (folder / shape).mkdir(parents=True)
        for number in range(count):
            draw(shape, rng).convert(mode).save(folder / shape / f"{number:03}.png")
    return folder
