"""Runs of older versions: what their settings do not name is what it was then."""

from pathlib import Path

import pytest
import torch
import yaml

from sfcnn.classification import load
from sfcnn.classification.config import ClassificationConfig, ImagesConfig, ModelConfig
from sfcnn.classification.network import build_network
from sfcnn.classification.task import train
from sfcnn.cli import main
from sfcnn.io.runs import read_run
from sfcnn.io.settings import make_settings, write_settings
from sfcnn.train.config import OptimizationConfig

_NEW = {
    "model": ["padding", "border", "pool"],
    "optimization": ["optimizer", "weight_decay", "averaging", "label_smoothing"],
}


def forget(run: Path) -> None:
    """Take the settings away that older versions did not have."""
    values = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    for part, names in _NEW.items():
        for name in names:
            del values[part][name]
    (run / "config.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A run that was trained with padded convolutions and whose settings do not say so."""
    config = ClassificationConfig(
        ModelConfig("benchmark", orientations=2, width=0.1, padding="same", border="none", pool="max"),
        ImagesConfig("digits-rot", train_images=16, validation_images=8),
        OptimizationConfig(epochs=1, batch_size=8),
    )
    train(config, tmp_path / "run")
    forget(tmp_path / "run")
    return tmp_path / "run"


def test_a_run_that_does_not_name_its_padding_is_padded(old: Path) -> None:
    assert read_run(old)[1]["model"]["padding"] == "same"
    classifier = load(old)
    images = torch.rand(2, 1, 28, 28)
    assert classifier.network.get_submodule("features")(images).shape[-1] == 7
    twin = build_network(ModelConfig("benchmark", orientations=2, width=0.1, padding="same", border="none", pool="max"))
    twin.load_state_dict(classifier.network.state_dict())
    assert torch.equal(twin.eval()(images), classifier.network(images))


def test_it_can_be_resumed(old: Path) -> None:
    words = ["classify", "train", "--out", str(old), "--resume", "--optimization.epochs", "2"]
    assert main(words) == 0
    assert read_run(old)[1]["model"]["padding"] == "same"
    assert len((old / "log.csv").read_text(encoding="utf-8").splitlines()) == 3


def test_a_new_run_says_how_it_is_padded(tmp_path: Path) -> None:
    config = ClassificationConfig(
        ModelConfig("benchmark", orientations=2, width=0.1),
        ImagesConfig("digits-rot", train_images=16, validation_images=8),
        OptimizationConfig(epochs=1, batch_size=8),
    )
    train(config, tmp_path / "run")
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text(encoding="utf-8"))["model"]["padding"] == "inner"
    train(config, tmp_path / "run", resume=True)  # by the same settings, in which it is left to the network


@pytest.mark.parametrize("model", ["", "model: {orientations: 4, width: 0.1}\n"])
@pytest.mark.parametrize("task", ["", "task: classification\n"])
def test_a_run_that_names_no_border_has_the_paper_s(model: str, task: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(f"{task}{model}seed: 3\n", encoding="utf-8")
    _, values = read_run(tmp_path)
    config = make_settings(ClassificationConfig, values)
    assert (config.model.border, config.model.pool, config.seed) == ("none", "max", 3)
    assert config.model.orientations == (4 if model else ModelConfig().orientations)


def test_a_run_keeps_its_border(tmp_path: Path) -> None:
    config = ClassificationConfig(ModelConfig(border="background", pool="blur"))
    write_settings(tmp_path / "config.yaml", config, task="classification")
    assert make_settings(ClassificationConfig, read_run(tmp_path)[1]) == config


def test_settings_that_are_no_settings_are_left_to_the_reader(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("task: classification\nmodel: 3\n", encoding="utf-8")
    assert read_run(tmp_path) == ("classification", {"model": 3})
