"""Networks that come with sfcnn, trained: each is a run in a directory of its own beside this file.

>>> from sfcnn.training.membrane_runs import load_membrane_run
>>> config, net = load_membrane_run(find_run("isbi2012"))
>>> config.model.orientations
8
"""

from pathlib import Path

#: Name of each: what it is for.
PRETRAINED = {
    "isbi2012": "membranes in serial section transmission electron microscopy, 4 nm a pixel",
}


def find_run(run: Path | str) -> Path:
    """The directory of a run: what is named, or else the network of this name that comes with sfcnn."""
    directory = Path(run)
    if directory.exists():
        return directory
    if str(run) not in PRETRAINED:
        raise ValueError(f"no run {run}: expected a directory that was trained in, or one of {list(PRETRAINED)}")
    return Path(__file__).parent / str(run)
