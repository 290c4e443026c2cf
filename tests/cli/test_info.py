"""`sfcnn info` prints what a report of a problem or a measurement needs."""

from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
import torch

import sfcnn
from sfcnn.cli import main
from sfcnn.ops.spectral import compiled
from sfcnn.ops.spectral.kernel import load


@pytest.fixture(autouse=True)
def _loaded_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("SFCNN_KERNEL", raising=False)
    load.cache_clear()
    yield
    load.cache_clear()


def info(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    assert main(["info"]) == 0
    return {line[:12].strip(): line[12:] for line in capsys.readouterr().out.splitlines()}


def test_versions_device_and_threads(capsys: pytest.CaptureFixture[str]) -> None:
    lines = info(capsys)
    assert [lines[name] for name in ("sfcnn", "torch", "numpy")] == [
        sfcnn.__version__,
        torch.__version__,
        numpy.__version__,
    ]
    assert lines["threads"] == str(torch.get_num_threads())
    assert {"python", "processor", "device", "kernel"} <= lines.keys()


def test_the_kernel_in_use(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    library = load()
    if library is None:
        pytest.skip("there is no kernel")
    assert info(capsys)["kernel"] == f"compiled ({compiled.instruction_set()})"
    for name in library.instruction_sets():
        monkeypatch.setenv("SFCNN_KERNEL", name)
        assert info(capsys)["kernel"] == f"compiled ({name})"


def test_it_is_turned_off(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SFCNN_KERNEL", "0")
    assert info(capsys)["kernel"] == "PyTorch only (SFCNN_KERNEL=0)"


def test_it_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "spectral.so"
    monkeypatch.setenv("SFCNN_KERNEL_LIBRARY", str(path))
    assert "not compiled" in info(capsys)["kernel"]
    load.cache_clear()
    path.write_bytes(b"no library")
    assert info(capsys)["kernel"] == f"PyTorch only ({path} cannot be loaded)"


def test_a_mistake_in_the_switch_is_named_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("SFCNN_KERNEL", "yes")
    for words in (["info"], ["classify", "train", "--out", str(tmp_path / "run"), "--images.dataset", "digits"]):
        assert main(words) == 2
        assert "SFCNN_KERNEL is 'yes', expected 0, 1 or one of plain, avx2, avx512" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
