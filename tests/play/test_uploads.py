"""Uploads become grey squares with sentences about what was done, and mistakes name the file and no directory."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sfcnn.io.stacks import write_stack
from sfcnn.play.page import sentence
from sfcnn.play.uploads import Upload, centre_square, read_upload, stretched


def test_stacks_and_colours(tmp_path: Path) -> None:
    stack = np.arange(2 * 40 * 50, dtype=np.uint16).reshape(2, 40, 50)
    write_stack(tmp_path / "a.tif", stack)
    image, notes = read_upload(tmp_path / "a.tif")
    np.testing.assert_allclose(image, stack[0] / 65535)
    assert notes == ("Only the first of 2 slices is used.",)
    Image.new("RGB", (50, 40), (255, 0, 0)).save(tmp_path / "red.png")
    image, notes = read_upload(str(tmp_path / "red.png"))
    assert image.shape == (40, 50)
    np.testing.assert_allclose(image, 0.299, atol=1e-6)
    assert notes == ("Colours are converted to grey.",)


def test_large_images_are_cut_to_their_middle() -> None:
    image = np.arange(600 * 700, dtype=np.float32).reshape(600, 700)
    square, notes = centre_square(Upload(image, ("Before.",)))
    np.testing.assert_array_equal(square, image[44:556, 94:606])
    assert notes == ("Before.", "Only the middle of the image, 512×512 of 700×600 pixels, is used.")
    small = Upload(np.zeros((64, 64), np.float32))
    assert centre_square(small) is small
    with pytest.raises(ValueError, match="20×64 pixels, expected at least 32×32"):
        centre_square(Upload(np.zeros((64, 20), np.float32)))


def test_bad_uploads_are_sentences_without_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    folder = tmp_path / "3a5f"
    folder.mkdir()
    for name in ("text.png", "text.tif"):
        (folder / name).write_text("not an image")
        with pytest.raises(ValueError, match="not a TIFF or PNG file") as caught:
            read_upload(folder / name)
        said = sentence(caught.value)
        assert said.startswith(f"{name} is not a TIFF or PNG file that can be read")
        assert str(tmp_path) not in said
    with pytest.raises(ValueError, match="choose an image first"):
        read_upload(None)


def test_what_is_looked_at_spans_all_greys() -> None:
    image = np.linspace(0.4, 0.6, 1000, dtype=np.float32).reshape(10, 100)
    seen = stretched(image)
    assert (seen.min(), seen.max()) == (0, 1)
    assert np.all(np.diff(seen.ravel()) >= 0)
    assert np.isfinite(stretched(np.full((4, 4), 0.5))).all()
