"""Kill a process before each file that it writes, start again, and compare with what nobody killed.

    python -m volumes.killing DIRECTORY

prints how many processes were killed. `DIRECTORY/run` is a network and `DIRECTORY/em.zarr` a volume.
"""

import os
import shutil
import signal
import sys
from itertools import count
from pathlib import Path

import torch
from zarr.storage import _local

from sfcnn.segmentation import load
from sfcnn.volumes import segment_volume
from volumes.conftest import contents


def survives(directory: Path, out: Path, writes: int) -> bool:
    """Segment the volume in a process that is killed before it gives its name to one more file than these."""
    child = os.fork()
    if child == 0:
        done = count()
        replace = Path.replace

        def killed(self: Path, target: Path) -> Path:
            if next(done) == writes:
                os.kill(os.getpid(), signal.SIGKILL)
            return replace(self, target)

        Path.replace = killed  # type: ignore[method-assign, assignment]
        segment(directory, out)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFEXITED(status) or os.WTERMSIG(status) == signal.SIGKILL
    return os.WIFEXITED(status)


def segment(directory: Path, out: Path) -> int:
    """Segment the volume; how many slices were there before."""
    report = segment_volume(load(directory / "run", device="cpu"), directory / "em.zarr", out, stack=True)
    assert report.complete
    return report.kept


def main(directory: Path) -> None:
    assert "tmp_path.replace(path)" in Path(_local.__file__).read_text()  # that is how Zarr names a file
    out = directory / "killed.zarr"
    kills = kept = 0
    # Nothing of Zarr runs in this process before it forks: its threads would not be in the child.
    for writes in count():
        done = survives(directory, out, writes)
        kills += not done
        child = os.fork()
        if child == 0:
            before = segment(directory, out)
            os._exit(100 + before)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code >= 100, f"killed before file {writes}: {code}"
        kept = max(kept, 0 if done else code - 100)
        found = contents(out)
        whole = contents(directory / "whole.zarr")
        assert found == whole, f"killed before file {writes}: {sorted(found.keys() ^ whole.keys())}"
        shutil.rmtree(out)
        assert not [path for path in directory.iterdir() if path.name.startswith(".killed") and done]
        if done:
            break
    print(kills, kept)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
