"""The direct engine: build the rotated filters, then convolve once (first form of the layer equations, §3.2).

    lift    y_ĉ(θ) = Σ_c  I_c ∗ ρ_θ Ψ_ĉc
    group   y_ĉ(θ) = Σ_c Σ_φ  ζ_c(φ) ∗ ρ_φ Ψ_ĉc(θ−φ)

The reference that every other engine is checked against.
"""

from torch import Tensor

from sfcnn.ops.atoms import Atoms, bias_per_orientation, steer_group_weight, steer_lift_weight
from sfcnn.ops.geometry import Geometry
from sfcnn.ops.rectify import rectify_


def lift_kernel(weight: Tensor, atoms: Atoms) -> Tensor:
    """The filter bank (Ĉ·Λ, C, s, s) of a lifting layer, from weights (Ĉ, C, Q)."""
    bank = steer_lift_weight(weight, atoms.rotations) @ atoms.filters.flatten(1)  # (Ĉ, Λ, C, s²)
    return bank.flatten(0, 1).unflatten(-1, atoms.filters.shape[1:])


def group_kernel(weight: Tensor, atoms: Atoms) -> Tensor:
    """The filter bank (Ĉ·Λ, C·Λ, s, s) of a group convolution, from weights (Ĉ, C, Λ, Q)."""
    bank = steer_group_weight(weight, atoms.rotations) @ atoms.filters.flatten(1)  # (Ĉ, Λ, C, Λ, s²)
    return bank.flatten(2, 3).flatten(0, 1).unflatten(-1, atoms.filters.shape[1:])


def lift(images: Tensor, kernel: Tensor, atoms: Atoms, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """Images (B, C, H, W) → features (B, Ĉ, Λ, H', W')."""
    maps = geometry.correlate(images, kernel, bias_per_orientation(bias, atoms.orientations))
    return maps.unflatten(1, (-1, atoms.orientations))


def group(features: Tensor, kernel: Tensor, atoms: Atoms, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """Features (B, C, Λ, H, W) → features (B, Ĉ, Λ, H', W')."""
    return lift(features.flatten(1, 2), kernel, atoms, bias, geometry)


def rectified(
    features: Tensor, kernel: Tensor, atoms: Atoms, scale: Tensor, shift: Tensor, geometry: Geometry
) -> Tensor:
    """Features (B, C, Λ, H, W) → max(0, scale · y + shift) (B, Ĉ, Λ, H', W')."""
    return rectify_(group(features, kernel, atoms, None, geometry), scale, shift)
