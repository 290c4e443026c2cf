import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Fails
from sfcnn.cli import main
from sfcnn.data.datasets import load_splits
from sfcnn.data.digits import Digits
from sfcnn.evaluation import error_rate
from sfcnn.training.runs import load_run

MakeRun = Callable[..., Path]


@pytest.mark.parametrize("split", ["test", "validation"])
def test_the_error_is_that_of_the_split(split: str, make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run()
    assert main(["evaluate", str(run), "--split", split, "--images", "60"]) == 0
    digits = Digits(*(part[:60] for part in getattr(load_splits("digits"), split)))
    expected = error_rate(load_run(run)[1], digits)
    assert f"error {expected:.2f} % on 60 {split} images of embedded digits\n" in capsys.readouterr().out


def test_angles_have_a_table_and_a_file(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["evaluate", str(make_run()), "--images", "30", "--angles", "8", "--out", "angles.json"]
    assert main(options) == 0
    output = capsys.readouterr().out
    assert "\n30 test images of embedded digits, all turned by each angle\n" in output
    assert output.endswith("wrote angles.json\n")
    numbers = json.loads(Path("angles.json").read_text(encoding="utf-8"))
    assert numbers["degrees"] == [0, 45, 90, 135, 180, 225, 270, 315]
    errors = numbers["errors"]
    assert errors[0] == errors[2] == errors[4] == errors[6]  # Λ = 4: quarter turns change nothing
    assert numbers["worst"] == max(errors)
    assert numbers["mean"] == pytest.approx(sum(errors) / 8)
    assert (numbers["dataset"], numbers["split"], numbers["images"]) == ("embedded digits", "test", 30)
    for angle, error in zip(numbers["degrees"], errors, strict=True):
        assert any(f"{angle:g}°" in line and f"{error:.1f}" in line for line in output.splitlines())


def test_a_mistake_is_one_line(make_run: MakeRun, fails: Fails) -> None:
    run = str(make_run())
    Path("mine.json").write_text("my own")
    assert "elsewhere is no run" in fails("evaluate", "elsewhere")
    assert "--images must be at least 1, got 0" in fails("evaluate", run, "--images", "0")
    assert "number of angles must be at least 1, got 0" in fails("evaluate", run, "--angles", "0")
    assert "mine.json exists" in fails("evaluate", run, "--out", "mine.json")
    assert "invalid choice: 'train'" in fails("evaluate", run, "--split", "train")
    config = Path(run, "config.yaml")
    config.write_text(config.read_text(encoding="utf-8").replace("dataset: digits", "dataset: mnist"))
    assert "empty" in fails("evaluate", run, "--data", "empty")
    Path(run, "best.safetensors").write_bytes(b"cut short")
    assert "best.safetensors is not a whole checkpoint" in fails("evaluate", run)
