"""Initial weights: He's scheme carried over to coefficients of atoms (§3.3, App. B).

With Q real atoms and N maps summed by each response, a layer keeps the variance of its signal if

    Var[w_q] = 2 / (N Q ‖ψ_q‖²),

with N = CΛ (C in a lifting layer) to keep that of the responses, forward, and N = ĈΛ to keep that of the gradients,
backward. The factor 2 compensates for the half of the signal that a ReLU removes.

`coeff` (the paper's CoeffInit) does this on normalised atoms, whose two parts have ‖ψ_q‖² = 1 on average.
`he` (the paper's baseline HeInit) gives the same variance to the coefficients of atoms of natural amplitude, so that an
atom's share of the response is its energy. The paper does not specify HeInit; this is our interpretation.

Both assume maps without mean or correlation. Rectified maps have both, and deep in a network without normalisation
they are nearly constant: `coeff` then multiplies the variance by mean_q (Σ_x ψ_q)² > 1 in each layer, which batch norm
undoes (docs/initialization.md).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from sfcnn.harmonics import Basis, BasisLike, atom_norms, complex_atoms, resolve_basis


def natural_amplitudes(basis: BasisLike, kernel_size: int) -> Tensor:
    """‖ψ_q‖ of the sampled atoms before normalisation, as a factor on the normalised ones: float64 (Q,)."""
    basis = resolve_basis(basis, kernel_size)
    natural = atom_norms(complex_atoms(basis, kernel_size, normalize=False))
    normalized = atom_norms(complex_atoms(basis, kernel_size))
    parts = torch.tensor([2 if k else 1 for _, k in basis.harmonics], device="cpu")
    return (natural / normalized).repeat_interleave(parts)


def _coeff_gain(basis: Basis, kernel_size: int) -> Tensor:
    return torch.ones(basis.size, dtype=torch.float64, device="cpu")


#: Standard deviation of each coefficient, up to the common factor √(2 / NQ), by name of the scheme.
SCHEMES: dict[str, Callable[[Basis, int], Tensor]] = {"coeff": _coeff_gain, "he": natural_amplitudes}

#: The legal values of `init`: a scheme keeps the forward variance, or with "-backward" that of the gradients.
INITS = tuple(scheme + direction for scheme in SCHEMES for direction in ("", "-backward"))


def check_init(init: str) -> None:
    """Raise unless `init` names a scheme."""
    if init not in INITS:
        raise ValueError(f"unknown init {init!r}, choose one of {list(INITS)}")


def initial_std(init: str, basis: BasisLike, kernel_size: int, *, fan_in: int, fan_out: int) -> Tensor:
    """Standard deviation of the weight of each real atom: float64 (Q,).

    fan_in is the number of maps that each response sums over, fan_out the number of responses that each map enters.
    """
    check_init(init)
    basis = resolve_basis(basis, kernel_size)
    scheme, _, direction = init.partition("-")
    fan = fan_out if direction else fan_in
    return (2 / (fan * basis.size)) ** 0.5 * SCHEMES[scheme](basis, kernel_size)


def init_weight_(weight: Tensor, std: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Fill weights (…, Q) in place with independent normal values of standard deviation std (Q,)."""
    with torch.no_grad():
        return weight.normal_(generator=generator).mul_(std.to(weight))
