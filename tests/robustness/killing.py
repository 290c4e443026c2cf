"""Run pieces of work again and again, killed before each line of the code that writes files, and look at what is left.

    python -m robustness.killing lines DIRECTORY     (every line; prints how many moments there were)
    python -m robustness.killing saves DIRECTORY     (saves without end, for a parent that kills this process)

A process of its own, since it forks.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import tifffile
import torch

import sfcnn.io.files
import sfcnn.io.stacks
import sfcnn.train.checkpoint
from sfcnn.io.files import new_file, remove_leftovers, write_json
from sfcnn.io.stacks import write_stacks
from sfcnn.io.state import read_state, write_state
from sfcnn.train.checkpoint import Checkpoints

#: The modules before whose lines a process is killed.
WRITERS = {str(module.__file__) for module in (sfcnn.io.files, sfcnn.train.checkpoint, sfcnn.io.stacks)}


def state(number: int) -> dict[str, Any]:
    """A state that tells which one it is in every part of it."""
    return {"number": number, "model": {"weight": torch.full((200,), float(number))}}


def number_of(kept: dict[str, Any]) -> int:
    """Which state it is, if it is a whole one."""
    number: int = kept["number"]
    assert torch.equal(kept["model"]["weight"], state(number)["model"]["weight"])
    return number


def _start(directory: Path) -> None:
    """What is there before."""
    for number in (1, 2):
        Checkpoints(directory / "checkpoints").save(number, state(number))
    write_state(directory / "best.safetensors", state(1))
    write_json(directory / "result.json", [1] * 100)
    write_stacks({directory / name: np.full((2, 8, 8), 1, np.uint8) for name in ("a.tif", "b.tif")})


def _save_checkpoint(directory: Path) -> None:
    Checkpoints(directory / "checkpoints").save(3, state(3))


def _save_best(directory: Path) -> None:
    write_state(directory / "best.safetensors", state(3))


def _save_json(directory: Path) -> None:
    write_json(directory / "result.json", [3] * 100, overwrite=True)


def _save_stacks(directory: Path) -> None:
    write_stacks({directory / name: np.full((2, 8, 8), 3, np.uint8) for name in ("a.tif", "b.tif")}, overwrite=True)


def _save_new(directory: Path) -> None:
    with new_file(directory / "new.txt") as path:
        path.write_text("whole")


WORK: tuple[Callable[[Path], None], ...] = (_save_checkpoint, _save_best, _save_json, _save_stacks, _save_new)


def _check(directory: Path, *, done: bool) -> None:
    """Everything that has a name is whole, the newest state is there, and what is left over can be told from it."""
    checkpoints = Checkpoints(directory / "checkpoints")

    def damaged(text: str) -> None:
        raise AssertionError(text)

    newest = checkpoints.newest(damaged)
    assert newest is not None
    assert number_of(newest) in (2, 3)
    for path in checkpoints.paths():
        number_of(read_state(path))
    assert number_of(read_state(directory / "best.safetensors")) in (1, 3)
    assert (directory / "result.json").read_text().count("1") in (0, 100)
    for name in ("a.tif", "b.tif"):
        assert set(np.unique(tifffile.imread(directory / name))) in ({1}, {3})
    new = directory / "new.txt"
    assert not new.exists() or new.read_text() == "whole"
    before = {path for path in directory.rglob("*") if ".part" in path.name}
    assert not (done and before)
    remove_leftovers(directory)
    known = {"best.safetensors", "result.json", "a.tif", "b.tif", "new.txt", "checkpoints"}
    assert {path.name for path in directory.iterdir()} <= known


def _kill_before_line(number: int) -> None:
    """From here on this process is killed when it comes to the line of this number."""
    lines = count()

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename not in WRITERS:
            return None
        if event == "line" and next(lines) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def _survives(work: Callable[[Path], None], directory: Path, line: int) -> bool:
    """Do the work in a process of its own that is killed before a line; whether it came to its end."""
    child = os.fork()
    if child == 0:
        _kill_before_line(line)
        work(directory)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFEXITED(status) or os.WTERMSIG(status) == signal.SIGKILL
    return os.WIFEXITED(status)


def kill_before_every_line(root: Path) -> int:
    """Do every piece of work once for each of its lines; the number of kills."""
    kills = 0
    for work in WORK:
        fresh = root / f"fresh{work.__name__}"
        _start(fresh)
        for line in count():
            directory = Path(shutil.copytree(fresh, root / "killed"))
            done = _survives(work, directory, line)
            _check(directory, done=done)
            shutil.rmtree(directory)
            if done:
                break
            kills += 1
    return kills


def save_without_end(directory: Path) -> None:
    """Save one state after the other, and tell of each that is saved."""
    checkpoints = Checkpoints(directory)
    newest = checkpoints.newest(print)
    for number in count(1 if newest is None else number_of(newest) + 1):
        checkpoints.save(number, state(number))
        print(number, flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "lines":
        print(kill_before_every_line(Path(sys.argv[2])))
    else:
        save_without_end(Path(sys.argv[2]))
