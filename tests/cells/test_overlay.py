from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from sfcnn.cells.metrics import Labels, v_rand
from sfcnn.cells.overlay import COLORS, mistakes, overlay, save_overlay


def image(*rows: str) -> Labels:
    return np.array([[int(digit) for digit in row] for row in rows])


def colors_of(picture: np.ndarray) -> set[tuple[int, ...]]:
    return {tuple(pixel) for pixel in picture.reshape(-1, 3).tolist()}


@pytest.mark.parametrize(
    ("labels", "truth", "expected"),
    [
        ("7777777", "1111111", "0000000"),
        ("7777999", "1110222", "0000000"),
        ("7799999", "1111111", "1100000"),  # split: the larger segment is the cell's
        ("7709999", "1111111", "1100000"),
        ("7770999", "1111111", "0000111"),  # of equal segments it is the first
        ("7777777", "1102222", "2200000"),  # merged: the larger cell is the segment's
        ("7777777", "1110222", "0000222"),
        ("7799999", "1110222", "0030000"),  # the border lies too far to the left: both
        ("7777990", "1112222", "0003000"),
    ],
)
def test_mistakes(labels: str, truth: str, expected: str) -> None:
    assert mistakes(image(labels), image(truth)).tolist() == image(expected).tolist()


@given(*(arrays(np.int64, (4, 5), elements=st.integers(low, 3)) for low in (1, 0)))
def test_no_mistakes_are_a_score_of_one(labels: Labels, truth: Labels) -> None:
    truth[0, 0] = 1
    found = mistakes(labels, truth)
    assert (v_rand(labels, truth) == 1) == (not found.any())
    assert not found[truth == 0].any()
    assert not mistakes(labels, labels).any()


def test_mistakes_are_tinted_and_borders_are_lines() -> None:
    truth = np.repeat([1, 0, 2, 3], [6, 2, 6, 6])[None].repeat(5, axis=0)
    labels = np.repeat([1, 4, 0, 5], [4, 2, 2, 12])[None].repeat(5, axis=0)
    grey = np.full(truth.shape, 0.4)
    picture = overlay(grey, labels, truth)
    assert picture.shape == (5, 20, 3)
    assert (picture == picture[0]).all()
    line = [tuple(pixel) for pixel in picture[0].tolist()]

    def tinted(name: str) -> tuple[int, ...]:
        return tuple(round((0.4 * 255 + channel) / 2) for channel in COLORS[name])

    assert line[0] == (102, 102, 102)
    assert line[3] == COLORS["proposed border"]
    assert line[4] == line[5] == tinted("split part")
    assert line[6] == COLORS["true border"]  # the middle of the membrane
    assert line[8:13] == [(102, 102, 102)] * 5
    assert line[13] == COLORS["true border"]  # cells that touch, too
    assert line[14:] == [tinted("merged part")] * 6


def test_nothing_proposed_shows_the_truth() -> None:
    truth = image("1102", "1102")
    picture = overlay(np.zeros(truth.shape), np.zeros_like(truth), truth)
    assert colors_of(picture) == {(0, 0, 0), COLORS["true border"]}


def test_pixels_are_kept_and_the_legend_stands_below(tmp_path: Path) -> None:
    picture = overlay(np.linspace(0, 1, 300).reshape(15, 20), *[image(*["1" * 10 + "2" * 10] * 15)] * 2)
    path = tmp_path / "new" / "overlay.png"
    save_overlay(path, picture, "slice 3")
    with Image.open(path) as saved:
        assert saved.format == "PNG"
        pixels = np.array(saved)
    zoom = 26  # to at least 512 pixels
    assert pixels.shape[1] == 20 * zoom
    assert np.array_equal(pixels[: 15 * zoom : zoom, ::zoom], picture)
    legend = pixels[15 * zoom :]
    assert set(COLORS.values()) <= colors_of(legend)
    wide = tmp_path / "wide.png"
    save_overlay(wide, np.zeros((3, 1500, 3), np.uint8))
    with Image.open(wide) as saved:
        assert saved.size[0] == 1500
        assert saved.size[1] < 3 + len(legend)  # one line, and no title
        assert set(COLORS.values()) <= colors_of(np.array(saved))


def test_mistakes_of_users_are_named(tmp_path: Path) -> None:
    cells = image("1102")
    with pytest.raises(ValueError, match=r"image \(4, 1\) and labels \(1, 4\) must have the same shape"):
        overlay(np.zeros((4, 1)), cells, cells)
    picture = overlay(np.zeros(cells.shape), cells, cells)
    with pytest.raises(ValueError, match=r"must be a \.png file, got .*a\.jpg"):
        save_overlay(tmp_path / "a.jpg", picture)
    save_overlay(tmp_path / "a.png", picture)
    before = (tmp_path / "a.png").read_bytes()
    with pytest.raises(ValueError, match=r"a\.png exists"):
        save_overlay(tmp_path / "a.png", 255 - picture)
    assert (tmp_path / "a.png").read_bytes() == before
    save_overlay(tmp_path / "a.png", 255 - picture, overwrite=True)
    assert (tmp_path / "a.png").read_bytes() != before
    assert len(list(tmp_path.iterdir())) == 1
