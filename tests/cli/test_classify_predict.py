import csv
import json
import os
import subprocess
import sys
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


@pytest.fixture
def digits() -> torch.Tensor:
    """Three digits, also in the directory `scans`."""
    images = load_digits().images[:3]
    Path("scans").mkdir()
    for name, image in zip("abc", images, strict=True):
        Image.fromarray((image[0] * 255).round().byte().numpy()).save(f"scans/{name}.png")
    return images


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def test_csv_and_json_say_what_the_network_says(
    make_run: MakeRun, digits: torch.Tensor, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(make_run())
    assert main(["predict", run, "scans", "scans/a.png", "--batch-size", "2", "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert main(["classify", "predict", run, "scans", "scans/a.png", "--out", "new/out.csv"]) == 0
    assert capsys.readouterr().out == "wrote new/out.csv (0: 4)\n"
    assert Path("new/out.csv").read_text(encoding="utf-8") == shown
    rows = read_csv(shown)
    assert list(rows[0]) == ["file", "class", "probability", "orientation"]
    assert [row["file"] for row in rows] == ["scans/a.png", "scans/b.png", "scans/c.png", "scans/a.png"]
    assert rows[0] == rows[3]
    expected = load(run).predict(digits)
    assert expected.orientations is not None
    assert tuple(row["class"] for row in rows[:3]) == expected.names
    for column, values in (("probability", expected.probabilities), ("orientation", expected.orientations.rad2deg())):
        shown_values = torch.tensor([float(row[column]) for row in rows[:3]])
        assert (shown_values - values).abs().max() <= 0.0501
    assert main(["classify", "predict", run, "scans", "scans/a.png", "--out", "out.json"]) == 0
    entries = json.loads(Path("out.json").read_text(encoding="utf-8"))
    assert [{name: str(value) for name, value in entry.items()} for entry in entries] == rows


def test_a_quarter_turn_of_the_file_adds_90_degrees(
    make_run: MakeRun, digits: torch.Tensor, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(make_run(orientations=8))
    Image.open("scans/a.png").transpose(Image.Transpose.ROTATE_90).save("turned.png")
    assert main(["classify", "predict", run, "scans/a.png", "turned.png"]) == 0
    before, after = read_csv(capsys.readouterr().out)
    assert before["class"] == after["class"]
    turn = (float(after["orientation"]) - float(before["orientation"])) % 360
    assert turn == pytest.approx(90, abs=0.11)


def test_inverted_images_are_those_of_dark_ink(
    make_run: MakeRun, digits: torch.Tensor, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(make_run())
    paper = (255 - (digits[0, 0] * 255).round()).byte().numpy()
    Image.fromarray(paper).save("ink.png")
    assert main(["classify", "predict", run, "scans/a.png"]) == 0
    (bright,) = read_csv(capsys.readouterr().out)
    assert main(["classify", "predict", run, "ink.png", "--invert"]) == 0
    (dark,) = read_csv(capsys.readouterr().out)
    assert dark | {"file": ""} == bright | {"file": ""}


@pytest.mark.parametrize("model", [{"kind": "plain-channels"}, {"orientations": 1}])
def test_no_orientation_is_an_empty_field(
    model: dict[str, object], make_run: MakeRun, digits: torch.Tensor, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(make_run(**model))
    assert main(["classify", "predict", run, "scans"]) == 0
    assert [row["orientation"] for row in read_csv(capsys.readouterr().out)] == ["", "", ""]
    assert main(["classify", "predict", run, "scans", "--out", "out.json"]) == 0
    assert {entry["orientation"] for entry in json.loads(Path("out.json").read_text(encoding="utf-8"))} == {None}


def test_a_mistake_is_one_line_and_nothing_is_written(make_run: MakeRun, digits: torch.Tensor, fails: Fails) -> None:
    run = str(make_run())
    Path("scans/broken.png").write_text("no image")
    Path("mine.csv").write_text("my own")
    Path("empty").mkdir()
    out = ("--out", "out.csv")
    assert "scans/broken.png is not an image" in fails("classify", "predict", run, "scans", *out)
    assert "missing.png does not exist" in fails("classify", "predict", run, "scans/a.png", "missing.png", *out)
    assert "directory empty has no image files" in fails("classify", "predict", run, "empty", *out)
    assert "batch_size must be at least 1, got 0" in fails(
        "classify", "predict", run, "scans/a.png", "--batch-size", "0", *out
    )
    assert "no run elsewhere: expected a directory" in fails("classify", "predict", "elsewhere", "scans/a.png", *out)
    assert "must end in one of ['.csv', '.json']" in fails(
        "classify", "predict", run, "scans/a.png", "--out", "out.txt"
    )
    assert "mine.csv exists" in fails("classify", "predict", run, "scans/a.png", "--out", "mine.csv")
    assert "the following arguments are required: IMAGE" in fails("classify", "predict", run)
    assert Path("mine.csv").read_text() == "my own"
    assert main(["classify", "predict", run, "scans/a.png", "--out", "mine.csv", "--overwrite"]) == 0
    assert Path("mine.csv").read_text().startswith("file,class,probability,orientation\nscans/a.png,")
    assert "out.csv" not in files()


def test_a_reader_may_stop_early(make_run: MakeRun, digits: torch.Tensor) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    code = "import sys; from sfcnn.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "classify", "predict", str(make_run()), "scans"]
    result = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (result.returncode, result.stderr) == (0, "")
