"""Batch norm and ReLU after a convolution whose weights are frozen: max(0, scale · y + shift), in place."""

from torch import Tensor


def rectify_(features: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """max(0, scale · y + shift), in place, for features y (B, Ĉ, Λ, H, W); scale and shift (Ĉ,)."""
    return features.mul_(per_map(scale, features)).add_(per_map(shift, features)).relu_()


def per_map(numbers: Tensor, features: Tensor) -> Tensor:
    """One number per channel (Ĉ,), reshaped to (Ĉ, 1, 1, 1) to broadcast over features (B, Ĉ, Λ, H, W)."""
    return numbers.to(features).view(-1, 1, 1, 1)
