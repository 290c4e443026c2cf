"""The atomic engine: convolve with the atoms, then combine their responses (second form of the equations, §3.2).

    lift    y_ĉ(θ) = Re Σ_c Σ_jk  w_ĉcjk e^{−ikθ} (I_c ∗ ψ_jk)
    group   y_ĉ(θ) = Re Σ_c Σ_φ Σ_jk  w_ĉcjk(θ−φ) e^{−ikφ} (ζ_c(φ) ∗ ψ_jk)

Memory grows with the number of atoms: Q responses for each input map.
"""

import torch.nn.functional as F
from torch import Tensor

from sfcnn.ops.atoms import Atoms, bias_per_orientation, steer_group_weight, steer_lift_weight
from sfcnn.ops.combine import combine
from sfcnn.ops.geometry import Geometry
from sfcnn.ops.rectify import rectify_


def lift_kernel(weight: Tensor, atoms: Atoms) -> Tensor:
    """The coefficients (Ĉ·Λ, C·Q, 1, 1) that combine the responses of a lifting layer."""
    return steer_lift_weight(weight, atoms.rotations).flatten(2, 3).flatten(0, 1)[..., None, None]


def group_kernel(weight: Tensor, atoms: Atoms) -> Tensor:
    """The coefficients (Ĉ·Λ, C·Λ·Q, 1, 1) that combine the responses of a group convolution."""
    return steer_group_weight(weight, atoms.rotations).flatten(2, 4).flatten(0, 1)[..., None, None]


def lift(images: Tensor, kernel: Tensor, atoms: Atoms, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """Images (B, C, H, W) → features (B, Ĉ, Λ, H', W')."""
    maps = combine(_respond(images, atoms, geometry), kernel, bias_per_orientation(bias, atoms.orientations))
    return maps.unflatten(1, (-1, atoms.orientations))


def group(features: Tensor, kernel: Tensor, atoms: Atoms, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """Features (B, C, Λ, H, W) → features (B, Ĉ, Λ, H', W')."""
    responses = _respond(features.flatten(1, 2), atoms, geometry)
    maps = F.conv2d(responses, kernel, bias_per_orientation(bias, atoms.orientations))
    return maps.unflatten(1, (-1, atoms.orientations))


def _respond(maps: Tensor, atoms: Atoms, geometry: Geometry) -> Tensor:
    """The responses to all atoms: maps (B, C, H, W) → (B, C·Q, H', W')."""
    batch, channels, height, width = maps.shape
    responses = geometry.correlate(maps.reshape(batch * channels, 1, height, width), atoms.filters[:, None])
    return responses.unflatten(0, (batch, channels)).flatten(1, 2)


def rectified(
    features: Tensor, kernel: Tensor, atoms: Atoms, scale: Tensor, shift: Tensor, geometry: Geometry
) -> Tensor:
    """Features (B, C, Λ, H, W) → max(0, scale · y + shift) (B, Ĉ, Λ, H', W')."""
    return rectify_(group(features, kernel, atoms, None, geometry), scale, shift)
