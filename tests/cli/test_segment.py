import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cli.conftest import Fails, files
from sfcnn.cells.scoring import THRESHOLDS, StackScores, score_labels, score_probabilities, truth_cells
from sfcnn.cli import main
from sfcnn.io.stacks import write_labels, write_stack
from sfcnn.segmentation.synthetic import synthetic_membranes

SHAPE = (3, 40, 40)


@pytest.fixture
def interior() -> np.ndarray:
    """Synthetic cells, in truth.tif; their images are in raw.tif."""
    synthetic = synthetic_membranes(*SHAPE[:2], seed=1, cell=13)
    mask = ~synthetic.membranes.numpy()
    write_stack(Path("truth.tif"), np.where(mask, 255, 0).astype(np.uint8))
    write_stack(Path("raw.tif"), synthetic.images.numpy())
    return mask


@pytest.fixture
def membrane(interior: np.ndarray) -> np.ndarray:
    """Noisy probabilities of membrane, in membrane.tif."""
    noise = np.random.default_rng(0).normal(0, 0.4, SHAPE)
    probabilities = (~interior + noise).clip(0, 1).astype(np.float32)
    write_stack(Path("membrane.tif"), probabilities)
    return probabilities


def score(*words: str) -> dict[str, Any]:
    """Run `sfcnn segment score` and return what it writes as JSON."""
    assert main(["segment", "score", *words, "--out", "scores.json", "--overwrite"]) == 0
    values: dict[str, Any] = json.loads(Path("scores.json").read_text(encoding="utf-8"))
    return values


def expected(scores: StackScores) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(json.dumps(scores.as_json()))
    return values


