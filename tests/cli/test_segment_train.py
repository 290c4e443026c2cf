from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

import sfcnn
from cli.conftest import Fails, files
from sfcnn.cells.pipeline import find_cells
from sfcnn.cells.superpixels import SuperpixelsConfig
from sfcnn.cli import main
from sfcnn.io.pixelsize import PixelSize, read_pixel_size
from sfcnn.io.stacks import as_fraction, read_stack, write_stack, write_stacks
from sfcnn.segmentation import load, synthetic_membranes

SMALL = [
    *("--model.orientations", "4", "--model.channels", "2", "--model.levels", "2", "--model.kernel_size", "3"),
    *("--model.input_kernel_size", "5", "--crops.size", "16", "--crops.margin", "4", "--steps", "2"),
    *("--images.validation", "1", "--optimization.epochs", "1", "--optimization.batch_size", "2"),
    *("--images.source", "stack", "--images.path", "em.tif", "--images.masks", "masks.tif"),
    *("--images.invert_masks", "true", "--images.classes", "[membranes]"),
]


@pytest.fixture(autouse=True)
def _stacks(_in_empty_directory: None) -> None:
    images, membranes = synthetic_membranes(3, 40, cell=12)
    write_stack(Path("em.tif"), (255 * images).byte().numpy())
    write_stack(Path("masks.tif"), np.where(membranes.numpy(), 0, 255).astype(np.uint8))


def train(*more: str) -> int:
    return main(["segment", "train", "--out", "run", *SMALL, *more])


def test_trains_and_resumes(capsys: pytest.CaptureFixture[str]) -> None:
    assert train() == 0
    assert "(1 images of em.tif)" in capsys.readouterr().out
    assert {"run/config.yaml", "run/log.csv", "run/best.safetensors", "run/result.json"} <= files()
    assert main(["segment", "train", "--out", "run", "--resume", "--optimization.epochs", "2"]) == 0
    assert len(Path("run/log.csv").read_text().splitlines()) == 3


def test_trains_affinities(fails: Fails) -> None:
    assert train("--model.affinities", "[1,3,9,27]") == 0  # the last is longer than the crops
    assert load("run").predict_affinities(np.zeros((20, 30))).affinities.shape == (4, 4, 20, 30)
    assert main(["segment", "train", "--out", "run", "--resume", "--optimization.epochs", "2"]) == 0
    message = fails("segment", "train", "--out", "other", *SMALL, "--model.affinities", "[3,1]")
    assert "radii must increase, got [3.0, 1.0]" in message


def test_predicts_membranes_and_cells_in_the_size_of_the_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert train() == 0
    assert main(["segment", "predict", "run", "em.tif", "--out", "found", "--tile", "24"]) == 0
    assert "wrote found/em-cells.tif" in capsys.readouterr().out
    membranes, cells = (tifffile.imread(f"found/em-{name}.tif") for name in ("membranes", "cells"))
    assert membranes.shape == cells.shape == (3, 40, 40)
    assert membranes.dtype == np.float32
    assert cells.max() >= 1
    expected = load("run").predict(tifffile.imread("em.tif")[1].astype(np.float32) / 255)
    np.testing.assert_allclose(membranes[1], expected, atol=1e-5)


