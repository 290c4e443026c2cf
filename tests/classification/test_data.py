"""Settings name a data set; a folder's settings are completed by its images."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from classification.conftest import SHAPES, draw_folder
from sfcnn.classification.config import DATASETS, ImagesConfig
from sfcnn.classification.data import load_splits, resolve_images
from sfcnn.classification.digits import MissingDataError
from sfcnn.io.files import data_directory


def test_a_name_stands_for_its_settings() -> None:
    by_name, by_settings = load_splits("digits-rot", seed=4), load_splits(ImagesConfig("digits-rot", seed=4))
    assert by_name.name == by_settings.name == "embedded digits, rotated"
    assert torch.equal(by_name.test.images, by_settings.test.images)
    assert not torch.equal(load_splits(ImagesConfig("digits-rot"), seed=5).test.images, by_name.test.images)


@pytest.mark.parametrize("dataset", [name for name in DATASETS if name.startswith("mnist")])
def test_without_a_directory_the_message_says_what_to_do(dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SFCNN_DATA", raising=False)
    with pytest.raises(MissingDataError) as caught:
        load_splits(dataset)
    base, other = dataset.removesuffix("-rot-regenerated"), "digits" if dataset == "mnist" else "digits-rot"
    assert str(caught.value) == (
        f"data set {dataset} needs a directory with its files: run sfcnn data fetch {base} --data DIR, then pass "
        f"--data DIR or set SFCNN_DATA. The data set {other} needs no download: train with --images.dataset {other}, "
        f"or run an experiment with --train.images.dataset {other}"
    )


def test_the_option_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SFCNN_DATA", raising=False)
    assert data_directory(None) is None
    assert data_directory(Path("here")) == Path("here")
    monkeypatch.setenv("SFCNN_DATA", "")
    assert data_directory(None) is None
    monkeypatch.setenv("SFCNN_DATA", str(tmp_path / "there"))
    assert data_directory(None) == tmp_path / "there"
    assert data_directory(Path("here")) == Path("here")
    with pytest.raises(MissingDataError, match="there does not exist"):
        load_splits("mnist")


def test_a_wrong_name_lists_the_choices() -> None:
    with pytest.raises(ValueError, match=r"unknown dataset 'cifar', choose one of \['digits', 'digits-rot', 'mnist'"):
        load_splits("cifar")


def test_the_images_of_a_folder_complete_its_settings(tmp_path: Path) -> None:
    settings = ImagesConfig("folder", path=str(draw_folder(tmp_path / "shapes", 3)))
    splits = load_splits(settings)
    resolved = resolve_images(settings, splits)
    assert resolved == replace(settings, size=64, channels=3, classes=SHAPES)
    assert resolve_images(resolved, load_splits(resolved)) == resolved
    digits = ImagesConfig("digits")
    assert resolve_images(digits, load_splits(digits)) is digits
