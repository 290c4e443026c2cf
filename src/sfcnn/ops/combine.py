"""Combine the responses of a lifting layer, y = W̃ A + β, straight into memory in huge pages.

A lifting layer makes many maps of few numbers, so that writing them is what takes time. The memory of a large result of
`conv2d` comes anew from the system in each call, in pages of 4 kB, which takes several times as long.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sfcnn.ops.passes.coverage import is_covered, library


def combines_quickly(maps: Tensor) -> bool:
    """Whether `combine` has the fast way for responses to these maps."""
    return is_covered(maps) and not torch.is_autocast_enabled(maps.device.type)


def combine(responses: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
    """Responses (B, K, H, W), kernel (O, K, 1, 1), bias (O,) → maps (B, O, H, W), the same as `conv2d`.

    >>> responses, kernel = torch.rand(2, 5, 8, 8), torch.rand(7, 5, 1, 1)
    >>> torch.allclose(combine(responses, kernel, None), F.conv2d(responses, kernel), atol=1e-6)
    True
    """
    if not combines_quickly(responses) or responses.dtype != kernel.dtype:
        return F.conv2d(responses, kernel, bias)
    bias = kernel.new_zeros(len(kernel)) if bias is None else bias
    maps: Tensor = torch.ops.sfcnn.combine(responses.flatten(2), kernel.flatten(1), bias)
    return maps.unflatten(2, responses.shape[2:])


@torch.library.custom_op("sfcnn::combine", mutates_args=())
def _combine(responses: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    """(B, K, P), (O, K), (O,) → (B, O, P)."""
    result = responses.new_empty(len(responses), len(kernel), responses.shape[2])
    library().prefer_huge_pages(result.data_ptr(), result.nbytes)
    return torch.baddbmm(bias[:, None], kernel.expand(len(responses), -1, -1), responses, out=result)


@_combine.register_fake
def _(responses: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    return responses.new_empty(len(responses), len(kernel), responses.shape[2])


def _remember(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _differentiate(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    responses, kernel = ctx.saved_tensors
    wanted = ctx.needs_input_grad
    return (
        kernel.mT @ gradient if wanted[0] else None,
        (gradient @ responses.mT).sum(0) if wanted[1] else None,
        gradient.sum((0, 2)) if wanted[2] else None,
    )


_combine.register_autograd(_differentiate, setup_context=_remember)
