"""Building blocks of networks: convolution, batch norm, ReLU and dropout, with or without a residual connection.

Batch norm averages over space and orientations and dropout removes whole channels, so both keep equivariance.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules import module as _modules

from sfcnn.nn.conv import GroupConv2d, LiftConv2d
from sfcnn.nn.steerable import SteerableConv2d
from sfcnn.ops.passes import is_covered, normalize_rectify


class ConvBlock(nn.Sequential):
    """convolution → batch norm → ReLU → dropout, on images or on features.

    Shapes: (B, C, Λ, H, W) → (B, Ĉ, Λ, H', W'); with `lift`, images (B, C, H, W) come in.

    Args:
        in_channels, out_channels, kernel_size, orientations: of the convolution.
        lift: start from images with a `LiftConv2d` instead of a `GroupConv2d`.
        dropout: probability of dropping a channel as a whole.
        conv: further arguments of the convolution (padding, basis, init, engine …).

    >>> import torch
    >>> ConvBlock(1, 8, 7, 4, lift=True, padding="same")(torch.randn(2, 1, 16, 16)).shape
    torch.Size([2, 8, 4, 16, 16])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        orientations: int,
        *,
        lift: bool = False,
        dropout: float = 0.0,
        **conv: Any,
    ) -> None:
        layer = LiftConv2d if lift else GroupConv2d
        # Batch norm has a shift of its own, so the convolution needs no bias.
        layers: list[nn.Module] = [
            layer(in_channels, out_channels, kernel_size, orientations, **{"bias": False, **conv}),
            nn.BatchNorm3d(out_channels),
            nn.ReLU(),
        ]
        if dropout:
            layers.append(nn.Dropout3d(dropout))
        super().__init__(*layers)

    def forward(self, input: Tensor) -> Tensor:
        """Features → features, with layers fused where this cannot be observed."""
        if not self._is_as_made(input):
            return super().forward(input)
        conv, norm, _, *rest = self
        if torch.is_grad_enabled() or norm.training or norm.running_mean is None:
            alone = type(conv) in (LiftConv2d, GroupConv2d)  # and no hooks: nobody else has what it returns
            features = _normalize_rectify(cast(nn.BatchNorm3d, norm), conv(input), consume=alone)
        else:
            features = cast(SteerableConv2d, conv).rectified(input, *_scale_and_shift(cast(nn.BatchNorm3d, norm)))
        for layer in rest:
            features = layer(features)
        return features

    def _is_as_made(self, input: Tensor) -> bool:
        """Whether the first three layers are those of `__init__` and unobserved: no hooks, no graph."""
        if torch.compiler.is_compiling() or not isinstance(input, Tensor) or len(self) < 3:
            return False
        if input.is_meta or torch.is_autocast_enabled(input.device.type):
            return False
        conv, norm, activation, *_ = self
        as_made = type(norm) is nn.BatchNorm3d and type(activation) is nn.ReLU and isinstance(conv, SteerableConv2d)
        if not as_made or norm.weight is None:
            return False
        hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
        hooked = any(getattr(layer, hook) for layer in (conv, norm, activation) for hook in hooks)
        everywhere = any(getattr(_modules, f"_global{hook}") for hook in hooks)
        return not hooked and not everywhere and not torch._C._is_tracing()


def _scale_and_shift(norm: nn.BatchNorm3d) -> tuple[Tensor, Tensor]:
    """Batch norm with its running statistics as scale · y + shift, each (Ĉ,)."""
    mean, variance = cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)
    scale = norm.weight * torch.rsqrt(variance + norm.eps)
    return scale, norm.bias - mean * scale


def _normalize_rectify(norm: nn.BatchNorm3d, features: Tensor, consume: bool) -> Tensor:
    """Batch norm and ReLU, in training by the compiled passes where they cover it."""
    mean, variance, counter = norm.running_mean, norm.running_var, norm.num_batches_tracked
    tracked = norm.training and norm.track_running_stats and mean is not None and variance is not None
    alike = norm.bias is not None and features.dtype == norm.weight.dtype == norm.bias.dtype
    if not tracked or counter is None or not alike or features.numel() == features.shape[1] or not is_covered(features):
        return torch.relu_(norm(features))  # the backward pass of batch norm does not need its result
    counter.add_(1)
    momentum = 1 / float(counter) if norm.momentum is None else norm.momentum
    statistics = cast(Tensor, mean), cast(Tensor, variance)
    return normalize_rectify(features, norm.weight, norm.bias, *statistics, momentum, norm.eps, consume)


class Residual(nn.Module):
    """x + f(x), for any module f that keeps the shape of its input."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, features: Tensor) -> Tensor:
        """Features → features of the same shape."""
        residual: Tensor = self.body(features)
        return features + residual


class ResidualBlock(Residual):
    """ζ + f(ζ), where f is `depth` convolution blocks that keep the number of channels and the size of the maps.

    Shapes: (B, C, Λ, H, W) → (B, C, Λ, H, W).

    >>> import torch
    >>> ResidualBlock(8, 5, 4)(torch.randn(2, 8, 4, 16, 16)).shape
    torch.Size([2, 8, 4, 16, 16])
    """

    def __init__(
        self, channels: int, kernel_size: int, orientations: int, *, depth: int = 1, dropout: float = 0.0, **conv: Any
    ) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}")
        conv = {**conv, "padding": "same"}
        blocks = [
            ConvBlock(channels, channels, kernel_size, orientations, dropout=dropout, **conv) for _ in range(depth)
        ]
        super().__init__(nn.Sequential(*blocks))
