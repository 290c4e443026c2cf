"""The blurred maximum of `sfcnn.nn.MaxBlurPool` in one pass over memory, with a byte kept for each maximum.

PyTorch's operators compute and keep four intermediate results as large as the features, and their depthwise convolution
is slow on small maps. The formulas are in `blur.h` of the kernel.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sfcnn.ops.passes.coverage import halving, library
from sfcnn.ops.spectral.kernel import check

#: The blur along even and along odd sides, in eighths.
TAPS = ((2, 4, 2, 0), (1, 3, 3, 1))


def blurred_maximum(features: Tensor) -> Tensor:
    """Features (…, H, W) that `is_covered` accepts, at least 2×2 pixels: (…, H // 2, W // 2).

    Of equal numbers, the first in column order gets the gradient.

    >>> blurred_maximum(torch.tensor([[0.0, 0.0, 0.0, 8.0], [0.0, 0.0, 0.0, 0.0]]))
    tensor([[0., 6.]])
    """
    wanted = torch.is_grad_enabled() and features.requires_grad
    result: Tensor = torch.ops.sfcnn.blur(features, wanted)[0]
    return result


def _empty(features: Tensor, wanted: bool) -> tuple[Tensor, Tensor]:
    """The result, and the corners 0 1 / 2 3 of the maxima as uint8 (…, H − 1, W − 1), if they are wanted."""
    *maps, height, width = features.shape
    corners = (*maps, height - 1, width - 1) if wanted else (0,)
    return features.new_empty(*maps, height // 2, width // 2), features.new_empty(corners, dtype=torch.uint8)


@torch.library.custom_op("sfcnn::blur", mutates_args=())
def _blur(features: Tensor, wanted: bool) -> tuple[Tensor, Tensor]:
    result, corners = _empty(features, wanted)
    kept = corners.data_ptr() if wanted else None
    check(library().blur_forward(halving(features), features.data_ptr(), result.data_ptr(), kept))
    return result, corners


@_blur.register_fake
def _(features: Tensor, wanted: bool) -> tuple[Tensor, Tensor]:
    return _empty(features, wanted)


@torch.library.custom_op("sfcnn::blur_backward", mutates_args=())
def _blur_backward(gradient: Tensor, corners: Tensor) -> Tensor:
    """The gradient of the features, from that of the result."""
    gradient = gradient.contiguous()
    *maps, height, width = corners.shape
    found = gradient.new_empty(*maps, height + 1, width + 1)
    check(library().blur_backward(halving(found), *(tensor.data_ptr() for tensor in (gradient, corners, found))))
    return found


@_blur_backward.register_fake
def _(gradient: Tensor, corners: Tensor) -> Tensor:
    *maps, height, width = corners.shape
    return gradient.new_empty(*maps, height + 1, width + 1)


def _remember(ctx: Any, inputs: tuple[Tensor, bool], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, gradient: Tensor | None, corners: None) -> tuple[Tensor | None, None]:
    if gradient is None:
        return None, None
    (kept,) = ctx.saved_tensors
    # Gradients that will be differentiated again are left to PyTorch.
    found = _gradient(gradient, kept) if torch.is_grad_enabled() else torch.ops.sfcnn.blur_backward(gradient, kept)
    return found, None


def _gradient(gradient: Tensor, corners: Tensor) -> Tensor:
    """The backward pass by operators that can be differentiated again: it is linear in the gradient."""
    for axis in (-2, -1):
        blur = _blur_matrix(corners.shape[axis] + 1).to(gradient)
        gradient = (gradient.movedim(axis, -1) @ blur).movedim(-1, axis)
    parts = [gradient * (corners == corner) for corner in range(4)]
    offsets = ((0, 1, 0, 1), (1, 0, 0, 1), (0, 1, 1, 0), (1, 0, 1, 0))
    return torch.stack([F.pad(part, offset) for part, offset in zip(parts, offsets, strict=True)]).sum(0)


def _blur_matrix(side: int) -> Tensor:
    """The blur along an axis of `side` pixels, (side // 2, side − 1)."""
    matrix = torch.zeros(side // 2, side - 1, dtype=torch.float64)
    for row in range(side // 2):
        for tap, weight in enumerate(TAPS[side % 2]):
            matrix[row, min(max(2 * row - 1 + tap, 0), side - 2)] += weight / 8
    return matrix


_blur.register_autograd(_differentiate, setup_context=_remember)
