"""Check that an exported network computes the same as its model."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from sfcnn.group import TOLERANCES
from sfcnn.nn import OrientationReadout

#: Fraction of values that may differ if angles are read out, which jump where two orientations respond equally.
_JUMPS = 0.01


def as_inputs(example: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The arguments of a model: one tensor, or several."""
    inputs = (example,) if isinstance(example, Tensor) else tuple(example)
    for value in inputs:
        if not isinstance(value, Tensor):
            raise ValueError(f"example must be a tensor or a sequence of tensors, got a {type(value).__name__} in it")
    return inputs


def outputs_of(result: Any) -> list[Tensor]:
    """All tensors that a model returns, in the order of its tuples and dictionaries."""
    return [value for value in tree_leaves(result) if isinstance(value, Tensor)]


@torch.no_grad()
def eager_outputs(model: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """The outputs of the model itself."""
    return outputs_of(model(*inputs))


def check_agreement(model: nn.Module, expected: Sequence[Tensor], found: Sequence[Tensor], what: str) -> None:
    """Raise unless outputs equal the model's up to rounding: 1e-4 of the largest value in float32, 1e-9 in float64.

    Deep networks come near 1e-5; the output of a wrong network is far off.
    """
    jumps = _JUMPS if any(isinstance(module, OrientationReadout) for module in model.modules()) else 0.0
    if len(expected) != len(found):
        raise ValueError(f"{what} has {len(found)} outputs, the model has {len(expected)}")
    for number, (wanted, have) in enumerate(zip(expected, found, strict=True)):
        if wanted.shape != have.shape:
            raise ValueError(f"output {number} of {what} is {tuple(have.shape)}, the model's {tuple(wanted.shape)}")
        scale = float(wanted.abs().max()) if wanted.numel() else 0.0
        limit = 10 * TOLERANCES.get(wanted.dtype, 0.0) * (scale or 1.0)
        difference = (wanted.double() - have.double()).abs()
        wrong = ~(difference <= limit)  # also true for NaN
        if wrong.sum() > jumps * wrong.numel():
            worst = float(difference[wrong].max())
            raise ValueError(
                f"output {number} of {what} differs from the model's by {worst:.1e}, more than {limit:.0e}"
            )
