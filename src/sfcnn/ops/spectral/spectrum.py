"""Group convolution in the spectrum of orientations: which frequency feeds which, and with what coefficients.

With Z = DFT_φ ζ and W_q = DFT_θ w_q, the sum over orientations becomes a product,

    U(m) = Σ_q W_q(m) · A_q(m + k),   A_q(n) = Z(n) ∗ ψ_q,   Y(m) = ½ [U(m) + conj U(−m)],

one small matrix product for each frequency m = 0 … ⌊Λ/2⌋ (k is the angular frequency of atom q, n counts modulo Λ).

Everything is real. The spectrum of real features has Λ real slabs, X_n = Re Z(n) for n = 0 … ⌊Λ/2⌋ and then
V_n = Im Z(n) where it is not zero. The responses of X_n and V_n to the parts a and b of ψ = a + ib give, in place,

    slab X_n:  A(n)  = (Xa − Vb) + i (Xb + Va)      stored as (real, imaginary)
    slab V_n:  A(−n) = (Xa + Vb) + i (Xb − Va)      stored as (imaginary, real)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor


@dataclass(frozen=True)
class Harmonic:
    """All atoms of one angular frequency."""

    frequency: int  #: k
    real: tuple[int, ...]  #: positions of Re ψ among the real atoms
    imaginary: tuple[int, ...]  #: positions of −Im ψ; none for k = 0

    @property
    def parts(self) -> int:
        """1 for k = 0, else 2."""
        return 2 if self.frequency else 1

    @property
    def size(self) -> int:
        """Number of real atoms."""
        return self.parts * len(self.real)

    def positions(self) -> Tensor:
        """Where the parts of each atom are among the real atoms: int64 (rings, parts)."""
        return torch.tensor([self.real, self.imaginary] if self.frequency else [self.real], device="cpu").T


@lru_cache(maxsize=64)
def group_harmonics(frequencies: tuple[int, ...]) -> tuple[Harmonic, ...]:
    """Sort real atoms by frequency; `frequencies` is that of `Basis`, where the two parts of an atom are neighbours."""
    positions: dict[int, list[int]] = {}
    for position, k in enumerate(frequencies):
        positions.setdefault(k, []).append(position)
    return tuple(
        Harmonic(k, tuple(where[::2] if k else where), tuple(where[1::2] if k else ()))
        for k, where in sorted(positions.items())
    )


@dataclass(frozen=True)
class Run:
    """A batch of products: slabs first_slab, first_slab + 1 … feed frequencies first, first + 1 …."""

    harmonic: int  #: index into the harmonics
    columns: int  #: which part of the kernel's columns: 0 or 1
    first: int  #: lowest output frequency m
    first_slab: int
    length: int
    mirrored: bool  #: whether m and −m differ, so that Y(m) has an imaginary part


def half_spectrum(orientations: int) -> int:
    """Number of frequencies 0 … ⌊Λ/2⌋."""
    return orientations // 2 + 1


def _mirrored(m: int, orientations: int) -> bool:
    """Whether m and −m differ modulo Λ."""
    return (2 * m) % orientations != 0


def _slab(n: int, orientations: int) -> tuple[int, bool]:
    """The slab that holds A(n) and whether it is a V-slab, for any n."""
    n %= orientations
    half = half_spectrum(orientations)
    return (n, False) if n < half else (half + orientations - n - 1, True)


@lru_cache(maxsize=64)
def mixing_runs(orientations: int, harmonics: tuple[Harmonic, ...]) -> tuple[Run, ...]:
    """All products U(m) ← A(m + k) and conj U(−m) ← A(k − m), neighbours joined to runs."""
    links: list[Run] = []
    for index, harmonic in enumerate(harmonics):
        k = harmonic.frequency
        for columns in (0, 1):
            for m in range(half_spectrum(orientations)):
                if columns == 1 and not _mirrored(m, orientations):
                    continue
                if k == 0:  # both parts of A(m), each a slab of its own
                    slab = m if columns == 0 else _slab(-m, orientations)[0]
                else:
                    slab = _slab(m + k if columns == 0 else k - m, orientations)[0]
                links.append(Run(index, columns, m, slab, 1, _mirrored(m, orientations)))
    runs: list[Run] = []
    for link in links:
        last = runs[-1] if runs else None
        follows = last is not None and (
            (last.harmonic, last.columns, last.mirrored) == (link.harmonic, link.columns, link.mirrored)
            and link.first == last.first + last.length
            and link.first_slab == last.first_slab + last.length
        )
        if last is not None and follows:
            runs[-1] = replace(last, length=last.length + 1)
        else:
            runs.append(link)
    return tuple(runs)


def spectrum_matrix(orientations: int) -> Tensor:
    """F: ζ(φ) → slabs, X_n = Σ_φ ζ cos nφ and V_n = −Σ_φ ζ sin nφ: float64 (Λ, Λ)."""
    half = half_spectrum(orientations)
    angle = _phases(orientations)  # (half, Λ)
    mirrored = [n for n in range(half) if _mirrored(n, orientations)]
    return torch.cat([angle.cos(), -angle[mirrored].sin()])


def synthesis_matrix(orientations: int) -> Tensor:
    """G: (Re Y, Im Y) of each frequency → y(θ) = 1/Λ Σ_m Y(m) e^{imθ} over all m: float64 (Λ, 2 · half)."""
    angle = _phases(orientations).T  # (Λ, half)
    weights = [2.0 if _mirrored(m, orientations) else 1.0 for m in range(angle.shape[1])]
    parts = torch.stack([angle.cos(), -angle.sin()], dim=-1) * angle.new_tensor(weights)[:, None] / orientations
    return parts.flatten(1)


def _phases(orientations: int) -> Tensor:
    """nθ of all frequencies n = 0 … ⌊Λ/2⌋ and orientations θ: float64 (half, Λ), on the CPU as all tables are."""
    frequencies = torch.arange(half_spectrum(orientations), dtype=torch.float64, device="cpu")
    return frequencies[:, None] * torch.arange(orientations, device="cpu") * (2 * math.pi / orientations)


@lru_cache(maxsize=64)
def _pair_tensor(orientations: int, frequency: int) -> Tensor:
    """From weights w = w_0 + i w_1 at Λ relative orientations to real 2×2 blocks: float64 (half, 2, 2, 2, Λ, 2).

    Axes: output frequency m, column part (A(m+k) or conj A(k−m)), part of Y, stored part of A, orientation, part of w.
    """
    half = half_spectrum(orientations)
    tensor = torch.zeros(half, 2, 2, 2, orientations, 2, dtype=torch.float64, device="cpu")
    cos, sin = _phases(orientations).cos(), _phases(orientations).sin()
    for m in range(half):
        mirrored = _mirrored(m, orientations)
        for columns, n, sign in ((0, m + frequency, 1.0), (1, frequency - m, -1.0)):
            if columns == 1 and not mirrored:
                continue
            scale = 0.5 if mirrored else 1.0
            # W(±m) = Σ_d (w_0 + i w_1)(cos md ∓ i sin md)
            real = torch.stack([cos[m], sign * sin[m]], dim=-1)
            imaginary = torch.stack([-sign * sin[m], cos[m]], dim=-1)
            block = torch.stack([torch.stack([real, -imaginary]), sign * torch.stack([imaginary, real])])
            if _slab(n, orientations)[1]:
                block = block.flip(1)
            tensor[m, columns] = scale * block
    return tensor


@lru_cache(maxsize=64)
def _single_tensor(orientations: int) -> Tensor:
    """The same for k = 0 and real weights: float64 (half, 2, 2, 1, Λ, 1); the column parts are X_m and V_m."""
    cos, sin = _phases(orientations).cos(), _phases(orientations).sin()
    blocks = torch.stack([torch.stack([cos, -sin], dim=1), torch.stack([sin, cos], dim=1)], dim=1)
    return blocks[:, :, :, None, :, None]


def _table(orientations: int, harmonic: Harmonic, like: Tensor) -> Tensor:
    k = harmonic.frequency
    return (_pair_tensor(orientations, k) if k else _single_tensor(orientations)).to(like)


def mixing_kernel(weight: Tensor, harmonics: tuple[Harmonic, ...]) -> Tensor:
    """The coefficients of all products: weights (Ĉ, C, Λ, Q) → (half, 2Ĉ, 2·C·Q).

    Columns run over harmonics, their two column parts, input channels, stored parts and rings.
    """
    pieces = []
    for harmonic in harmonics:
        table = _table(weight.shape[2], harmonic, weight)
        parts = weight[..., harmonic.positions()]  # (Ĉ, C, Λ, rings, parts of w)
        pieces.append(torch.einsum("mtpidw,ocdjw->mpotcij", table, parts).flatten(3))
    return torch.cat(pieces, dim=-1).flatten(1, 2)


def mixing_kernel_adjoint(gradient: Tensor, harmonics: tuple[Harmonic, ...], shape: Sequence[int]) -> Tensor:
    """The adjoint of the linear map `mixing_kernel`: (half, 2Ĉ, 2·C·Q) → weights of that shape (Ĉ, C, Λ, Q)."""
    out_channels, in_channels, orientations, _ = shape
    weight = gradient.new_empty(tuple(shape))
    widths = [2 * in_channels * harmonic.size for harmonic in harmonics]
    for harmonic, piece in zip(harmonics, gradient.split(widths, dim=-1), strict=True):
        axes = (len(gradient), 2, out_channels, 2, in_channels, harmonic.parts, len(harmonic.real))
        table = _table(orientations, harmonic, gradient)
        parts = torch.einsum("mtpidw,mpotcij->ocdjw", table, piece.reshape(axes))
        weight[..., harmonic.positions()] = parts
    return weight