def test_brightness_and_contrast_matter_only_if_they_should() -> None:
    """A slice with half the contrast has the same membranes, unless the run was told to take slices as they are."""
    write_stack(Path("dim.tif"), tifffile.imread("em.tif") // 2 * 2)
    write_stack(Path("dimmer.tif"), tifffile.imread("em.tif") // 2)
    for standardized in (True, False):
        run = f"run-{standardized}"
        words = ["--out", run, *SMALL, "--images.standardize", str(standardized).lower()]
        assert main(["segment", "train", *words]) == 0
        assert main(["segment", "predict", run, "dim.tif", "dimmer.tif", "--out", f"{run}/found", "--no-cells"]) == 0
        one, other = (tifffile.imread(f"{run}/found/{name}-membranes.tif") for name in ("dim", "dimmer"))
        assert np.allclose(one, other, atol=1e-4) == standardized


def test_results_have_pixels_of_the_size_of_the_images() -> None:
    assert train() == 0
    stack = tifffile.imread("em.tif")
    metadata = {"axes": "ZYX", "unit": "nm", "spacing": 50.0}
    tifffile.imwrite("scaled.tif", stack, imagej=True, resolution=(0.25, 0.25), metadata=metadata)
    assert main(["segment", "predict", "run", "scaled.tif", "--out", "found"]) == 0
    assert main(["segment", "cells", "found/scaled-membranes.tif", "--out", "cells.tif"]) == 0
    for name in ("found/scaled-membranes.tif", "found/scaled-cells.tif", "cells.tif"):
        assert read_pixel_size(Path(name)) == PixelSize((0.25, 0.25), 1, {"unit": "nm", "spacing": 50.0})


def test_a_forest_tells_borders_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert train() == 0
    write_stack(Path("guess.tif"), 1 - as_fraction(tifffile.imread("em.tif"), ""))
    learn = ["segment", "train-edges", "guess.tif", "masks.tif", "--image", "em.tif", "--trees", "3"]
    assert main([*learn, "--threshold", "0.4", "--out", "edges.safetensors"]) == 0
    given: list[tuple[Any, ...]] = []

    def noted(*arguments: Any) -> Any:
        if arguments[0].ndim == 3:  # it calls itself with the image of a single slice
            given.append(arguments)
        return find_cells(arguments[0])

    monkeypatch.setattr("sfcnn.cells.apply.find_cells", noted)
    for words in ((), ("--forest", "edges.safetensors")):
        assert main(["segment", "predict", "run", "em.tif", "--out", "found", "--overwrite", *words]) == 0
    Path("edges.safetensors").rename("run/edges.safetensors")
    assert main(["segment", "predict", "run", "em.tif", "--out", "found", "--overwrite"]) == 0
    slices = as_fraction(tifffile.imread("em.tif"), "")
    count = len(slices)
    assert len(given) == 3 * count  # slice by slice
    assert all(arguments[1:] == (None, None, None) for arguments in given[:count])
    for number, (_, settings, forest, raw) in enumerate(given[count:]):
        assert settings is None
        assert forest.superpixels == SuperpixelsConfig(threshold=0.4)
        assert len(forest.roots) == 3
        np.testing.assert_array_equal(raw, slices[[number % count]])


def test_images_and_folders_are_taken_and_cells_can_be_left_out() -> None:
    assert train() == 0
    Path("slices").mkdir()
    write_stack(Path("slices/one.tif"), tifffile.imread("em.tif")[0])
    options = ["--average", "rotations", "--no-cells", "--out", "found"]
    assert main(["segment", "predict", "run", "slices", "em.tif", *options]) == 0
    assert {name for name in files() if name.startswith("found")} == {
        "found/one-membranes.tif",
        "found/em-membranes.tif",
        "found/one-labels.tif",
        "found/em-labels.tif",
    }
    membranes, labels = (tifffile.imread(f"found/em-{name}.tif") for name in ("membranes", "labels"))
    np.testing.assert_array_equal(labels, membranes > 0.5)
    assert tifffile.imread("found/one-membranes.tif").shape == (40, 40)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--out", "run", *SMALL, "--images.path", "none.tif"], "none.tif"),
        (["train", "--out", "run", *SMALL, "--images.validation", "3"], "must leave slices to train on, got 3"),
        (["train", "--out", "run", *SMALL, "--device", "tpu"], "invalid choice: 'tpu'"),
        (["train", *SMALL], "--out is missing: pass a directory for the run"),
        (["train", "--out", "run", "--images.source", "isbi"], "pass --data DIR"),
        (["predict", "nowhere", "em.tif", "--out", "found"], "no run nowhere"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], message: str, fails: Fails, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SFCNN_DATA", raising=False)
    assert message in fails("segment", *words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "em.tif", "--out", "found", "--average", "some"], "unknown average 'some'"),
        (["run", "em.tif", "--out", "found", "--tile", "0"], "tile must be at least 1"),
        (["run", "em.tif", "here/em.tif", "--out", "found"], "the same name"),
        (["run", "run/log.csv", "--out", "found"], "log.csv"),
        (["run", "em.tif", "--out", "here"], "exists: choose another name or pass --overwrite"),
    ],
)
def test_nothing_is_written_if_prediction_cannot_be(words: list[str], message: str, fails: Fails) -> None:
    assert train() == 0
    for name in ("here/em-cells.tif", "here/em.tif"):
        write_stack(Path(name), np.zeros((2, 2), np.uint8))
    assert message in fails("segment", "predict", *words)


def test_crops_may_have_any_size_and_be_larger_than_images() -> None:
    for number, size in enumerate(("17", "64")):
        assert main(["segment", "train", "--out", f"run{number}", *SMALL, "--crops.size", size]) == 0


def test_contrast_and_pixels_of_another_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert train("--images.pixel_size", "0.004") == 0
    stack = tifffile.imread("em.tif")
    write_stack(Path("inverse.tif"), 255 - stack)
    assert main(["segment", "predict", "run", "em.tif", "--out", "found"]) == 0
    assert main(["segment", "predict", "run", "inverse.tif", "--out", "found", "--invert"]) == 0
    one, other = (tifffile.imread(f"found/{name}-membranes.tif") for name in ("em", "inverse"))
    np.testing.assert_allclose(one, other, atol=1e-4)
    fine = np.kron(stack, np.ones((1, 2, 2), np.uint8))
    metadata = {"axes": "ZYX", "unit": "nm"}
    tifffile.imwrite("fine.tif", fine, imagej=True, resolution=(0.5, 0.5), metadata=metadata)  # 2 nm a pixel
    assert main(["segment", "predict", "run", "fine.tif", "--out", "found"]) == 0
    found = tifffile.imread("found/fine-membranes.tif")
    assert found.shape == tifffile.imread("found/fine-cells.tif").shape == fine.shape
    assert np.abs(found[:, ::2, ::2] - one).mean() < 0.05
    assert main(["segment", "predict", "run", "em.tif", "--out", "as-said", "--pixel-size", "0.002"]) == 0
    assert not np.allclose(tifffile.imread("as-said/em-membranes.tif"), one, atol=1e-3)
    tifffile.imwrite("absurd.tif", stack, imagej=True, resolution=(0.01, 0.01), metadata={"axes": "ZYX", "unit": "mm"})
    capsys.readouterr()
    assert main(["segment", "predict", "run", "absurd.tif", "--out", "found"]) == 0
    assert "pixel size of 100000 µm, which is ignored: pass --pixel-size to set it" in capsys.readouterr().out
    np.testing.assert_allclose(tifffile.imread("found/absurd-membranes.tif"), one, atol=1e-5)


