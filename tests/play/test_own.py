"""Any run is applied to files: a table and CSV of a classifier, TIFF files and pictures of a segmenter."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from classification.test_predict import make_run
from sfcnn.classification import ClassificationConfig, ImagesConfig, ModelConfig
from sfcnn.io.stacks import read_labels, read_stack, write_stack
from sfcnn.play import own
from sfcnn.play.digits import samples
from sfcnn.play.networks import get_network
from sfcnn.play.own import apply
from sfcnn.segmentation import synthetic_membranes


@pytest.fixture(name="digit")
def _digit(tmp_path: Path) -> Path:
    """A seven, dark on white and large."""
    path = tmp_path / "seven.png"
    Image.fromarray(255 - np.kron(samples()[0][7] * 255, np.ones((4, 4))).astype(np.uint8)).save(path)
    return path


def test_a_classifier_makes_a_table(digit: Path, tmp_path: Path) -> None:
    found = apply("mnist-rot", [digit], tmp_path, device="cpu")
    assert found.files == [tmp_path / "predictions.csv"]
    assert found.pictures == []
    ((name, label, probability, orientation, angle),) = found.rows
    assert (name, label) == ("seven.png", "7")
    assert probability > 0.5
    assert isinstance(orientation, float)
    assert min(angle, 360 - angle) < 45
    (line,) = csv.DictReader((tmp_path / "predictions.csv").read_text(encoding="utf-8").splitlines())
    assert (line["file"], line["class"], float(line["probability"])) == ("seven.png", "7", probability)


def test_a_run_of_ones_own_is_loaded_anew_once_it_is_better(digit: Path, tmp_path: Path) -> None:
    config = ClassificationConfig(ModelConfig(orientations=4, width=0.1, kind="plain-channels"), ImagesConfig("digits"))
    run = make_run(tmp_path / "run", config)
    out = tmp_path / "out"
    out.mkdir()
    found = apply(f" {run} ", [digit, digit], out, device="cpu")
    assert len(found.rows) == 2
    assert found.rows[0][3:] == [None, None]  # a plain network has no orientation
    first = get_network(str(run), "cpu")
    assert get_network(str(run), "cpu") is first
    (run / "best.safetensors").touch()
    assert get_network(str(run), "cpu") is not first


def test_a_segmenter_makes_files_and_pictures(tmp_path: Path) -> None:
    image = (255 * synthetic_membranes(1, 64, cell=30).images[0]).byte().numpy()
    write_stack(tmp_path / "em.tif", image)
    said: list[float] = []
    out = tmp_path / "out"
    found = apply("isbi2012", [tmp_path / "em.tif"], out, device="cpu", report=lambda done, what: said.append(done))
    assert [path.name for path in found.files] == ["em-membranes.tif", "em-cells.tif", "em-cells.png"]
    labels = read_labels(out / "em-cells.tif")[0]
    assert read_stack(out / "em-membranes.tif").shape == (1, 64, 64)
    ((picture, caption),) = found.pictures
    assert (picture.shape, caption) == ((64, 64, 3), "em, cells")
    with Image.open(out / "em-cells.png") as file:
        np.testing.assert_array_equal(np.asarray(file), picture)
    assert labels.max() > 1
    assert said[-1] == 1


def test_mistakes_are_sentences(digit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="choose at least one image"):
        apply("mnist-rot", [], tmp_path)
    with pytest.raises(ValueError, match="101 files are too many"):
        apply("mnist-rot", [digit] * 101, tmp_path)
    with pytest.raises(ValueError, match=r"name a network: .*'isbi2012'"):
        apply(" ", [digit], tmp_path)
    with pytest.raises(ValueError, match="no run elsewhere"):
        apply("elsewhere", [digit], tmp_path)
    (tmp_path / "text.png").write_text("not an image")
    with pytest.raises(ValueError, match=r"text.png is not an image that can be read"):
        apply("mnist-rot", [tmp_path / "text.png"], tmp_path, device="cpu")
    monkeypatch.setattr(own, "MOST_PIXELS", 1000)
    with pytest.raises(
        ValueError, match=r"seven.png has 12,544 pixels, .* use sfcnn segment predict isbi2012 seven.png"
    ):
        apply("isbi2012", [digit], tmp_path, device="cpu")
