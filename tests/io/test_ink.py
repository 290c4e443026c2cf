"""Pictures of digits become images as MNIST has them, whatever their size, colours, place and orientation."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from sfcnn.classification.digits import read_mnist
from sfcnn.io.ink import box_side, find_ink, fit_ink, is_dark, read_digit, read_digits

Grey = NDArray[np.float32]


def seven(size: int = 200, place: tuple[int, int] = (60, 40), canvas: tuple[int, int] = (360, 300)) -> Grey:
    """A drawn 7, ink 1 on 0: `size` pixels high, with its corner at `place` (row, column)."""
    image = Image.new("L", canvas[::-1])
    top, left, width = *place, max(2, size // 8)
    corner = (left + size * 6 // 10, top)
    pen = ImageDraw.Draw(image)
    pen.line([(left, top), corner, (left + size // 4, top + size)], 255, width)
    return np.asarray(image, np.float32) / np.float32(255)


def centre(image: Grey) -> list[float]:
    places = np.arange(len(image)) + 0.5
    return [float(image.sum(axis) @ places / image.sum()) for axis in (1, 0)]


def fitted(pixels: Grey) -> Grey:
    return fit_ink(find_ink(pixels, is_dark(pixels)))


def save(pixels: Grey, path: Path) -> Path:
    Image.fromarray((pixels * 255).round().astype(np.uint8)).save(path)
    return path


def test_a_digit_is_white_on_black_in_the_middle_and_as_large_as_those_of_mnist() -> None:
    image = fitted(seven())
    assert image.shape == (28, 28)
    assert image.dtype == np.float32
    assert (image.min(), image.max()) == (0, 1)
    assert centre(image) == pytest.approx([14, 14], abs=0.05)
    assert box_side(image) == pytest.approx(20.6, abs=0.8)


@pytest.mark.parametrize(
    "pixels",
    [
        seven(100, (30, 20), (180, 150)),
        seven(200, (150, 90)),
        seven(200, (14, 14), (230, 160)),
        1 - seven(),
        0.9 - 0.5 * seven(),
        0.2 + 0.3 * seven(),
        (0.8 - 0.6 * seven() + 0.05 * np.random.default_rng(0).standard_normal((360, 300)))
        .clip(0, 1)
        .astype(np.float32),
    ],
    ids=["smaller", "elsewhere", "at the border", "dark", "grey on white", "grey on grey", "noise"],
)
def test_size_place_and_colours_do_not_matter(pixels: Grey) -> None:
    image, same = fitted(pixels), fitted(seven())
    assert np.abs(image - same).mean() < 0.02
    assert np.corrcoef(image.ravel(), same.ravel())[0, 1] > 0.95


def test_quarter_turns_turn_the_image_and_other_angles_keep_its_size() -> None:
    image = fitted(seven())
    for turns in (1, 2, 3):
        np.testing.assert_allclose(fitted(np.rot90(seven(), turns).copy()), np.rot90(image, turns), atol=1e-4)
    whole = Image.fromarray(seven(canvas=(400, 400), place=(100, 130)))
    sides = [box_side(fitted(np.asarray(whole.rotate(angle, Image.Resampling.BILINEAR)))) for angle in range(0, 90, 15)]
    assert max(sides) / min(sides) < 1.06  # of an upright box the side would be up to 1.4 times as long


def test_an_image_of_the_size_is_taken_as_it_is(tmp_path: Path) -> None:
    pixels = fitted(seven())[::-1].copy() * np.float32(0.8)
    expected = torch.from_numpy((pixels * 255).round().astype(np.uint8))[None]
    assert torch.equal(read_digit(save(pixels, tmp_path / "bright.png")), expected)
    dark = save(1 - pixels, tmp_path / "dark.png")
    assert (read_digit(dark).int() - expected.int()).abs().max() <= 1
    assert torch.equal(read_digit(dark), read_digit(dark, invert=True))
    assert (read_digit(tmp_path / "bright.png", invert=True).int() + expected.int() - 255).abs().max() <= 1


@pytest.mark.parametrize("ink", [(0, 0, 0), (255, 255, 255), (200, 0, 0)], ids=["black", "white", "red"])
def test_transparent_paper_is_paper(ink: tuple[int, int, int], tmp_path: Path) -> None:
    opacity = Image.fromarray((seven() * 255).astype(np.uint8))
    image = Image.new("RGBA", opacity.size, (*ink, 0))
    image.putalpha(opacity)
    image.save(tmp_path / "a.png")
    found = read_digit(tmp_path / "a.png")[0].numpy() / 255
    np.testing.assert_allclose(found, fitted(seven()), atol=0.01)


def test_nothing_on_the_paper_is_an_empty_image(tmp_path: Path) -> None:
    for brightness in (0.0, 0.5, 1.0):
        found = read_digit(save(np.full((40, 50), brightness, np.float32), tmp_path / "blank.png"))
        assert (found.shape, found.dtype) == ((1, 28, 28), torch.uint8)
        assert not found.any()


def test_odd_shapes_are_read(tmp_path: Path) -> None:
    for shape in ((1, 1), (1, 50), (50, 1), (2, 3), (28, 27)):
        pixels = np.random.default_rng(0).random(shape, np.float32)
        assert read_digit(save(pixels, tmp_path / "a.png")).shape == (1, 28, 28)
    large = np.zeros((2000, 3000), np.float32)
    large[1200:1260, 40:44] = 1
    assert centre(fitted(large)) == pytest.approx([14, 14], abs=0.05)


def test_several_files_are_a_batch(tmp_path: Path) -> None:
    for name in ("b", "a"):
        save(seven(), tmp_path / f"{name}.png")
    save(1 - seven(), tmp_path / "c.png")
    batch = read_digits([tmp_path])
    assert batch.shape == (3, 1, 28, 28)
    assert torch.equal(batch[0], batch[1])
    assert (batch[0].int() - batch[2].int()).abs().max() <= 2


@pytest.mark.skipif("SFCNN_DATA" not in os.environ, reason="SFCNN_DATA is not set")
def test_the_size_is_that_of_mnist() -> None:
    images, _ = read_mnist(Path(os.environ["SFCNN_DATA"]))
    sides = np.array([box_side(image.numpy().astype(np.float32) / 255) for image in images[:2000, 0]])
    assert sides.mean() == pytest.approx(20.6, abs=0.1)
    assert sides.std() < 1.5