def test_only_two_files_are_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert train() == 0
    for name in "abc":
        write_stack(Path(f"many/{name}.tif"), tifffile.imread("em.tif")[:1])
    events: list[str] = []

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            events.append(name)
            return function(*arguments, **options)

        return call

    monkeypatch.setattr("sfcnn.cells.files.read_stack", noted("read", read_stack))
    monkeypatch.setattr("sfcnn.cells.files.write_stacks", noted("write", write_stacks))
    assert main(["segment", "predict", "run", "many", "--out", "found"]) == 0
    assert events == ["read", *["read", "write"] * 2, "write"]


def test_files_before_a_damaged_one_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert train() == 0
    for name in "ab":
        write_stack(Path(f"many/{name}.tif"), tifffile.imread("em.tif")[:1])
    Path("many/c.tif").write_bytes(Path("many/a.tif").read_bytes()[:500])
    assert main(["segment", "predict", "run", "many", "--out", "found"]) == 2
    assert "many/c.tif is damaged or truncated" in capsys.readouterr().err
    assert {path.stem for path in Path("found").iterdir()} == {"a-membranes", "a-cells", "b-membranes", "b-cells"}


def test_three_classes_in_colour(capsys: pytest.CaptureFixture[str]) -> None:
    """Discs and squares on a ground, each of its own colour: the pixels of each are told apart after short training."""
    draw_shapes(Path("shapes"), 8)
    words = ["--images.source", "pairs", "--images.path", "shapes", "--images.classes", "[ground,disc,square]"]
    sizes = ["--model.orientations", "4", "--model.channels", "4", "--model.levels", "2", "--model.kernel_size", "3"]
    sizes += ["--model.input_kernel_size", "5", "--model.dropout", "0", "--crops.size", "48", "--crops.margin", "8"]
    schedule = ["--optimization.epochs", "2", "--optimization.learning_rate", "0.02", "--optimization.schedule"]
    schedule += ["cosine", "--steps", "40", "--images.validation", "2", "--loss", "balanced"]
    assert main(["segment", "train", "--out", "run", *words, *sizes, *schedule]) == 0
    assert "images of shapes" in capsys.readouterr().out
    draw_shapes(Path("new"), 2, seed=9)
    assert main(["segment", "predict", "run", "new/images", "--out", "found"]) == 0
    truth = np.stack([np.asarray(Image.open(path)) for path in sorted(Path("new/masks").iterdir())])
    labels = np.stack([tifffile.imread(path) for path in sorted(Path("found").glob("*-labels.tif"))])
    assert labels.shape == truth.shape
    for kind in range(3):
        assert (labels[truth == kind] == kind).mean() > 0.8, kind
    probabilities = tifffile.imread("found/0-probabilities.tif")
    assert probabilities.shape == (3, 61, 83)
    np.testing.assert_allclose(probabilities.sum(0), 1, atol=1e-5)
    np.testing.assert_array_equal(probabilities.argmax(0), labels[0])
    network = sfcnn.load("run")
    assert network.classes == ("ground", "disc", "square")
    colours = np.asarray(Image.open("new/images/0.png"), np.float32) / 255
    np.testing.assert_array_equal(sfcnn.cells.segment(network, colours).labels, labels[0])


def draw_shapes(folder: Path, count: int, seed: int = 0) -> None:
    """RGB images of odd sizes with a disc and a square, and masks of 0, 1 and 2."""
    generator = np.random.default_rng(seed)
    rows, columns = np.mgrid[:61, :83]
    for number in range(count):
        mask = np.zeros((61, 83), np.uint8)
        (y, x), (v, u) = generator.uniform(12, 50, (2, 2))
        mask[(rows - y) ** 2 + (columns - x) ** 2 < 100] = 1
        mask[(abs(rows - v) < 8) & (abs(columns - u - 20) < 8)] = 2
        colours = np.array([[60, 60, 60], [150, 70, 70], [70, 80, 160]])[mask] + generator.normal(0, 15, (61, 83, 3))
        for kind, image in (("images", colours.clip(0, 255).astype(np.uint8)), ("masks", mask)):
            (folder / kind).mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(folder / kind / f"{number}.png")
