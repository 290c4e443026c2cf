"""A volume slice by slice is what it is in memory, bit for bit, and starts again where it stopped."""

import errno
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import ome_zarr_models
import pytest
import tifffile
import zarr
from numpy.typing import NDArray
from ome_zarr.io import parse_url
from ome_zarr.reader import Reader

from segmentation.test_predict import make_run
from sfcnn.cells import CellsConfig, segment
from sfcnn.io import zarr_volumes
from sfcnn.io.stacks import write_stack
from sfcnn.io.zarr_volumes import ZarrVolume
from sfcnn.segmentation import Segmenter
from sfcnn.segmentation.config import UNetConfig
from sfcnn.volumes import segment_volume
from volumes.conftest import SHAPE, contents, make_volume


def written(out: Path, labels: str = "cells") -> tuple[NDArray[Any], NDArray[Any]]:
    """Probabilities and labels of an output."""
    group: Any = zarr.open_group(str(out), mode="r")
    return group["probabilities/0"][:], group[f"labels/{labels}/0"][:]


@pytest.mark.parametrize("stack", [False, True])
def test_a_volume_is_what_it_is_in_memory(
    stack: bool, network: Segmenter, volume: Path, images: NDArray[np.uint8], tmp_path: Path
) -> None:
    found = segment(network, images / np.float32(255), stack=stack)
    report = segment_volume(network, volume, tmp_path / "out.zarr", stack=stack)
    probabilities, cells = written(tmp_path / "out.zarr")
    np.testing.assert_array_equal(probabilities, found.probabilities)
    np.testing.assert_array_equal(cells, found.labels)
    assert [array.dtype.name for array in (probabilities, cells)] == ["float32", "uint32"]
    assert report.complete
    assert report.cells == found.labels.max() > SHAPE[0]
    assert tuple(report.agreement.values()) == found.agreement
    assert len(found.agreement) == (SHAPE[0] - 1 if stack else 0)
    if stack:
        in_two = sum(len(np.intersect1d(a, b)) for a, b in pairwise(cells))
        assert in_two > 0
    else:
        assert sum(len(np.unique(one)) for one in cells) == report.cells


