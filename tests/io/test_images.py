import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from sfcnn.classification.digits import load_digits
from sfcnn.io.images import fit_pixels, image_files, read_images, read_pixels

GREY = np.random.default_rng(0).integers(0, 256, (28, 28)).astype(np.uint8)


def save(pixels: np.ndarray, path: Path, mode: str | None = None, **options: Any) -> Path:
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(path, **options)
    return path


def read(path: Path, **options: Any) -> Tensor:
    """One image (H, W) of 28 pixels' side, in [0, 1]."""
    images = read_images([path], **options)
    assert images.dtype == torch.uint8
    return images[0, 0].float() / 255


def pixels_of(path: Path, **options: Any) -> NDArray[np.float32]:
    """One grey image (H, W)."""
    pixels = read_pixels(path, **options)
    assert pixels.dtype == np.float32
    assert pixels.shape[-1] == 1
    return pixels[..., 0]


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.bmp", "a.pgm", "a.gif", "a.anything"])
@pytest.mark.parametrize("mode", ["L", "RGB", "P"])
def test_grey_values_come_back_exactly(name: str, mode: str, tmp_path: Path) -> None:
    kind = {"format": "PNG"} if name == "a.anything" else {}
    path = save(GREY, tmp_path / name, "L" if name == "a.pgm" else mode, **kind)
    assert torch.equal(read(path), torch.from_numpy(GREY).float() / 255)


def test_a_digit_comes_back_as_the_network_knows_it(tmp_path: Path) -> None:
    digit = load_digits().images[:1]
    path = save((digit[0, 0] * 255).round().byte().numpy(), tmp_path / "digit.png")
    assert torch.equal(read_images([path]).float() / 255, digit)


@pytest.mark.parametrize(("name", "tolerance"), [("a.png", 0), ("a.tif", 0), ("a.pgm", 0), ("a.jp2", 1e-4)])
def test_sixteen_bits_are_kept(name: str, tolerance: float, tmp_path: Path) -> None:
    pixels = np.arange(784, dtype=np.uint16).reshape(28, 28) * 83
    expected = pixels.astype(np.float32) / 65535
    assert np.abs(pixels_of(save(pixels, tmp_path / name)) - expected).max() <= tolerance


def test_float_tiff_and_jpeg(tmp_path: Path) -> None:
    pixels = np.linspace(0, 1, 784, dtype=np.float32).reshape(28, 28)
    np.testing.assert_array_equal(pixels_of(save(pixels, tmp_path / "a.tif")), pixels)
    smooth = save((pixels * 255).astype(np.uint8), tmp_path / "a.jpg", "RGB", quality=95)
    assert (read(smooth) - torch.from_numpy(pixels)).abs().max() < 0.03


def test_colours_become_luminance(tmp_path: Path) -> None:
    colours = np.zeros((28, 28, 3), np.uint8)
    for channel in range(3):
        colours[:, channel, channel] = 255
    red, green, blue = read(save(colours, tmp_path / "a.png"))[0, :3]
    assert green > red > blue > 0
    assert red + green + blue == pytest.approx(1, abs=0.01)


def test_what_is_transparent_shows_the_background(tmp_path: Path) -> None:
    ink = np.zeros((28, 28, 4), np.uint8)  # black …
    ink[:, :14, 3] = 255  # … on the left, half of it in the middle, nothing on the right
    ink[:, 14, 3] = 128
    path = save(ink, tmp_path / "a.png")
    assert read(path).max() == 0
    inverted = read(path, invert=True)
    assert inverted[0, [0, 14, 27]].tolist() == pytest.approx([1, 128 / 255, 0], abs=1e-6)


def test_inversion_exchanges_black_and_white(tmp_path: Path) -> None:
    path = save(GREY, tmp_path / "a.png")
    torch.testing.assert_close(read(path, invert=True), 1 - read(path))


@pytest.mark.parametrize("name", ["a.jpg", "a.tif", "a.png"])
def test_pictures_are_turned_as_viewers_turn_them(name: str, tmp_path: Path) -> None:
    upper = np.zeros((28, 28), np.uint8)
    upper[:10] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright: turn clockwise by 90° to look at it
    right = read(save(upper, tmp_path / name, exif=exif))
    assert right[:, 20:].min() > 0.9
    assert right[:, :16].max() < 0.1


