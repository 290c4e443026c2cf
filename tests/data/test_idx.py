import gzip
import tracemalloc
from pathlib import Path

import pytest
import torch

from data.conftest import idx_bytes
from sfcnn.data.idx import read_idx

NUMBERS = torch.arange(60, dtype=torch.uint8).view(3, 4, 5)
WHOLE = idx_bytes(NUMBERS)
PACKED = gzip.compress(WHOLE, mtime=0)  # names of tests must not change from second to second


@pytest.mark.parametrize("content", [WHOLE, PACKED], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", ["numbers", "numbers.gz"])
def test_reads_what_was_written_whatever_its_name(content: bytes, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    numbers = read_idx(path)
    assert numbers.dtype == torch.uint8
    assert torch.equal(numbers, NUMBERS)
    numbers += 1  # it owns its memory


@pytest.mark.parametrize("shape", [(0,), (7,), (0, 28, 28), (2, 3, 1, 1, 1, 1, 1, 2)])
def test_reads_any_shape(shape: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    numbers = torch.randint(256, shape, dtype=torch.uint8)
    path.write_bytes(idx_bytes(numbers))
    assert torch.equal(read_idx(path), numbers)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no idx file: it starts with bytes [], expected 0, 0, type, dimensions"),
        (b"\0\0\x08", "is no idx file"),
        (b"<html>", "is no idx file: it starts with bytes [60, 104, 116, 109]"),
        (b"\0\0\x0d" + WHOLE[3:], "holds numbers of idx type 0x0d, expected 0x08 (unsigned byte)"),
        (b"\0\0\x08\0" + WHOLE[4:], "announces 0 dimensions, expected 1 to 8"),
        (b"\0\0\x08\xff" + WHOLE[4:], "announces 255 dimensions, expected 1 to 8"),
        (WHOLE[:14], "is cut short inside its header"),
        (WHOLE[:-1], "is cut short: its header announces 60 numbers (3, 4, 5), but 59 follow"),
        (WHOLE[:16], "but 0 follow"),
        (WHOLE + b"\0", "is too long: more than the 60 numbers (3, 4, 5)"),
        (gzip.compress(WHOLE[:-1], mtime=0), "but 59 follow"),
        (gzip.compress(WHOLE + b"\0", mtime=0), "is too long"),
        (PACKED[:-20], "is damaged: Compressed file ended before the end-of-stream marker was reached"),
        (PACKED[:-8] + bytes(8), "is damaged: CRC check failed"),
        (PACKED[:10] + b"\xff" * 20, "is damaged"),
        (PACKED + b"more", "is damaged"),
        (PACKED[:2], "is damaged"),
    ],
)
def test_a_wrong_file_is_named_in_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "numbers.idx"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is checked below)
        read_idx(path)
    text = str(caught.value)
    assert text.startswith(f"{path} ")
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize("sizes", [b"\xff" * 12, b"\0\0\xff\xff" + b"\0\0\x00\xff" * 2], ids=["2⁹⁶", "4 billion"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_absurd_sizes_take_no_memory(sizes: bytes, pack: type[bytes], tmp_path: Path) -> None:
    path = tmp_path / "numbers.idx"
    path.write_bytes(pack(b"\0\0\x08\x03" + sizes + b"few"))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="header announces"):
            read_idx(path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_large_but_possible_sizes_take_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "numbers.idx"
    path.write_bytes(b"\0\0\x08\x01\x7f\xff\xff\xff" + bytes(1000))  # two gigabytes announced
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="but 1,000 follow"):
            read_idx(path)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
