import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Fails
from sfcnn.classification import LabelledImages, load, load_splits
from sfcnn.classification.evaluate import error_rate
from sfcnn.cli import main

MakeRun = Callable[..., Path]


@pytest.mark.parametrize("split", ["test", "validation"])
def test_the_error_is_that_of_the_split(split: str, make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run()
    for command in (["classify", "evaluate"], ["evaluate"]):
        assert main([*command, str(run), "--split", split, "--images", "60", "--device", "cpu"]) == 0
        digits = LabelledImages(*(part[:60] for part in getattr(load_splits("digits"), split)))
        expected = error_rate(load(run).network, digits)
        assert f"error {expected:.2f} % on 60 {split} images of embedded digits\n" in capsys.readouterr().out


def test_angles_have_a_table_and_a_file(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["classify", "evaluate", str(make_run()), "--images", "30", "--angles", "8", "--out", "angles.json"]
    assert main(options) == 0
    output = capsys.readouterr().out
    assert "\n30 test images of embedded digits, all rotated by each angle\n" in output
    assert "all angles together:" in output.splitlines()
    assert output.endswith("wrote angles.json\n")
    numbers = json.loads(Path("angles.json").read_text(encoding="utf-8"))
    assert numbers["degrees"] == [0, 45, 90, 135, 180, 225, 270, 315]
    errors = numbers["errors"]
    assert errors[0] == errors[2] == errors[4] == errors[6]  # Λ = 4: quarter turns change nothing
    assert numbers["worst"] == max(errors)
    assert numbers["mean"] == pytest.approx(sum(errors) / 8)
    assert (numbers["dataset"], numbers["split"], numbers["images"]) == ("embedded digits", "test", 30)
    assert [score["name"] for score in numbers["classes"]] == list("0123456789")
    assert sum(score["images"] for score in numbers["classes"]) == 30
    assert sum(map(sum, numbers["confusion"])) == 30 * 8
    for angle, error in zip(numbers["degrees"], errors, strict=True):
        assert any(f"{angle:g}°" in line and f"{error:.1f}" in line for line in output.splitlines())


def test_the_confusion_matrix_is_drawn(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(make_run())
    words = ["classify", "evaluate", run, "--images", "30", "--confusion", "new/matrix.png"]
    assert main(words) == 0
    assert capsys.readouterr().out.endswith("wrote new/matrix.png\n")
    assert Path("new/matrix.png").read_bytes().startswith(b"\x89PNG")
    assert main(words) == 2
    assert "new/matrix.png exists" in capsys.readouterr().err
    assert main([*words, "--overwrite"]) == 0


def test_a_mistake_is_one_line(make_run: MakeRun, fails: Fails) -> None:
    run = str(make_run())
    Path("mine.json").write_text("my own")
    assert "no run elsewhere: expected a directory" in fails("classify", "evaluate", "elsewhere")
    assert "--images must be at least 1, got 0" in fails("classify", "evaluate", run, "--images", "0")
    assert "number of angles must be at least 1, got 0" in fails("classify", "evaluate", run, "--angles", "0")
    assert "mine.json exists" in fails("classify", "evaluate", run, "--out", "mine.json")
    assert "must end in one of" in fails("classify", "evaluate", run, "--images", "9", "--confusion", "matrix.txt")
    assert "folder nowhere does not exist" in fails("classify", "evaluate", run, "--folder", "nowhere")
    assert "invalid choice: 'tpu'" in fails("classify", "evaluate", run, "--device", "tpu")
    assert "invalid choice: 'train'" in fails("classify", "evaluate", run, "--split", "train")
    config = Path(run, "config.yaml")
    config.write_text(config.read_text(encoding="utf-8").replace("dataset: digits", "dataset: mnist"))
    assert "empty" in fails("classify", "evaluate", run, "--data", "empty")
    Path(run, "best.safetensors").write_bytes(b"cut short")
    assert "best.safetensors is not a complete " in fails("classify", "evaluate", run)
