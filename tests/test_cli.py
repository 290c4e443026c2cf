"""The command as a person types it: what it writes, what it prints, and its exit code."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sfcnn import __version__
from sfcnn.cli import main
from sfcnn.models import mnist_baseline

PNG = b"\x89PNG\r\n\x1a\n"
TINY = [
    *("--orientations", "2", "--train-images", "60", "--test-images", "20"),
    *("--angles", "4", "--epochs", "1", "--batch-size", "30"),
]


@pytest.fixture(autouse=True)
def _in_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def files() -> set[str]:
    return {str(path) for path in Path().rglob("*") if path.is_file()}


def test_filters_draws_atoms_and_a_random_filter(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["filters", "--basis", "paper", "--kernel-size", "5", "--orientations", "6"]) == 0
    assert files() == {"filters/atoms.png", "filters/filter.png"}
    assert all(Path(name).read_bytes().startswith(PNG) for name in files())
    assert capsys.readouterr().out == "wrote filters/atoms.png\nwrote filters/filter.png\n"


def test_filters_draws_a_learned_filter() -> None:
    torch.save(mnist_baseline(4).state_dict(), "net.pt")
    assert main(["filters", "--weights", "net.pt", "--out", "first"]) == 0
    options = ["--layer", "features.1.0.weight", "--channel", "3", "2", "--relative", "1", "--out", "second"]
    assert main(["filters", "--weights", "net.pt", *options]) == 0
    first, second = (Path(name, "filter.png").read_bytes() for name in ("first", "second"))
    assert first != second


def test_filters_keeps_existing_pictures_unless_told(capsys: pytest.CaptureFixture[str]) -> None:
    Path("filters").mkdir()
    mine = Path("filters/filter.png")
    mine.write_text("my own")
    assert main(["filters", "--kernel-size", "3"]) == 2
    assert files() == {"filters/filter.png"}
    assert mine.read_text() == "my own"
    assert "filters/filter.png exists: choose another name or pass --overwrite" in capsys.readouterr().err
    assert main(["filters", "--kernel-size", "3", "--overwrite"]) == 0
    assert mine.read_bytes().startswith(PNG)


def test_demo_trains_tests_and_writes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *TINY, "--out", "results"]) == 0
    assert files() == {"results/error.json", "results/error.png", "results/sfcnn.pt"}
    output = capsys.readouterr().out
    assert "training SFCNN, Λ = 2: 100 %" in output
    assert "270°" in output
    numbers = json.loads(Path("results/error.json").read_text(encoding="utf-8"))
    assert numbers["angles"] == [0, 90, 180, 270]
    ours, plain = numbers["curves"]
    assert ours["errors"][0] == ours["errors"][2]  # Λ = 2: half-turns change nothing
    assert abs(ours["parameters"] / plain["parameters"] - 1) < 0.1
    assert main(["filters", "--weights", "results/sfcnn.pt", "--basis", "averaged"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["filters", "--kernel-size", "4"], "kernel_size must be an odd whole number (1, 3, 5, …), got 4"),
        (["filters", "--basis", "fine"], "unknown basis preset 'fine', choose one of"),
        (["filters", "--orientations", "-3"], "at least 1, got -3"),
        (["filters", "--weights", "missing.pt"], "weights file missing.pt does not exist"),
        (["filters", "--out", "blocked/here"], "blocked"),
        (["demo", "--epochs", "0"], "epochs must be at least 1, got 0"),
        (["demo", "--train-images", "5000"], "train_images + test_images must be at most 5000, got 5000 + 400"),
        (["demo", "--engine", "steam", *TINY], "unknown engine 'steam', choose one of"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("blocked").write_text("a file, not a directory")
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("sfcnn: error: ")
    assert error.count("\n") == 1
    assert files() == {"blocked"}


@pytest.mark.parametrize("arguments", [[], ["fly"], ["filters", "--seed", "x"], ["filters", "--colour"]])
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--help"], ["filters", "--help"], ["demo", "--help"]])
def test_help_has_examples(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 0
    output = capsys.readouterr().out
    assert "sfcnn" in output
    assert len(arguments) == 1 or "example" in output


def test_the_installed_command_runs() -> None:
    command = [str(Path(sys.executable).with_name("sfcnn")), "--version"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == f"sfcnn {__version__}\n"
