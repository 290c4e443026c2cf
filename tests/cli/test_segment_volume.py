"""`sfcnn segment predict` on volumes: what it says, and its mistakes in one line."""

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

from cli.conftest import Fails, files
from segmentation.test_predict import make_run
from sfcnn.cli import main
from sfcnn.io.stacks import read_stack, write_stack
from sfcnn.segmentation import synthetic_membranes
from volumes.conftest import make_volume


@pytest.fixture
def images() -> np.ndarray:
    """Slices, in em.zarr and em.tif, and a network in run."""
    make_run(Path("run"))
    slices = (255 * synthetic_membranes(3, 40, seed=1, cell=13).images.numpy()).astype(np.uint8)
    make_volume(Path("em.zarr"), slices)
    write_stack(Path("em.tif"), slices)
    return slices


def test_a_volume_and_a_stack_have_the_same_cells(images: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    import zarr

    assert main(["segment", "predict", "run", "em.zarr", "--out", "out.zarr", "--slices", "1:2"]) == 0
    assert "wrote out.zarr: 1 of 3 slices" in capsys.readouterr().out
    assert main(["segment", "predict", "run", "em.zarr", "--out", "out.zarr", "--stack"]) == 0
    shown = capsys.readouterr().out
    assert "wrote out.zarr: 3 of 3 slices, 1 of them before, " in shown
    assert main(["segment", "predict", "run", "em.tif", "--out", "found", "--stack"]) == 0
    line = next(line for line in shown.splitlines() if line.startswith("neighbouring slices"))
    assert f"em.tif: {line}" in capsys.readouterr().out
    group: Any = zarr.open_group("out.zarr", mode="r")
    np.testing.assert_array_equal(group["labels/cells/0"][:], read_stack(Path("found/em-cells.tif")))
    np.testing.assert_array_equal(group["probabilities/0"][:], read_stack(Path("found/em-membranes.tif")))


def test_a_lost_chunk_is_one_line_and_exit_code_2(images: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    chunk = Path("em.zarr/0/c/1/0/0")
    content = chunk.read_bytes()
    chunk.unlink()
    words = ["segment", "predict", "run", "em.zarr", "--out", "out.zarr"]
    assert main(words) == 2
    captured = capsys.readouterr()
    assert "wrote out.zarr: 2 of 3 slices" in captured.out
    assert captured.err.count("\n") == 1
    assert "1 of 3 slices failed, run it again to retry: z = 1: " in captured.err
    assert "chunk 0/c/1/0/0 is missing" in captured.err
    chunk.write_bytes(content)
    assert main(words) == 0
    assert "3 of 3 slices, 2 of them before" in capsys.readouterr().out


def test_mistakes_are_one_line_and_nothing_is_written(images: np.ndarray, fails: Fails) -> None:
    predict = ("segment", "predict", "run")
    out = ("--out", "out.zarr")
    assert "em.zarr is a Zarr volume, so its result is one, too: pass --out OUT.zarr" in fails(
        *predict, "em.zarr", "--out", "found"
    )
    assert "--workers is for volumes: pass --out OUT.zarr" in fails(
        *predict, "em.tif", "--out", "found", "--workers", "2"
    )
    assert "takes one volume, got 2 images" in fails(*predict, "em.tif", "em.zarr", *out)
    assert "expected START:STOP like 0:10, got '3'" in fails(*predict, "em.zarr", *out, "--slices", "3")
    assert "slices must be in 0 … 2" in fails(*predict, "em.zarr", *out, "--slices", "1:7")
    assert "nowhere.zarr does not exist" in fails(*predict, "nowhere.zarr", *out)
    assert "only cells can be linked" in fails(*predict, "em.zarr", *out, "--no-cells", "--stack")
    assert "only cells can be linked" in fails(*predict, "em.tif", "--out", "found", "--no-cells", "--stack")
    assert "the number of workers must be in 1 … 4096, got 0" in fails(*predict, "em.zarr", *out, "--workers", "0")
    assert "unknown scheduler 'x', expected one of processes, threads or an address" in fails(
        *predict, "em.zarr", *out, "--scheduler", "x"
    )
    tifffile.imwrite("rgb.tif", np.zeros((2, 8, 8, 4), np.uint8), photometric="minisblack")
    assert "rgb.tif" in fails(*predict, "rgb.tif", *out)
    Path("mine.zarr").mkdir()
    Path("mine.zarr/notes").write_text("my own")
    assert "exists and was not created by sfcnn" in fails(*predict, "em.zarr", "--out", "mine.zarr", "--overwrite")
    assert not [name for name in files() if name.startswith("out.zarr")]


def test_the_extra_is_named_where_zarr_is_not_installed(
    images: np.ndarray, fails: Fails, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    original = builtins.__import__

    def without(name: str, *arguments: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "zarr":
            raise ModuleNotFoundError("No module named 'zarr'", name="zarr")
        return original(name, *arguments, **named)

    for module in [name for name in sys.modules if name.startswith(("sfcnn.volumes", "sfcnn.io.zarr"))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(builtins, "__import__", without)
    line = fails("segment", "predict", "run", "em.zarr", "--out", "out.zarr")
    assert "sfcnn segment predict needs the package zarr: pip install 'sfcnn[volumes]'" in line
