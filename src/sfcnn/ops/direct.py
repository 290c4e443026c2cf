"""The direct engine: build the rotated filters, then convolve once (first form of the layer equations, §3.2).

    lift    y_ĉ(θ) = Σ_c  I_c ∗ ρ_θ Ψ_ĉc
    group   y_ĉ(θ) = Σ_c Σ_φ  ζ_c(φ) ∗ ρ_φ Ψ_ĉc(θ−φ)

The reference that every other engine is checked against.
"""

from torch import Tensor

from sfcnn.ops.geometry import Geometry
from sfcnn.ops.kernels import steer_group_weight, steer_lift_weight


def lift_kernel(weight: Tensor, atoms: Tensor, rotations: Tensor) -> Tensor:
    """The filter bank (Ĉ·Λ, C, s, s) of a lifting layer, from weights (Ĉ, C, Q)."""
    bank = steer_lift_weight(weight, rotations) @ atoms.flatten(1)  # (Ĉ, Λ, C, s²)
    return bank.flatten(0, 1).unflatten(-1, atoms.shape[1:])


def group_kernel(weight: Tensor, atoms: Tensor, rotations: Tensor) -> Tensor:
    """The filter bank (Ĉ·Λ, C·Λ, s, s) of a group convolution, from weights (Ĉ, C, Λ, Q)."""
    bank = steer_group_weight(weight, rotations) @ atoms.flatten(1)  # (Ĉ, Λ, C, Λ, s²)
    return bank.flatten(2, 3).flatten(0, 1).unflatten(-1, atoms.shape[1:])


def lift(images: Tensor, kernel: Tensor, atoms: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """Images (B, C, H, W) → maps (B, Ĉ·Λ, H', W')."""
    return geometry.correlate(images, kernel, bias)


def group(features: Tensor, kernel: Tensor, atoms: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """Features (B, C, Λ, H, W) → maps (B, Ĉ·Λ, H', W')."""
    return geometry.correlate(features.flatten(1, 2), kernel, bias)
