"""OME-Zarr as others write it is read slice by slice; what is missing or damaged is named."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from ome_zarr.format import FormatV04, FormatV05

from sfcnn.io.files import is_zarr
from sfcnn.io.zarr_volumes import VoxelSize, ZarrVolume, create_pyramid, halve, image_attributes, open_pyramid

with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of its own classes
    from ome_zarr.writer import write_image

VOLUME = np.random.default_rng(0).integers(1, 255, (3, 40, 50)).astype(np.uint8)


def write(path: Path, format: Any, axes: str) -> None:
    """A volume as ome-zarr writes it, of voxels of 50 × 4 × 4 nm."""
    write_image(
        VOLUME.reshape(*(1 for axis in axes if axis in "tc"), *VOLUME.shape),
        zarr.create_group(str(path), zarr_format=format.zarr_format),
        axes=axes,
        scale={axis: {"z": 50.0, "y": 4.0, "x": 4.0}.get(axis, 1.0) for axis in axes},
        axes_units=dict.fromkeys("zyx", "nanometer"),
        scale_factors=[2],
        fmt=format,
    )


@pytest.mark.parametrize("axes", ["zyx", "tczyx"])
@pytest.mark.parametrize("format", [FormatV04(), FormatV05()], ids=["0.4", "0.5"])
def test_volumes_of_both_versions(format: Any, axes: str, tmp_path: Path) -> None:
    path = tmp_path / "volume.zarr"
    write(path, format, axes)
    assert is_zarr(path)
    volume = ZarrVolume(path)
    assert volume.shape == VOLUME.shape
    assert volume.voxel.scale == (50, 4, 4)
    assert volume.voxel.micrometres == pytest.approx(0.004)
    for z in (2, 0):
        np.testing.assert_array_equal(volume.read(z), VOLUME[z])


def test_arrays_of_any_chunks_and_shards(tmp_path: Path) -> None:
    for number, options in enumerate(({"chunks": (2, 16, 50)}, {"chunks": (1, 8, 8), "shards": (2, 16, 24)})):
        path = tmp_path / str(number)
        zarr.create_array(str(path), data=VOLUME, **options)  # type: ignore[arg-type]
        assert is_zarr(path)
        for z in range(3):
            np.testing.assert_array_equal(ZarrVolume(path).read(z), VOLUME[z])
    flat = zarr.create_array(str(tmp_path / "flat"), data=VOLUME[0])
    assert ZarrVolume(tmp_path / "flat").shape == (1, *flat.shape)
    colours = zarr.create_group(str(tmp_path / "rgb"))
    multiscales = create_pyramid(colours, "", (3, *VOLUME.shape), "uint8", name="x", voxel=ZarrVolume(path).voxel)
    colours.attrs.update(image_attributes(multiscales))
    open_pyramid(colours, "").write(1, np.stack([VOLUME[0], VOLUME[1], VOLUME[2]]))
    np.testing.assert_array_equal(ZarrVolume(tmp_path / "rgb", colour=True).read(1), np.moveaxis(VOLUME, 0, -1))
    with pytest.raises(ValueError, match="has the axes c = 3, z = 3, y = 40, x = 50, expected 1 channel and 1 point"):
        ZarrVolume(tmp_path / "rgb")


def test_missing_and_damaged_chunks_are_named(tmp_path: Path) -> None:
    path = tmp_path / "volume.zarr"
    group = zarr.create_group(str(path))
    multiscales = create_pyramid(group, "", VOLUME.shape, "uint8", name="x", voxel=VoxelSize())
    group.attrs.update(image_attributes(multiscales))
    pyramid = open_pyramid(group, "")
    for z in range(3):
        pyramid.write(z, VOLUME[z])
    (path / "0/c/1/0/0").unlink()
    chunk = path / "0/c/2/0/0"
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1  # a single bit
    chunk.write_bytes(content)
    volume = ZarrVolume(path)
    np.testing.assert_array_equal(volume.read(0), VOLUME[0])
    with pytest.raises(ValueError, match=r"volume\.zarr cannot be read at z = 1: chunk 0/c/1/0/0 is missing"):
        volume.read(1)
    with pytest.raises(ValueError, match=r"volume\.zarr cannot be read at z = 2"):
        volume.read(2)
    assert not ZarrVolume(path, fill_missing=True).read(1).any()


def test_what_is_no_volume_is_refused_in_one_line(tmp_path: Path) -> None:
    zarr.create_group(str(tmp_path / "group")).create_array("raw", data=VOLUME)
    zarr.create_array(str(tmp_path / "four"), data=VOLUME[None])
    bad = zarr.create_group(str(tmp_path / "bad"))
    bad.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": [{"name": "q"}], "datasets": [{"path": "0"}]}]}
    (tmp_path / "text.zarr").mkdir()
    (tmp_path / "text.zarr/zarr.json").write_text("no json")
    for name, message in {
        "nowhere": "does not exist",
        "group": "it has raw: name one of these",
        "four": "without axis names",
        "bad": "is not an OME-Zarr volume that can be read",
        "text.zarr": "is not an OME-Zarr volume that can be read",
    }.items():
        with pytest.raises(ValueError, match=message) as caught:
            ZarrVolume(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("sides", [(8, 6), (7, 5), (1, 1)])
def test_halving(sides: tuple[int, int]) -> None:
    image = np.random.default_rng(1).random((2, *sides)).astype(np.float32)
    small = halve(image)
    assert small.shape == (2, *(-(-side // 2) for side in sides))
    assert small.dtype == np.float32
    if not sides[0] % 2 and not sides[1] % 2:
        np.testing.assert_allclose(small.mean(), image.mean(), rtol=1e-6)
    np.testing.assert_array_equal(halve(np.ones(sides)), np.ones(small.shape[1:]))
    labels = np.arange(image.size).reshape(image.shape)
    assert set(halve(labels, nearest=True).ravel()) <= set(labels.ravel())
