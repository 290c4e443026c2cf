"""Pixels keep their size from the image to the result."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

from sfcnn.io.pixelsize import UNKNOWN, PixelSize, read_pixel_size
from sfcnn.io.stacks import write_stack

STACK = np.zeros((3, 8, 9), np.uint8)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (
            {"imagej": True, "resolution": (250, 200), "metadata": {"axes": "ZYX", "unit": "micron", "spacing": 0.05}},
            PixelSize((250.0, 200.0), 1, {"unit": "micron", "spacing": 0.05}),
        ),
        ({"photometric": "minisblack", "resolution": (300, 300), "resolutionunit": 2}, PixelSize((300.0, 300.0), 2)),
        (
            {"photometric": "minisblack", "resolution": (2.5e6, 2.5e6), "resolutionunit": "CENTIMETER"},
            PixelSize((2.5e6, 2.5e6), 3),
        ),
    ],
    ids=["imagej", "inches", "centimetres"],
)
def test_what_a_file_says_is_carried_over(written: dict[str, Any], expected: PixelSize, tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "in.tif", STACK, **written)
    found = read_pixel_size(tmp_path / "in.tif")
    assert found == expected
    write_stack(tmp_path / "out.tif", STACK.astype(np.float32), pixels=found)
    assert read_pixel_size(tmp_path / "out.tif") == expected
    with tifffile.TiffFile(tmp_path / "out.tif") as file:
        assert file.is_imagej
        assert file.series[0].axes == "ZYX"


def test_files_that_say_nothing_have_none(tmp_path: Path) -> None:
    Image.fromarray(STACK[0]).save(tmp_path / "image.png")
    assert read_pixel_size(tmp_path / "image.png") == UNKNOWN
    write_stack(tmp_path / "image.tif", STACK)
    assert read_pixel_size(tmp_path / "image.tif").lengths == {}


@pytest.mark.parametrize("content", [b"", b"II*\0", b"no TIFF file at all"])
def test_damaged_files_have_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad.tif").write_bytes(content)
    assert read_pixel_size(tmp_path / "bad.tif") == UNKNOWN
