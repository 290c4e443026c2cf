"""`sfcnn classify pose` teaches a run angles, and `predict` and `evaluate` tell them from then on."""

import csv
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

from cli.conftest import Fails, files
from sfcnn.classification import load
from sfcnn.classification.digits import load_digits
from sfcnn.cli import main

MakeRun = Callable[..., Path]


def contents(directory: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


@pytest.fixture(name="run")
def _run(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> Path:
    """A run of a network that has learned nothing but to tell angles, as well as it can."""
    run = make_run(orientations=8)
    before = contents(run)
    assert main(["classify", "pose", str(run), "--examples", "60", "--seed", "3", "--device", "cpu"]) == 0
    after = contents(run)
    assert {name: after[name] for name in before} == before
    assert after.keys() - before.keys() == {"pose.safetensors", "pose.json"}
    capsys.readouterr()
    return run


def test_errors_are_printed_and_kept(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--examples", "60", "--seed", "3"]
    kept = (run / "pose.safetensors").read_bytes()
    assert main(["classify", "pose", str(run), *options, "--overwrite"]) == 0
    output = capsys.readouterr().out
    about = json.loads((run / "pose.json").read_text(encoding="utf-8"))
    error = about["angle_error"]
    last, wrote = output.splitlines()[-2:]
    assert last == (
        f"angles off by {error['mean']:.1f}° on average, median {error['median']:.1f}°, "
        "on 500 validation images of embedded digits"
    )
    assert wrote == "wrote run/pose.safetensors"
    assert [each["name"] for each in error["classes"]] == list("0123456789")
    assert sum(each["images"] for each in error["classes"]) == about["validation_images"] == 500
    for each in error["classes"]:
        assert any(f"{each['mean']:.1f}" in line and f" {each['name']} " in line for line in output.splitlines())
    assert about["settings"] == {"examples": 60, "shift": 1.0, "penalty": 1e-4, "seed": 3}
    assert about["provenance"]["versions"]["torch"]
    assert len(kept) == (run / "pose.safetensors").stat().st_size


def test_predict_has_a_column_more(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digit = (load_digits().images[0, 0] * 255).round().byte().numpy()
    Image.fromarray(digit).save("a.png")
    Image.fromarray(digit).transpose(Image.Transpose.ROTATE_90).save("turned.png")
    assert main(["classify", "predict", str(run), "a.png", "turned.png"]) == 0
    found = rows(capsys.readouterr().out)
    assert list(found[0]) == ["file", "class", "probability", "orientation", "angle"]
    before, after = (float(row["angle"]) for row in found)
    assert (after - before) % 360 == pytest.approx(90, abs=0.11)  # counter-clockwise
    expected = load(run).predict(["a.png"]).angles
    assert expected is not None
    assert before == pytest.approx(float(expected.rad2deg()), abs=0.051)
    assert main(["classify", "predict", str(run), "a.png", "--out", "out.json"]) == 0
    (entry,) = json.loads(Path("out.json").read_text(encoding="utf-8"))
    assert entry["angle"] == before
    assert capsys.readouterr().out.startswith("wrote out.json (")
    (run / "pose.safetensors").unlink()
    assert main(["classify", "predict", str(run), "a.png"]) == 0
    (plain,) = rows(capsys.readouterr().out)
    assert {**plain, "angle": found[0]["angle"]} == found[0]


def test_evaluate_compares_angles(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["classify", "evaluate", str(run), "--images", "40", "--angles", "4", "--out", "angles.json"]
    assert main(words) == 0
    output = capsys.readouterr().out
    numbers = json.loads(Path("angles.json").read_text(encoding="utf-8"))
    error = numbers["angle_error"]
    assert f"angles off by {error['mean']:.1f}° on average, median {error['median']:.1f}°\n" in output
    assert sum(each["images"] for each in error["classes"]) == 40
    (run / "pose.safetensors").unlink()
    assert main([*words, "--overwrite"]) == 0
    assert "angles off by" not in capsys.readouterr().out
    plain = json.loads(Path("angles.json").read_text(encoding="utf-8"))
    assert plain == {name: value for name, value in numbers.items() if name != "angle_error"}


def test_what_is_known_of_other_sets_is_used(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run()
    assert main(["classify", "pose", str(run), "--examples", "20", "--dataset", "digits-rot"]) == 0
    assert "500 validation images of embedded digits, rotated" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"kind": "plain-channels"}, "a plain CNN cannot predict angles, since it has no orientations"),
        ({"orientations": 1}, "a network with 1 orientations (Λ) cannot predict angles: train one with at least 3"),
        ({"orientations": 2}, "a network with 2 orientations (Λ) cannot predict angles: train one with at least 3"),
    ],
)
def test_networks_that_cannot_are_refused(
    model: dict[str, object], message: str, make_run: MakeRun, fails: Fails
) -> None:
    assert message in fails("classify", "pose", str(make_run(**model)))


def test_a_mistake_is_one_line(make_run: MakeRun, fails: Fails) -> None:
    run = str(make_run())
    assert "no run elsewhere" in fails("classify", "pose", "elsewhere")
    assert "isbi2012 is shipped with sfcnn and cannot be written to" in fails("classify", "pose", "isbi2012")
    assert "examples must be at least 1, got 0" in fails("classify", "pose", run, "--examples", "0")
    assert "shift must be from 0 to 1000 pixels, got -1" in fails("classify", "pose", run, "--shift", "-1")
    assert "batch_size must be at least 1, got 0" in fails("classify", "pose", run, "--batch-size", "0")
    assert "invalid choice: 'mnist-rot'" in fails("classify", "pose", run, "--dataset", "mnist-rot")
    assert "no file train-images" in fails("classify", "pose", run, "--dataset", "mnist", "--data", ".")
    Path(run, "pose.safetensors").write_bytes(b"cut short")
    assert "pose.safetensors exists: choose another name or pass --overwrite" in fails("classify", "pose", run)
    Image.new("L", (28, 28)).save("a.png")
    for words in (("predict", run, "a.png"), ("evaluate", run)):
        assert "pose.safetensors is not a complete state" in fails("classify", *words)
    assert "run/pose.json" not in files()
    Path(run, "pose.safetensors").unlink()
    Path(run, "best.safetensors").unlink()
    assert "has no best.safetensors yet" in fails("classify", "pose", run)


def test_digits_of_any_size_and_colour_are_read(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digit = Image.fromarray((load_digits().images[1, 0] * 255).round().byte().numpy())
    large = Image.new("L", (400, 300), 240)
    large.paste(
        Image.eval(digit.resize((196, 196), Image.Resampling.BICUBIC), lambda value: 240 - value * 220 // 255),
        (150, 30),
    )
    large.save("paper.png")
    digit.resize((196, 196), Image.Resampling.BICUBIC).save("bright.png")
    assert main(["classify", "predict", str(run), "paper.png", "bright.png"]) == 0
    paper, bright = rows(capsys.readouterr().out)
    assert paper["class"] == bright["class"]
    assert abs(float(paper["probability"]) - float(bright["probability"])) < 0.05
    assert main(["classify", "predict", str(run), "paper.png", "--fit", "pad"]) == 0
    (padded,) = rows(capsys.readouterr().out)
    assert padded != paper
    seen = load(run).predict(["paper.png"]).probabilities
    assert torch.allclose(seen, torch.tensor([float(paper["probability"])]), atol=1e-5)
