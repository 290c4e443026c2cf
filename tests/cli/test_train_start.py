"""`--start` of both training commands: the model is that of the start network, unless options change it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

from classification.conftest import draw_folder
from cli.conftest import Fails
from sfcnn.cli import main
from sfcnn.io.settings import load_yaml
from sfcnn.io.stacks import write_stack
from sfcnn.segmentation import load, synthetic_membranes

TINY = [
    *("--images.dataset", "digits-rot", "--images.train_images", "40", "--images.validation_images", "20"),
    *("--optimization.batch_size", "20", "--optimization.epochs", "1"),
]


def train(*words: str) -> int:
    return main(["classify", "train", *TINY, *words])


def model_of(run: str) -> dict[str, object]:
    model: dict[str, object] = load_yaml(Path(run, "config.yaml"))["model"]
    return model


def test_the_model_is_that_of_the_start_network(
    make_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    make_run()
    assert train("--start", "run", "--model.dropout", "0.1", "--out", "mine") == 0
    assert capsys.readouterr().out.splitlines()[0] == "started from run: all 54 tensors"
    assert model_of("mine") == model_of("run") | {"dropout": 0.1, "padding": "same"}
    assert load_yaml(Path("mine/config.yaml"))["start"] == "run"
    shutil.rmtree("run")
    assert main(["classify", "train", "--out", "mine", "--resume", "--optimization.epochs", "2"]) == 0
    assert "started from" not in capsys.readouterr().out


def test_it_may_be_named_in_a_settings_file(make_run: Callable[..., Path], fails: Fails) -> None:
    make_run()
    Path("my.yaml").write_text("start: run\n", encoding="utf-8")
    assert train("--config", "my.yaml", "--out", "mine") == 0
    assert model_of("mine")["width"] == 0.125
    Path("other.yaml").write_text("start: run\nmodel: {width: 0.25}\n", encoding="utf-8")
    message = fails("classify", "train", *TINY, "--config", "other.yaml", "--out", "other")
    assert "cannot start from run: model.width is 0.25, but 0.125 there; leave it out, " in message
    Path("none.yaml").write_text("start: [run]\n", encoding="utf-8")
    assert "start" in fails("classify", "train", *TINY, "--config", "none.yaml", "--out", "other")


def test_printed_settings_have_it(make_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    make_run()
    with pytest.raises(SystemExit):
        train("--start", "run", "--print_config")
    printed = yaml.safe_load(capsys.readouterr().out)
    assert (printed["start"], printed["model"]["width"]) == ("run", 0.125)


def test_a_run_is_continued_with_its_own_settings_and_another_schedule(make_run: Callable[..., Path]) -> None:
    make_run()
    assert train("--start", "run", "--out", "first") == 0
    words = ["--config", "first/config.yaml", "--start", "first", "--optimization.schedule", "cosine"]
    assert main(["classify", "train", *words, "--out", "second"]) == 0
    first, second = (load_yaml(Path(run, "config.yaml")) for run in ("first", "second"))
    assert second["images"] == first["images"]
    assert (second["start"], second["optimization"]["schedule"]) == ("first", "cosine")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--start", "nowhere"], "no run nowhere: expected a directory created by training, or one of isbi2012,"),
        (["--start", "isbi2012"], "isbi2012 is a segmentation network, expected a classification network"),
        (["--start", "run", "--model.orientations", "8"], "model.orientations is 8, but 4 there; leave it out, "),
        (["--start", "run", "--images.dataset", "folder", "--images.path", "shapes"], "images.channels 1"),
        (["--start", "empty"], "empty is not a run, since it has no config.yaml"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], message: str, make_run: Callable[..., Path], fails: Fails) -> None:
    make_run()
    draw_folder(Path("shapes"), 8, shapes=("cross", "square"))
    Path("empty").mkdir()
    words = [*words, "--images.train_images", "10", "--images.validation_images", "2"]
    assert message in fails("classify", "train", *TINY, "--out", "mine", *words)


def test_a_run_cannot_be_resumed_from_another_start(make_run: Callable[..., Path], fails: Fails) -> None:
    make_run()
    assert train("--start", "run", "--out", "mine") == 0
    message = fails("classify", "train", "--out", "mine", "--resume", "--start", "mnist-rot")
    assert "mine was started with other settings: start was run, not mnist-rot" in message


def test_segmentation_starts_from_a_pretrained_network(capsys: pytest.CaptureFixture[str], fails: Fails) -> None:
    images, membranes = synthetic_membranes(2, 40, cell=12)
    write_stack(Path("em.tif"), (255 * images).byte().numpy())
    write_stack(Path("masks.tif"), np.where(membranes.numpy(), 255, 0).astype(np.uint8))
    words = ["segment", "train", "--start", "isbi2012-affinities", "--images.source", "stack"]
    words += ["--images.path", "em.tif", "--images.masks", "masks.tif", "--images.validation", "1"]
    words += ["--crops.size", "16", "--crops.margin", "8", "--steps", "1", "--optimization.epochs", "1"]
    assert main([*words, "--out", "pairs"]) == 0
    assert capsys.readouterr().out.startswith("started from isbi2012-affinities: all 100 tensors\n")
    assert load("pairs").config.model.affinities == (1, 3, 9, 27)
    assert main([*words, "--model.affinities", "[]", "--out", "plain"]) == 0
    assert capsys.readouterr().out.startswith(
        "started from isbi2012-affinities: all 92 tensors; dropped: affinity_head\n"
    )
    assert load("plain").network.affinity_head is None
    assert "model.levels is 3, but 4 there" in fails(*words, "--model.levels", "3", "--out", "other")
