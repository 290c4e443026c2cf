"""Saved weights of steerable layers: read a state dict safely and take one filter out of it."""

import warnings
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from sfcnn.harmonics import Basis, BasisLike, describe_basis, resolve_basis

# Bounds on what a file can ask for: pictures of larger kernels would need memory without end.
_LARGEST_KERNEL = 41
_MOST_SUBPIXELS = 32


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
    # Also catch PyTorch's errors for unsupported dtypes and sizes.
    except (SafetensorError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} is damaged or not a safetensors file: {reason}") from error
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
    basis: Basis  #: that the weight belongs to
    kernel_size: int
    orientations: int | None  #: Λ of a group layer; the weights of a lifting layer do not tell


def learned_filter(
    state: dict[str, Tensor], basis: BasisLike | None, name: str | None, output: int, inputs: int, relative: int
) -> LearnedFilter:
    """The filter from channel `inputs` to channel `output`, at a relative orientation if the layer has them.

    `name` is the weight's in the state dict; by default the first weight of a lifting layer, (Ĉ, C, Q).
    The basis is the one that the layer has saved beside its weight. Older files do not have it: there it is `basis`, by
    default "bandlimited".
    """
    name = _find_weight(state, name)
    weight = state[name]
    index = (output, inputs, relative)[: weight.dim() - 1]
    for position, size, what in zip(
        index, weight.shape, ("output channel", "input channel", "orientation"), strict=False
    ):
        if not 0 <= position < size:
            raise ValueError(f"{what} {position} is not in {name!r}: choose 0 … {size - 1}")
    atoms = weight.shape[-1]
    saved = _saved_basis(state, name, atoms)
    if saved is None:
        kernel_size = infer_kernel_size(basis or "bandlimited", atoms)
        saved = resolve_basis(basis or "bandlimited", kernel_size)
    else:
        kernel_size = saved.natural_kernel_size
        if basis is not None and _differs(basis, saved):
            given = repr(basis) if isinstance(basis, str) else str(basis)
            raise ValueError(f"{name!r} has the basis {describe_basis(saved)}, not {given}: leave out --basis")
    return LearnedFilter(name, weight[index], saved, kernel_size, weight.shape[2] if weight.dim() == 4 else None)


def _find_weight(state: dict[str, Tensor], name: str | None) -> str:
    """The name of a steerable layer's weight, by default of the first lifting layer."""
    if name is None:
        lifting = [key for key, value in state.items() if key.endswith("weight") and value.dim() == 3]
        if not lifting:
            raise ValueError("the state dict has no weight of a lifting layer: name one with --layer")
        return lifting[0]
    if name not in state:
        weights = [key for key, value in state.items() if key.endswith("weight") and value.dim() in (3, 4)]
        raise ValueError(f"no layer weight {name!r} in the state dict, choose one of {weights}")
    if state[name].dim() not in (3, 4):
        raise ValueError(f"{name!r} of shape {tuple(state[name].shape)} is not a weight of a steerable layer")
    return name


def _saved_basis(state: dict[str, Tensor], name: str, atoms: int) -> Basis | None:
    """The basis that a layer has saved beside its weight, None in older files."""
    rings = state.get(name.removesuffix("weight") + "_extra_state")
    if rings is None:
        return None
    try:
        basis = Basis.from_tensor(rings)
    except ValueError as error:
        raise ValueError(f"the basis of {name!r} is damaged: {error}") from error
    if basis.size != atoms:
        raise ValueError(f"the basis of {name!r} is damaged: it has {basis.size} atoms, the weight {atoms}")
    if basis.natural_kernel_size > _LARGEST_KERNEL or basis.subpixels > _MOST_SUBPIXELS:
        raise ValueError(
            f"the basis of {name!r} is too large: expected kernels of at most {_LARGEST_KERNEL}×{_LARGEST_KERNEL} "
            f"pixels and {_MOST_SUBPIXELS} subpixels, got {basis.natural_kernel_size:g} and {basis.subpixels:g}"
        )
    return basis


def _differs(basis: BasisLike, saved: Basis) -> bool:
    """Whether the requested basis differs from the saved one."""
    return resolve_basis(basis, saved.natural_kernel_size) != saved
