import gzip
import os
import zipfile
from pathlib import Path

import pytest
import torch

from data.conftest import REAL, amat_text, idx_bytes, random_mnist, write_mnist
from sfcnn.data.mnist import MNIST_FILES, ROT_ARCHIVE, ROT_FILES, MissingDataError, read_mnist, read_mnist_rot

COUNTS = (7, 4)


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
    assert torch.equal(images, torch.cat([parts[0][0], parts[1][0]]))
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
        f"run sfcnn data fetch mnist --data {tmp_path}, or name another directory with --data or SFCNN_DATA"
    )


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    for read, name in ((read_mnist, "mnist"), (read_mnist_rot, "mnist-rot")):
        with pytest.raises(MissingDataError, match=f"nowhere does not exist.*sfcnn data fetch {name} --data"):
            read(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("which", "numbers", "message"),
    [
        ((0, 0), torch.zeros(7, 28, 27, dtype=torch.uint8), r"shape \(7, 28, 27\), expected \(7, 28, 28\)"),
        ((0, 0), torch.zeros(7 * 28 * 28, dtype=torch.uint8), r"shape \(5488,\), expected \(7, 28, 28\)"),
        ((1, 0), torch.zeros(3, 28, 28, dtype=torch.uint8), r"shape \(3, 28, 28\), expected \(4, 28, 28\)"),
        ((0, 1), torch.zeros(6, dtype=torch.uint8), r"shape \(6,\), expected \(7,\)"),
        ((1, 1), torch.tensor([1, 9, 10, 0], dtype=torch.uint8), "holds the label 10, expected 0 to 9"),
    ],
)
def test_what_does_not_fit_is_named(
    which: tuple[int, int], numbers: torch.Tensor, message: str, tmp_path: Path
) -> None:
    write_mnist(tmp_path, random_mnist(COUNTS))
    name = MNIST_FILES[which[0]][which[1]]
    (tmp_path / name).write_bytes(idx_bytes(numbers))
    with pytest.raises(ValueError, match=f"{name} holds .*{message}|{name} {message}"):
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
    with pytest.raises(ValueError, match=r"train_valid\.amat is cut short: it has 7 rows, expected 12,000"):
        read_mnist_rot(tmp_path)


def test_a_missing_part_of_mnist_rot_is_named(tmp_path: Path) -> None:
    (tmp_path / ROT_FILES[0]).write_text(rot_texts()[0])
    with pytest.raises(MissingDataError, match=rf"no file {ROT_FILES[1]} or {ROT_ARCHIVE} in .*/mnist-rot, "):
        read_mnist_rot(tmp_path, COUNTS)


@REAL
def test_the_real_mnist_is_what_is_published() -> None:
    images, labels = read_mnist(Path(os.environ["SFCNN_DATA"]))
    assert images.shape == (70_000, 28, 28)
    assert labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert labels[60_000:60_005].tolist() == [7, 2, 1, 0, 4]
    assert labels[:60_000].bincount().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert images[:60_000].double().mean() / 255 == pytest.approx(0.1307, abs=1e-4)  # the well-known mean of MNIST
