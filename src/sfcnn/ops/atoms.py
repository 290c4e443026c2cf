"""The input of engines: the atoms as needed by `conv2d`, and the weights steered to all orientations.

The first two engines differ only in where they put the brackets. With steered weights W̃ and atoms ψ,

    direct   y = ζ ∗ (W̃ ψ)      combine the filters, then convolve
    atomic   y = W̃ (ζ ∗ ψ)      convolve with the atoms, then combine the responses
"""

from typing import NamedTuple

import torch
from torch import Tensor

from sfcnn.harmonics import BasisLike, real_atoms, resolve_basis
from sfcnn.steering import PIXELS_NEED, orientation_angles, rotation_matrices


class Atoms(NamedTuple):
    """The fixed part of a layer: its atoms, and how they rotate."""

    filters: Tensor  #: (Q, s, s), from `correlation_atoms`
    rotations: Tensor  #: (Λ, Q, Q), one matrix per orientation
    frequencies: tuple[int, ...]  #: k of each real atom

    @property
    def orientations(self) -> int:
        """Λ."""
        return self.rotations.shape[0]


def sample_atoms(
    basis: BasisLike,
    kernel_size: int,
    orientations: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Atoms:
    """The atoms of a layer with this basis, kernel size and number of orientations."""
    basis = resolve_basis(basis, kernel_size)
    if basis.is_pixels and orientations not in (1, 2, 4):
        raise ValueError(f"{PIXELS_NEED}, got Λ = {orientations}")
    rotations = rotation_matrices(basis, orientation_angles(orientations)).to(dtype=dtype, device=device)
    return Atoms(correlation_atoms(basis, kernel_size, dtype, device), rotations, basis.frequencies)


def correlation_atoms(
    basis: BasisLike, kernel_size: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> Tensor:
    """The real atoms (Q, s, s), rotated by 180°: the paper convolves, `conv2d` correlates. Flips happen only here."""
    return real_atoms(basis, kernel_size, dtype=dtype, device=device).flip(-2, -1)


def _by_rows(weight: Tensor) -> Tensor:
    """The weight, viewed through its rows (…, Q), so that its gradient has the same memory layout.

    After an einsum it would not if an axis has size 1, and DistributedDataParallel warns about that.
    """
    return weight.flatten(0, -2).unflatten(0, weight.shape[:-1])


def steer_lift_weight(weight: Tensor, rotations: Tensor) -> Tensor:
    """w_ĉcq e^{−ikθ}: weights (Ĉ, C, Q) and rotations (Λ, Q, Q) → steered weights (Ĉ, Λ, C, Q)."""
    return torch.einsum("ocq,aqp->oacp", _by_rows(weight), rotations)


def steer_group_weight(weight: Tensor, rotations: Tensor) -> Tensor:
    """w_ĉcq(θ−φ) e^{−ikφ}: weights (Ĉ, C, Λ, Q) and rotations (Λ, Q, Q) → steered weights (Ĉ, Λ_θ, C, Λ_φ, Q)."""
    out_channels, in_channels, orientations, size = weight.shape
    steered = torch.einsum("ocdq,aqp->ocdap", _by_rows(weight), rotations)  # d: relative, a: input orientation
    theta = torch.arange(orientations, device=weight.device)
    phi = theta[:, None]
    # For each φ, the relative orientations d = θ − φ in the order of θ: row φ of (d, φ), flattened.
    index = ((theta - phi) % orientations) * orientations + phi  # (Λ_φ, Λ_θ)
    relative = steered.flatten(2, 3).index_select(2, index.flatten())
    shape = (out_channels, in_channels, orientations, orientations, size)
    return relative.view(shape).permute(0, 3, 1, 2, 4)


def bias_per_orientation(bias: Tensor | None, orientations: int) -> Tensor | None:
    """One bias per channel, the same for all orientations: (Ĉ,) → (Ĉ·Λ,)."""
    return None if bias is None else bias.repeat_interleave(orientations)
