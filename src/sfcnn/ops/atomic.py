"""The atomic engine: convolve with the atoms, then combine their responses (second form of the equations, §3.2).

    lift    y_ĉ(θ) = Re Σ_c Σ_jk  w_ĉcjk e^{−ikθ} (I_c ∗ ψ_jk)
    group   y_ĉ(θ) = Re Σ_c Σ_φ Σ_jk  w_ĉcjk(θ−φ) e^{−ikφ} (ζ_c(φ) ∗ ψ_jk)

Memory grows with the number of atoms: Q responses for each input map.
"""

import torch.nn.functional as F
from torch import Tensor

from sfcnn.ops.geometry import Geometry
from sfcnn.ops.kernels import steer_group_weight, steer_lift_weight


def lift_kernel(weight: Tensor, atoms: Tensor, rotations: Tensor) -> Tensor:
    """The coefficients (Ĉ·Λ, C·Q, 1, 1) that combine the responses of a lifting layer."""
    return steer_lift_weight(weight, rotations).flatten(2, 3).flatten(0, 1)[..., None, None]


def group_kernel(weight: Tensor, atoms: Tensor, rotations: Tensor) -> Tensor:
    """The coefficients (Ĉ·Λ, C·Λ·Q, 1, 1) that combine the responses of a group convolution."""
    return steer_group_weight(weight, rotations).flatten(2, 4).flatten(0, 1)[..., None, None]


def _combine(maps: Tensor, kernel: Tensor, atoms: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """Respond to the atoms map by map, (B, N, H, W) → (B, N·Q, H', W'), and mix with a 1×1 convolution."""
    batch, channels, height, width = maps.shape
    responses = geometry.correlate(maps.reshape(batch * channels, 1, height, width), atoms[:, None])
    return F.conv2d(responses.unflatten(0, (batch, channels)).flatten(1, 2), kernel, bias)


def lift(images: Tensor, kernel: Tensor, atoms: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """Images (B, C, H, W) → maps (B, Ĉ·Λ, H', W')."""
    return _combine(images, kernel, atoms, bias, geometry)


def group(features: Tensor, kernel: Tensor, atoms: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """Features (B, C, Λ, H, W) → maps (B, Ĉ·Λ, H', W')."""
    return _combine(features.flatten(1, 2), kernel, atoms, bias, geometry)