@given(st.integers(1, 70), st.integers(1, 70), st.sampled_from((1, 3)), st.integers(0, 2**31))
def test_any_size_is_fitted_with_its_shape_kept(height: int, width: int, channels: int, seed: int) -> None:
    image = np.random.default_rng(seed).random((height, width, channels), np.float32)
    fitted = fit_pixels(image, (28, 28))
    assert fitted.shape == (28, 28, channels)
    assert fitted.min() >= image.min() - 1e-6
    assert fitted.max() <= image.max() + 1e-6
    np.testing.assert_allclose(fit_pixels(image.swapaxes(0, 1), (28, 28)), fitted.swapaxes(0, 1), atol=1e-6)
    np.testing.assert_allclose(fit_pixels(np.full_like(image, 0.3), (28, 28)), np.float32(0.3), atol=1e-6)
    np.testing.assert_array_equal(fit_pixels(image[..., :1], (28, 28))[..., 0], fitted[..., 0])  # each channel alone


COLOURS = np.stack([GREY, GREY.T, GREY[::-1]], -1)


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.bmp", "a.ppm", "a.webp"])
def test_colours_are_kept_or_made_grey_or_made_of_grey(name: str, tmp_path: Path) -> None:
    lossless: dict[str, Any] = {"lossless": True} if name == "a.webp" else {}
    colour = save(COLOURS, tmp_path / name, **lossless)
    for channels in (0, 3):
        np.testing.assert_allclose(read_pixels(colour, channels), COLOURS / 255, atol=1e-6)
    luminance = COLOURS @ np.array([0.299, 0.587, 0.114]) / 255
    np.testing.assert_allclose(read_pixels(colour, 1)[..., 0], luminance, atol=1 / 255)
    grey = save(GREY, tmp_path / f"grey-{name}", "RGB", **lossless)  # colours, but all the same
    for channels, found in ((0, 1), (1, 1), (3, 3)):
        expected = np.repeat(GREY[..., None], found, -1) / 255
        np.testing.assert_allclose(read_pixels(grey, channels), expected, atol=1e-6)


def test_transparent_colours_show_the_background(tmp_path: Path) -> None:
    ink = np.concatenate([COLOURS, np.full((28, 28, 1), 255, np.uint8)], -1)
    ink[:, 14:, 3] = 0
    path = save(ink, tmp_path / "a.png")
    pixels = read_pixels(path, background=0.5)
    np.testing.assert_allclose(pixels[:, :14], COLOURS[:, :14] / 255, atol=1e-6)
    assert np.unique(pixels[:, 14:]).tolist() == [0.5]


def test_sixteen_bits_can_be_made_colours(tmp_path: Path) -> None:
    pixels = read_pixels(save(GREY.astype(np.uint16) * 257, tmp_path / "a.tif"), 3)
    np.testing.assert_allclose(pixels, np.repeat(GREY[..., None], 3, -1) / 255, atol=1e-6)
    assert read_images([tmp_path / "a.tif"], channels=3).shape == (1, 3, 28, 28)


def test_padding_is_the_background_and_keeps_circles_round(tmp_path: Path) -> None:
    row, column = np.mgrid[:280, :560]
    disk = (row - 139.5) ** 2 + (column - 279.5) ** 2 <= 100**2
    path = save(np.where(disk, 250, 40).astype(np.uint8), tmp_path / "a.png")
    image = read(path)
    torch.testing.assert_close(image[:7], torch.full((7, 28), 40 / 255))
    torch.testing.assert_close(image.rot90(), image, atol=1.01 / 255, rtol=0)
    stretched = read(path, fit="stretch")
    assert stretched[0].std() < 1e-6
    assert (stretched.rot90() - stretched).abs().max() > 0.5


def test_fine_patterns_become_their_mean_and_no_moire(tmp_path: Path) -> None:
    stripes = np.zeros((300, 300), np.uint8)
    stripes[:, ::2] = 255
    inside = read(save(stripes, tmp_path / "a.png"))[2:-2, 2:-2]
    assert (inside - 0.5).abs().max() < 0.02


