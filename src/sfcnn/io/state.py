"""States in one safetensors file each, written atomically and verified when read.

A state is a tree of dicts and lists with tensors and plain values. Its tensors are the file's tensors; the rest is JSON
in the file's header, where each tensor is named. No pickle: reading a file never executes code from it. A checksum
over everything detects damaged files.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from sfcnn.io.files import new_file

_TENSOR = "__tensor__"
_PAIRS = "__dict__"


class DamagedStateError(ValueError):
    """A file is not a complete state."""


def _to_json(tree: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """A tree as JSON; its tensors go to `tensors`. Dicts become pairs, since JSON's keys are strings only."""
    if isinstance(tree, Tensor):
        while name in tensors:  # {"a.b": …} and {"a": {"b": …}} give the same name
            name += "'"
        tensors[name] = tree.detach().to("cpu", copy=True).contiguous()  # the format rejects tensors that share memory
        return {_TENSOR: name}
    if isinstance(tree, dict):
        return {_PAIRS: [[key, _to_json(value, f"{name}.{key}", tensors)] for key, value in tree.items()]}
    if isinstance(tree, list | tuple):
        return [_to_json(value, f"{name}.{index}", tensors) for index, value in enumerate(tree)]
    return tree


def _from_json(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(tree, dict):
        if _TENSOR in tree:
            return tensors[tree[_TENSOR]]
        return {key: _from_json(value, tensors) for key, value in tree[_PAIRS]}
    if isinstance(tree, list):
        return [_from_json(value, tensors) for value in tree]
    return tree


def _digest(tensors: dict[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        if tensor.numel():
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write a tree of tensors and plain values, atomically replacing any older file of that name."""
    tensors: dict[str, Tensor] = {}
    # Names are kept within each part of the state: the weights of "model" are "model.<name in the state dict>".
    text = json.dumps({key: _to_json(value, key, tensors) for key, value in state.items()})
    # A single entry, since safetensors writes several in random order; this way equal states give identical files.
    metadata = {"sfcnn": json.dumps({"sha256": _digest(tensors, text), "state": text})}
    with new_file(path, overwrite=True) as temporary:
        try:
            save_file(tensors, temporary, metadata)
        except SafetensorError as error:  # for example if the disk is full
            raise OSError(f"cannot write {path}: {error}") from error


def read_state(path: Path) -> dict[str, Any]:
    """Read a file of `write_state` to the CPU; raise `DamagedStateError` if it is damaged or of another kind."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
        metadata = json.loads(metadata["sfcnn"]) if "sfcnn" in metadata else metadata  # version 0.1 had two entries
        text = metadata["state"]
        if _digest(tensors, text) != metadata["sha256"]:
            raise DamagedStateError(f"{path} is damaged: its contents do not match their checksum")
        return {key: _from_json(value, tensors) for key, value in json.loads(text).items()}
    except DamagedStateError:
        raise
    except FileNotFoundError as error:
        raise DamagedStateError(f"{path} does not exist") from error
    # Invalid files fail in many ways: names without tensors, numbers with a million digits, endless nesting.
    except (SafetensorError, LookupError, TypeError, ValueError, AttributeError, OSError, RuntimeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DamagedStateError(f"{path} is not a complete state ({reason})") from error