@pytest.mark.parametrize("kind", ["contiguous", "packed"])
def test_a_tiff_stack_is_what_it_is_as_a_volume(
    kind: str, network: Segmenter, volume: Path, images: NDArray[np.uint8], tmp_path: Path
) -> None:
    packing = "zlib" if kind == "packed" else None
    tifffile.imwrite(tmp_path / "em.tif", images, photometric="minisblack", compression=packing)
    for source, options in ((tmp_path / "em.tif", {}), (volume, {"pixel_size": 0.0})):
        segment_volume(network, source, tmp_path / f"{source.name}-out.zarr", **options)  # type: ignore[arg-type]
    assert contents(tmp_path / "em.tif-out.zarr").keys() == contents(tmp_path / "em.zarr-out.zarr").keys()
    for found, expected in zip(
        written(tmp_path / "em.tif-out.zarr"), written(tmp_path / "em.zarr-out.zarr"), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_what_the_volume_says_of_its_pixels_counts(
    network: Segmenter, images: NDArray[np.uint8], tmp_path: Path
) -> None:
    from sfcnn.io.pixelsize import PixelSize

    pixels = PixelSize((500.0, 500.0), lengths={"unit": "um", "spacing": 0.05})
    write_stack(tmp_path / "em.tif", images[:2], pixels=pixels)
    segment_volume(network, tmp_path / "em.tif", tmp_path / "out.zarr", cells=False)
    assert ZarrVolume(tmp_path / "out.zarr").voxel.scale == pytest.approx((0.05, 0.002, 0.002))
    expected = segment(network, images[:2] / np.float32(255), pixel_size=0.002, cells=False)
    for found, wanted in zip(
        written(tmp_path / "out.zarr", "classes"), (expected.probabilities, expected.labels), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


def test_several_classes_of_colours(tmp_path: Path) -> None:
    network = make_run(tmp_path / "rgb", channels=3, classes=("ground", "cell", "nucleus"))
    colours = np.random.default_rng(0).integers(0, 255, (2, 20, 24, 3)).astype(np.uint8)
    tifffile.imwrite(tmp_path / "rgb.tif", colours, photometric="rgb")
    report = segment_volume(network, tmp_path / "rgb.tif", tmp_path / "out.zarr")
    found = segment(network, colours / np.float32(255))
    probabilities, classes = written(tmp_path / "out.zarr", "classes")
    np.testing.assert_array_equal(np.moveaxis(probabilities, 0, 1), found.probabilities)
    np.testing.assert_array_equal(classes, found.labels)
    assert (report.complete, report.cells) == (True, 0)
    assert isinstance(ome_zarr_models.open_ome_zarr(str(tmp_path / "out.zarr")), ome_zarr_models.v05.image.Image)
    with pytest.raises(ValueError, match="only cells can be linked across slices"):
        segment_volume(network, tmp_path / "rgb.tif", tmp_path / "other.zarr", stack=True)


def test_readers_and_the_validator_of_ome_zarr_accept_it(
    network: Segmenter, images: NDArray[np.uint8], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there are several levels and chunks."""
    monkeypatch.setattr(zarr_volumes, "SMALLEST", 40)
    monkeypatch.setattr(zarr_volumes, "CHUNK", 32)
    make_volume(tmp_path / "em.zarr", images[:2, :61, :60])
    out = tmp_path / "out.zarr"
    segment_volume(network, tmp_path / "em.zarr", out)
    model: Any = ome_zarr_models.open_ome_zarr(str(out))
    assert model.ome_zarr_version == "0.5"
    assert model.attributes.ome.multiscales[0].name == "membranes"
    label: Any = ome_zarr_models.open_ome_zarr(str(out / "labels/cells"))
    assert label.attributes.ome.image_label.source.image == "../../"
    url: Any = parse_url(str(out))
    image, _, cells = Reader(url)()
    for node in (image, cells):
        assert [level.shape for level in node.data] == [(2, 61, 60), (2, 31, 30)]
        scales = [parts[0]["scale"] for parts in node.metadata["coordinateTransformations"]]
        assert scales == [[0.05, 0.004, 0.004], [0.05, 0.008, 0.008]]
    fine, coarse = (np.asarray(level) for level in image.data)
    np.testing.assert_allclose(coarse[:, :30], fine[:, :60].reshape(2, 30, 2, 30, 2).mean((2, 4)), rtol=1e-6)
    fine, coarse = (np.asarray(level) for level in cells.data)
    np.testing.assert_array_equal(coarse, fine[:, ::2, ::2])


def test_only_what_is_missing_is_done(network: Segmenter, volume: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.zarr"
    assert segment_volume(network, volume, out, slices=range(1, 3)).done == 2
    report = segment_volume(network, volume, out)
    assert (report.kept, report.complete) == (2, True)
    whole = contents(out)
    for name in ("work/slices/c/1/0", "probabilities/0/c/2/0/0", "labels/cells/0/c/3/0/0"):
        chunk = out / name
        chunk.unlink()
        report = segment_volume(network, volume, out)
        assert report.kept == (4 if name.startswith("labels") else 3)
        assert contents(out) == whole
        chunk.write_bytes(chunk.read_bytes()[:-3])
        segment_volume(network, volume, out)
        assert contents(out) == whole
    (out / "probabilities/0/c/1/0/0.ab.partial").write_bytes(b"of a process that was killed")
    (out / "work/slices/c/1/0").unlink()
    segment_volume(network, volume, out)
    assert contents(out) == whole


def test_a_slice_whose_image_has_changed_is_done_again(
    network: Segmenter, volume: Path, images: NDArray[np.uint8], tmp_path: Path
) -> None:
    out = tmp_path / "out.zarr"
    segment_volume(network, volume, out)
    zarr.open_group(str(volume), mode="r+")["0"][2] = images[0]  # type: ignore[index]
    assert segment_volume(network, volume, out).kept == 3
    expected = segment(network, images[[0, 1, 0, 3]] / np.float32(255))
    for found, wanted in zip(written(out), (expected.probabilities, expected.labels), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_damaged_slice_is_left_out_and_done_once_it_is_there(
    network: Segmenter, volume: Path, tmp_path: Path
) -> None:
    segment_volume(network, volume, tmp_path / "whole.zarr", stack=True)
    out, lost, damaged = tmp_path / "out.zarr", volume / "0/c/1/0/0", volume / "0/c/3/0/0"
    content = lost.read_bytes(), damaged.read_bytes()
    lost.unlink()
    damaged.write_bytes(content[1][: len(content[1]) // 2])
    report = segment_volume(network, volume, out, stack=True)
    assert list(report.failed) == [1, 3]
    assert "chunk 0/c/1/0/0 is missing" in report.failed[1]
    assert (report.done, report.complete) == (2, False)
    assert not (out / "labels/cells/0/c/1").exists()
    assert len(np.unique(written(out)[1][[0, 2]])) == report.cells + 0  # each slice has its own, nothing links them
    lost.write_bytes(content[0])
    damaged.write_bytes(content[1])
    report = segment_volume(network, volume, out, stack=True)
    assert (report.kept, report.complete) == (2, True)
    assert contents(out) == contents(tmp_path / "whole.zarr")


def test_a_full_disk_ends_it_and_nothing_is_lost(
    network: Segmenter, volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment_volume(network, volume, tmp_path / "whole.zarr")
    out = tmp_path / "out.zarr"
    store: Any = zarr.storage._local
    put = store._put
    room = 0  # for so many more files

    def limited(path: Path, *arguments: Any, **named: Any) -> Any:
        nonlocal room
        room -= 1
        if room < 0:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return put(path, *arguments, **named)

    monkeypatch.setattr(store, "_put", limited)
    with pytest.raises(OSError, match="No space left"):
        segment_volume(network, volume, out)
    assert list(tmp_path.glob("*out*")) == []  # not even begun
    for files in (30, 5, 7):
        room = files
        with pytest.raises(
            OSError, match=r"out\.zarr: .*No space left on device.*; run the same command again to continue"
        ):
            segment_volume(network, volume, out)
    assert not list(out.rglob("*.partial"))
    room = 10**6
    report = segment_volume(network, volume, out)
    assert report.complete
    assert report.kept > 0
    assert contents(out) == contents(tmp_path / "whole.zarr")


def test_an_output_of_anything_else_is_refused(network: Segmenter, volume: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.zarr"
    segment_volume(network, volume, out, slices=range(1))
    other = make_run(tmp_path / "other", standardize=False)
    with pytest.raises(
        ValueError, match=r"out\.zarr was created with a different network, run \w+ instead of other \w+"
    ):
        segment_volume(other, volume, out)
    with pytest.raises(ValueError, match="was created with a different invert, False instead of True"):
        segment_volume(network, volume, out, invert=True)
    volume.rename(tmp_path / "b.zarr")
    with pytest.raises(ValueError, match=r"was created with a different input, \S*em\.zarr instead of \S*b\.zarr"):
        segment_volume(network, tmp_path / "b.zarr", out)
    report = segment_volume(other, tmp_path / "b.zarr", out, overwrite=True, slices=range(2))
    assert (report.kept, report.done) == (0, 2)
    (tmp_path / "mine.zarr").mkdir()
    (tmp_path / "mine.zarr/notes").write_text("my own")
    with pytest.raises(ValueError, match="exists and was not created by sfcnn"):
        segment_volume(other, tmp_path / "b.zarr", tmp_path / "mine.zarr", overwrite=True)
    assert (tmp_path / "mine.zarr/notes").read_text() == "my own"
    for bad, message in (
        ({"slices": range(2, 9)}, "slices must be in 0 … 3"),
        ({"workers": 0}, "the number of workers must be in 1 … 4096, got 0"),
        ({"scheduler": "nobody"}, "unknown scheduler 'nobody'"),
        ({"colour": 1}, "unknown options"),
    ):
        with pytest.raises(ValueError, match=message):
            segment_volume(other, tmp_path / "b.zarr", tmp_path / "new.zarr", **bad)
    with pytest.raises(ValueError, match="must not contain each other"):
        segment_volume(other, tmp_path / "b.zarr", tmp_path / "b.zarr/out.zarr")
    assert not (tmp_path / "new.zarr").exists()


def test_a_volume_by_affinities_is_what_it_is_in_memory(
    network: Segmenter, volume: Path, images: NDArray[np.uint8], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="needs a network that was trained with affinities"):
        segment_volume(network, volume, tmp_path / "out.zarr", method="mutex-watershed")
    assert not (tmp_path / "out.zarr").exists()
    model = UNetConfig(orientations=4, channels=2, levels=2, input_kernel_size=3, kernel_size=3, affinities=(1, 3))
    pairs = make_run(tmp_path / "run", model)
    found = segment(pairs, images / np.float32(255), settings=CellsConfig(method="mutex-watershed"))
    segment_volume(pairs, volume, tmp_path / "out.zarr", method="mutex-watershed")
    probabilities, cells = written(tmp_path / "out.zarr")
    np.testing.assert_array_equal(probabilities, found.probabilities)
    np.testing.assert_array_equal(cells, found.labels)


@pytest.mark.parametrize("radii", [(), (1.0, 3.0)])
def test_networks_that_see_neighbours_see_them_in_a_volume(
    radii: tuple[float, ...], volume: Path, images: NDArray[np.uint8], tmp_path: Path
) -> None:
    model = UNetConfig(orientations=4, channels=2, levels=2, input_kernel_size=3, kernel_size=3, affinities=radii)
    near = make_run(tmp_path / "run", model, neighbours=1)
    settings = CellsConfig(method="mutex-watershed" if radii else "multicut")
    found = segment(near, images / np.float32(255), settings=settings)
    np.testing.assert_array_equal(found.probabilities, near.predict(images / np.float32(255)))
    segment_volume(near, volume, tmp_path / "out.zarr", method=settings.method)
    probabilities, cells = written(tmp_path / "out.zarr")
    np.testing.assert_array_equal(probabilities, found.probabilities)
    np.testing.assert_array_equal(cells, found.labels)
    # A slice that changes also changes those beside it.
    changed = images.copy()
    changed[0] = 255 - changed[0]
    make_volume(tmp_path / "changed.zarr", changed)
    segment_volume(near, tmp_path / "changed.zarr", tmp_path / "other.zarr", method=settings.method)
    different = (written(tmp_path / "other.zarr")[0] != probabilities).any((1, 2))
    assert different.tolist() == [True, True, False, False]
