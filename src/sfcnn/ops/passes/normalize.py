"""Batch norm with the statistics of the batch, and ReLU, in two passes over memory each way.

    y = max(0, z),   z = weight · (x − μ) / √(σ² + eps) + bias

where μ and σ² are those of a channel over images, orientations and pixels.

One after the other, the two layers keep x and y for the backward pass. Here x is enough: the backward pass finds out
anew where z > 0, and its second pass mostly meets a channel that is still in a cache. The formulas are in `passes.h` of
the kernel.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sfcnn.ops.passes.coverage import library, machine
from sfcnn.ops.spectral.kernel import Normalization, check


def normalize_rectify(
    features: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
    consume: bool = False,
) -> Tensor:
    """`relu(batch_norm(features))` in training mode, for features (B, C, …) that `is_covered` says yes to.

    Weight, bias and running statistics (C,) are those of `nn.BatchNorm3d`, which are updated as it does. With `consume`
    nobody else looks at the features, and the backward pass writes their gradient over them, unless the graph is
    retained.

    >>> features, ones, zeros = torch.randn(4, 2, 8, 5, 5), torch.ones(2), torch.zeros(2)
    >>> y = normalize_rectify(features, ones, zeros, torch.zeros(2), torch.ones(2), 0.1, 1e-5)
    >>> torch.allclose(y, F.batch_norm(features, None, None, ones, zeros, training=True).relu(), atol=1e-6)
    True
    """
    if features.numel() == features.shape[1]:
        raise ValueError(f"batch norm needs more than one value for each channel, got {tuple(features.shape)}")
    result, mean, _, variance = torch.ops.sfcnn.normalize_rectify(features, weight, bias, eps, consume)
    with torch.no_grad():
        for running, batch in ((running_mean, mean), (running_var, variance)):
            running.mul_(1 - momentum).add_(batch, alpha=momentum)
    return result


def _problem(features: Tensor, eps: float, *vectors: Tensor) -> Normalization:
    """The problem, whose weight, bias, mean, inverse and variance (C,) its caller keeps alive."""
    batch, channels = features.shape[:2]
    pixels = features.numel() // (batch * channels)
    addresses = (vector.data_ptr() for vector in vectors)
    return Normalization(*machine(features).values(), batch, channels, pixels, eps, *addresses)


@torch.library.custom_op("sfcnn::normalize_rectify", mutates_args=())
def _normalize_rectify(
    features: Tensor, weight: Tensor, bias: Tensor, eps: float, consume: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The result, and (C,) each: the mean, 1 / √(σ² + eps) and the unbiased variance."""
    weight, bias = weight.contiguous(), bias.contiguous()
    result, (mean, inverse, variance) = torch.empty_like(features), (torch.empty_like(weight) for _ in range(3))
    problem = _problem(features, eps, weight, bias, mean, inverse, variance)
    check(library().normalize_forward(problem, features.data_ptr(), result.data_ptr()))
    return result, mean, inverse, variance


@_normalize_rectify.register_fake
def _(
    features: Tensor, weight: Tensor, bias: Tensor, eps: float, consume: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return torch.empty_like(features), *(torch.empty_like(weight) for _ in range(3))  # type: ignore[return-value]


@torch.library.custom_op("sfcnn::normalize_rectify_backward_", mutates_args=("features",))
def _normalize_rectify_backward_(
    gradient: Tensor, features: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, inverse: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of weight and bias; that of the features is written over them."""
    gradient, weight, bias = gradient.contiguous(), weight.contiguous(), bias.contiguous()
    found = torch.empty_like(weight), torch.empty_like(bias)
    problem = _problem(features, 0.0, weight, bias, mean, inverse)
    addresses = (tensor.data_ptr() for tensor in (gradient, features, features, *found))
    check(library().normalize_backward(problem, *addresses))
    return found


@_normalize_rectify_backward_.register_fake
def _(
    gradient: Tensor, features: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, inverse: Tensor
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(weight), torch.empty_like(bias)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    features, weight, bias, ctx.eps, ctx.consume = inputs
    _, mean, inverse, variance = output
    ctx.save_for_backward(features, weight, bias, mean, inverse)
    ctx.mark_non_differentiable(mean, inverse, variance)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, gradient: Tensor | None, *others: None) -> tuple[Tensor | None, ...]:
    if gradient is None:
        return None, None, None, None, None
    features, weight, bias, *statistics = ctx.saved_tensors
    if not torch.is_grad_enabled():
        consume = ctx.consume and not torch._C._autograd._get_current_graph_task_keep_graph()
        room = features.detach() if consume else features.clone()
        vectors = torch.ops.sfcnn.normalize_rectify_backward_(gradient, room, weight, bias, *statistics)
        return room, *vectors, None, None
    # Gradients that will be differentiated again are left to PyTorch.
    wanted = [given for given, needed in zip((features, weight, bias), ctx.needs_input_grad, strict=False) if needed]
    result = F.batch_norm(features, None, None, weight, bias, training=True, eps=ctx.eps).relu()
    found = iter(torch.autograd.grad(result, wanted, gradient, create_graph=True))
    return *(next(found) if needed else None for needed in ctx.needs_input_grad[:3]), None, None


_normalize_rectify.register_autograd(_differentiate, setup_context=_remember)
