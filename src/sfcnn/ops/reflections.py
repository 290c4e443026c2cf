"""Layers on D_Λ, rotations and reflections, as layers on C_Λ with twice the channels and tied weights.

An element of D_Λ mirrors and then rotates, g = r_θ m^s with s = 0 or 1; m r_θ = r_{−θ} m. The layers are those of C_Λ
with sums over the larger group,

    lift    y_ĉ(g) = Σ_c I_c ∗ gΨ_ĉc          group   y_ĉ(g) = Σ_c Σ_h ζ_c(h) ∗ hΨ_ĉc(h⁻¹g)

With h = r_φ m^u, relative orientations are h⁻¹g = r_{(−1)^u (θ−φ)} m^{s+u}, so that

    lift    y_ĉs(θ) = Σ_c I_c ∗ ρ_θ (m^s Ψ_ĉc)
    group   y_ĉs(θ) = Σ_cu Σ_φ ζ_cu(φ) ∗ ρ_φ Ψ'_ĉscu(θ−φ),   Ψ'_ĉscu(d) = m^u Ψ_ĉc((−1)^u d, s+u)

are layers of C_Λ between channels (c, u) and (ĉ, s). On real atoms, m is a sign per atom (`Basis.mirror_signs`): only
the weights have to be expanded, and every engine can compute it. Features (B, C, 2Λ, H, W) of D_Λ and
(B, 2C, Λ, H, W) of C_Λ are the same numbers in the same order.
"""

import torch
from torch import Tensor


def expand_lift_weight(weight: Tensor, mirror: Tensor) -> Tensor:
    """Weights of m^s Ψ: weights (Ĉ, C, Q) and signs (Q,) → (2Ĉ, C, Q)."""
    return torch.stack([weight, weight * mirror], dim=1).flatten(0, 1)


def expand_group_weight(weight: Tensor, mirror: Tensor) -> Tensor:
    """Weights of Ψ'(d) = m^u Ψ((−1)^u d, s+u): weights (Ĉ, C, 2Λ, Q) and signs (Q,) → (2Ĉ, 2C, Λ, Q)."""
    orientations = weight.shape[2] // 2
    d = torch.arange(orientations, device=weight.device)
    backward = -d % orientations
    # The position of Ψ'(d) among the 2Λ relative orientations, for (s, u) = (0, 0), (0, 1), (1, 0) and (1, 1).
    index = torch.cat([d, orientations + backward, orientations + d, backward])
    tied = weight.index_select(2, index).unflatten(2, (2, 2, orientations))  # (Ĉ, C, s, u, Λ, Q)
    signs = torch.stack([torch.ones_like(mirror), mirror])[:, None]  # (u, 1, Q)
    return (tied * signs).permute(0, 2, 1, 3, 4, 5).flatten(2, 3).flatten(0, 1)


def as_rotations(features: Tensor) -> Tensor:
    """Features of D_Λ as those of C_Λ: (B, C, 2Λ, H, W) → (B, 2C, Λ, H, W)."""
    return features.unflatten(2, (2, features.shape[2] // 2)).flatten(1, 2)


def as_reflections(features: Tensor) -> Tensor:
    """Features of C_Λ as those of D_Λ: (B, 2C, Λ, H, W) → (B, C, 2Λ, H, W)."""
    return features.unflatten(1, (features.shape[1] // 2, 2)).flatten(2, 3)
