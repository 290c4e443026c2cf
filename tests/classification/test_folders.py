"""Folders of one's own images: both layouts, splits that share nothing, and mistakes of one line."""

import shutil
from collections import Counter
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from PIL import Image
from torch import Tensor

from classification.conftest import SHAPES, draw_folder
from sfcnn.classification.config import ImagesConfig
from sfcnn.classification.folders import load_folder, load_folder_splits
from sfcnn.classification.labelled import SPLITS, LabelledImages, Splits


def settings(folder: Path, **others: Any) -> ImagesConfig:
    return replace(ImagesConfig("folder", path=str(folder), size=8), **others)


def numbered(folder: Path, counts: dict[str, int], first: int = 0) -> Path:
    """Grey images, each of one brightness that no other has."""
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for number in range(first, first + count):
            Image.new("L", (8, 8), number).save(folder / name / f"{number}.png")
        first += count
    return folder


def values(images: Tensor) -> list[int]:
    """The brightness of each of those images."""
    assert images.dtype == torch.uint8
    assert (images == images[:, :1, :1, :1]).all()
    return images[:, 0, 0, 0].tolist()


def parts(splits: Splits) -> list[LabelledImages]:
    return [getattr(splits, name) for name in SPLITS]


@given(
    st.lists(st.integers(3, 30), min_size=2, max_size=4),
    st.floats(0.05, 0.4),
    st.sampled_from((0.0, 0.1, 0.4)),
    st.integers(0, 99),
)
def test_a_random_split_takes_its_share_of_each_class_and_no_image_twice(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], validation: float, test: float, seed: int
) -> None:
    folder = numbered(tmp_path_factory.mktemp("folder"), dict(zip("abcd", counts, strict=False)))
    config = settings(folder, validation_share=validation, test_share=test, seed=seed)
    splits = load_folder_splits(config)
    assert splits.classes == tuple("abcd"[: len(counts)])
    assert splits.angles is not None  # as they are is upright
    assert [len(angles) for angles in splits.angles] == [len(part.labels) for part in parts(splits)]
    assert not torch.cat(splits.angles).any()
    found = [values(part.images) for part in parts(splits)]
    assert sorted(chain(*found)) == list(range(sum(counts)))
    ends = np.cumsum(counts)
    for part, brightness in zip(parts(splits), found, strict=True):
        assert part.labels.tolist() == np.searchsorted(ends, brightness, side="right").tolist()
    for number, count in enumerate(counts):
        train, held_out, tested = (int((part.labels == number).sum()) for part in parts(splits))
        assert (held_out, tested) == (max(1, round(validation * count)), max(1, round(test * count)) if test else 0)
        assert train >= 1
    again = load_folder_splits(config)
    assert [values(part.images) for part in parts(again)] == found


def test_the_seed_changes_the_split_and_the_order_mixes_classes(tmp_path: Path) -> None:
    folder = numbered(tmp_path, {"a": 100, "b": 100})
    first, second = (load_folder_splits(settings(folder, seed=seed)) for seed in (0, 1))
    assert set(values(first.test.images)) != set(values(second.test.images))
    assert 30 < int(first.train.labels[:70].sum()) * 2 < 110  # not one class after the other


@pytest.mark.parametrize("validation", ["validation", "val"])
def test_a_split_of_one_s_own_is_kept(validation: str, tmp_path: Path) -> None:
    numbered(tmp_path / "train", {"a": 5, "b": 4})
    numbered(tmp_path / validation, {"a": 2, "b": 1}, first=20)
    numbered(tmp_path / "test", {"b": 3}, first=40)  # not every class must be tested
    splits = load_folder_splits(settings(tmp_path))
    assert [sorted(values(part.images)) for part in parts(splits)] == [list(range(9)), [20, 21, 22], [40, 41, 42]]
    assert [Counter(part.labels.tolist()) for part in parts(splits)] == [{0: 5, 1: 4}, {0: 2, 1: 1}, {1: 3}]
    assert splits.name == tmp_path.name


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    assert load_folder_splits(settings(numbered(tmp_path, {"car": 3, "train": 3}))).classes == ("car", "train")


