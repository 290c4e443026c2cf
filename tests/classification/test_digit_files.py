"""Both file formats are read back as written; what is wrong with a file is one line that names it."""

import gzip
import zipfile
from pathlib import Path

import pytest
import torch

from classification.conftest import amat_text, idx_bytes
from sfcnn.classification.digit_files import read_amat, read_idx

NUMBERS = torch.arange(60, dtype=torch.uint8).view(3, 4, 5)
WHOLE = idx_bytes(NUMBERS)
PACKED = gzip.compress(WHOLE, mtime=0)  # names of tests must not change from second to second

PIXELS = (torch.arange(5 * 784) % 97).view(5, 784).double() / 96
LABELS = torch.tensor([3, 0, 9, 1, 7])
TEXT = amat_text(PIXELS, LABELS)


@pytest.mark.parametrize("content", [WHOLE, PACKED], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", ["numbers", "numbers.gz"])
def test_idx_is_read_whatever_its_name(content: bytes, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    numbers = read_idx(path, (3, 4, 5))
    assert numbers.dtype == torch.uint8
    assert torch.equal(numbers, NUMBERS)
    numbers += 1  # it owns its memory


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not an idx file of bytes (3, 4, 5): it starts with [], expected [0, 0, 8, 3, 0, 0, 0, 3, "),
        (b"<html>", "is not an idx file of bytes (3, 4, 5): it starts with [60, 104, "),
        (b"\0\0\x0d" + WHOLE[3:], "is not an idx file of bytes"),
        (idx_bytes(NUMBERS.view(4, 3, 5)), "is not an idx file of bytes"),
        (WHOLE[:14], "is not an idx file of bytes"),
        (WHOLE[:-1], "is damaged: 59 numbers follow its header, expected 60"),
        (WHOLE + b"\0", "is damaged: 61 numbers follow its header, expected 60"),
        (gzip.compress(WHOLE[:-1], mtime=0), "is damaged: 59 numbers"),
        (PACKED[:-20], "is damaged: Compressed file ended before the end-of-stream marker was reached"),
        (PACKED[:-8] + bytes(8), "is damaged: CRC check failed"),
        (PACKED[:10] + b"\xff" * 20, "is damaged"),
        (PACKED[:2], "is damaged"),
    ],
)
def test_a_wrong_idx_file_is_named_in_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "numbers.idx"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is checked below)
        read_idx(path, (3, 4, 5))
    assert str(caught.value).startswith(f"{path} {message}")
    assert "\n" not in str(caught.value)


def write(directory: Path, text: str) -> Path:
    path = directory / "digits.amat"
    path.write_text(text, encoding="utf-8")
    return path


def pack(directory: Path) -> Path:
    path = directory / "digits.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../outside.amat", "not this one")
        archive.writestr("digits.amat", TEXT)
    return path


def message(path: Path, count: int = 5, member: str | None = None) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is checked by the caller)
        read_amat(path, count, member=member)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    return text


def test_text_is_read_row_by_row(tmp_path: Path) -> None:
    images, labels = read_amat(write(tmp_path, TEXT), 5)
    assert images.shape == (5, 1, 28, 28)
    assert (images.dtype, labels.dtype) == (torch.float32, torch.int64)
    torch.testing.assert_close(images[:, 0].flatten(1), PIXELS.float(), rtol=0, atol=1e-6)
    assert images[1, 0, 2, 3] == pytest.approx(PIXELS[1, 2 * 28 + 3].item(), abs=1e-6)  # row 2, column 3
    assert labels.tolist() == LABELS.tolist()
    for text in (TEXT.replace("   ", "\t"), TEXT.replace("\n", "\r\n"), TEXT + "\n  \n"):
        assert torch.equal(read_amat(write(tmp_path, text), 5).images, images)


def test_a_member_of_an_archive_is_read_and_nothing_extracted(tmp_path: Path) -> None:
    path = pack(tmp_path)
    packed, plain = read_amat(path, 5, member="digits.amat"), read_amat(write(tmp_path, TEXT), 5)
    assert torch.equal(packed.images, plain.images)
    assert torch.equal(packed.labels, plain.labels)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["digits.amat", "digits.zip"]


def test_rounding_outside_of_0_to_1_is_cut_off(tmp_path: Path) -> None:
    row = torch.tensor([-5e-5, 1 + 5e-5]).double().repeat(1, 392)
    images = read_amat(write(tmp_path, amat_text(row, torch.tensor([1]))), 1).images
    assert (float(images.min()), float(images.max())) == (0.0, 1.0)


def changed(row: int, column: int, word: str) -> str:
    lines = [line.split() for line in TEXT.splitlines()]
    lines[row][column] = word
    return "\n".join(" ".join(line) for line in lines)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (changed(3, 10, ""), "row 4"),
        (changed(1, 7, "ink"), "'ink'"),
        (changed(0, 783, "1.1"), "it has pixels from 0 to 1.1, expected 0 to 1"),
        (changed(4, 400, "nan"), "expected 0 to 1"),
        (changed(2, 784, "10"), "labels that are not integers from 0 to 9"),
        (changed(2, 784, "2.5"), "labels that are not integers from 0 to 9"),
        ("\n".join(["1 2 3"] * 5), "it has 5 rows of 3 numbers, expected 5 of 784 pixels and a label"),
        ("\n".join(TEXT.splitlines()[:4]), "it has 4 rows of 785 numbers, expected 5 of"),
        (TEXT + TEXT, "it has 6 or more rows of 785 numbers, expected 5 of"),
        ("", "it has 0 rows"),
        ("ß" + TEXT, "damaged"),
    ],
)
def test_a_wrong_text_is_one_line(text: str, expected: str, tmp_path: Path) -> None:
    assert expected in message(write(tmp_path, text))


def test_a_wrong_archive_is_one_line(tmp_path: Path) -> None:
    path = pack(tmp_path)
    assert "outside.amat" in message(path, member="outside.amat")
    content = path.read_bytes()
    path.write_bytes(content[:-30])
    assert "is damaged: File is not a zip file" in message(path, member="digits.amat")
    start = content.index(b"digits.amat") + 200  # inside the compressed rows
    garbled = bytes(byte ^ 255 for byte in content[start : start + 50])
    path.write_bytes(content[:start] + garbled + content[start + 50 :])
    assert "is damaged" in message(path, member="digits.amat")
