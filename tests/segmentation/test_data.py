"""Images and masks of one's own, in every kind of file that people have."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from sfcnn.io.stacks import write_stack
from sfcnn.segmentation.config import SegmentationConfig, SlicesConfig
from sfcnn.segmentation.data import as_classes, as_interior, load_slices, resolve
from sfcnn.segmentation.synthetic import synthetic_membranes

SHAPE = (5, 16, 20)
GREY = np.random.default_rng(0).integers(0, 256, SHAPE).astype(np.uint8)
MASK = np.where(GREY > 60, 255, 0).astype(np.uint8)
CLASSES = (GREY // 100).astype(np.uint8)
RAMP = np.linspace(0, 1, GREY.size, dtype=np.float32).reshape(SHAPE)
COLOURS = np.random.default_rng(1).integers(0, 256, (*SHAPE, 3)).astype(np.uint8)


def folder_of(folder: Path, **files: Any) -> SlicesConfig:
    """A folder of pairs from names like images_a_png."""
    for name, array in files.items():
        kind, stem, ending = name.split("_")
        path = folder / kind / f"{stem}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if ending in ("tif", "tiff"):
            tifffile.imwrite(path, array)
        else:
            Image.fromarray(array).save(path)
    return SlicesConfig("pairs", str(folder))


def test_pairs_belong_together_by_name(tmp_path: Path) -> None:
    config = folder_of(
        tmp_path,
        images_b_png=GREY[0], masks_b_png=MASK[0],
        images_a_PNG=GREY[1, :9].astype(np.uint16) * 257, masks_a_tif=MASK[1, :9],
        images_c_tiff=RAMP[2, :, :7], masks_c_png=MASK[2, :, :7],
    )  # fmt: skip
    (tmp_path / "images/notes.txt").write_text("no image")
    (tmp_path / "masks/.hidden.png").write_text("no image")
    found = load_slices(config)
    assert found.name == tmp_path.name
    assert (found.channels, found.classes) == (1, ("foreground",))
    for image, expected in zip(found.images, (GREY[1, :9] / 255, GREY[0] / 255, RAMP[2, :, :7]), strict=True):
        np.testing.assert_allclose(image[0], expected, atol=1e-6)
    for mask, expected in zip(found.masks, (MASK[1, :9], MASK[0], MASK[2, :, :7]), strict=True):
        assert np.array_equal(mask, expected > 0)


def test_colours_and_several_classes(tmp_path: Path) -> None:
    config = folder_of(
        tmp_path,
        images_a_png=COLOURS[0], masks_a_png=CLASSES[0],
        images_b_jpg=np.stack([GREY[1]] * 3, -1), masks_b_tif=CLASSES[1],
    )  # fmt: skip
    found = load_slices(config)
    assert (found.channels, found.classes) == (3, ("0", "1", "2"))
    np.testing.assert_allclose(found.images[0], np.moveaxis(COLOURS[0], -1, 0) / 255, atol=1e-6)
    assert torch.equal(found.images[1][0], found.images[1][2])  # grey in three channels
    assert np.array_equal(found.masks[0], CLASSES[0])
    named = load_slices(SlicesConfig("pairs", str(tmp_path), classes=("ground", "cell", "nucleus")))
    resolved = resolve(SegmentationConfig(images=config), named)
    assert resolved.images.classes == ("ground", "cell", "nucleus")
    assert resolved.images.channels == 3
    with pytest.raises(ValueError, match=r"masks has the classes 0 … 2, but images\.classes has 2 names"):
        load_slices(SlicesConfig("pairs", str(tmp_path), classes=("ground", "cell")))
    with pytest.raises(ValueError, match="is a colour image"):
        load_slices(SlicesConfig("pairs", str(tmp_path), channels=1))


def test_a_table_of_colours_in_a_mask_holds_classes(tmp_path: Path) -> None:
    config = folder_of(tmp_path, images_a_png=GREY[0], masks_a_tif=CLASSES[0])
    (tmp_path / "masks/a.tif").unlink()
    table = Image.fromarray(CLASSES[0]).convert("P")
    table.putpalette([200, 0, 0, 0, 200, 0, 0, 0, 200])
    table.save(tmp_path / "masks/a.png")
    assert np.array_equal(load_slices(config).masks[0], CLASSES[0])


def test_what_is_looked_for_is_not_zero() -> None:
    for white in (1, 7, 255):
        assert np.array_equal(as_classes([MASK // 255 * white], "m")[0], MASK > 0)
        assert np.array_equal(as_classes([MASK // 255 * white], "m", invert=True)[0], MASK == 0)
    assert np.array_equal(as_classes([CLASSES, np.zeros((2, 2))], "m")[0], CLASSES)
    with pytest.raises(ValueError, match="my masks has 3 values from 0 to 255, expected two, or the classes 0, 1, 2"):
        as_classes([np.array([0, 128, 255])], "my masks")
    with pytest.raises(ValueError, match="expected 0 and one other, because masks are inverted"):
        as_classes([CLASSES], "my masks", invert=True)
    for wrong in ([-1, 0, 1], [0, 0.5, 1]):
        with pytest.raises(ValueError, match="has 3 values from"):
            as_classes([np.array(wrong)], "m")


def test_interiors_have_one_other_value() -> None:
    assert np.array_equal(as_interior(MASK, "m"), MASK > 0)
    with pytest.raises(
        ValueError, match="my mask has 3 values from 0 to 255, expected a two-valued mask: 0 for membrane"
    ):
        as_interior(np.array([0, 254, 255]), "my mask")
    for wrong in ([1, 2], [-1, 0]):
        with pytest.raises(ValueError, match="has 2 values from"):
            as_interior(np.array(wrong), "m")


def test_folders_that_make_no_sense_are_named(tmp_path: Path) -> None:
    config = SlicesConfig("pairs", str(tmp_path))
    with pytest.raises(ValueError, match=r"no folder .*images: expected folders images and masks in"):
        load_slices(config)
    for name in ("images", "masks"):
        (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=r"folder .*images has no image files \(\.bmp, "):
        load_slices(config)
    folder_of(tmp_path, images_a_png=GREY[0], images_b_png=GREY[0], images_c_png=GREY[0], masks_a_png=MASK[0])
    with pytest.raises(ValueError, match=r"images/b\.png and 1 more has no mask of the same name in .*masks"):
        load_slices(config)
    folder_of(tmp_path, masks_b_png=MASK[0], masks_c_png=MASK[0], masks_d_png=MASK[0])
    with pytest.raises(ValueError, match=r"masks/d\.png has no image of the same name in .*images"):
        load_slices(config)
    (tmp_path / "masks/d.png").unlink()
    folder_of(tmp_path, masks_b_png=MASK[0, :8])
    with pytest.raises(ValueError, match=r"images/b\.png is \(16, 20\), but .*masks/b\.png is \(8, 20\)"):
        load_slices(config)
    folder_of(tmp_path, masks_b_png=GREY[0])
    with pytest.raises(ValueError, match=r"masks has \d+ values from 0 to 255, expected two, or the classes"):
        load_slices(config)
    folder_of(tmp_path, images_b_tif=GREY[0])
    with pytest.raises(ValueError, match=r"images/b\.png and .*images/b\.tif have the same name"):
        load_slices(config)


def test_stacks_of_images_and_masks(tmp_path: Path) -> None:
    images, membranes = synthetic_membranes(2, 24, cell=8)
    volume, labels = tmp_path / "isbi2012" / "train-volume.tif", tmp_path / "isbi2012" / "train-labels.tif"
    write_stack(volume, (255 * images).byte().numpy())
    write_stack(labels, np.where(membranes.numpy(), 0, 255).astype(np.uint8))
    for config in (SlicesConfig("isbi"), SlicesConfig("stack", str(volume), str(labels), invert_masks=True)):
        found = load_slices(config, tmp_path)
        assert torch.equal(torch.stack(list(found.masks)), membranes.long())
        torch.testing.assert_close(torch.stack(list(found.images))[:, 0], images, rtol=0, atol=1 / 255)
    assert load_slices(SlicesConfig("isbi"), tmp_path).classes == ("membranes",)
    write_stack(tmp_path / "few.tif", MASK[:1])
    with pytest.raises(ValueError, match=r"train-volume\.tif is \(2, 24, 24\), but .*few\.tif is \(1, 16, 20\)"):
        load_slices(SlicesConfig("stack", str(volume), str(tmp_path / "few.tif")))
    assert load_slices(SlicesConfig()).name.startswith("synthetic")


def test_the_size_of_pixels_comes_from_the_files(tmp_path: Path) -> None:
    metadata = {"axes": "ZYX", "unit": "nm"}
    tifffile.imwrite(tmp_path / "em.tif", GREY, imagej=True, resolution=(0.25, 0.25), metadata=metadata)
    write_stack(tmp_path / "masks.tif", MASK)
    config = SegmentationConfig(images=SlicesConfig("stack", str(tmp_path / "em.tif"), str(tmp_path / "masks.tif")))
    slices = load_slices(config.images)
    assert resolve(config, slices).images.pixel_size == pytest.approx(0.004)


@pytest.mark.skipif("SFCNN_DATA" not in os.environ, reason="SFCNN_DATA is not set")
def test_the_stacks_of_the_challenge() -> None:
    found = load_slices(SlicesConfig("isbi"))
    assert {image.shape for image in found.images} == {(1, 512, 512)}
    for image, mask in zip(found.images, found.masks, strict=True):
        assert 0.1 < float(mask.float().mean()) < 0.4
        assert float(image[0][mask == 1].mean()) < float(image[0][mask == 0].mean())


def test_label_images_are_cells_and_the_membranes_between_them(tmp_path: Path) -> None:
    labels = np.array([[300, 300, 0, 7], [300, 300, 0, 7]], np.uint16).repeat(6, 0).repeat(6, 1)
    config = folder_of(tmp_path, images_a_png=GREY[0, :12, :], masks_a_tif=labels[:, :20])
    with pytest.raises(ValueError, match="has 3 values from 0 to 300"):
        load_slices(config)
    slices = load_slices(replace(config, label_masks=True))
    assert slices.classes == ("membranes",)
    np.testing.assert_array_equal(slices.cells(0), labels[:, :20])
    np.testing.assert_array_equal(slices.masks[0], labels[:, :20] == 0)
    with pytest.raises(ValueError, match="must name one class"):
        load_slices(replace(config, label_masks=True, classes=("a", "b")))
