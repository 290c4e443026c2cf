from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch

from cli.conftest import Fails, files
from sfcnn.cli import main
from sfcnn.data.crops import standardize
from sfcnn.data.geometry import Geometry, read_geometry
from sfcnn.data.membranes import synthetic_membranes
from sfcnn.data.stacks import as_fraction, write_stack
from sfcnn.segmentation.cells import CellsConfig, cells
from sfcnn.segmentation.superpixels import SuperpixelsConfig
from sfcnn.segmentation.tiles import predict_image
from sfcnn.training.membrane_runs import load_membrane_run

SMALL = [
    *("--model.orientations", "4", "--model.channels", "2", "--model.levels", "2", "--model.kernel_size", "3"),
    *("--model.input_kernel_size", "5", "--crops.size", "16", "--crops.margin", "4", "--steps", "2"),
    *("--images.validation", "1", "--optimization.epochs", "1", "--optimization.batch_size", "2"),
    *("--images.source", "stack", "--images.path", "em.tif", "--images.masks", "masks.tif"),
]


@pytest.fixture(autouse=True)
def _stacks(_in_empty_directory: None) -> None:
    images, membranes = synthetic_membranes(3, 40, cell=12)
    write_stack(Path("em.tif"), (255 * images).byte().numpy())
    write_stack(Path("masks.tif"), np.where(membranes.numpy(), 0, 255).astype(np.uint8))


def train(*more: str) -> int:
    return main(["segment", "train", "--out", "run", *SMALL, *more])


def test_trains_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert train() == 0
    assert "(1 images of em.tif)" in capsys.readouterr().out
    assert {"run/config.yaml", "run/log.csv", "run/best.safetensors", "run/result.json"} <= files()
    assert main(["segment", "train", "--out", "run", "--resume", "--optimization.epochs", "2"]) == 0
    assert len(Path("run/log.csv").read_text().splitlines()) == 3


def test_predicts_membranes_and_cells_in_the_size_of_the_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert train() == 0
    assert main(["segment", "predict", "run", "em.tif", "--out", "found", "--tile", "24"]) == 0
    assert "wrote found/em-cells.tif" in capsys.readouterr().out
    membranes, cells = (tifffile.imread(f"found/em-{name}.tif") for name in ("membranes", "cells"))
    assert membranes.shape == cells.shape == (3, 40, 40)
    assert membranes.dtype == np.float32
    assert cells.max() >= 1
    config, net = load_membrane_run(Path("run"))
    image = torch.from_numpy(tifffile.imread("em.tif")[1].astype(np.float32) / 255)
    expected = predict_image(net, standardize(image)[None], margin=config.crops.margin)[0]
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
        assert read_geometry(Path(name)) == Geometry((0.25, 0.25), 1, {"unit": "nm", "spacing": 50.0})


def test_a_forest_tells_borders_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert train() == 0
    write_stack(Path("guess.tif"), 1 - as_fraction(tifffile.imread("em.tif"), ""))
    learn = ["segment", "train-edges", "guess.tif", "masks.tif", "--image", "em.tif", "--trees", "3"]
    assert main([*learn, "--threshold", "0.4", "--out", "edges.safetensors"]) == 0
    given: list[tuple[Any, ...]] = []

    def noted(*arguments: Any) -> Any:
        if arguments[0].ndim == 3:  # it calls itself for each slice
            given.append(arguments)
        return cells(arguments[0])

    monkeypatch.setattr("sfcnn.segmentation.cells.cells", noted)
    for words in ((), ("--forest", "edges.safetensors")):
        assert main(["segment", "predict", "run", "em.tif", "--out", "found", "--overwrite", *words]) == 0
    Path("edges.safetensors").rename("run/edges.safetensors")
    assert main(["segment", "predict", "run", "em.tif", "--out", "found", "--overwrite"]) == 0
    assert len(given[0]) == 1
    for _, settings, forest, raw in given[1:]:
        assert settings == CellsConfig(SuperpixelsConfig(threshold=0.4))
        assert len(forest.roots) == 3
        np.testing.assert_array_equal(raw, as_fraction(tifffile.imread("em.tif"), ""))


def test_images_and_folders_are_taken_and_cells_can_be_left_out() -> None:
    assert train() == 0
    Path("slices").mkdir()
    write_stack(Path("slices/one.tif"), tifffile.imread("em.tif")[0])
    options = ["--average", "rotations", "--no-cells", "--out", "found"]
    assert main(["segment", "predict", "run", "slices", "em.tif", *options]) == 0
    assert {name for name in files() if name.startswith("found")} == {
        "found/one-membranes.tif",
        "found/em-membranes.tif",
    }
    assert tifffile.imread("found/one-membranes.tif").shape == (40, 40)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--out", "run", *SMALL, "--images.path", "none.tif"], "none.tif"),
        (["train", "--out", "run", *SMALL, "--images.validation", "3"], "images.validation must be below 3"),
        (["train", "--out", "run", *SMALL, "--crops.size", "64"], "smaller than a crop of 64"),
        (["train", "--out", "run", *SMALL, "--crops.size", "17"], "divisible by 2"),
        (["train", *SMALL], "Name a directory for the run with --out"),
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