def test_colours_sizes_fit_and_inversion_are_as_the_settings_say(tmp_path: Path) -> None:
    folder = draw_folder(tmp_path / "shapes", 3)
    colours = load_folder_splits(settings(folder, size=32)).train.images
    assert colours.shape == (5, 3, 32, 32)
    grey = load_folder_splits(settings(folder, size=32, channels=1)).train.images
    assert grey.shape == (5, 1, 32, 32)
    assert (colours.float().mean(1) - grey[:, 0].float()).abs().mean() < 30
    inverted = load_folder_splits(settings(folder, size=32, invert=True)).train.images
    torch.testing.assert_close(inverted, 255 - colours, rtol=0, atol=1)
    stretched = load_folder_splits(settings(folder, size=32, fit="stretch")).train.images
    assert not torch.equal(stretched, colours)
    plain = draw_folder(tmp_path / "grey", 3, mode="L")
    assert load_folder_splits(settings(plain)).train.images.shape == (5, 1, 8, 8)
    assert load_folder_splits(settings(plain, channels=3)).train.images.shape == (5, 3, 8, 8)


def test_other_images_are_labelled_by_the_classes_of_the_run(tmp_path: Path) -> None:
    run = settings(tmp_path / "gone", classes=("a", "b", "c"), channels=1)
    images, labels = load_folder(numbered(tmp_path / "more", {"c": 2, "a": 3}), run)
    assert sorted(zip(values(images), labels.tolist(), strict=True)) == [(0, 2), (1, 2), (2, 0), (3, 0), (4, 0)]
    for place, first in (("train", 0), ("val", 20), ("test", 40)):
        numbered(tmp_path / "split" / place, {"b": 2}, first)
    assert sorted(values(load_folder(tmp_path / "split", run, "validation").images)) == [20, 21]
    assert sorted(values(load_folder(tmp_path / "split", run).images)) == [40, 41]
    digits = load_folder(numbered(tmp_path / "digits", {"7": 2}), ImagesConfig("digits"))
    assert (digits.images.shape, digits.labels.tolist()) == ((2, 1, 28, 28), [7, 7])
    with pytest.raises(ValueError, match=r"more has the class 'c', expected only \['a', 'b'\]"):
        load_folder(tmp_path / "more", replace(run, classes=("a", "b")))


def test_what_is_hidden_or_not_an_image_is_left_out(tmp_path: Path) -> None:
    folder = numbered(tmp_path, {"a": 4, "b": 4})
    (folder / ".cache").mkdir()
    (folder / "README.txt").write_text("about these images")
    (folder / "a" / ".DS_Store").write_bytes(b"\0")
    (folder / "a" / "._0.png").write_bytes(b"\0")
    (folder / "b" / "notes.csv").write_text("1,2")
    assert sum(len(part.labels) for part in parts(load_folder_splits(settings(folder)))) == 8


def message(config: ImagesConfig) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is checked by the caller)
        load_folder_splits(config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    assert "needs images.path" in message(ImagesConfig("folder"))
    assert message(settings(tmp_path / "nowhere")) == f"folder {tmp_path / 'nowhere'} does not exist"
    assert "has no subfolders: create one for the images of each class" in message(settings(tmp_path))
    folder = numbered(tmp_path / "few", {"a": 2, "b": 9})
    assert "class 'a' has too few images to split: 2, with 1 held out for validation and 1" in message(settings(folder))
    assert load_folder_splits(settings(folder, test_share=0.0)).test.images.shape == (0, 1, 8, 8)
    shutil.rmtree(folder / "a")
    assert "has one class, 'b', expected at least 2" in message(settings(folder))
    (folder / "a").mkdir()
    assert f"directory {folder / 'a'} has no image files (BMP, " in message(settings(folder))
    expected = settings(numbered(tmp_path / "ab", {"a": 3, "b": 3}), classes=("a", "c"))
    assert "has the class 'b', expected only ['a', 'c']" in message(expected)
    assert "has no training images of the class 'c'" in message(replace(expected, classes=("a", "b", "c")))
    for name in ("train", "test"):
        numbered(tmp_path / "half" / name, {"a": 3, "b": 3})
    assert "half has test, train, but no subfolder validation" in message(settings(tmp_path / "half"))


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    folder = numbered(tmp_path, {"a": 3, "b": 3})
    (folder / "a" / "broken.png").write_text("no image")
    assert f"{folder / 'a' / 'broken.png'} is not an image" in message(settings(folder))


def test_grey_images_among_coloured_ones_need_a_decision(tmp_path: Path) -> None:
    folder = draw_folder(tmp_path, 3, shapes=SHAPES[:2])
    Image.new("L", (9, 9), 70).save(folder / "cross" / "grey.png")
    assert "cross/grey.png) and some in colour (" in message(settings(folder))
    assert "choose images.channels 1 (grey) or 3 (colour) for all" in message(settings(folder))
    for channels in (1, 3):
        assert load_folder_splits(settings(folder, channels=channels)).train.images.shape[1] == channels
