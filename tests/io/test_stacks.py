import errno
import logging
import resource
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import tifffile
from PIL import Image

from sfcnn.io.stacks import (
    as_fraction,
    read_image,
    read_labels,
    read_stack,
    write_labels,
    write_stack,
    write_stacks,
)

SHAPE = (5, 16, 20)
GREY = np.random.default_rng(0).integers(0, 256, SHAPE).astype(np.uint8)
MASK = np.where(GREY > 60, 255, 0).astype(np.uint8)
RAMP = np.linspace(0, 1, GREY.size, dtype=np.float32).reshape(SHAPE)


def pillow_stack(path: Path, stack: np.ndarray, **options: Any) -> Path:
    first, *others = (Image.fromarray(part) for part in stack)
    first.save(path, "TIFF", save_all=True, append_images=others, **options)
    return path


def error_of(path: Path) -> str:
    """The line that reading a wrong stack ends in."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is checked by the caller)
        read_stack(path)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    return text


@pytest.mark.parametrize("shape", [SHAPE, (1, 4, 5), (2, 4, 4), (3, 7, 3), (4, 9, 4), (3, 1, 5), (1, 1, 1), (6, 7)])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_stacks_come_back_as_they_were_written(shape: tuple[int, ...], dtype: type[Any], tmp_path: Path) -> None:
    stack = (np.arange(np.prod(shape)).reshape(shape) * 3).astype(dtype)
    path = tmp_path / "new" / "stack.tif"
    write_stack(path, stack)
    again = read_stack(path)
    assert again.dtype == dtype
    assert again.dtype.isnative
    assert np.array_equal(again, stack if stack.ndim == 3 else stack[None])
    again += 1  # it owns its memory


def test_what_is_written_is_a_stack_of_slices_for_imagej(tmp_path: Path) -> None:
    write_stack(tmp_path / "a.tif", RAMP)
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        assert file.is_imagej
        assert file.imagej_metadata is not None
        assert file.imagej_metadata["slices"] == 5
        assert file.series[0].axes == "ZYX"
    with Image.open(tmp_path / "a.tif") as image:  # an independent reader
        assert image.n_frames == 5  # type: ignore[attr-defined]
        image.seek(3)
        assert np.array_equal(np.array(image), RAMP[3])


@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize("stack", [GREY, GREY.astype(np.uint16) * 257, RAMP, GREY.astype(np.int32)])
def test_other_writers_are_read(
    compression: str | None, byteorder: Literal["<", ">"], stack: np.ndarray, tmp_path: Path
) -> None:
    path = tmp_path / "stack.tif"
    tifffile.imwrite(path, stack, compression=compression, byteorder=byteorder, photometric="minisblack")
    again = read_stack(path)
    assert again.dtype == stack.dtype
    assert again.dtype.isnative
    assert np.array_equal(again, stack)
    tifffile.imwrite(path, stack, bigtiff=True, tile=(16, 16), photometric="minisblack", metadata=None)
    assert np.array_equal(read_stack(path), stack)


def test_stacks_of_pillow_are_read(tmp_path: Path) -> None:
    for compression in ("raw", "packbits", "tiff_adobe_deflate"):
        for stack in (GREY, RAMP):
            assert np.array_equal(read_stack(pillow_stack(tmp_path / "a.tif", stack, compression=compression)), stack)


def test_other_kinds_of_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, RAMP.astype(np.float64))
    assert read_stack(path).dtype == np.float32
    tifffile.imwrite(path, MASK > 0, photometric="minisblack")  # one bit
    assert np.array_equal(read_stack(path), MASK)
    colors = np.random.default_rng(1).integers(0, 2**16, (3, 256)).astype(np.uint16)
    tifffile.imwrite(path, GREY, photometric="palette", colormap=colors)
    assert np.array_equal(read_stack(path), GREY)


def test_grey_in_three_channels_is_grey(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", GREY[..., None].repeat(3, axis=-1), photometric="rgb")
    assert np.array_equal(read_stack(tmp_path / "a.tif"), GREY)
    colours = GREY[..., None].repeat(3, axis=-1)
    colours[2, 3, 4, 1] ^= 1
    tifffile.imwrite(tmp_path / "b.tif", colours, photometric="rgb")
    assert "is a colour image: save it in grey" in error_of(tmp_path / "b.tif")


def whole_files(directory: Path) -> list[bytes]:
    """The same stack by different writers."""
    directory.mkdir()
    write_stack(directory / "imagej.tif", GREY)
    tifffile.imwrite(directory / "shaped.tif", GREY)
    tifffile.imwrite(directory / "packed.tif", GREY, compression="zlib")
    tifffile.imwrite(directory / "bare.tif", GREY, compression="zlib", metadata=None)
    pillow_stack(directory / "pillow.tif", GREY)
    return [path.read_bytes() for path in sorted(directory.iterdir())]


def test_a_stack_cut_short_never_loses_slices_silently(tmp_path: Path) -> None:
    path = tmp_path / "stack.tif"
    for whole in whole_files(tmp_path / "files"):
        for length in range(0, len(whole), 29):
            path.write_bytes(whole[:length])
            try:
                stack = read_stack(path)
            except ValueError:
                error_of(path)
            else:
                assert np.array_equal(stack, GREY)  # only what is not needed was cut off
        path.write_bytes(whole[: len(whole) // 3])
        assert "stack.tif is " in error_of(path)


@pytest.mark.parametrize("content", [b"", b"no image", b"II*\0\xff\xff\xff\x7f"])
def test_a_wrong_file_is_named(content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "page.tif"
    path.write_bytes(content)
    assert "is not a TIFF or PNG file that can be read" in error_of(path)
    assert not caplog.records  # and nothing is said twice
    assert logging.getLogger("tifffile").propagate


def test_a_png_is_not_a_stack(tmp_path: Path) -> None:
    path = tmp_path / "mask.png"
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(path)
    assert error_of(path) == f"{path} is a PNG image, expected a TIFF file"


def test_stacks_that_make_no_sense_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    assert "does not exist" in error_of(path)
    assert "is a folder, expected a file" in error_of(tmp_path)
    with tifffile.TiffWriter(path) as writer:
        writer.write(GREY[0])
        writer.write(GREY[0, :8])
    assert "pages that do not fit together, of sizes (16, 20), (8, 20)" in error_of(path)
    tifffile.imwrite(path, GREY, photometric="miniswhite")
    assert "stored with white as 0" in error_of(path)
    tifffile.imwrite(path, GREY[:4].reshape(2, 2, 16, 20), imagej=True, metadata={"axes": "TZYX"})
    assert "has the axes TZYX (2, 2, 16, 20), expected slices ZYX or one image YX" in error_of(path)
    tifffile.imwrite(path, GREY[:3], imagej=True, metadata={"axes": "CYX"})
    assert "has the axes CYX" in error_of(path)
    tifffile.imwrite(path, RAMP.astype(np.complex64))
    assert "has values of type complex64" in error_of(path)


@pytest.mark.skipif(find_spec("imagecodecs") is not None, reason="with imagecodecs it can be read")
def test_a_compression_that_needs_a_package_is_named(tmp_path: Path) -> None:
    path = pillow_stack(tmp_path / "a.tif", GREY, compression="tiff_lzw")
    assert "needs the package imagecodecs" in error_of(path)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_pixels_that_are_no_numbers_are_named(bad: float, tmp_path: Path) -> None:
    stack = RAMP.copy()
    stack[2, 3, 4:7] = bad
    tifffile.imwrite(tmp_path / "a.tif", stack)
    assert "has 3 pixels that are not numbers (NaN or infinite)" in error_of(tmp_path / "a.tif")
    with pytest.raises(ValueError, match="has 3 pixels that are not numbers"):
        write_stack(tmp_path / "b.tif", stack)
    assert not (tmp_path / "b.tif").exists()


def test_absurd_sizes_are_refused_before_memory_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, GREY[0], compression="zlib", metadata=None)
    with tifffile.TiffFile(path, mode="r+") as file:
        for name in ("ImageWidth", "ImageLength", "RowsPerStrip"):
            file.pages[0].tags[name].overwrite(200_000)  # type: ignore[union-attr]
    assert "too small for its stated shape (200000, 200000)" in error_of(path)


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *_: object, **__: object) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    write_stack(tmp_path / "a.tif", GREY)
    monkeypatch.setattr(tifffile, "imwrite", full)
    with pytest.raises(OSError, match="No space left"):
        write_stack(tmp_path / "b.tif", GREY)
    with pytest.raises(OSError, match="No space left"):
        write_stack(tmp_path / "a.tif", MASK, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["a.tif"]
    assert np.array_equal(read_stack(tmp_path / "a.tif"), GREY)


def test_several_stacks_are_written_all_or_none(tmp_path: Path) -> None:
    small, large = tmp_path / "small.tif", tmp_path / "large.tif"
    stacks = {small: GREY[0], large: RAMP.repeat(5, axis=0)}
    with pytest.raises(ValueError, match="int64"):
        write_stacks({small: GREY, large: GREY.astype(np.int64)})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # as if there were no space for more
    try:
        with pytest.raises(OSError, match=r"cannot write .*large\.tif: is the disk full\? \(.*written\)"):
            write_stacks(stacks)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())
    write_stacks(stacks)
    for path, stack in stacks.items():
        assert np.array_equal(read_stack(path).squeeze(), stack)


def test_files_are_replaced_only_if_told(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    write_stack(path, GREY)
    with pytest.raises(ValueError, match=r"a\.tif exists"):
        write_stack(path, MASK)
    assert np.array_equal(read_stack(path), GREY)
    write_stack(path, MASK, overwrite=True)
    assert np.array_equal(read_stack(path), MASK)


@pytest.mark.parametrize(
    ("stack", "message"),
    [
        (
            GREY.astype(np.int64),
            r"cannot write values of type int64 to a\.tif, expected one of uint8, uint16, float32",
        ),
        (GREY > 1, "values of type bool"),
        (
            GREY[None, None],
            r"expected slices \(Z, H, W\) or \(Z, C, H, W\) or an image \(H, W\) to write to a\.tif, got shape",
        ),
        (GREY[:0], r"got shape \(0, 16, 20\)"),
    ],
)
def test_what_cannot_be_written_is_named(
    stack: np.ndarray, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        write_stack(Path("a.tif"), stack)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("largest", [0, 255, 2**16 - 1, 2**16, 2**24])
def test_labels_come_back_exactly(largest: int, tmp_path: Path) -> None:
    labels = np.array([[[0, 1, largest // 2, largest]]])
    write_labels(tmp_path / "a.tif", labels)
    again = read_labels(tmp_path / "a.tif")
    assert again.dtype == np.int64
    assert np.array_equal(again, labels)
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        assert file.is_imagej


def test_labels_that_are_none_are_named(tmp_path: Path) -> None:
    for wrong in (RAMP, GREY.astype(np.int16) - 5):
        tifffile.imwrite(tmp_path / "a.tif", wrong)
        with pytest.raises(ValueError, match=r"a\.tif does not hold labels: expected non-negative integers, got"):
            read_labels(tmp_path / "a.tif")
    for wrong in (np.array([[-1]]), np.array([[2**24 + 1]])):
        with pytest.raises(ValueError, match="cannot write labels"):
            write_labels(tmp_path / "b.tif", wrong)
    assert not (tmp_path / "b.tif").exists()


def test_fractions_of_white() -> None:
    assert as_fraction(np.array([0, 65535], np.uint16), "a").tolist() == [0, 1]
    assert as_fraction(RAMP, "a") is not None
    assert np.array_equal(as_fraction(RAMP, "a"), RAMP)
    with pytest.raises(ValueError, match=r"a has values from 0 to 1\.5, expected 0 … 1"):
        as_fraction(RAMP * 1.5, "a")
    with pytest.raises(ValueError, match="a has values of type int64, expected one of uint8, uint16, float32"):
        as_fraction(GREY.astype(np.int64), "a")


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA", "P"])
def test_grey_pictures_of_any_kind(mode: str, tmp_path: Path) -> None:
    Image.fromarray(GREY[0]).convert(mode).save(tmp_path / "a.png")
    assert np.array_equal(read_image(tmp_path / "a.png"), GREY[0])


def test_pictures_that_make_no_sense_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    colours = Image.fromarray(GREY[:3].transpose(1, 2, 0).copy())
    for mode in ("RGB", "P"):
        colours.convert(mode).save(path)
        with pytest.raises(ValueError, match=r"a\.png is a colour image: save it in grey"):
            read_image(path)
    Image.fromarray(GREY[0]).convert("RGBA").save(path)
    with Image.open(path) as image:
        image.putpixel((2, 3), (5, 5, 5, 100))
        image.save(tmp_path / "b.png")
    with pytest.raises(ValueError, match=r"b\.png has transparent pixels"):
        read_image(tmp_path / "b.png")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"a\.png is damaged or truncated"):
        read_image(path)
    path.write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"a\.png is not a TIFF or PNG file"):
        read_image(path)
    write_stack(tmp_path / "stack.tif", GREY)
    with pytest.raises(ValueError, match=r"stack\.tif has 5 slices, expected one image"):
        read_image(tmp_path / "stack.tif")
