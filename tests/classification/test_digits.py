"""Sets of digits: found where they are looked for, split in order, rotated as documented."""

import gzip
import math
import os
import zipfile
from pathlib import Path

import pytest
import torch
from torch import Tensor

from classification.conftest import REAL, amat_text, idx_bytes, random_mnist, shared_digits, write_mnist
from sfcnn.classification import digits as module
from sfcnn.classification.digits import (
    MNIST_FILES,
    ROT_ARCHIVE,
    ROT_FILES,
    MissingDataError,
    load_digit_splits,
    load_digits,
    read_mnist,
    read_mnist_rot,
)
from sfcnn.classification.labelled import DIGITS, SPLITS, LabelledImages, Splits, as_fraction
from sfcnn.group import rotate

COUNTS = (7, 4)
FullMnist = tuple[Path, Tensor, Tensor]


def test_all_digits_are_there_and_shuffled_by_the_seed() -> None:
    images, labels = load_digits(seed=1)
    assert images.shape == (5000, 1, 28, 28)
    assert images.dtype == torch.float32
    assert (float(images.min()), float(images.max())) == (0.0, 1.0)
    assert labels.bincount().tolist() == [500] * 10
    assert labels[:500].bincount(minlength=10).min() > 20
    again, other = load_digits(seed=1), load_digits(seed=2)
    assert torch.equal(images, again.images)
    assert not torch.equal(labels, other.labels)


def rot_texts() -> list[str]:
    generator = torch.Generator().manual_seed(0)
    return [
        amat_text(torch.rand(count, 784, generator=generator), torch.randint(10, (count,), generator=generator))
        for count in COUNTS
    ]


@pytest.mark.parametrize("folder", ["", "mnist"])
@pytest.mark.parametrize("packed", [False, True])
def test_mnist_is_found_plain_or_packed_in_both_places(folder: str, packed: bool, tmp_path: Path) -> None:
    parts = random_mnist(COUNTS)
    write_mnist(tmp_path / folder, parts)
    if packed:
        for path in list((tmp_path / folder).iterdir()):
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    images, labels = read_mnist(tmp_path, COUNTS)
    assert torch.equal(images, torch.cat([parts[0][0], parts[1][0]]).unsqueeze(1))
    assert torch.equal(labels, torch.cat([parts[0][1], parts[1][1]]).long())
    assert (images.dtype, labels.dtype) == (torch.uint8, torch.int64)


