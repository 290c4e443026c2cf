"""Files of MNIST and mnist-rot with any damage are read or refused."""

import gzip
import io
import zipfile
from pathlib import Path

import hypothesis.strategies as st
import torch
from hypothesis import given

from classification.conftest import amat_text, idx_bytes
from robustness.harness import cases, contents, damaged, read_or_refuse
from sfcnn.classification.digit_files import read_amat, read_idx
from sfcnn.classification.digits import ROT_ARCHIVE, ROT_FILES, read_mnist, read_mnist_rot

NUMBERS = idx_bytes(torch.arange(60, dtype=torch.uint8).view(3, 4, 5))
PIXELS = (torch.arange(3 * 784) % 5).view(3, 784).double() / 4
TEXT = amat_text(PIXELS, torch.tensor([3, 0, 9])).replace("0000e+00", "")


def pack(members: dict[str, str]) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in members.items():
            file.writestr(name, text)
    return archive.getvalue()


ARCHIVE = pack({"a.amat": TEXT, "b.amat": TEXT})


@cases(500)
@given(st.one_of(damaged(NUMBERS), damaged(gzip.compress(NUMBERS)), damaged(NUMBERS).map(gzip.compress)))
def test_idx(place: Path, content: bytes) -> None:
    path = place / "numbers.idx"
    path.write_bytes(content)
    numbers = read_or_refuse(lambda path: read_idx(path, (3, 4, 5)), path)
    if numbers is not None:
        assert numbers.dtype == torch.uint8
        assert numbers.shape == (3, 4, 5)


@cases(200)
@given(st.binary(max_size=64) | st.binary(max_size=64).map(lambda content: b"\0\0\x08" + content))
def test_idx_of_arbitrary_bytes(place: Path, content: bytes) -> None:
    path = place / "bytes.idx"
    path.write_bytes(content)
    read_or_refuse(lambda path: read_idx(path, (3, 4, 5)), path)


WORDS = st.sampled_from(
    (
        "nan",
        "-inf",
        "1e400",
        "-0",
        "0x1",
        "1_0",
        "１",
        "1,5",
        "#",
        '"',
        "--",
        "1e",
        "\x00",
        "\x85",
        "1" * 400,
        "0 0",
        "",
    )
)


@st.composite
def changed_words(draw: st.DrawFn) -> bytes:
    """Rows in which single words are others."""
    rows = [line.split() for line in TEXT.splitlines()]
    for _ in range(draw(st.integers(1, 3))):
        row = draw(st.sampled_from(rows))
        row[draw(st.integers(0, 5) | st.just(784))] = draw(WORDS | st.floats().map(str) | st.text(max_size=5))
    blank = draw(st.sampled_from((" ", "\t", "  ", "\x0b")))
    return draw(st.sampled_from(("\n", "\r\n", "\r", "\n\n"))).join(blank.join(row) for row in rows).encode()


@cases(300)
@given(damaged(TEXT.encode()) | changed_words())
def test_amat(place: Path, content: bytes) -> None:
    path = place / "digits.amat"
    path.write_bytes(content)
    digits = read_or_refuse(lambda path: read_amat(path, 3), path)
    if digits is not None:
        assert digits.images.shape == (len(digits.labels), 1, 28, 28)
        assert bool(((digits.images >= 0) & (digits.images <= 1)).all())
        assert bool(((digits.labels >= 0) & (digits.labels <= 9)).all())


@cases(300)
@given(damaged(ARCHIVE))
def test_archive(place: Path, content: bytes) -> None:
    path = place / "digits.zip"
    path.write_bytes(content)
    digits = read_or_refuse(lambda path: read_amat(path, 3, member="b.amat"), path)
    if digits is not None:
        torch.testing.assert_close(digits.images.flatten(1), PIXELS.float(), rtol=0, atol=1e-6)


@st.composite
def hostile_names(draw: st.DrawFn) -> str:
    """Names that lead out of the folder into which an archive would be unpacked."""
    start = draw(st.sampled_from(("../", "../../", "/", "/tmp/", "..\\", "C:\\", "./../", "a/../../", "~/")))
    return start + draw(st.sampled_from(("outside.amat", "config.yaml", ".bashrc", *ROT_FILES)))


@cases(100)
@given(st.lists(hostile_names(), min_size=1, max_size=4), st.booleans())
def test_archives_that_point_outside_write_nothing(place: Path, names: list[str], link: bool) -> None:
    """Members are read in memory, by their exact names; links are not followed."""
    data = place / "inner" / "data"
    data.mkdir(parents=True, exist_ok=True)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name in dict.fromkeys(names):
            file.writestr(name, TEXT)
        for name in ROT_FILES:
            entry = zipfile.ZipInfo(name)
            if link:
                entry.external_attr = 0o120777 << 16  # a symbolic link, whose target is its content
            file.writestr(entry, "../../outside" if link else TEXT)
    (data / ROT_ARCHIVE).write_bytes(archive.getvalue())
    before = contents(place)
    digits = read_or_refuse(lambda path: read_mnist_rot(path.parent, counts=(3, 3)), data / ROT_ARCHIVE)
    assert (digits is None) == link
    assert contents(place) == before


@cases(100)
@given(damaged(NUMBERS), st.integers(0, 3))
def test_a_set_of_files(place: Path, content: bytes, which: int) -> None:
    """One of the four files of MNIST damaged, the others whole."""
    directory = place / "mnist"
    directory.mkdir(exist_ok=True)
    images = idx_bytes(torch.zeros(2, 28, 28, dtype=torch.uint8))
    labels = idx_bytes(torch.tensor([1, 2], dtype=torch.uint8))
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    for number, name in enumerate(names):
        whole = images if "images" in name else labels
        (directory / f"{name}-ubyte").write_bytes(content if number == which else whole)
    path = directory / f"{names[which]}-ubyte"
    assert read_or_refuse(lambda path: read_mnist(path.parent, counts=(2, 2)), path) is None
