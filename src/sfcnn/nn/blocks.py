"""Blocks that networks are made of: convolution, batch norm, ReLU and dropout, alone or around an identity.

Batch norm averages over space and orientations and dropout removes whole channels, so both keep equivariance.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn

from sfcnn.nn.conv import GroupConv2d, LiftConv2d
from sfcnn.nn.steerable import SteerableConv2d


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
            nn.ReLU(inplace=True),  # batch norm's backward pass does not need its result
        ]
        if dropout:
            layers.append(nn.Dropout3d(dropout))
        super().__init__(*layers)

    def forward(self, input: Tensor) -> Tensor:
        """Features → features. In evaluation without gradients the first three layers are one pass over memory."""
        if not self._is_one_pass(input):
            return super().forward(input)
        conv, norm, _, *rest = self
        features = cast(SteerableConv2d, conv).rectified(input, *_scale_and_shift(cast(nn.BatchNorm3d, norm)))
        for layer in rest:
            features = layer(features)
        return features

    def _is_one_pass(self, input: Tensor) -> bool:
        """Whether nobody could tell: no gradients, no graph, no statistics to update, no hooks, the layers as made."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or not isinstance(input, Tensor) or len(self) < 3:
            return False
        conv, norm, activation, *_ = self
        as_made = type(norm) is nn.BatchNorm3d and type(activation) is nn.ReLU and isinstance(conv, SteerableConv2d)
        if not as_made or norm.training or norm.running_mean is None or norm.weight is None:
            return False
        hooked = any(layer._forward_hooks or layer._forward_pre_hooks for layer in (conv, norm, activation))
        return not hooked and not torch._C._is_tracing() and not torch.is_autocast_enabled(input.device.type)


def _scale_and_shift(norm: nn.BatchNorm3d) -> tuple[Tensor, Tensor]:
    """Batch norm with its running statistics as scale · y + shift, each (Ĉ,)."""
    mean, variance = cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)
    scale = norm.weight * torch.rsqrt(variance + norm.eps)
    return scale, norm.bias - mean * scale


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
