"""`sfcnn segment tune`, and what prediction does with the settings that it stores."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cells.conftest import make_texture
from cli.conftest import Fails
from segmentation.test_predict import MODEL, make_run
from sfcnn.cells import CellsConfig, choose_settings, find_cells, learn_forest, predict_slices, segment, truth_cells
from sfcnn.cells.apply import run_settings
from sfcnn.cells.forest import ForestConfig
from sfcnn.cells.mutex import MutexConfig
from sfcnn.cli import main
from sfcnn.io.settings import read_settings, write_settings
from sfcnn.io.stacks import read_labels, read_stack, write_labels, write_stack
from sfcnn.segmentation import Segmenter
from sfcnn.volumes import segment_volume


@pytest.fixture
def network() -> Segmenter:
    """A run in `run`, with images in images.tif and their cells in truth.tif and labels.tif."""
    texture = make_texture((2, 48, 56), 14, seed=1)
    write_stack(Path("images.tif"), (255 * (1 - texture.probabilities)).astype(np.uint8))
    mask = np.where(texture.truth > 0, 255, 0).astype(np.uint8)
    write_stack(Path("truth.tif"), mask)
    write_labels(Path("labels.tif"), truth_cells(mask > 0))
    return make_run(Path("run"), replace(MODEL, affinities=(1, 3)))


def images() -> np.ndarray:
    return read_stack(Path("images.tif")) / np.float32(255)


def test_the_best_settings_are_stored_and_used(network: Segmenter, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["segment", "tune", "run", "images.tif", "truth.tif"]) == 0
    stored = read_settings(CellsConfig, Path("run/cells.yaml"))
    slices = predict_slices(network, images(), read_labels(Path("labels.tif")))
    found = choose_settings(slices)
    best = max(found.values(), key=lambda score: score.scores.v_rand.best)
    assert stored == best.config == run_settings(network)
    shown = capsys.readouterr().out
    assert f"{best.scores.v_rand.best:.4f}" in shown
    assert all(method in shown for method in ("threshold", "multicut", "lifted-multicut", "mutex-watershed"))
    assert main(["segment", "predict", "run", "images.tif", "--out", "found"]) == 0
    np.testing.assert_array_equal(read_labels(Path("found/images-cells.tif")), best.cells)


def test_an_old_file_is_kept_and_labels_serve_as_truth(network: Segmenter, fails: Fails) -> None:
    assert main(["segment", "tune", "run", "images.tif", "labels.tif", "--truth-labels", "--out", "a.yaml"]) == 0
    assert main(["segment", "tune", "run", "images.tif", "truth.tif"]) == 0
    assert Path("a.yaml").read_bytes() == Path("run/cells.yaml").read_bytes()
    message = fails("segment", "tune", "run", "images.tif", "truth.tif")
    assert "cells.yaml exists" in message
    write_labels(Path("small.tif"), np.ones((2, 9, 9), np.int64))
    message = fails("segment", "tune", "run", "images.tif", "small.tif", "--truth-labels", "--overwrite")
    assert "expected the same size" in message
    make_run(Path("classes"), classes=("ground", "cell", "nucleus"))
    assert "cells need a network whose only class is membranes" in fails(
        "segment", "tune", "classes", "images.tif", "truth.tif"
    )


def test_methods_and_forests_that_are_asked_for_come_before_stored_settings(network: Segmenter) -> None:
    stored = CellsConfig(method="mutex-watershed", mutex=MutexConfig(minimum_size=9))
    write_settings(Path("run/cells.yaml"), stored)
    slices = predict_slices(network, images(), read_labels(Path("labels.tif")))
    texture = make_texture((72, 64), 14, seed=1, noise=2)
    forest = learn_forest(texture.probabilities, texture.truth, settings=ForestConfig(trees=3)).forest
    forest.save(Path("edges.safetensors"))
    expected = {
        (): find_cells(slices.probabilities, stored, affinities=slices.affinities),
        ("--method", "mutex-watershed"): find_cells(slices.probabilities, stored, affinities=slices.affinities),
        ("--method", "threshold"): find_cells(slices.probabilities, CellsConfig(method="threshold")),
        ("--forest", "edges.safetensors"): find_cells(slices.probabilities, None, forest),
    }
    for number, (words, cells) in enumerate(expected.items()):
        assert main(["segment", "predict", "run", "images.tif", "--out", f"found{number}", *words]) == 0
        np.testing.assert_array_equal(read_labels(Path(f"found{number}/images-cells.tif")), cells)
    np.testing.assert_array_equal(segment(network, images()).labels, expected[()])


def test_a_volume_is_not_resumed_with_other_settings(network: Segmenter) -> None:
    write_settings(Path("run/cells.yaml"), CellsConfig(method="mutex-watershed"))
    segment_volume(network, Path("images.tif"), Path("cells.zarr"))
    write_settings(Path("run/cells.yaml"), CellsConfig(method="threshold"), overwrite=True)
    with pytest.raises(ValueError, match=r"cells\.zarr was created with a different network"):
        segment_volume(network, Path("images.tif"), Path("cells.zarr"))


def test_settings_that_are_broken_are_named(network: Segmenter, fails: Fails) -> None:
    Path("run/cells.yaml").write_text("method: by-eye\n")
    message = fails("segment", "predict", "run", "images.tif", "--out", "found")
    assert "cells.yaml: unknown method 'by-eye'" in message
    assert not Path("found").exists()
