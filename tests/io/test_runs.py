"""Runs of earlier versions are read as what they were."""

from pathlib import Path

import pytest

from sfcnn.classification.config import ClassificationConfig, ModelConfig
from sfcnn.io.runs import read_run
from sfcnn.io.settings import make_settings, write_settings


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
