"""The angle read-out that a run may have in addition to its network (`sfcnn.models.pose`), in two files:

pose.safetensors    its weights, its training data, and the network it belongs to
pose.json           settings and errors in readable form

`sfcnn.classification.pose_learning` trains it. A run without these files predicts no angles.
"""

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sfcnn.io.files import write_json
from sfcnn.io.state import read_state, write_state
from sfcnn.models.pose import LEAST_ORIENTATIONS, PoseReadout, pose_angles
from sfcnn.nn import GroupConv2d, LiftConv2d, OrientationPool

#: Name of the file in a run.
POSE_FILE = "pose.safetensors"


def has_orientations(net: nn.Module) -> bool:
    """Whether a network has the structure of a `steerable_classifier`."""
    children = dict(net.named_children())
    pool = children.get("pool")
    return (
        list(children) == ["features", "pool", "head"]
        and isinstance(pool, nn.Sequential)
        and isinstance(pool[0], OrientationPool)
    )


def last_convolution(features: nn.Module) -> GroupConv2d | LiftConv2d:
    """The convolution that a classifier's last features come from."""
    *_, last = (module for module in features.modules() if isinstance(module, GroupConv2d | LiftConv2d))
    return last


def make_readout(net: nn.Module, classes: int) -> PoseReadout:
    """A read-out with zero weights for the features of a steerable classifier with at least 3 orientations."""
    if not has_orientations(net):
        raise ValueError("a plain CNN cannot predict angles, since it has no orientations: train a steerable network")
    last = last_convolution(net.get_submodule("features"))
    if last.orientations < LEAST_ORIENTATIONS:
        raise ValueError(
            f"a network with {last.orientations} orientations (Λ) cannot predict angles: "
            f"train one with at least {LEAST_ORIENTATIONS}"
        )
    return PoseReadout(last.out_channels, classes, last.orientations, reflections=last.reflections)


def read_angles(readout: nn.Module, features: Tensor, classes: Tensor) -> Tensor:
    """Features (B, C, Λ, H, W) and the class of each image (B,) → its angle, float64 (B,) on the CPU."""
    scores = readout(features).cpu()  # (B, K, Λ); first to the CPU, since some devices do not support float64
    return pose_angles(scores)[torch.arange(len(classes)), classes.cpu()]


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save_pose(directory: Path, readout: PoseReadout, about: dict[str, Any]) -> None:
    """Write a read-out to the run of its network; existing files are replaced once the new ones are complete."""
    network = digest(directory / "best.safetensors")
    write_state(directory / POSE_FILE, {"readout": readout.state_dict(), "network": network, "about": about})
    write_json(directory / "pose.json", about, overwrite=True)


def load_pose(directory: Path, net: nn.Module, classes: int) -> PoseReadout | None:
    """The read-out of a run for its network, in eval mode, if the run has one."""
    path = directory / POSE_FILE
    if not path.exists():
        return None
    state = read_state(path)
    if state.get("network") != digest(directory / "best.safetensors"):
        raise ValueError(
            f"{path} belongs to other weights than {directory / 'best.safetensors'}, which has changed since: "
            f"train it again with `sfcnn classify pose {directory} --overwrite`, or remove it"
        )
    readout = make_readout(net, classes)
    try:
        readout.load_state_dict(state["readout"])
    except (RuntimeError, TypeError, AttributeError, LookupError) as error:
        raise ValueError(f"{path} does not fit the network of {directory / 'config.yaml'}") from error
    return readout.eval()
