"""A disk that fills and a process that is killed leave the last good state: old files whole, new ones whole or none."""

import contextlib
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from robustness.harness import Contents, command, contents, restore
from robustness.killing import number_of
from robustness.test_command_lines import furnished  # noqa: F401  (a fixture)
from sfcnn.io.state import read_state
from sfcnn.train.checkpoint import Checkpoints

TESTS = Path(__file__).parents[1]


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file can grow beyond this many bytes inside: the system refuses it as on a full disk, while it is written."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


#: Every command that writes a result, over an old one.
WRITING = (
    "predict run digits --out old.csv --overwrite",
    "predict run digits --out new.json",
    "evaluate run --images 3 --angles 2 --out old.json --overwrite",
    "filters --out pictures --kernel-size 3 --orientations 2",
    "segment cells probabilities.tif --out old.tif --boundaries new.tif --overwrite",
    "segment train-edges probabilities.tif masks.tif --out old.forest --overwrite --trees 2",
    "segment tune unet em.tif masks.tif --out old.json --overwrite",
    "segment score probabilities.tif masks.tif --interior --out old.json --overwrite",
    "segment score labels.tif masks.tif --labels --overlay new.png",
    "segment predict unet em.tif --out found --no-cells",
)


@pytest.mark.parametrize("line", WRITING)
def test_a_full_disk_is_one_line_and_changes_nothing(line: str, workplace: Path, furnished: Contents) -> None:  # noqa: F811
    try:
        for size in (0, 10, 300):
            with largest_file(size):
                answer = command(*line.split())
            if answer.code == 0:  # it has room enough
                break
            assert contents(workplace) == furnished
        else:
            answer = command(*line.split())
        assert answer.code == 0  # with room it is carried out
        assert contents(workplace) != furnished
    finally:
        restore(workplace, furnished)


TRAIN = (
    *("train", "--out", "run", "--images.dataset", "digits", "--images.train_images", "40", "--seed", "1"),
    *("--images.validation_images", "20", "--optimization.batch_size", "20", "--checkpoint_steps", "1"),
    *("--model.width", "0.1", "--model.orientations", "2", "--model.engine", "direct", "--optimization.epochs"),
)


def test_a_disk_that_fills_in_training_leaves_the_last_state(
    workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(*TRAIN, "1").code == 0
    before = contents(tmp_path)
    largest = max(map(len, before.values()))
    for size in (0, 200, largest // 2, largest - 1):
        with largest_file(size):
            answer = command(*TRAIN, "2", "--resume")
        assert answer.code == 2
        after = contents(tmp_path)
        assert {name: after[name] for name in before if name != "run/config.yaml"} == {
            name: content for name, content in before.items() if name != "run/config.yaml"
        }
        assert not [name for name in after if ".part" in name]
    assert command(*TRAIN, "2", "--resume").code == 0
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert command(*TRAIN, "2").code == 0
    ours, theirs = (read_state(tmp_path / part / "best.safetensors")["model"] for part in ("run", "other/run"))
    assert all(bool((ours[name] == theirs[name]).all()) for name in theirs)


def test_a_process_killed_before_any_line_of_saving_leaves_the_last_state(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "robustness.killing", "lines", str(tmp_path)]
    done = subprocess.run(words, cwd=TESTS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 150


@pytest.mark.slow
def test_a_process_killed_while_it_saves_leaves_the_last_state(tmp_path: Path) -> None:
    """At moments that nobody chose, in the middle of writes too."""
    moments = random.Random(0)
    told = 0
    for _ in range(15):
        words = [sys.executable, "-m", "robustness.killing", "saves", str(tmp_path)]
        process = subprocess.Popen(words, cwd=TESTS, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        lines = [process.stdout.readline()]  # it is at work
        time.sleep(moments.uniform(0, 0.2))
        process.kill()
        lines += process.stdout.readlines()
        process.wait()
        process.stdout.close()
        told = max(told, *(int(line) for line in lines if line.endswith("\n")))
        newest = Checkpoints(tmp_path).newest(pytest.fail)
        assert newest is not None
        assert number_of(newest) in (told, told + 1)
    assert told > 15


#: In a file system of a megabyte, filled up beside a run, go on with the run; then copy it out.
FILL = """
set -e
mount -t tmpfs -o size=1m tmpfs small
cp -r run small/run
head -c 1000000 /dev/zero > small/filler 2>/dev/null || true
cd small
code=0
"$@" > ../output 2> ../error || code=$?
cp -r run ../after
exit $code
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None, reason="a small file system cannot be made here")
def test_a_file_system_without_room_leaves_the_last_state(
    workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real one, of one megabyte."""
    can = subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False)
    if can.returncode:
        pytest.skip("this user cannot mount a file system")
    monkeypatch.chdir(tmp_path)
    assert command(*TRAIN, "1").code == 0
    Path("small").mkdir()
    script = Path("fill.sh")
    script.write_text(FILL)
    words = ["unshare", "-rm", "sh", "fill.sh", sys.executable, "-m", "sfcnn", *TRAIN, "9", "--resume"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    error = Path("error").read_text()
    assert done.returncode == 2, done.stderr + error
    assert "No space left" in error
    assert error.count("\n") == 1
    newest = Checkpoints(Path("after/checkpoints")).newest(pytest.fail)
    assert newest is not None
    assert newest["progress"]["epoch"] >= 1
    read_state(Path("after/best.safetensors"))
    assert not list(Path("after").rglob("*.part*"))
