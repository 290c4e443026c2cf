"""A run is a directory written by training and read by prediction:

config.yaml          its task and settings
log.csv              one row per epoch
best.safetensors     the weights with the smallest validation error
checkpoints/         the newest states, to resume from
result.json          written at the end
pose.safetensors     the angle head, if it was trained (`sfcnn.classification.pose`)
"""

from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from sfcnn.io.names import SHIPPED, shipped_names
from sfcnn.io.settings import load_yaml
from sfcnn.io.state import read_state

#: The tasks of runs, each implemented by the package of this name.
TASKS = ("classification", "segmentation")

Net = TypeVar("Net", bound=nn.Module)


def from_older(task: str, values: dict[str, Any]) -> dict[str, Any]:
    """Settings of a run of any version, with options added that were fixed at the time.

    A file without settings for padding, borders and pooling was written when all convolutions were padded and the
    paper's borders and max pooling were the only choice. Version 0.1 segmented only membranes, with the paper's
    readout.
    """
    model, images = values.get("model", {}), values.get("images", {})
    if not isinstance(model, dict) or not isinstance(images, dict):
        return values
    if task == "classification":
        return {**values, "model": {"padding": "same", "border": "none", "pool": "max", **model}}
    if "classes" in images:
        return values
    membranes = {"invert_masks": True, "classes": ["membranes"], "channels": 1}
    return {**values, "model": {"readout": "paper", **model}, "images": membranes | images}


def read_run(directory: Path) -> tuple[str, dict[str, Any]]:
    """The task of a run and its settings as plain values."""
    path = directory / "config.yaml"
    if not path.is_file():
        raise ValueError(f"{directory} is not a run, since it has no config.yaml; training creates one in `--out DIR`")
    values = load_yaml(path)
    # Runs of version 0.1 do not state their task.
    task = values.pop("task", "segmentation" if "crops" in values else "classification")
    if task not in TASKS:
        raise ValueError(f"{path}: unknown task {task!r}, choose one of {list(TASKS)}")
    return task, from_older(task, values)


def read_task(directory: Path, task: str) -> dict[str, Any]:
    """The settings of a run, which must have this task."""
    found, values = read_run(directory)
    if found != task:
        example = next(name for name in shipped_names() if read_run(SHIPPED / name)[0] == task)
        name = directory.name if directory.parent == SHIPPED else directory
        raise ValueError(f"{name} is a {found} network, expected a {task} network, such as {example}")
    return values


def read_best(directory: Path) -> dict[str, Any]:
    """The best weights of a run so far, a state dict."""
    weights = directory / "best.safetensors"
    if not weights.is_file():
        raise ValueError(f"{directory} has no best.safetensors yet: its first epoch has not finished")
    model = read_state(weights).get("model")
    if not isinstance(model, dict):
        raise ValueError(f"{weights} does not hold the weights of a network")
    return model


def load_best(directory: Path, net: Net) -> Net:
    """Load the best weights of a run so far into a network, and put it in eval mode."""
    try:
        net.load_state_dict(read_best(directory))
    except (RuntimeError, TypeError, AttributeError) as error:
        weights = directory / "best.safetensors"
        raise ValueError(f"{weights} does not fit the network of {directory / 'config.yaml'}") from error
    return net.eval()
