"""Pages of a TIFF file are read one by one, with the values that the whole stack has."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

from sfcnn.io.pages import StackPages
from sfcnn.io.stacks import read_stack, write_stack

STACK = np.random.default_rng(0).integers(0, 255, (5, 24, 37))
KINDS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "packed": {"compression": "zlib"},
    "tiled": {"tile": (16, 16)},
    "large": {"bigtiff": True},
    "big-endian": {"byteorder": ">"},
    "pages": {"contiguous": False, "metadata": None},
}


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("kind", KINDS)
def test_slices_are_those_of_the_stack(kind: str, dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, STACK.astype(dtype), photometric="minisblack", **KINDS[kind])
    pages, whole = StackPages(path), read_stack(path)
    assert pages.shape == whole.shape == STACK.shape
    for z in (3, 0, 4):
        image = pages.read(z)
        np.testing.assert_array_equal(image, STACK[z])
        assert image.dtype == whole.dtype
        assert image.dtype.isnative


def test_imagej_stacks_colours_and_single_images(tmp_path: Path) -> None:
    write_stack(tmp_path / "fiji.tif", STACK.astype(np.uint8))
    np.testing.assert_array_equal(StackPages(tmp_path / "fiji.tif").read(2), STACK[2])
    write_stack(tmp_path / "one.tif", STACK[1].astype(np.uint8))
    one = StackPages(tmp_path / "one.tif")
    assert one.shape == (1, 24, 37)
    np.testing.assert_array_equal(one.read(0), STACK[1])
    colours = np.stack([STACK, STACK + 0, 255 - STACK], -1).astype(np.uint8)
    for name, planar in (("contig", colours), ("separate", np.moveaxis(colours, -1, 1))):
        path = tmp_path / f"{name}.tif"
        tifffile.imwrite(path, planar, photometric="rgb", planarconfig=name)
        np.testing.assert_array_equal(StackPages(path, colour=True).read(3), colours[3])
        with pytest.raises(ValueError, match="is a colour image"):
            StackPages(path).read(3)


def test_a_damaged_page_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, STACK.astype(np.uint8), photometric="minisblack", compression="zlib")
    with tifffile.TiffFile(path) as file:
        offset = file.pages[2].dataoffsets[0]
    with path.open("r+b") as raw:
        raw.seek(offset)
        raw.write(b"\xff" * 40)
    pages = StackPages(path)
    np.testing.assert_array_equal(pages.read(3), STACK[3])
    with pytest.raises(ValueError, match=r"a\.tif is damaged"):
        pages.read(2)
    with pytest.raises(ValueError, match="does not exist"):
        StackPages(tmp_path / "b.tif")
