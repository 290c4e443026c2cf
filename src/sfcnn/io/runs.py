"""A run is a directory that training leaves and prediction reads:

config.yaml          its task and settings
log.csv              one row per epoch
best.safetensors     the weights with the smallest validation error
checkpoints/         the newest states, to resume from
result.json          written at the end
pose.safetensors     what reads angles, if it was learned (`sfcnn.classification.pose`)
"""

from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from sfcnn.io.settings import load_yaml
from sfcnn.io.state import read_state

#: What a run can have learned, each by a package of this name.
TASKS = ("classification", "segmentation")

Net = TypeVar("Net", bound=nn.Module)


def from_older(task: str, values: dict[str, Any]) -> dict[str, Any]:
    """Settings of a run of any version, with what was fixed then and can be chosen now.

    A file that does not say how convolutions pad and how maps end and are halved is of a time when all convolutions
    padded and the paper's borders and maxima were the only ones.
    """
    if task != "classification" or not isinstance(values.get("model", {}), dict):
        return values
    return {**values, "model": {"padding": "same", "border": "none", "pool": "max", **values.get("model", {})}}


def read_run(directory: Path) -> tuple[str, dict[str, Any]]:
    """The task of a run and its settings as plain values."""
    path = directory / "config.yaml"
    if not path.is_file():
        raise ValueError(f"{directory} is not a run, since it has no config.yaml; `--out DIR` of a training makes one")
    values = load_yaml(path)
    # Runs of version 0.1 do not name their task.
    task = values.pop("task", "segmentation" if "crops" in values else "classification")
    if task not in TASKS:
        raise ValueError(f"{path}: unknown task {task!r}, choose one of {list(TASKS)}")
    return task, from_older(task, values)


def read_task(directory: Path, task: str) -> dict[str, Any]:
    """The settings of a run of this task."""
    found, values = read_run(directory)
    if found != task:
        raise ValueError(f"{directory} is a run of {found}, expected one of {task}")
    return values


def load_best(directory: Path, net: Net) -> Net:
    """Give a network the best weights of a run so far, and put it in eval mode."""
    weights = directory / "best.safetensors"
    if not weights.is_file():
        raise ValueError(f"{directory} has no best.safetensors yet: its first epoch has not ended")
    state = read_state(weights)
    if not isinstance(state.get("model"), dict):
        raise ValueError(f"{weights} holds no weights of a network")
    try:
        net.load_state_dict(state["model"])
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ValueError(f"{weights} does not fit the network of {directory / 'config.yaml'}") from error
    return net.eval()
