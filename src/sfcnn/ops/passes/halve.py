"""The maximum over 2×2 pixels, which keeps one byte for each maximum for the backward pass: the corner it came from.

PyTorch's layer keeps its input and eight bytes for each maximum, and fills the gradient with zeros before adding to it.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sfcnn.ops.passes.coverage import halving, library
from sfcnn.ops.spectral.kernel import check


def halve(features: Tensor) -> Tensor:
    """The maximum over 2×2 pixels of features (…, H, W) that `is_covered` says yes to: (…, H // 2, W // 2).

    The first of equal numbers has the gradient, and NaN is a maximum, as in PyTorch.

    >>> halve(torch.tensor([[1.0, 2.0, 3.0], [4.0, 4.0, 9.0]]))
    tensor([[4.]])
    """
    if features.dim() < 2 or min(features.shape[-2:]) < 2:
        raise ValueError(f"maps of at least 2×2 pixels are expected, got shape {tuple(features.shape)}")
    result: Tensor = torch.ops.sfcnn.halve(features)[0]
    return result


def _halved(features: Tensor) -> list[int]:
    *maps, height, width = features.shape
    return [*maps, height // 2, width // 2]


@torch.library.custom_op("sfcnn::halve", mutates_args=())
def _halve(features: Tensor) -> tuple[Tensor, Tensor]:
    """The maxima, and their corners 0 1 / 2 3 as uint8."""
    result = features.new_empty(_halved(features))
    corners = torch.empty_like(result, dtype=torch.uint8)
    addresses = (tensor.data_ptr() for tensor in (features, result, corners))
    check(library().halve_forward(halving(features), *addresses))
    return result, corners


@_halve.register_fake
def _(features: Tensor) -> tuple[Tensor, Tensor]:
    result = features.new_empty(_halved(features))
    return result, torch.empty_like(result, dtype=torch.uint8)


@torch.library.custom_op("sfcnn::halve_backward", mutates_args=())
def _halve_backward(gradient: Tensor, corners: Tensor, height: int, width: int) -> Tensor:
    """The gradient of features of this height and width."""
    gradient = gradient.contiguous()
    found = gradient.new_empty(*gradient.shape[:-2], height, width)
    addresses = (tensor.data_ptr() for tensor in (gradient, corners, found))
    check(library().halve_backward(halving(found), *addresses))
    return found


@_halve_backward.register_fake
def _(gradient: Tensor, corners: Tensor, height: int, width: int) -> Tensor:
    return gradient.new_empty(*gradient.shape[:-2], height, width)


def _remember(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
    ctx.size = inputs[0].shape[-2:]
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, gradient: Tensor | None, corners: None) -> Tensor | None:
    if gradient is None:
        return None
    (corners_kept,), (height, width) = ctx.saved_tensors, ctx.size
    if not torch.is_grad_enabled():
        found: Tensor = torch.ops.sfcnn.halve_backward(gradient, corners_kept, height, width)
        return found
    # Gradients that will be differentiated again are left to PyTorch.
    at = torch.stack([gradient * (corners_kept == corner) for corner in range(4)], dim=-3)  # (…, 4, H // 2, W // 2)
    return F.pad(F.pixel_shuffle(at, 2).squeeze(-3), (0, width % 2, 0, height % 2))


_halve.register_autograd(_differentiate, setup_context=_remember)
