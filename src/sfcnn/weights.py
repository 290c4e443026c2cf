"""Saved weights of steerable layers: read a state dict safely and take one filter out of it."""

import warnings
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from sfcnn.harmonics import BasisLike, resolve_basis

_LARGEST_KERNEL = 41


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read a state dict, tensors only: code in the file is never run.

    The file is a `.safetensors` file, such as a training run writes, or one written by `torch.save`.
    """
    if not path.is_file():
        raise ValueError(f"weights file {path} does not exist")
    return _load_safetensors(path) if path.suffix == ".safetensors" else _load_torch(path)


def _load_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        state = load_file(path)
    # Beside its own errors those of PyTorch, for kinds of numbers and sizes that it does not have.
    except (SafetensorError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} is damaged or no safetensors file: {reason}") from error
    # A run's file holds more than weights, such as the optimiser's state: the network is its part "model".
    model = {name.removeprefix("model."): value for name, value in state.items() if name.startswith("model.")}
    return model or state


def _load_torch(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of odd pickles before it refuses them
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what unpickling raises on damaged files is of many kinds
        if isinstance(error, OSError) and error.filename is not None:
            raise  # the file system's own: no permission
        raise ValueError(f"{path} is not a state dict of tensors saved by torch.save") from error
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in state.items()
    ):
        raise ValueError(f"{path} does not hold a state dict of tensors")
    return state


def infer_kernel_size(basis: BasisLike, size: int) -> int:
    """The kernel size on which a basis has `size` real atoms; every preset has its own number for each."""
    for kernel_size in range(1, _LARGEST_KERNEL + 1, 2):
        if resolve_basis(basis, kernel_size).size == size:
            return kernel_size
    raise ValueError(f"no kernel up to {_LARGEST_KERNEL}×{_LARGEST_KERNEL} has {size} atoms in the basis {basis!r}")


class LearnedFilter(NamedTuple):
    """One filter of a layer."""

    name: str  #: of the weight
    weight: Tensor  #: (Q,)
    kernel_size: int
    orientations: int | None  #: Λ of a group layer; a lifting layer's weights do not tell


def learned_filter(
    state: dict[str, Tensor], basis: BasisLike, name: str | None, output: int, inputs: int, relative: int
) -> LearnedFilter:
    """The filter from channel `inputs` to channel `output`, at a relative orientation if the layer has them.

    `name` is the weight's in the state dict; by default the first weight of a lifting layer, (Ĉ, C, Q).
    """
    if name is None:
        lifting = [key for key, value in state.items() if key.endswith("weight") and value.dim() == 3]
        if not lifting:
            raise ValueError("the state dict has no weight of a lifting layer: name one with --layer")
        name = lifting[0]
    if name not in state:
        weights = [key for key, value in state.items() if key.endswith("weight") and value.dim() in (3, 4)]
        raise ValueError(f"no layer weight {name!r} in the state dict, choose one of {weights}")
    weight = state[name]
    if weight.dim() not in (3, 4):
        raise ValueError(f"{name!r} of shape {tuple(weight.shape)} is no weight of a steerable layer")
    index = (output, inputs, relative)[: weight.dim() - 1]
    for position, size, what in zip(
        index, weight.shape, ("output channel", "input channel", "orientation"), strict=False
    ):
        if not 0 <= position < size:
            raise ValueError(f"{what} {position} is not in {name!r}: choose 0 … {size - 1}")
    kernel_size = infer_kernel_size(basis, weight.shape[-1])
    return LearnedFilter(name, weight[index], kernel_size, weight.shape[2] if weight.dim() == 4 else None)
