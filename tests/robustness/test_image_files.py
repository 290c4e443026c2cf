"""Image files and TIFF stacks with any damage are read or refused."""

import io
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import tifffile
from hypothesis import given
from numpy.typing import NDArray
from PIL import Image

from robustness.harness import cases, damaged, limits, read_or_refuse
from sfcnn.io.images import read_images, read_pixels
from sfcnn.io.pixelsize import read_pixel_size
from sfcnn.io.stacks import as_fraction, read_image, read_labels, read_stack
from sfcnn.segmentation.config import SlicesConfig
from sfcnn.segmentation.data import as_interior, load_slices

GREY = (np.add.outer(np.arange(12) ** 2, 7 * np.arange(15)) % 256).astype(np.uint8)
COLOURS = np.stack([GREY, GREY[::-1], 255 - GREY], -1)
STACK = np.stack([GREY, GREY.T[:12, :12].repeat(2, 1)[:, :15], 255 - GREY])


def picture(kind: str, mode: str = "L", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(COLOURS).convert(mode).save(file, kind, **options)
    return file.getvalue()


PICTURES = {
    "png": picture("PNG"),
    "png-palette": picture("PNG", "P"),
    "png-alpha": picture("PNG", "LA"),
    "jpeg": picture("JPEG", "RGB", exif=Image.Exif()),
    "gif": picture("GIF"),
    "bmp": picture("BMP", "RGB"),
    "ppm": picture("PPM"),
    "webp": picture("WEBP", "RGB"),
    "jpeg2000": picture("JPEG2000"),
    "tiff": picture("TIFF"),
    "tiff-lzw": picture("TIFF", "RGB", compression="tiff_lzw"),
}


@cases(80 * len(PICTURES))
@given(data=st.data())
def test_pictures(place: Path, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(PICTURES)))
    path = place / "picture"
    path.write_bytes(data.draw(damaged(PICTURES[kind])))
    channels = data.draw(st.sampled_from((0, 1, 3)))
    pixels = read_or_refuse(lambda path: read_pixels(path, channels), path)
    if pixels is not None:
        assert pixels.dtype == np.float32
        assert pixels.shape[-1] in ((1, 3) if channels == 0 else (channels,))
        assert ((pixels >= 0) & (pixels <= 1)).all()
        assert read_images([path]).shape == (1, 1, 28, 28)


@cases(100)
@given(st.binary(max_size=200) | st.sampled_from(sorted(PICTURES.values())).map(lambda whole: whole[:16] + bytes(99)))
def test_arbitrary_bytes_as_a_picture(place: Path, content: bytes) -> None:
    path = place / "bytes.png"
    path.write_bytes(content)
    for read in (lambda path: read_images([path]), read_image):
        read_or_refuse(read, path)


@cases(150)
@given(data=st.data())
def test_slices_of_a_folder(place: Path, data: st.DataObject) -> None:
    """The PNG and TIFF files of a folder of pairs: the image or the mask damaged."""
    damage = data.draw(damaged(data.draw(st.sampled_from((PICTURES["png"], PICTURES["png-palette"])))))
    mask = picture("PNG", "1")
    wrong = data.draw(st.sampled_from(("images", "masks")))
    folder = place / "pairs"
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / part / "a.png").write_bytes(damage if part == wrong else mask)
    slices = read_or_refuse(lambda path: load_slices(SlicesConfig("pairs", str(folder))), folder)
    assert slices is None or slices.images[0].shape[1:] == slices.masks[0].shape


def tiff(stack: NDArray[Any], **options: Any) -> bytes:
    file = io.BytesIO()
    tifffile.imwrite(file, stack, **options)
    return file.getvalue()


TABLE = np.zeros((3, 256), np.uint16)
TILED = np.pad(STACK, ((0, 0), (0, 20), (0, 17)))

STACKS = {
    "imagej": tiff(STACK, imagej=True, metadata={"axes": "ZYX", "spacing": 2.0, "unit": "nm"}, resolution=(4, 4)),
    "imagej-float": tiff(STACK.astype(np.float32) / 255, imagej=True, metadata={"axes": "ZYX"}),
    "deflate": tiff(STACK, compression="zlib", photometric="minisblack"),
    "pages": tiff(STACK, photometric="minisblack", metadata=None),
    "big endian": tiff(STACK.astype(np.uint16), byteorder=">", photometric="minisblack"),
    "bigtiff": tiff(STACK, bigtiff=True, photometric="minisblack"),
    "tiles": tiff(TILED, tile=(16, 16), compression="zlib", predictor=True, photometric="minisblack"),
    "strips": tiff(TILED[0], rowsperstrip=5, compression="zlib", photometric="minisblack"),
    "bits": tiff(STACK > 99, photometric="minisblack"),
    "table": tiff(STACK[0], colormap=TABLE, photometric="palette"),
    "colours": tiff(np.stack([STACK[0]] * 3, -1), photometric="rgb"),
    "doubles": tiff(STACK.astype(np.float64), photometric="minisblack"),
    "ome": tiff(STACK, ome=True, metadata={"axes": "ZYX"}),
}


@cases(60 * len(STACKS))
@given(data=st.data())
def test_stacks(place: Path, data: st.DataObject) -> None:
    """What is read is made of finite numbers, and goes through all that is done with it next or is refused there."""
    path = place / "stack.tif"
    path.write_bytes(data.draw(damaged(STACKS[data.draw(st.sampled_from(sorted(STACKS)))])))
    stack = read_or_refuse(read_stack, path)
    if stack is None:
        return
    with limits():
        read_pixel_size(path)  # which refuses nothing
    assert stack.ndim == 3
    assert stack.size
    assert np.isfinite(stack).all()
    for use in (as_fraction, as_interior):
        read_or_refuse(lambda path, use=use: use(stack, path), path)  # type: ignore[misc]
    labels = read_or_refuse(read_labels, path)
    assert labels is None or labels.min() >= 0


@pytest.mark.parametrize("kind", sorted(STACKS))
def test_the_stacks_themselves_are_read(kind: str, place: Path) -> None:
    """Else the test above would damage what is damaged already."""
    path = place / "whole.tif"
    path.write_bytes(STACKS[kind])
    assert read_stack(path).shape[-1] in (15, 32)


@pytest.mark.parametrize("kind", sorted(PICTURES))
def test_the_pictures_themselves_are_read(kind: str, place: Path) -> None:
    path = place / "whole"
    path.write_bytes(PICTURES[kind])
    assert read_pixels(path).std() > 0.05
