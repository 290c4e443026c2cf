"""Pretrained networks by name, each a run in this directory, and your own runs.

Each pretrained network has a model card, README.md: training data, scores and limitations.
"""

from pathlib import Path
from typing import Any

from sfcnn.io.names import SHIPPED, find_run
from sfcnn.pretrained.cards import read_purposes

__all__ = ["PRETRAINED", "find_run", "load"]

#: The available networks: name → purpose.
PRETRAINED = read_purposes(SHIPPED)


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
