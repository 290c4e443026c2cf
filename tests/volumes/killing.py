"""Kill a process that segments a volume, again and again at another file that it writes, until one comes to its end.

    python -m volumes.killing DIRECTORY

prints how many were killed, and how many slices the last one found done. `DIRECTORY/run` is a network and
`DIRECTORY/em.zarr` a volume.
"""

import os
import signal
import sys
from itertools import count
from pathlib import Path

import torch
from zarr.storage import _local

from sfcnn.segmentation import load
from sfcnn.volumes import segment_volume


def start(directory: Path, out: Path, place: str, writes: int) -> int:
    """Segment the volume in a process that is killed before it names one more file at a place than these.

    Returns -9 if it was, and how many slices were there before if not.
    """
    child = os.fork()
    if child == 0:
        done = count()
        replace = Path.replace

        def killed(self: Path, target: Path) -> Path:
            if place in str(target) and next(done) == writes:
                os.kill(os.getpid(), signal.SIGKILL)
            return replace(self, target)

        Path.replace = killed  # type: ignore[method-assign, assignment]
        report = segment_volume(load(directory / "run", device="cpu"), directory / "em.zarr", out, stack=True)
        os._exit(report.kept if report.complete else 200)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(directory: Path) -> None:
    """Nothing of Zarr runs in this process, which forks: its threads would not be in the child."""
    assert "tmp_path.replace(path)" in Path(_local.__file__).read_text()  # that is how Zarr names a file
    out = directory / "killed.zarr"
    codes = [start(directory, out, ".killed-", 5)]  # while the output is made
    assert codes == [-signal.SIGKILL]
    assert not out.exists()
    for writes in count():
        codes.append(start(directory, out, str(out), writes))
        assert out.exists()
        if codes[-1] != -signal.SIGKILL:
            break
    assert not list(directory.glob(".killed-*")), "what was left of the first is there"
    print(len(codes), codes[-1])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
