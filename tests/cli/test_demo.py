import json
from pathlib import Path

import pytest

from cli.conftest import Fails, files
from sfcnn.cli import main

TINY = [
    *("--orientations", "2", "--train-images", "60", "--test-images", "20"),
    *("--angles", "4", "--epochs", "1", "--batch-size", "30"),
]


def test_trains_tests_and_writes(capsys: pytest.CaptureFixture[str]) -> None:
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
    ("options", "message"),
    [
        (["--epochs", "0"], "epochs must be at least 1, got 0"),
        (["--train-images", "5000"], "train_images + test_images must be at most 5000, got 5000 + 400"),
        (["--engine", "steam", *TINY], "unknown engine 'steam', choose one of"),
    ],
)
def test_a_mistake_is_one_line(options: list[str], message: str, fails: Fails) -> None:
    assert message in fails("demo", *options)
