import json
from pathlib import Path

import pytest

from cli.conftest import Fails, files
from sfcnn.cli import main

TINY = [
    *("--train.model.orientations", "4", "--train.model.width", "0.1", "--train.images.train_images", "60"),
    *("--train.images.validation_images", "20", "--test_images", "20", "--angles", "4"),
    *("--train.optimization.epochs", "1", "--train.optimization.batch_size", "30"),
]


def test_trains_tests_and_writes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *TINY, "--out", "results"]) == 0
    assert {"results/generalization.json", "results/generalization.png"} <= files()
    output = capsys.readouterr().out
    assert "SFCNN" in output
    assert "CNN, same parameters" in output
    assert "wrote results/generalization.png" in output
    numbers = json.loads(Path("results/generalization.json").read_text(encoding="utf-8"))
    ours, plain = numbers["runs"]
    assert ours["angles"] == [0, 90, 180, 270]
    assert len(set(ours["errors"])) == 1  # Λ = 4: quarter turns change nothing
    assert abs(ours["run"]["parameters"] / plain["run"]["parameters"] - 1) < 0.1


def test_a_finished_demo_is_shown_again_and_its_networks_can_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *TINY, "--out", "results"]) == 0
    shown = capsys.readouterr().out
    weights = Path("results/runs/steerable-none-s0/best.safetensors")
    before = weights.stat().st_mtime_ns
    assert main(["demo", *TINY, "--out", "results"]) == 0
    table = shown[shown.index("Test error") :]
    assert table in capsys.readouterr().out
    assert weights.stat().st_mtime_ns == before
    assert main(["filters", "--weights", str(weights), "--basis", "averaged"]) == 0
    assert main(["evaluate", str(weights.parent), "--images", "20"]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--train.optimization.epochs", "0"], "epochs must be at least 1, got 0"),
        (["--train.images.train_images", "5000"], "train_images must be at most 3000"),
        (["--train.model.engine", "steam", *TINY], "unknown engine 'steam', choose one of"),
        (["--test_images", "many"], "test_images"),
    ],
)
def test_a_mistake_is_one_line(options: list[str], message: str, fails: Fails) -> None:
    assert message in fails("demo", *options)
