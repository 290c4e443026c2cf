from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch

from cli.conftest import Fails, files
from sfcnn.cli import main
from sfcnn.data.membranes import synthetic_membranes
from sfcnn.data.stacks import write_stack
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
    expected = predict_image(net, image[None], margin=config.crops.margin)[0]
    np.testing.assert_allclose(membranes[1], expected, atol=1e-5)


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
        (["predict", "nowhere", "em.tif", "--out", "found"], "nowhere is no run"),
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