def test_the_truth_scores_one(interior: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    values = score("truth.tif", "truth.tif")
    assert values["read_as"] == "a mask that is 255 inside cells"
    assert values["thresholds"] == [0.0]
    assert values["v_rand"]["slices"] == values["v_info"]["slices"] == [1.0] * 3
    assert (values["f1"]["best"], values["pixel_error"]["best"]) == (1, 0)
    shown = capsys.readouterr().out
    assert "truth.tif read as a mask that is 255 inside cells\n" in shown
    assert "threshold" not in shown
    assert shown.endswith("wrote scores.json\n")


def test_probabilities_are_those_of_membrane_unless_told(
    interior: np.ndarray, membrane: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = score_probabilities(1 - membrane, truth_cells(interior))
    wanted = expected(scores)
    for words in ((), ("--membrane",)):
        values = score("membrane.tif", "truth.tif", *words)
        assert {name: values[name] for name in wanted} == wanted
        assert values["read_as"].startswith("probabilities of membrane, values from 0 to 1")
        assert (values["prediction"], values["truth"]) == ("membrane.tif", "truth.tif")
        assert "commit" in values["provenance"]
    shown = capsys.readouterr().out
    for name in ("v_rand", "v_info", "f1", "pixel_error"):
        kind = getattr(scores, name)
        assert all(f"{value:.4f}" in shown for value in (*kind.slices, kind.best))
        assert f"{kind.threshold:.1f}" in shown
    write_stack(Path("interior.tif"), 1 - membrane)
    assert {name: score("interior.tif", "truth.tif", "--interior")[name] for name in wanted} == wanted
    assert score("interior.tif", "truth.tif")["v_rand"]["best"] < scores.v_rand.best


@pytest.mark.parametrize(("dtype", "white"), [(np.uint8, 255), (np.uint16, 65535)])
def test_whole_numbers_are_fractions_of_white(
    dtype: type[Any], white: int, interior: np.ndarray, membrane: np.ndarray
) -> None:
    values = (membrane * white).round().astype(dtype)
    write_stack(Path("whole.tif"), values)
    fraction = 1 - values / np.float32(white)
    wanted = expected(score_probabilities(fraction, truth_cells(interior)))
    found = score("whole.tif", "truth.tif")
    assert {name: found[name] for name in wanted} == wanted
    assert found["thresholds"] == list(THRESHOLDS)


def test_masks_of_membrane(interior: np.ndarray) -> None:
    write_stack(Path("lines.tif"), (~interior).astype(np.uint8))
    assert score("lines.tif", "truth.tif", "--membrane")["v_rand"]["best"] == 1
    assert score("lines.tif", "truth.tif")["v_rand"]["best"] < 1


def test_labels_are_taken_as_they_are(interior: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    truth = truth_cells(interior)
    labels = np.where(truth > 3, 3, truth)
    write_labels(Path("cells.tif"), labels)
    values = score("cells.tif", "truth.tif", "--labels")
    wanted = expected(score_labels(labels, truth))
    assert {name: values[name] for name in wanted} == wanted
    assert values["f1"] is None
    assert "membrane" not in capsys.readouterr().out
    assert score("cells.tif", "cells.tif", "--labels", "--truth-labels")["v_info"]["best"] == 1


def test_an_overlay_of_the_worst_slice_or_the_one_named(
    interior: np.ndarray, membrane: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    worst = int(np.argmin(score("membrane.tif", "truth.tif")["v_rand"]["slices"])) + 1
    command = ["segment", "score", "membrane.tif", "truth.tif", "--image", "raw.tif", "--overlay"]
    assert main([*command, "worst.png"]) == 0
    assert capsys.readouterr().out.endswith("wrote worst.png\n")
    pictures = []
    for number in (1, 2, 3):
        assert main([*command, f"{number}.png", "--slice", str(number)]) == 0
        pictures.append(Path(f"{number}.png").read_bytes())
    assert len(set(pictures)) == 3
    assert pictures[worst - 1] == Path("worst.png").read_bytes()
    with Image.open("worst.png") as image:
        assert image.width == 520  # 13 times as large
    write_labels(Path("cells.tif"), truth_cells(interior))
    for words in (("membrane.tif",), ("truth.tif",), ("cells.tif", "--labels")):
        assert main(["segment", "score", words[0], "truth.tif", *words[1:], "--overlay", "new.png", "--overwrite"]) == 0


def test_a_mistake_is_one_line_and_nothing_is_written(interior: np.ndarray, membrane: np.ndarray, fails: Fails) -> None:
    write_stack(Path("few.tif"), membrane[:2])
    write_stack(Path("wild.tif"), membrane * 3)
    write_stack(Path("empty.tif"), np.zeros(SHAPE, np.uint8))
    Path("page.tif").write_text("no image")
    Path("mine.json").write_text("my own")
    out = ("--out", "scores.json", "--overlay", "overlay.png")

    def line(*words: str) -> str:
        return fails("segment", "score", *words, *out)

    assert "missing.tif does not exist" in line("missing.tif", "truth.tif")
    assert "page.tif is not a TIFF or PNG file" in line("page.tif", "truth.tif")
    assert "few.tif is (2, 40, 40), but truth.tif is (3, 40, 40), expected the same size" in line(
        "few.tif", "truth.tif"
    )
    assert "membrane.tif has" in line("truth.tif", "membrane.tif")
    assert "expected a two-valued mask" in line("truth.tif", "membrane.tif")
    assert "wild.tif has values from 0 to 3, expected 0 … 1" in line("wild.tif", "truth.tif")
    assert "membrane.tif does not hold labels" in line("membrane.tif", "truth.tif", "--labels")
    assert "slice 1 of the truth has no foreground" in line("membrane.tif", "empty.tif")
    assert "few.tif is (2, 40, 40), but membrane.tif is (3, 40, 40)" in line(
        "membrane.tif", "truth.tif", "--image", "few.tif"
    )
    assert "--slice must be in 1 … 3, got 4" in line("membrane.tif", "truth.tif", "--slice", "4")
    assert "not allowed with argument" in line("membrane.tif", "truth.tif", "--labels", "--interior")
    plain = ("segment", "score", "membrane.tif", "truth.tif")
    assert "pass --overlay FILE too" in fails(*plain, "--slice", "0")
    assert "must be a .png file, got overlay.jpg" in fails(*plain, "--overlay", "overlay.jpg")
    assert "output mine.json exists" in fails(*plain, "--out", "mine.json")
    assert "choose one of train, predict, cells, train-edges, tune, score" in fails("segment")
    assert Path("mine.json").read_text() == "my own"
    assert not {"scores.json", "overlay.png"} & files()


@pytest.mark.skipif("SFCNN_DATA" not in os.environ, reason="SFCNN_DATA is not set")
def test_the_true_labels_of_the_challenge() -> None:
    shutil.copy(Path(os.environ["SFCNN_DATA"]) / "isbi2012" / "train-labels.tif", "labels.tif")
    values = score("labels.tif", "labels.tif")
    assert values["v_rand"]["slices"] == values["v_info"]["slices"]
    assert set(values["v_rand"]["slices"]) == {1.0}
