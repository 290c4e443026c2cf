"""The newest checkpoints are kept, damaged ones passed over, and a write that fails changes nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import sfcnn.io.state
from sfcnn.train.checkpoint import Checkpoints


def steps(checkpoints: Checkpoints) -> list[int]:
    return [int(path.stem) for path in checkpoints.paths()]


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_only_the_newest_are_kept(tmp_path: Path, keep: int) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep)
    assert checkpoints.newest(pytest.fail) is None
    for step in (1, 9, 10, 99, 100, 12345):  # more digits come after fewer
        checkpoints.save(step, {"step": step})
        assert checkpoints.newest(pytest.fail) == {"step": step}
    assert steps(checkpoints) == [12345, 100, 99][:keep]


def test_damaged_ones_are_named_and_passed_over(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    for step in (1, 2, 3):
        checkpoints.save(step, {"step": step, "weight": torch.full((100,), float(step))})
    newest, middle, oldest = checkpoints.paths()
    newest.write_bytes(newest.read_bytes()[:-10])
    content = bytearray(middle.read_bytes())
    content[-10] ^= 1
    middle.write_bytes(content)
    said: list[str] = []
    found = checkpoints.newest(said.append)
    assert found is not None
    assert found["step"] == 1
    assert [str(path) in line for path, line in zip((newest, middle), said, strict=True)] == [True, True]
    assert all(line.endswith("; using the one before it") for line in said)
    oldest.write_bytes(b"")
    said.clear()
    assert checkpoints.newest(said.append) is None
    assert [line.rpartition("; ")[2] for line in said] == ["using the one before it"] * 2 + ["starting from scratch"]


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def fail_before(tensors: object, path: Path, metadata: object) -> None:
    raise OSError(28, "No space left on device")


def fail_half_way(tensors: object, path: Path, metadata: object) -> None:
    Path(path).write_bytes(b"half of it")
    raise OSError(28, "No space left on device")


def interrupt_half_way(tensors: object, path: Path, metadata: object) -> None:
    Path(path).write_bytes(b"half of it")
    raise KeyboardInterrupt


@pytest.mark.parametrize("save", [fail_before, fail_half_way, interrupt_half_way])
def test_a_write_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: Callable[..., None]
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (1, 2):
        checkpoints.save(step, {"step": step})
    before = contents(tmp_path)
    monkeypatch.setattr(sfcnn.io.state, "save_file", save)
    for step in (2, 3):  # over an old one, and beside them
        with pytest.raises((OSError, KeyboardInterrupt)):
            checkpoints.save(step, {"step": step})
        assert contents(tmp_path) == before
    assert checkpoints.newest(pytest.fail) == {"step": 2}


def test_a_write_cut_short_in_silence_costs_one_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (1, 2):
        checkpoints.save(step, {"step": step})
    monkeypatch.setattr(
        sfcnn.io.state, "save_file", lambda tensors, path, metadata: Path(path).write_bytes(b"half of it")
    )
    checkpoints.save(3, {"step": 3})
    said: list[str] = []
    assert checkpoints.newest(said.append) == {"step": 2}
    assert len(said) == 1
    assert "000000003.safetensors" in said[0]
