import os
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from sfcnn.data.pairs import as_interior, read_pairs, read_stack_pairs
from sfcnn.data.stacks import write_stack

SHAPE = (5, 16, 20)
GREY = np.random.default_rng(0).integers(0, 256, SHAPE).astype(np.uint8)
MASK = np.where(GREY > 60, 255, 0).astype(np.uint8)
RAMP = np.linspace(0, 1, GREY.size, dtype=np.float32).reshape(SHAPE)


def test_masks_have_0_and_one_other_value() -> None:
    for white in (1, 7, 255):
        assert np.array_equal(as_interior(MASK // 255 * white, "m"), MASK > 0)
    for value in (0, 255):
        assert (as_interior(np.full((2, 2), value), "m") == (value > 0)).all()
    assert np.array_equal(as_interior((MASK > 0).astype(np.float32), "m"), MASK > 0)
    with pytest.raises(ValueError, match="my mask has 3 values from 0 to 255, expected a mask of two: 0 for membrane"):
        as_interior(np.array([0, 254, 255]), "my mask")
    for wrong in ([1, 2], [-1, 0]):
        with pytest.raises(ValueError, match="has 2 values from"):
            as_interior(np.array(wrong), "m")


def make_folder(folder: Path) -> None:
    """Three pairs of different sizes, endings and numbers."""
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True)
    Image.fromarray(GREY[0]).save(folder / "images/b.png")
    Image.fromarray(MASK[0]).save(folder / "masks/b.png")
    Image.fromarray(GREY[1, :9].astype(np.uint16) * 257).save(folder / "images/a.PNG")
    tifffile.imwrite(folder / "masks/a.tif", MASK[1, :9])
    tifffile.imwrite(folder / "images/c.tiff", RAMP[2, :, :7])
    Image.fromarray(MASK[2, :, :7]).convert("1").save(folder / "masks/c.png")
    (folder / "images/notes.txt").write_text("no image")
    (folder / "masks/.hidden.png").write_text("no image")


def test_pairs_belong_together_by_name(tmp_path: Path) -> None:
    make_folder(tmp_path)
    a, b, c = read_pairs(tmp_path)
    assert [pair.name for pair in (a, b, c)] == ["a", "b", "c"]
    assert np.array_equal(a.image, GREY[1, :9].astype(np.uint16) * 257)
    assert a.image.dtype == np.uint16
    assert np.array_equal(b.image, GREY[0])
    assert np.array_equal(c.image, RAMP[2, :, :7])
    for pair, mask in zip((a, b, c), (MASK[1, :9], MASK[0], MASK[2, :, :7]), strict=True):
        assert np.array_equal(pair.interior, mask > 0)


def test_folders_that_make_no_sense_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no folder .*images: expected folders images and masks in"):
        read_pairs(tmp_path)
    for name in ("images", "masks"):
        (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=r"folder .*images has no image files \(\.png, \.tif, \.tiff\)"):
        read_pairs(tmp_path)
    for name in ("a", "b", "c"):
        Image.fromarray(GREY[0]).save(tmp_path / f"images/{name}.png")
    Image.fromarray(MASK[0]).save(tmp_path / "masks/a.png")
    with pytest.raises(ValueError, match=r"images/b\.png and 1 more has no mask of the same name in .*masks"):
        read_pairs(tmp_path)
    for name in ("b", "c", "d"):
        Image.fromarray(MASK[0]).save(tmp_path / f"masks/{name}.png")
    with pytest.raises(ValueError, match=r"masks/d\.png has no image of the same name in .*images"):
        read_pairs(tmp_path)
    (tmp_path / "masks/d.png").unlink()
    Image.fromarray(MASK[0, :8]).save(tmp_path / "masks/b.png")
    with pytest.raises(ValueError, match=r"images/b\.png is \(16, 20\), but .*masks/b\.png is \(8, 20\)"):
        read_pairs(tmp_path)
    Image.fromarray(GREY[0]).save(tmp_path / "masks/b.png")
    with pytest.raises(ValueError, match=r"masks/b\.png has \d+ values from 0 to 255, expected a mask of two"):
        read_pairs(tmp_path)
    tifffile.imwrite(tmp_path / "images/b.tif", GREY[0])
    with pytest.raises(ValueError, match=r"images/b\.png and .*images/b\.tif have the same name"):
        read_pairs(tmp_path)


def test_slices_of_two_stacks_are_pairs_too(tmp_path: Path) -> None:
    write_stack(tmp_path / "images.tif", GREY)
    write_stack(tmp_path / "masks.tif", MASK)
    pairs = read_stack_pairs(tmp_path / "images.tif", tmp_path / "masks.tif")
    assert [pair.name for pair in pairs][:2] == ["images, slice 1", "images, slice 2"]
    assert np.array_equal([pair.image for pair in pairs], GREY)
    assert np.array_equal([pair.interior for pair in pairs], MASK > 0)
    write_stack(tmp_path / "few.tif", MASK[:3])
    with pytest.raises(ValueError, match=r"images\.tif is \(5, 16, 20\), but .*few\.tif is \(3, 16, 20\)"):
        read_stack_pairs(tmp_path / "images.tif", tmp_path / "few.tif")


@pytest.mark.skipif("SFCNN_DATA" not in os.environ, reason="SFCNN_DATA is not set")
def test_the_stacks_of_the_challenge() -> None:
    folder = Path(os.environ["SFCNN_DATA"]) / "isbi2012"
    pairs = read_stack_pairs(folder / "train-volume.tif", folder / "train-labels.tif")
    assert {pair.image.shape for pair in pairs} == {(512, 512)}
    assert all(0.6 < pair.interior.mean() < 0.9 for pair in pairs)
    assert all(pair.image[pair.interior].mean() > pair.image[~pair.interior].mean() for pair in pairs)
