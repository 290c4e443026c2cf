import math
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from data.conftest import REAL, shared_digits
from sfcnn.data import datasets
from sfcnn.data.datasets import DATASETS, Splits, data_directory, load_splits
from sfcnn.data.digits import Digits
from sfcnn.data.mnist import MissingDataError
from sfcnn.group import rotate

FullMnist = tuple[Path, Tensor, Tensor]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(datasets, "load_digits", shared_digits)
    if request.node.get_closest_marker("skipif") is None:  # not a test on the real files
        monkeypatch.delenv("SFCNN_DATA", raising=False)


def parts(splits: Splits) -> tuple[Digits, Digits, Digits]:
    return splits.train, splits.validation, splits.test


def counts(splits: Splits) -> list[int]:
    for images, labels in parts(splits):
        assert images.shape == (len(labels), 1, 28, 28)
        assert (images.dtype, labels.dtype) == (torch.float32, torch.int64)
        assert float(images.min()) >= 0
        assert 0.9 < float(images.max()) <= 1
    return [len(part.labels) for part in parts(splits)]


def drawn_angles(seed: int, *numbers: int) -> list[Tensor]:
    """The angles that a rotated set is documented to have: one generator, split after split."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(number, dtype=torch.float64, generator=generator) * 2 * math.pi for number in numbers]


def test_embedded_digits_are_split_and_none_is_twice() -> None:
    splits = load_splits("digits", seed=3)
    assert splits.name == "embedded digits"
    assert counts(splits) == [3000, 500, 1500]
    digits = shared_digits(3)
    assert torch.equal(torch.cat([part.images for part in parts(splits)]), digits.images)
    assert torch.equal(torch.cat([part.labels for part in parts(splits)]), digits.labels)


@pytest.mark.parametrize("resampling", ["bilinear", "bicubic"])
def test_rotated_digits_are_the_upright_ones_rotated(resampling: str) -> None:
    upright, rotated = load_splits("digits", seed=1), load_splits("digits-rot", seed=1, resampling=resampling)
    assert rotated.name == "embedded digits, rotated"
    assert counts(rotated) == [3000, 500, 1500]
    angles = drawn_angles(1, 3000, 500, 1500)
    for part, before, turned in zip(parts(rotated), parts(upright), angles, strict=True):
        assert torch.equal(part.labels, before.labels)
        for index in (0, 17, len(part.labels) - 1):
            expected = rotate(before.images[index], float(turned[index]), resampling).clamp(0, 1)
            torch.testing.assert_close(part.images[index], expected, rtol=0, atol=1e-4)


def test_a_seed_gives_the_same_bits_whatever_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_splits("digits-rot", seed=5)
    monkeypatch.setattr(datasets, "_BLOCK", 999)
    again, other = load_splits("digits-rot", seed=5), load_splits("digits-rot", seed=6)
    for one, two, three in zip(parts(first), parts(again), parts(other), strict=True):
        assert torch.equal(one.images, two.images)
        assert torch.equal(one.labels, two.labels)
        assert not torch.equal(one.images, three.images)


def test_mnist_is_split_in_order(full_mnist: FullMnist) -> None:
    directory, images, labels = full_mnist
    splits = load_splits("mnist", directory)
    assert splits.name == "MNIST"
    assert counts(splits) == [10_000, 2_000, 58_000]
    for part, place in zip(parts(splits), (slice(0, 10_000), slice(10_000, 12_000), slice(12_000, None)), strict=True):
        assert torch.equal(part.labels, labels[place].long())
        assert torch.equal((part.images[::7, 0] * 255).round().byte(), images[place][::7])


def test_regenerated_mnist_rot_rotates_the_first_62000(full_mnist: FullMnist) -> None:
    directory, images, labels = full_mnist
    splits = load_splits("mnist-rot-regenerated", directory, seed=2, resampling="bicubic")
    assert splits.name == "regenerated mnist-rot (bicubic, seed 2)"
    assert counts(splits) == [10_000, 2_000, 50_000]
    start = 0
    for part, angles in zip(parts(splits), drawn_angles(2, 10_000, 2_000, 50_000), strict=True):
        number = len(part.labels)
        assert torch.equal(part.labels, labels[start : start + number].long())
        for index in (0, 1999, number - 1):
            expected = rotate(images[None, start + index] / 255, float(angles[index])).clamp(0, 1)
            torch.testing.assert_close(part.images[index], expected, rtol=0, atol=1e-4)
        start += number
    assert start == 62_000


def test_mnist_rot_is_split_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # The archive's 50,000 rows of text are too many to write here; test_mnist.py reads small ones.
    def digits(count: int) -> Digits:
        return Digits(torch.rand(count, 1, 28, 28), torch.randint(10, (count,)))

    whole = digits(12_000), digits(500)
    monkeypatch.setattr(datasets, "read_mnist_rot", lambda directory: whole if directory == tmp_path else None)
    splits = load_splits("mnist-rot", tmp_path)
    assert splits.name == "mnist-rot"
    assert counts(splits) == [10_000, 2_000, 500]
    assert torch.equal(torch.cat([splits.train.images, splits.validation.images]), whole[0].images)
    assert torch.equal(torch.cat([splits.train.labels, splits.validation.labels]), whole[0].labels)
    assert splits.test is whole[1]


@pytest.mark.parametrize("dataset", DATASETS[2:])
def test_without_a_directory_the_message_says_what_to_do(dataset: str) -> None:
    with pytest.raises(MissingDataError) as caught:
        load_splits(dataset)
    base = dataset.removesuffix("-rot-regenerated")
    assert str(caught.value) == (
        f"data set {dataset} needs a directory with its files, and none was named: run sfcnn data fetch {base} "
        "--data DIR, then pass --data DIR or set SFCNN_DATA; --images.dataset digits-rot needs no download"
    )


def test_the_option_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert data_directory(None) is None
    assert data_directory(Path("here")) == Path("here")
    monkeypatch.setenv("SFCNN_DATA", "")
    assert data_directory(None) is None
    monkeypatch.setenv("SFCNN_DATA", str(tmp_path / "there"))
    assert data_directory(None) == tmp_path / "there"
    assert data_directory(Path("here")) == Path("here")
    with pytest.raises(MissingDataError, match="there does not exist"):
        load_splits("mnist")


def test_wrong_names_list_the_choices() -> None:
    with pytest.raises(ValueError, match=r"unknown data set 'cifar', choose one of \['digits', 'digits-rot', 'mnist'"):
        load_splits("cifar")
    with pytest.raises(ValueError, match=r"unknown resampling 'nearest', choose one of \['bilinear', 'bicubic'\]"):
        load_splits("digits", resampling="nearest")


@REAL
def test_real_mnist_and_its_rotation() -> None:
    directory = Path(os.environ["SFCNN_DATA"])
    upright, rotated = load_splits("mnist", directory), load_splits("mnist-rot-regenerated")
    assert counts(upright) == [10_000, 2_000, 58_000]
    assert counts(rotated) == [10_000, 2_000, 50_000]
    assert rotated.name == "regenerated mnist-rot (bilinear, seed 0)"
    assert upright.train.labels[:5].tolist() == rotated.train.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert torch.equal(upright.test.labels[:50_000], rotated.test.labels)
    # Digits lie within the circle that a rotation keeps, so that it keeps their ink.
    ink = [part.images.sum((1, 2, 3)) for part in (upright.validation, rotated.validation)]
    torch.testing.assert_close(ink[0], ink[1], rtol=0.05, atol=0)
