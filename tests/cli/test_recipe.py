"""`--optimization.recipe` stands for settings that files and options override, and `--views` averages."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Fails
from sfcnn.classification.config import ClassificationConfig
from sfcnn.cli import main
from sfcnn.io.settings import read_settings
from sfcnn.train.config import recipe


@pytest.fixture(autouse=True)
def in_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> ClassificationConfig:
    with pytest.raises(SystemExit):
        main(["classify", "train", *words, "--print_config"])
    names = ("out:", "resume:", "data:", "device:")
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(names)]
    Path("printed.yaml").write_text("\n".join(lines), encoding="utf-8")
    return read_settings(ClassificationConfig, Path("printed.yaml"))


@pytest.mark.parametrize(
    "words",
    [
        ["--optimization.recipe", "fast", "--optimization.epochs", "3"],
        ["--optimization.epochs=3", "--optimization.recipe=fast"],
        ["--config", "fast.yaml"],
        ["--config", "fast.yaml", "--config", "fast.yaml"],
        ["--config", "three.yaml", "--optimization.recipe", "fast"],
    ],
)
def test_what_is_named_overrides_the_recipe(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("fast.yaml").write_text("optimization: {epochs: 3, recipe: fast}\n", encoding="utf-8")
    Path("three.yaml").write_text("optimization: {epochs: 3}\n", encoding="utf-8")
    assert printed(capsys, *words).optimization == recipe("fast", epochs=3)


def test_without_a_recipe_it_is_the_paper_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys) == ClassificationConfig()
    assert printed(capsys, "--optimization.recipe", "paper") == ClassificationConfig()


def test_an_unknown_recipe_is_refused(fails: Fails) -> None:
    assert "invalid choice: 'slow'" in fails("classify", "train", "--optimization.recipe", "slow", "--out", "run")


def test_segmentation_and_experiments_have_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["segment", "train", "--optimization.recipe"],
        ["experiment", "benchmark", "--train.optimization.recipe"],
    ):
        with pytest.raises(SystemExit):
            main([*words, "fast", "--print_config"])
        assert "schedule: one-cycle" in capsys.readouterr().out


def test_views_are_reported_apart(
    make_run: Callable[..., Path], capsys: pytest.CaptureFixture[str], fails: Fails
) -> None:
    run = str(make_run())
    words = ["classify", "evaluate", run, "--images", "10"]
    assert main([*words, "--out", "plain.json"]) == 0
    capsys.readouterr()
    assert main([*words, "--views", "3", "--out", "views.json"]) == 0
    assert "% by the mean of 3 views" in capsys.readouterr().out
    plain, views = (json.loads(Path(f"{name}.json").read_text(encoding="utf-8")) for name in ("plain", "views"))
    assert views.pop("views") == 3
    assert len(views.pop("errors_of_views")) == 1
    assert views == plain
    assert "views must be a whole number from 1 to 360, got 0" in fails(*words, "--views", "0")
