"""Steering: rotate a filter exactly by shifting the phases of its weights (§3.1).

A filter is Ψ = Re Σ_jk w_jk ψ_jk. Rotating it by θ multiplies each atom by a phase,

    ρ_θ Ψ = Re Σ_jk w_jk e^{−ikθ} ψ_jk,

which in real arithmetic rotates the pair of real weights of each atom by the angle kθ. The rotation laws hold exactly
on any grid: ρ_0 = ρ_2π = identity and ρ_α ρ_β = ρ_{α+β}.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from sfcnn.harmonics import Basis, BasisLike, real_atoms, resolve_basis

#: The hint for errors about rotating pixels by other angles.
PIXELS_NEED = (
    "the basis 'pixels' is for 1, 2 or 4 orientations (Λ), choose 'bandlimited', 'averaged' or 'paper' for others"
)

_MOST_ORIENTATIONS = 2**20  # far more than fit in any memory


def check_orientations(orientations: int) -> None:
    """Raise unless `orientations` is a whole number ≥ 1."""
    if isinstance(orientations, bool) or not isinstance(orientations, int) or orientations < 1:
        raise ValueError(f"orientations (Λ) must be a whole number of at least 1, got {orientations!r}")
    if orientations > _MOST_ORIENTATIONS:
        raise ValueError(f"orientations (Λ) must be at most {_MOST_ORIENTATIONS}, got {orientations}")


def orientation_angles(orientations: int) -> Tensor:
    """The sampled angles θ_a = 2πa/Λ, a = 0 … Λ−1, as float64 (Λ,)."""
    check_orientations(orientations)
    return torch.arange(orientations, dtype=torch.float64, device="cpu") * (2 * math.pi / orientations)


def rotation_matrices(basis: Basis, angles: Tensor | Sequence[float]) -> Tensor:
    """M(θ) with ρ_θ ψ_q = Σ_p M(θ)_qp ψ_p on the real atoms: float64 (A, Q, Q), block-diagonal.

    For the pair (Re ψ, −Im ψ) of frequency k the block is [[cos kθ, −sin kθ], [sin kθ, cos kθ]]; for k = 0 it is 1.
    Rotated weights are w M(θ).
    """
    angles = torch.as_tensor(angles, dtype=torch.float64, device="cpu")
    if basis.is_pixels and not torch.allclose(angles, (angles * 2 / math.pi).round() * (math.pi / 2)):
        raise ValueError(f"only quarter turns map pixels onto pixels: {PIXELS_NEED}")
    blocks = []
    for _, k in basis.harmonics:
        cos, sin = torch.cos(k * angles), torch.sin(k * angles)
        pair = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)  # (A, 2, 2)
        blocks.append(pair if k else pair[:, :1, :1])
    matrices = torch.zeros(len(angles), basis.size, basis.size, dtype=torch.float64, device="cpu")
    start = 0
    for block in blocks:
        stop = start + block.shape[-1]
        matrices[:, start:stop, start:stop] = block
        start = stop
    return matrices


def steer(weight: Tensor, basis: BasisLike, kernel_size: int, angles: Tensor | Sequence[float]) -> Tensor:
    """The filters ρ_θ Ψ at a set of angles: weights (…, Q) and A angles → filters (…, A, s, s).

    >>> weight = torch.randn(4, 3, 18)
    >>> steer(weight, "bandlimited", 7, [0.0, math.pi / 3]).shape
    torch.Size([4, 3, 2, 7, 7])
    """
    basis = resolve_basis(basis, kernel_size)
    if weight.shape[-1] != basis.size:
        raise ValueError(f"weight has {weight.shape[-1]} coefficients in its last axis, the basis has {basis.size}")
    atoms = real_atoms(basis, kernel_size, dtype=weight.dtype, device=weight.device)
    rotations = rotation_matrices(basis, angles).to(weight)
    return torch.einsum("...q,aqp,pxy->...axy", weight, rotations, atoms)
