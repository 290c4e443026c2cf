"""Trained networks by name: those that come with sfcnn, each a run beside this file, and your own runs.

Each has a card, README.md: what it has learned from, how well it does, and what it fails on.
"""

from pathlib import Path
from typing import Any

from sfcnn.pretrained.cards import read_purposes

_HERE = Path(__file__).parent

#: Name of each that is there: what it is for.
PRETRAINED = read_purposes(_HERE)


def find_run(run: Path | str) -> Path:
    """The directory of a run: what is named, or else the network of this name that comes with sfcnn."""
    directory = Path(run)
    if directory.exists():
        return directory
    if str(run) not in PRETRAINED:
        raise ValueError(f"no run {run}: expected a directory that was trained in, or one of {list(PRETRAINED)}")
    return _HERE / str(run)


def load(run: Path | str, device: str = "auto") -> Any:
    """The best network of a run, or one that comes with sfcnn, with what it needs around it, whatever its task.

    A `sfcnn.classification.Classifier` or a `sfcnn.segmentation.Segmenter`.

    Args:
        run: directory that training made, or a name in `PRETRAINED`.
        device: "auto" for the accelerator that is there, "cpu", "cuda" or "mps".

    >>> import numpy, sfcnn
    >>> network = sfcnn.load("isbi2012", device="cpu")
    >>> network.predict(numpy.zeros((64, 64))).shape
    (64, 64)
    """
    from sfcnn.io.runs import read_run

    directory = find_run(run)
    task, _ = read_run(directory)
    if task == "classification":
        from sfcnn.classification import predict as classification

        return classification.load(directory, device=device)
    from sfcnn.segmentation import predict as segmentation

    return segmentation.load(directory, device=device)
