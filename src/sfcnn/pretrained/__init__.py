"""Pretrained networks by name, each a run in this directory, and your own runs.

Each pretrained network has a model card, README.md: training data, scores and limitations.
"""

from pathlib import Path
from typing import Any

from sfcnn.pretrained.cards import read_purposes

_HERE = Path(__file__).parent

#: The available networks: name → purpose.
PRETRAINED = read_purposes(_HERE)


def find_run(run: Path | str) -> Path:
    """The directory of a run: the given path if it exists, else the pretrained network of this name."""
    directory = Path(run)
    if directory.exists():
        return directory
    if str(run) not in PRETRAINED:
        raise ValueError(f"no run {run}: expected a directory created by training, or one of {list(PRETRAINED)}")
    return _HERE / str(run)


def load(run: Path | str, device: str = "auto") -> Any:
    """Load the best network of a run, or a pretrained one, ready for prediction.

    Returns a `sfcnn.classification.Classifier` or a `sfcnn.segmentation.Segmenter`, depending on the task.

    Args:
        run: directory created by training, or a name in `PRETRAINED`.
        device: "auto" for an accelerator if available, "cpu", "cuda" or "mps".

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
