import zipfile
from pathlib import Path

import pytest
import torch

from data.conftest import amat_text
from sfcnn.data import amat
from sfcnn.data.amat import read_amat

PIXELS = (torch.arange(5 * 784) % 97).view(5, 784).double() / 96
LABELS = torch.tensor([3, 0, 9, 1, 7])
TEXT = amat_text(PIXELS, LABELS)


def write(directory: Path, text: str) -> Path:
    path = directory / "digits.amat"
    path.write_text(text, encoding="utf-8")
    return path


def pack(directory: Path, text: str = TEXT, member: str = "digits.amat") -> Path:
    path = directory / "digits.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../outside.amat", "not this one")
        archive.writestr(member, text)
    return path


def message(path: Path, count: int | None = None, member: str | None = None) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is checked by the caller)
        read_amat(path, count, member=member)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    return text


@pytest.mark.parametrize("block", [1, 2, 5, 1000])
def test_reads_text_row_by_row(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amat, "_BLOCK", block)
    digits = read_amat(write(tmp_path, TEXT), 5)
    assert digits.images.shape == (5, 1, 28, 28)
    assert (digits.images.dtype, digits.labels.dtype) == (torch.float32, torch.int64)
    torch.testing.assert_close(digits.images[:, 0].flatten(1), PIXELS.float(), rtol=0, atol=1e-6)
    assert digits.images[1, 0, 2, 3] == pytest.approx(PIXELS[1, 2 * 28 + 3].item(), abs=1e-6)  # row 2, column 3
    assert digits.labels.tolist() == LABELS.tolist()


def test_reads_a_member_of_an_archive_and_extracts_nothing(tmp_path: Path) -> None:
    path = pack(tmp_path)
    packed, plain = read_amat(path, 5, member="digits.amat"), read_amat(write(tmp_path, TEXT))
    assert torch.equal(packed.images, plain.images)
    assert torch.equal(packed.labels, plain.labels)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["digits.amat", "digits.zip"]


def test_blanks_tabs_empty_lines_and_line_ends_do_not_matter(tmp_path: Path) -> None:
    expected = read_amat(write(tmp_path, TEXT))
    for text in (TEXT.replace("   ", "\t"), TEXT.replace("   ", " "), TEXT.replace("\n", "\r\n"), TEXT + "\n  \n"):
        assert torch.equal(read_amat(write(tmp_path, text), 5).images, expected.images)
    assert torch.equal(read_amat(write(tmp_path, TEXT.rstrip("\n")), 5).labels, LABELS)


def test_rounding_outside_the_range_is_cut_off(tmp_path: Path) -> None:
    row = torch.tensor([[-1e-6, 1 + 1e-6] * 392])
    images = read_amat(write(tmp_path, amat_text(row, torch.tensor([1])))).images
    assert (float(images.min()), float(images.max())) == (0.0, 1.0)


def changed(row: int, column: int, word: str) -> str:
    lines = [line.split() for line in TEXT.splitlines()]
    lines[row][column] = word
    return "\n".join(" ".join(line) for line in lines)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (changed(3, 10, ""), "row 4: found 784 numbers, expected 784 pixels and a label"),
        (changed(2, 5, "0 0"), "row 3: found 786 numbers"),
        (TEXT.splitlines()[0][:-400], "row 1: found"),
        (changed(1, 7, "ink"), "row 2: 'ink' is not a number"),
        (changed(1, 7, "#"), "row 2: '#' is not a number"),
        (changed(0, 783, "1.1"), "row 1: found 1.1, expected a pixel from 0 to 1"),
        (changed(0, 0, "-0.5"), "row 1: found -0.5, expected a pixel from 0 to 1"),
        (changed(4, 400, "nan"), "row 5: found nan, expected a pixel from 0 to 1"),
        (changed(4, 400, "inf"), "row 5: found inf, expected a pixel"),
        (changed(2, 784, "10"), "row 3: found 10, expected a label, a whole number from 0 to 9"),
        (changed(2, 784, "-1"), "row 3: found -1, expected a label"),
        (changed(2, 784, "2.5"), "row 3: found 2.5, expected a label"),
        (changed(2, 784, "nan"), "row 3: found nan, expected a label"),
        ("\n".join(["1 2 3"] * 5), "row 1: found 3 numbers"),
        ("ß" + TEXT, "row 1: "),
        ("0 " * 100_000, "is no text file of digits: a line has 131,072 characters or more"),
    ],
)
@pytest.mark.parametrize("block", [2, 1000])
def test_a_mistake_is_one_line_with_its_row(
    text: str, expected: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amat, "_BLOCK", block)
    assert expected in message(write(tmp_path, text))


def test_the_number_of_rows_is_checked(tmp_path: Path) -> None:
    path = write(tmp_path, TEXT)
    assert "is cut short: it has 5 rows, expected 6" in message(path, 6)
    assert "is too long: it has more than the expected 4 rows" in message(path, 4)
    assert "is cut short: it has 0 rows, expected 1" in message(write(tmp_path, ""), 1)


def test_a_wrong_archive_is_one_line(tmp_path: Path) -> None:
    path = pack(tmp_path)
    assert "has no file outside.amat" in message(path, member="outside.amat")
    content = path.read_bytes()
    path.write_bytes(content[:-30])
    assert "is damaged: File is not a zip file" in message(path, member="digits.amat")
    start = content.index(b"digits.amat") + 200  # inside the compressed rows
    path.write_bytes(
        content[:start] + bytes(byte ^ 255 for byte in content[start : start + 50]) + content[start + 50 :]
    )
    assert "is damaged" in message(path, member="digits.amat")
    flags = content.rindex(b"PK\x01\x02") + 8  # the last file's entry in the directory: mark it encrypted
    local = content.rindex(b"PK\x03\x04") + 6
    marked = bytearray(content)
    marked[flags] |= 1
    marked[local] |= 1
    path.write_bytes(marked)
    assert "cannot be read" in message(path, member="digits.amat")
