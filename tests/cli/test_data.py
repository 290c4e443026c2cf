import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from classification.conftest import REAL, SHAPES, draw_folder, random_mnist, shared_digits, write_mnist
from classification.test_fetch import CONTENT, Server, offer, running
from cli.conftest import Fails, files
from sfcnn.classification import digits
from sfcnn.classification.config import ClassificationConfig, ImagesConfig, ModelConfig
from sfcnn.classification.preview import preview_figure
from sfcnn.classification.task import train
from sfcnn.cli import main
from sfcnn.train.config import OptimizationConfig

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(digits, "load_digits", shared_digits)
    if request.node.get_closest_marker("skipif") is None:  # not a test on the real files
        monkeypatch.delenv("SFCNN_DATA", raising=False)


def use(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let mnist come from a server of ours, as one small file."""
    offer(monkeypatch, server)
    monkeypatch.setenv("no_proxy", "*")


def test_fetch_downloads_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with running() as server:
        use(server, monkeypatch)
        assert main(["data", "fetch", "mnist"]) == 0
        assert capsys.readouterr().out.endswith("digits.bin: 100 %\nwrote data/mnist/digits.bin\n")
        assert main(["data", "fetch", "mnist"]) == 0
        assert "kept data/mnist/digits.bin: already there, checksum verified\n" in capsys.readouterr().out
        assert len(server.asked) == 1
        monkeypatch.setenv("SFCNN_DATA", "mine")
        assert main(["data", "fetch", "mnist"]) == 0
        assert main(["data", "fetch", "mnist", "--data", "here"]) == 0
    assert files() == {f"{place}/mnist/digits.bin" for place in ("data", "mine", "here")}


def test_fetch_fails_in_one_line_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, fails: Fails) -> None:
    with running() as server:
        use(server, monkeypatch)
        server.files.clear()
        assert "could not download digits.bin (127.0.0.1" in fails("data", "fetch", "mnist")
        server.files["digits.bin"] = b"something else"
        assert "wrong checksum" in fails("data", "fetch", "mnist")
        Path("data/mnist").mkdir(parents=True, exist_ok=True)
        Path("data/mnist/digits.bin").write_bytes(b"mine")
        assert "data/mnist/digits.bin is not the published file" in fails("data", "fetch", "mnist")
        Path("blocked").write_text("a file, not a directory")
        server.files["digits.bin"] = CONTENT
        assert "blocked" in fails("data", "fetch", "mnist", "--data", "blocked")


def test_wrong_words_are_one_line(fails: Fails) -> None:
    assert "choose one of fetch, show" in fails("data")
    assert "invalid choice: 'cifar' (choose from" in fails("data", "fetch", "cifar")
    assert "dataset" in fails("data", "fetch")


@pytest.mark.parametrize("action", ["fetch", "show"])
def test_help_has_examples(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["data", action, "--help"])
    assert stop.value.code == 0
    assert f"\nexamples:\n  sfcnn data {action}" in capsys.readouterr().out


def test_show_tells_what_is_there_and_where_the_rest_would_be(capsys: pytest.CaptureFixture[str]) -> None:
    Path("here").mkdir()
    assert main(["data", "show", "--data", "here", "--picture", "first.png"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "data directory: here",
        "digits                 3,000 train, 500 validation, 1,500 test",
        "digits-rot             3,000 train, 500 validation, 1,500 test",
    ]
    for line, (name, base) in zip(
        lines[3:6], {"mnist": "mnist", "mnist-rot": "mnist-rot", "mnist-rot-regenerated": "mnist"}.items(), strict=True
    ):
        assert line.startswith(f"{name:<23}not found: no file ")
        assert f" in here, here/{base}" in line
        assert f"run sfcnn data fetch {base} --data here" in line
    assert lines[6:] == ["wrote first.png"]
    assert files() == {"first.png"}
    assert Path("first.png").read_bytes().startswith(PNG)


def test_show_reads_a_folder_of_one_s_own(capsys: pytest.CaptureFixture[str]) -> None:
    draw_folder(Path("shapes"), 10)
    assert main(["data", "show", "--folder", "shapes", "--picture", "seen.png"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"shapes: 30 train, 10 validation, 10 test, 5 classes: {', '.join(SHAPES)}",
        "wrote seen.png",
    ]
    assert Path("seen.png").read_bytes().startswith(PNG)


def test_dark_images_are_noticed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Images of a 12-bit camera in 16-bit files are nearly black, and networks learn little from them."""
    draw_folder(Path("shapes"), 4)
    for path in Path("shapes").rglob("*.png"):
        values = np.asarray(Image.open(path).convert("L"), np.uint16) * 16  # 12 of 16 bits
        Image.fromarray(values).save(path)
    assert main(["data", "show", "--folder", "shapes"]) == 0
    _, warning = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"images are dark: their brightest pixel has [56]\.?\d? % of .*; stretch their range first", warning
    )
    said: list[str] = []
    config = ClassificationConfig(
        ModelConfig(width=0.05, orientations=1),
        ImagesConfig("folder", path="shapes", size=28),
        OptimizationConfig(epochs=1, batch_size=10),
    )
    train(config, tmp_path / "run", warn=said.append)
    assert warning in said


def test_show_names_damaged_files_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    write_mnist(Path("data/mnist"), random_mnist((7, 4)))
    assert main(["data", "show"]) == 2
    captured = capsys.readouterr()
    assert captured.err == "sfcnn: error: damaged data: mnist, mnist-rot-regenerated (see the lines above)\n"
    assert (
        "mnist                  damaged: data/mnist/train-images-idx3-ubyte is not an idx file of bytes (60000, 28, 28)"
    ) in captured.out


def test_show_keeps_an_existing_picture_unless_told(fails: Fails) -> None:
    Path("first.png").write_text("mine")
    assert "first.png exists" in fails("data", "show", "--picture", "first.png")
    assert "must end in one of" in fails("data", "show", "--picture", "first.txt")
    assert Path("first.png").read_text() == "mine"
    assert main(["data", "show", "--picture", "first.png", "--overwrite"]) == 0
    assert Path("first.png").read_bytes().startswith(PNG)


def test_a_picture_of_nothing_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="no data set to draw: at least one is needed"):
        preview_figure([])


@REAL
def test_show_counts_the_real_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "show"]) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"data directory: {os.environ['SFCNN_DATA']}\n")
    assert "\nmnist                  10,000 train, 2,000 validation, 58,000 test\n" in output
    assert "\nmnist-rot-regenerated  10,000 train, 2,000 validation, 50,000 test\n" in output