def test_other_sizes(tmp_path: Path) -> None:
    path = save(GREY, tmp_path / "a.png")
    assert read_images([path, path], (32, 20)).shape == (2, 1, 32, 20)


def test_directories_stand_for_their_images_in_order(tmp_path: Path) -> None:
    directory = tmp_path / "digits"
    directory.mkdir()
    for name in ("b.PNG", "a.tif", "c.jpg", ".hidden.png"):
        save(GREY, directory / name)
    (directory / "notes.txt").write_text("no image")
    (directory / "more.png").mkdir()
    single = save(GREY, tmp_path / "z.png")
    expected = [single, *(directory / name for name in ("a.tif", "b.PNG", "c.jpg")), single]
    assert image_files([single, directory, single]) == expected
    assert read_images([directory]).shape == (3, 1, 28, 28)


def png_of_size(width: int, height: int) -> bytes:
    """The head of a PNG file that promises this many pixels."""
    import struct
    import zlib

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    check = struct.pack(">I", zlib.crc32(b"IHDR" + head))
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + head + check + struct.pack(">I", 0) + b"IDAT"


@pytest.mark.parametrize("pixels", [10**8, 10**10])
def test_a_picture_that_would_fill_the_memory_is_refused(pixels: int, tmp_path: Path) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(png_of_size(10_000, pixels // 10_000))
    with pytest.raises(ValueError, match=r"bomb\.png is too large: at most 89,478,485 pixels are read"):
        read(path)


@pytest.mark.parametrize(
    "content", [b"", b"not an image", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"P5 0 4 255\n"]
)
def test_a_file_that_is_no_image_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "page.png"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"page\.png is not an image that can be read \(BMP, GIF, JPEG"):
        read(path)


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.tif", "a.bmp", "a.pgm", "a.gif", "a.jp2", "a.webp"])
def test_a_file_cut_short_is_named_wherever_it_is_cut(name: str, tmp_path: Path) -> None:
    path = save(GREY, tmp_path / name)
    whole = path.read_bytes()
    for length in range(0, len(whole) * 9 // 10, max(1, len(whole) // 40)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=re.escape(name)) as caught:
            read(path)
        assert "\n" not in str(caught.value)


def test_values_without_a_meaning_are_named(tmp_path: Path) -> None:
    pixels = np.zeros((28, 28), np.float32)
    pixels[3, 4] = np.nan
    with pytest.raises(ValueError, match="has pixels that are not numbers"):
        read(save(pixels, tmp_path / "a.tif"))
    pixels[3, 4] = 700
    with pytest.raises(ValueError, match="has values from 0 to 700, expected 0 … 1: rescale them"):
        read(save(pixels, tmp_path / "a.tif"))
    with pytest.raises(ValueError, match="has values from -5 to 0, expected 0 … 65535"):
        read(save(np.where(pixels > 0, -5, 0).astype(np.int32), tmp_path / "a.tif"))


def test_other_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"missing\.png does not exist"):
        read(tmp_path / "missing.png")
    with pytest.raises(ValueError, match=r"directory .* has no image files \(BMP"):
        image_files([tmp_path])
    (tmp_path / "inner").mkdir()
    with pytest.raises(ValueError, match=r"has no image files \(BMP.*; its subfolders are not searched"):
        image_files([tmp_path])
    with pytest.raises(ValueError, match="at least one is needed"):
        read_images([])
    with pytest.raises(ValueError, match=r"unknown fit 'crop', choose one of \['pad', 'stretch'\]"):
        read_images([save(GREY, tmp_path / "a.png")], fit="crop")
    with pytest.raises(ValueError, match="channels must be 0, 1 or 3, got 2"):
        read_pixels(tmp_path / "a.png", 2)
    pages = [Image.fromarray(GREY), Image.fromarray(255 - GREY)]
    pages[0].save(tmp_path / "stack.tif", save_all=True, append_images=pages[1:])
    with pytest.raises(ValueError, match=r"stack\.tif has 2 pages, expected one"):
        read(tmp_path / "stack.tif")
