"""From a folder of one's own images to predictions with the names of classes: by commands, and from Python."""

import csv
import json
from pathlib import Path

import pytest
import torch

from classification.conftest import SHAPES, draw_folder
from cli.conftest import Fails, files
from sfcnn.classification import ClassificationConfig, ImagesConfig, ModelConfig, load, load_folder, load_splits, train
from sfcnn.cli import main
from sfcnn.io.settings import load_yaml
from sfcnn.train.config import OptimizationConfig

MODEL = ("--model.width", "0.25", "--model.orientations", "4", "--model.engine", "direct")
SHORT = ("--optimization.batch_size", "10", "--optimization.epochs", "8", "--optimization.schedule", "cosine")
IMAGES = ("--images.dataset", "folder", "--images.path", "shapes", "--images.size", "24")


@pytest.fixture
def _folder() -> None:
    draw_folder(Path("shapes"), 30)


@pytest.mark.usefixtures("_folder")
def test_from_images_to_predictions_by_commands(capsys: pytest.CaptureFixture[str], fails: Fails) -> None:
    assert main(["classify", "train", *IMAGES, *MODEL, *SHORT, "--out", "run", "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].startswith("best validation error ")
    assert "(20 images of shapes)" in lines[-2]
    kept = load_yaml(Path("run/config.yaml"))
    assert kept["task"] == "classification"
    assert {name: kept["images"][name] for name in ("path", "size", "channels", "classes")} == {
        "path": "shapes",
        "size": 24,
        "channels": 3,
        "classes": list(SHAPES),
    }
    error = json.loads(Path("run/result.json").read_text(encoding="utf-8"))["validation_error"]
    assert error < 60  # of 80 by chance

    assert main(["classify", "evaluate", "run", "--confusion", "matrix.png", "--out", "test.json"]) == 0
    output = capsys.readouterr().out
    assert " % on 20 test images of shapes\n" in output
    assert all(f"│ {name}" in output for name in SHAPES)
    numbers = json.loads(Path("test.json").read_text(encoding="utf-8"))
    assert [score["name"] for score in numbers["classes"]] == list(SHAPES)
    assert [score["images"] for score in numbers["classes"]] == [4] * 5
    wrong = sum(map(sum, numbers["confusion"])) - sum(numbers["confusion"][index][index] for index in range(5))
    assert numbers["errors"] == [pytest.approx(100 * wrong / 20)]
    for score, row in zip(numbers["classes"], numbers["confusion"], strict=True):
        assert (
            score["recall"]
            == pytest.approx(100 - score["error"])
            == pytest.approx(25 * row[SHAPES.index(score["name"])])
        )

    draw_folder(Path("more"), 4, seed=1)
    assert main(["classify", "evaluate", "run", "--folder", "more", "--angles", "4"]) == 0
    output = capsys.readouterr().out
    assert "20 images of more, all rotated by each angle\n" in output
    assert "270°" in output

    assert main(["classify", "predict", "run", "more/ring", "more/square/001.png", "--out", "out.csv"]) == 0
    rows = list(csv.DictReader(Path("out.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["file"] for row in rows] == [
        *(f"more/ring/00{number}.png" for number in range(4)),
        "more/square/001.png",
    ]
    assert {row["class"] for row in rows} <= set(SHAPES)
    assert sum(row["class"] == "ring" for row in rows[:4]) >= 2

    Path("more/ring").rename("more/torus")
    message = fails("classify", "evaluate", "run", "--folder", "more")
    assert "folder more has the class 'torus', expected only ['circle', " in message


@pytest.mark.usefixtures("_folder")
def test_a_run_is_resumed_with_the_classes_it_was_started_with(
    capsys: pytest.CaptureFixture[str], fails: Fails
) -> None:
    small = [*IMAGES, *MODEL, "--optimization.batch_size", "30", "--optimization.epochs", "1"]
    assert main(["classify", "train", *small, "--out", "run"]) == 0
    more = ["classify", "train", "--out", "run", "--resume", "--optimization.epochs", "2"]
    assert main(more) == 0
    assert main(["classify", "train", *small[:-1], "2", "--out", "whole"]) == 0
    ours, theirs = (load(run).network.state_dict() for run in ("run", "whole"))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    draw_folder(Path("new"), 3, shapes=["hexagon"])
    Path("new/hexagon").rename("shapes/hexagon")
    assert "folder shapes has the class 'hexagon', expected only ['circle'" in fails(*more[:-1], "3")
    before = files()
    assert "run contains a run: pass --resume" in fails("classify", "train", *IMAGES, *MODEL, "--out", "run")
    assert files() == before


@pytest.mark.usefixtures("_folder")
def test_the_same_from_python() -> None:
    config = ClassificationConfig(
        ModelConfig(width=0.25, orientations=4, engine="direct"),
        ImagesConfig("folder", path="shapes", size=24, augmentation="continuous"),
        OptimizationConfig(epochs=2, batch_size=20, learning_rate=0.01),
    )
    result = train(config, "run", device="cpu")
    assert (result.dataset, result.train_images, result.validation_images) == ("shapes", 110, 20)
    classifier = load("run", device="cpu")
    assert classifier.classes == SHAPES
    assert classifier.config.images.channels == 3
    splits = load_splits(classifier.config.images)
    assert splits.train.images.dtype == torch.uint8
    evaluation = classifier.evaluate(splits.validation)
    assert evaluation.errors[0] == pytest.approx(result.validation_error)
    predictions = classifier.predict(["shapes/ring", Path("shapes/cross/000.png")])
    assert len(predictions.names) == 31
    assert predictions.names == tuple(SHAPES[number] for number in predictions.numbers.tolist())
    assert predictions.orientations is not None
    everything = load_folder(Path("shapes"), classifier.config.images)
    assert classifier.evaluate(everything).images == 150


@pytest.mark.usefixtures("_folder")
@pytest.mark.parametrize(
    "model",
    [
        ("--model.network", "resnet18", "--model.width", "0.15", "--model.orientations", "4"),
        ("--model.network", "small-resnet", "--model.width", "0.15", "--model.kind", "plain-channels"),
        ("--model.kind", "plain-channels", "--model.width", "0.25", "--model.views", "8"),
    ],
    ids=["resnet18", "plain small-resnet", "views"],
)
def test_other_networks_learn_shapes(model: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """With the command's own defaults otherwise, on 28 pixels: to predictions, a test at four angles, and ONNX."""
    small = (*IMAGES[:-1], "28", *SHORT, "--optimization.learning_rate", "0.01")
    assert main(["classify", "train", *small, *model, "--out", "run", "--device", "cpu"]) == 0
    error = json.loads(Path("run/result.json").read_text(encoding="utf-8"))["validation_error"]
    assert error < 60  # of 80 by chance
    assert main(["classify", "evaluate", "run", "--angles", "4", "--out", "angles.json"]) == 0
    errors = json.loads(Path("angles.json").read_text(encoding="utf-8"))["errors"]
    if "plain-channels" not in model or "--model.views" in model:
        assert errors == [pytest.approx(errors[0])] * 4
    assert main(["classify", "predict", "run", "shapes/ring", "--out", "out.csv"]) == 0
    assert len(Path("out.csv").read_text(encoding="utf-8").splitlines()) == 31
    capsys.readouterr()


def test_views_of_steerable_networks_are_refused(fails: Fails) -> None:
    message = fails("classify", "train", "--images.dataset", "digits", "--model.views", "4", "--out", "run")
    assert "views and mirrored_views are for plain networks: set kind to one of ['plain-channels'" in message
    message = fails("classify", "train", "--images.dataset", "digits", "--model.network", "resnet50", "--out", "run")
    assert "resnet34" in message
    assert not Path("run").exists()