@pytest.mark.parametrize("name", [name for pair in MNIST_FILES for name in pair])
def test_a_missing_file_is_named_with_where_and_what_to_do(name: str, tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", random_mnist(COUNTS))
    (tmp_path / "mnist" / name).unlink()
    with pytest.raises(MissingDataError) as caught:
        read_mnist(tmp_path, COUNTS)
    assert str(caught.value) == (
        f"no file {name} or {name}.gz in {tmp_path}, {tmp_path / 'mnist'}: "
        f"run sfcnn data fetch mnist --data {tmp_path}, or choose another directory with --data or SFCNN_DATA"
    )


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    for read, name in ((read_mnist, "mnist"), (read_mnist_rot, "mnist-rot")):
        with pytest.raises(MissingDataError, match=f"nowhere does not exist.*sfcnn data fetch {name} --data"):
            read(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("which", "numbers", "message"),
    [
        ((0, 0), torch.zeros(7, 28, 27, dtype=torch.uint8), r"is not an idx file of bytes \(7, 28, 28\)"),
        ((1, 0), torch.zeros(3, 28, 28, dtype=torch.uint8), r"is not an idx file of bytes \(4, 28, 28\)"),
        ((0, 1), torch.zeros(6, dtype=torch.uint8), r"is not an idx file of bytes \(7,\)"),
        ((1, 1), torch.tensor([1, 9, 10, 0], dtype=torch.uint8), "holds the label 10, expected 0 to 9"),
    ],
)
def test_what_does_not_fit_is_named(which: tuple[int, int], numbers: Tensor, message: str, tmp_path: Path) -> None:
    write_mnist(tmp_path, random_mnist(COUNTS))
    name = MNIST_FILES[which[0]][which[1]]
    (tmp_path / name).write_bytes(idx_bytes(numbers))
    with pytest.raises(ValueError, match=f"{name} {message}"):
        read_mnist(tmp_path, COUNTS)


@pytest.mark.parametrize("folder", ["", "mnist-rot", "mnist"])
@pytest.mark.parametrize("packed", [False, True])
def test_mnist_rot_is_found_as_archive_or_text_in_three_places(folder: str, packed: bool, tmp_path: Path) -> None:
    place = tmp_path / folder
    place.mkdir(exist_ok=True)
    if packed:
        with zipfile.ZipFile(place / ROT_ARCHIVE, "w") as archive:
            for name, text in zip(ROT_FILES, rot_texts(), strict=True):
                archive.writestr(name, text)
    else:
        for name, text in zip(ROT_FILES, rot_texts(), strict=True):
            (place / name).write_text(text)
    development, test = read_mnist_rot(tmp_path, COUNTS)
    assert (len(development.labels), len(test.labels)) == COUNTS
    first = [float(word) for word in rot_texts()[1].split()[:784]]
    torch.testing.assert_close(test.images[0].flatten(), torch.tensor(first))
    with pytest.raises(
        ValueError, match=r"train_valid\.amat is damaged: it has 7 rows of 785 numbers, expected 12,000"
    ):
        read_mnist_rot(tmp_path)


def test_a_missing_part_of_mnist_rot_is_named(tmp_path: Path) -> None:
    (tmp_path / ROT_FILES[0]).write_text(rot_texts()[0])
    with pytest.raises(MissingDataError, match=rf"no file {ROT_FILES[1]} or {ROT_ARCHIVE} in .*/mnist-rot, "):
        read_mnist_rot(tmp_path, COUNTS)


@REAL
def test_the_real_mnist_is_what_is_published() -> None:
    images, labels = read_mnist(Path(os.environ["SFCNN_DATA"]))
    assert images.shape == (70_000, 1, 28, 28)
    assert labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert labels[60_000:60_005].tolist() == [7, 2, 1, 0, 4]
    assert labels[:60_000].bincount().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert images[:60_000].double().mean() / 255 == pytest.approx(0.1307, abs=1e-4)  # the well-known mean of MNIST


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(module, "load_digits", shared_digits)
    if request.node.get_closest_marker("skipif") is None:  # not a test on the real files
        monkeypatch.delenv("SFCNN_DATA", raising=False)


def load(dataset: str, directory: Path | None = None, seed: int = 0, resampling: str = "bilinear") -> Splits:
    return load_digit_splits(dataset, directory, seed=seed, resampling=resampling)


def parts(splits: Splits) -> tuple[LabelledImages, LabelledImages, LabelledImages]:
    return splits.train, splits.validation, splits.test


def counts(splits: Splits) -> list[int]:
    for images, labels in parts(splits):
        assert images.shape == (len(labels), 1, 28, 28)
        assert labels.dtype == torch.int64
        assert images.dtype == torch.uint8 or 0 <= float(images.min()) <= 0.9 < float(images.max()) <= 1
    assert splits.classes == DIGITS
    return [len(part.labels) for part in parts(splits)]


def drawn_angles(seed: int, *numbers: int) -> list[Tensor]:
    """The angles that a rotated set is documented to have: one generator, split after split."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(number, dtype=torch.float64, generator=generator) * 2 * math.pi for number in numbers]


def test_embedded_digits_are_split_and_none_is_twice() -> None:
    splits = load("digits", seed=3)
    assert splits.name == "embedded digits"
    assert counts(splits) == [3000, 500, 1500]
    assert splits.angles is not None
    assert [len(angles) for angles in splits.angles] == [3000, 500, 1500]
    assert not torch.cat(splits.angles).any()  # upright
    digits = shared_digits(3)
    assert torch.equal(torch.cat([part.images for part in parts(splits)]), digits.images)
    assert torch.equal(torch.cat([part.labels for part in parts(splits)]), digits.labels)


@pytest.mark.parametrize("resampling", ["bilinear", "bicubic"])
def test_rotated_digits_are_the_upright_ones_rotated(resampling: str) -> None:
    upright, rotated = load("digits", seed=1), load("digits-rot", seed=1, resampling=resampling)
    assert rotated.name == "embedded digits, rotated"
    assert counts(rotated) == [3000, 500, 1500]
    angles = drawn_angles(1, 3000, 500, 1500)
    assert rotated.angles is not None
    assert all(torch.equal(known, drawn) for known, drawn in zip(rotated.angles, angles, strict=True))
    for part, before, turned in zip(parts(rotated), parts(upright), angles, strict=True):
        assert torch.equal(part.labels, before.labels)
        for index in (0, 17, len(part.labels) - 1):
            expected = rotate(before.images[index], float(turned[index]), resampling).clamp(0, 1)
            torch.testing.assert_close(part.images[index], expected, rtol=0, atol=1e-4)


def test_a_seed_gives_the_same_bits_whatever_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    first = load("digits-rot", seed=5)
    monkeypatch.setattr(module, "_BLOCK", 999)
    again, other = load("digits-rot", seed=5), load("digits-rot", seed=6)
    for one, two, three in zip(parts(first), parts(again), parts(other), strict=True):
        assert torch.equal(one.images, two.images)
        assert torch.equal(one.labels, two.labels)
        assert not torch.equal(one.images, three.images)


def test_mnist_is_split_in_order(full_mnist: FullMnist) -> None:
    directory, images, labels = full_mnist
    splits = load("mnist", directory)
    assert splits.name == "MNIST"
    assert counts(splits) == [10_000, 2_000, 58_000]
    for part, place in zip(parts(splits), (slice(0, 10_000), slice(10_000, 12_000), slice(12_000, None)), strict=True):
        assert torch.equal(part.labels, labels[place].long())
        assert torch.equal(part.images[::7, 0], images[place][::7])


def test_regenerated_mnist_rot_rotates_the_first_62000(full_mnist: FullMnist) -> None:
    directory, images, labels = full_mnist
    splits = load("mnist-rot-regenerated", directory, seed=2, resampling="bicubic")
    assert splits.name == "regenerated mnist-rot (bicubic, seed 2)"
    assert counts(splits) == [10_000, 2_000, 50_000]
    start = 0
    for name, part, angles in zip(SPLITS, parts(splits), drawn_angles(2, 10_000, 2_000, 50_000), strict=True):
        known = splits.angles_of(name)
        assert known is not None
        assert torch.equal(known, angles)
        number = len(part.labels)
        assert torch.equal(part.labels, labels[start : start + number].long())
        for index in (0, 1999, number - 1):
            expected = rotate(images[None, start + index] / 255, float(angles[index])).clamp(0, 1)
            torch.testing.assert_close(part.images[index], expected, rtol=0, atol=1e-4)
        start += number
    assert start == 62_000


def test_mnist_rot_is_split_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # The archive's 50,000 rows of text are too many to write here; others read small ones.
    def digits(count: int) -> LabelledImages:
        return LabelledImages(torch.rand(count, 1, 28, 28), torch.randint(10, (count,)))

    whole = digits(12_000), digits(500)
    monkeypatch.setattr(module, "read_mnist_rot", lambda directory: whole if directory == tmp_path else None)
    splits = load("mnist-rot", tmp_path)
    assert splits.name == "mnist-rot"
    assert counts(splits) == [10_000, 2_000, 500]
    assert torch.equal(torch.cat([splits.train.images, splits.validation.images]), whole[0].images)
    assert torch.equal(torch.cat([splits.train.labels, splits.validation.labels]), whole[0].labels)
    assert splits.test is whole[1]
    assert splits.angles is None  # nobody has written them down
    assert splits.angles_of("test") is None


@REAL
def test_real_mnist_and_its_rotation() -> None:
    directory = Path(os.environ["SFCNN_DATA"])
    upright, rotated = load("mnist", directory), load("mnist-rot-regenerated", directory)
    assert counts(upright) == [10_000, 2_000, 58_000]
    assert counts(rotated) == [10_000, 2_000, 50_000]
    assert rotated.name == "regenerated mnist-rot (bilinear, seed 0)"
    assert upright.train.labels[:5].tolist() == rotated.train.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert torch.equal(upright.test.labels[:50_000], rotated.test.labels)
    # Half a pixel off the centre, to the right and below, which tells how a digit was turned (docs/training.md).
    places, total = torch.arange(28) + 0.5, as_fraction(upright.train.images).sum()
    centre = [float((as_fraction(upright.train.images).sum((0, 1, axis)) * places).sum() / total) for axis in (2, 3)]
    assert centre == pytest.approx([14.5, 14.5], abs=0.1)
    # Digits lie within the circle that a rotation keeps, so that it keeps their ink.
    ink = [as_fraction(part.images).sum((1, 2, 3)) for part in (upright.validation, rotated.validation)]
    torch.testing.assert_close(ink[0], ink[1], rtol=0.05, atol=0)
