"""Workers of Dask give what one process gives, bit for bit, also if they are killed."""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from sfcnn.cli import main
from sfcnn.segmentation import Segmenter
from sfcnn.volumes import segment_volume
from sfcnn.volumes.spread import spread
from volumes.conftest import SHAPE, contents, make_volume
from volumes.dying import end_process

ROOT = Path(__file__).parents[2]


@contextmanager
def program(*words: str) -> Iterator["subprocess.Popen[str]"]:
    """A program of Dask, with one thread, until the block ends."""
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    process = subprocess.Popen(
        [sys.executable, "-m", *words], env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(path: Path) -> None:
    limit = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < limit, f"{path} did not come"
        time.sleep(0.01)


def test_a_cluster_gives_what_one_process_gives_even_if_a_worker_is_killed(
    network: Segmenter, volume: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    segment_volume(network, volume, tmp_path / "whole.zarr", stack=True)
    file = tmp_path / "scheduler.json"
    plain = ("--scheduler-file", str(file), "--no-dashboard")
    with ExitStack() as programs:
        scheduler = programs.enter_context(
            program("distributed.cli.dask_scheduler", *plain, "--port", "0", "--host", "127.0.0.1")
        )
        wait_for(file)
        one = ("distributed.cli.dask_worker", *plain, "--nthreads", "1", "--no-nanny", "--host", "127.0.0.1")
        workers = [programs.enter_context(program(*one, "--name", name)) for name in "ab"]

        from distributed import Client

        with Client(scheduler_file=str(file)) as client:
            client.wait_for_workers(2, timeout=120)
            address = client.scheduler.address
        options = ("--stack", "--scheduler", address, "--device", "cpu")
        words = ("segment", "predict", str(network.directory), str(volume))
        assert main([*words, "--out", str(tmp_path / "two.zarr"), *options]) == 0
        assert contents(tmp_path / "two.zarr") == contents(tmp_path / "whole.zarr")

        out = tmp_path / "killed.zarr"

        def kill() -> None:
            wait_for(out / "work/slices/c/0/0")
            workers[0].kill()

        killer = threading.Thread(target=kill)
        killer.start()
        assert main([*words, "--out", str(out), *options]) == 0
        killer.join()
        assert workers[0].wait() < 0
        assert contents(out) == contents(tmp_path / "whole.zarr")
        assert scheduler.poll() is None
    assert "neighbouring slices: " in capfd.readouterr().out


def test_threads_give_what_one_process_gives(network: Segmenter, volume: Path, tmp_path: Path) -> None:
    segment_volume(network, volume, tmp_path / "whole.zarr")
    report = segment_volume(network, volume, tmp_path / "threads.zarr", workers=2, scheduler="threads")
    assert (report.complete, report.done) == (True, SHAPE[0])
    assert contents(tmp_path / "threads.zarr") == contents(tmp_path / "whole.zarr")
    again = segment_volume(network, volume, tmp_path / "threads.zarr", workers=2, scheduler="threads")
    assert again.kept == SHAPE[0]


@pytest.mark.slow
def test_processes_give_what_one_process_gives(network: Segmenter, volume: Path, tmp_path: Path) -> None:
    segment_volume(network, volume, tmp_path / "whole.zarr", stack=True)
    report = segment_volume(network, volume, tmp_path / "processes.zarr", workers=2, stack=True)
    assert report.complete
    assert contents(tmp_path / "processes.zarr") == contents(tmp_path / "whole.zarr")


@pytest.mark.slow
def test_processes_have_the_threads_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with spread(2) as run:
        assert dict(run(os.getenv, [("OMP_NUM_THREADS",)] * 2)) == {0: "3", 1: "3"}


def test_workers_share_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    with spread(2) as run:
        each = max(1, len(os.sched_getaffinity(0)) // 2)
        assert dict(run(os.getenv, [("OMP_NUM_THREADS",), ("MALLOC_TRIM_THRESHOLD_",)])) == {0: str(each), 1: None}
    assert not set(names) & set(os.environ)


@pytest.mark.slow
def test_a_call_that_kills_each_worker_is_given_up_and_the_others_are_made() -> None:
    with spread(2) as run:
        found = dict(run(end_process, [(number,) for number in range(4)]))
    assert isinstance(found.pop(1), Exception)
    assert found == {0: 0, 2: 2, 3: 3}


def test_processes_killed_while_they_write_are_continued(
    network: Segmenter, volume: Path, images: NDArray[np.uint8], tmp_path: Path
) -> None:
    """Nothing that is half written is trusted, and what is there is kept."""
    shutil.copytree(network.directory, tmp_path / "run")
    shutil.rmtree(volume)
    make_volume(volume, images[:2, :32, :32])
    segment_volume(network, volume, tmp_path / "whole.zarr", stack=True)
    words = [sys.executable, "-m", "volumes.killing", str(tmp_path)]
    paths = os.pathsep.join(str(ROOT / part) for part in ("src", "tests"))
    done = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    kills, kept = map(int, done.stdout.split())
    assert kills > 4
    assert kept == 2  # by those that were killed
    assert contents(tmp_path / "killed.zarr") == contents(tmp_path / "whole.zarr")


def test_schedulers_that_are_not_there_are_named(
    network: Segmenter, volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("sfcnn.volumes.spread"), "_PATIENCE", 0.5)
    with pytest.raises(ValueError, match=r"no Dask scheduler found at tcp://127\.0\.0\.1:9"):
        segment_volume(network, volume, tmp_path / "out.zarr", scheduler="tcp://127.0.0.1:9")
    with pytest.raises(ValueError, match="has its own workers: leave out the number of workers"):
        segment_volume(network, volume, tmp_path / "out.zarr", scheduler="tcp://127.0.0.1:9", workers=2)
