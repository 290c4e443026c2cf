"""Group convolution in the spectrum of orientations: which frequency feeds which, and with what coefficients.

With Z = DFT_φ ζ and W_q = DFT_θ w_q, the sum over orientations becomes a product,

    U(m) = Σ_q W_q(m) · A_q(m + k),   A_q(n) = Z(n) ∗ ψ_q,   Y(m) = ½ [U(m) + conj U(−m)],

one small matrix product for each frequency m = 0 … ⌊Λ/2⌋ (k is the angular frequency of atom q, n counts modulo Λ).

Everything is real. The spectrum of real features has Λ real slabs, X_n = Re Z(n) for n = 0 … ⌊Λ/2⌋ and then
V_n = Im Z(n) where it is not zero. The responses of X_n and V_n to the parts a and b of ψ = a + ib give, in place,

    slab X_n:  A(n)  = (Xa − Vb) + i (Xb + Va)      stored as (real, imaginary)
    slab V_n:  A(−n) = (Xa + Vb) + i (Xb − Va)      stored as (imaginary, real)

The kernel holds the coefficients of Re Y alone. With a and b for the first and second stored part of a response,

    Re Y = a x + b y,   Im Y = σ (a y − b x),   σ = ±1 known for each pair of slab and harmonic.
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
        """Positions of the parts of each atom among the real atoms: int64 (rings, parts)."""
        return torch.tensor([self.real, self.imaginary] if self.frequency else [self.real], device="cpu").T


@lru_cache(maxsize=64)
def group_harmonics(frequencies: tuple[int, ...]) -> tuple[Harmonic, ...]:
    """Group real atoms by frequency; in `frequencies`, from `Basis`, the two parts of an atom are adjacent."""
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
    """All products U(m) ← A(m + k) and conj U(−m) ← A(k − m), with neighbours merged into runs."""
    links: list[Run] = []
    for index, harmonic in enumerate(harmonics):
        k = harmonic.frequency
        for columns in (0, 1):
            for m in range(half_spectrum(orientations)):
                if columns == 1 and not _mirrored(m, orientations):
                    continue
                if k == 0:  # both parts of A(m), each with its own slab
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
    """nθ of all frequencies n = 0 … ⌊Λ/2⌋ and orientations θ: float64 (half, Λ), on the CPU like all tables."""
    frequencies = torch.arange(half_spectrum(orientations), dtype=torch.float64, device="cpu")
    return frequencies[:, None] * torch.arange(orientations, device="cpu") * (2 * math.pi / orientations)


def sign(m: int, columns: int, frequency: int, orientations: int) -> int:
    """σ of the responses that feed frequency m in a column part."""
    n = m + frequency if columns == 0 else frequency - m
    conjugate, swapped = columns == 1, _slab(n, orientations)[1]
    return 1 if frequency == 0 or conjugate == swapped else -1


@lru_cache(maxsize=64)
def _pair_tensor(orientations: int, frequency: int) -> Tensor:
    """From weights w = w_0 + i w_1 at Λ relative orientations to a and b: float64 (half, 2, 2, Λ, 2).

    Axes: output frequency m, column part (A(m+k) or conj A(k−m)), stored part of A, orientation, part of w.
    """
    half = half_spectrum(orientations)
    tensor = torch.zeros(half, 2, 2, orientations, 2, dtype=torch.float64, device="cpu")
    cos, sin = _phases(orientations).cos(), _phases(orientations).sin()
    for m in range(half):
        mirrored = _mirrored(m, orientations)
        for columns, n, side in ((0, m + frequency, 1.0), (1, frequency - m, -1.0)):
            if columns == 1 and not mirrored:
                continue
            # W(±m) = Σ_d (w_0 + i w_1)(cos md ∓ i sin md), and Re Y = Re W Re A − Im W Im A for either sign
            real = torch.stack([cos[m], side * sin[m]], dim=-1)
            imaginary = torch.stack([-side * sin[m], cos[m]], dim=-1)
            block = torch.stack([real, -imaginary])
            swapped = _slab(n, orientations)[1]
            tensor[m, columns] = (0.5 if mirrored else 1.0) * (block.flip(0) if swapped else block)
    return tensor


@lru_cache(maxsize=64)
def _single_tensor(orientations: int) -> Tensor:
    """The same for k = 0 and real weights: float64 (half, 2, 1, Λ, 1); the column parts are X_m and V_m."""
    cos, sin = _phases(orientations).cos(), _phases(orientations).sin()
    return torch.stack([cos, sin], dim=1)[:, :, None, :, None]


def _table(orientations: int, harmonic: Harmonic, like: Tensor) -> Tensor:
    k = harmonic.frequency
    return (_pair_tensor(orientations, k) if k else _single_tensor(orientations)).to(like)


def mixing_kernel(weight: Tensor, harmonics: tuple[Harmonic, ...]) -> Tensor:
    """The coefficients of Re Y in all products: weights (Ĉ, C, Λ, Q) → (half, Ĉ, 2·C·Q).

    Columns run over harmonics, their two column parts, input channels, stored parts and rings.
    """
    pieces = []
    for harmonic in harmonics:
        table = _table(weight.shape[2], harmonic, weight)
        parts = weight[..., harmonic.positions()]  # (Ĉ, C, Λ, rings, parts of w)
        pieces.append(torch.einsum("mtidw,ocdjw->motcij", table, parts).flatten(2))
    return torch.cat(pieces, dim=-1)


def mixing_kernel_adjoint(gradient: Tensor, harmonics: tuple[Harmonic, ...], shape: Sequence[int]) -> Tensor:
    """The adjoint of the linear map `mixing_kernel`: (half, Ĉ, 2·C·Q) → weights of that shape (Ĉ, C, Λ, Q)."""
    in_channels, orientations = shape[1:3]
    weight = gradient.new_empty(tuple(shape))
    for harmonic, piece in zip(harmonics, _by_harmonic(gradient, harmonics, in_channels), strict=True):
        table = _table(orientations, harmonic, gradient)
        weight[..., harmonic.positions()] = torch.einsum("mtidw,motcij->ocdjw", table, piece)
    return weight


def _by_harmonic(kernel: Tensor, harmonics: tuple[Harmonic, ...], channels: int) -> list[Tensor]:
    """The columns of a kernel (…, 2·C·Q), for each harmonic (…, 2, C, stored parts, rings)."""
    pieces = kernel.split([2 * channels * harmonic.size for harmonic in harmonics], dim=-1)
    return [
        piece.unflatten(-1, (2, channels, harmonic.parts, len(harmonic.real)))
        for harmonic, piece in zip(harmonics, pieces, strict=True)
    ]


def split_channels(kernel: Tensor, harmonics: tuple[Harmonic, ...], sizes: Sequence[int]) -> list[Tensor]:
    """The columns of a kernel (half, Ĉ, 2·C·Q) for as many input channels as each of the sizes says, in order."""
    pieces = [piece.split(list(sizes), dim=3) for piece in _by_harmonic(kernel, harmonics, sum(sizes))]
    return [torch.cat([piece.flatten(2) for piece in part], dim=-1) for part in zip(*pieces, strict=True)]


def join_channels(kernels: Sequence[Tensor], harmonics: tuple[Harmonic, ...], sizes: Sequence[int]) -> Tensor:
    """The inverse of `split_channels`."""
    parts = [_by_harmonic(kernel, harmonics, size) for kernel, size in zip(kernels, sizes, strict=True)]
    return torch.cat([torch.cat(pieces, dim=3).flatten(2) for pieces in zip(*parts, strict=True)], dim=-1)


@lru_cache(maxsize=64)
def _signs(orientations: int, frequency: int) -> Tensor:
    """σ for all m and column parts: float64 (half, 2)."""
    signs = [[sign(m, t, frequency, orientations) for t in (0, 1)] for m in range(half_spectrum(orientations))]
    return torch.tensor(signs, dtype=torch.float64, device="cpu")


def complete(kernel: Tensor, harmonics: tuple[Harmonic, ...], orientations: int) -> Tensor:
    """The coefficients of Re Y and of Im Y: (half, Ĉ, 2·C·Q) → (half, 2Ĉ, 2·C·Q)."""
    imaginary = []
    channels = kernel.shape[-1] // (2 * sum(harmonic.size for harmonic in harmonics))
    for harmonic, piece in zip(harmonics, _by_harmonic(kernel, harmonics, channels), strict=True):
        if harmonic.frequency:
            signs = _signs(orientations, harmonic.frequency).to(kernel)[:, None, :, None, None, None]
            a, b = (signs * piece).split(1, dim=-2)
            imaginary.append(torch.cat([-b, a], dim=-2).flatten(2))
        else:  # the two stored parts are the column parts
            a, b = piece.split(1, dim=2)
            imaginary.append(torch.cat([-b, a], dim=2).flatten(2))
    return torch.cat([kernel, torch.cat(imaginary, dim=-1)], dim=1)


def complete_adjoint(gradient: Tensor, harmonics: tuple[Harmonic, ...], orientations: int) -> Tensor:
    """The adjoint of the linear map `complete`: (half, 2Ĉ, 2·C·Q) → (half, Ĉ, 2·C·Q)."""
    real, imaginary = gradient.chunk(2, dim=1)
    # The map from Re Y to Im Y squares to −1, so that its adjoint, which is also its inverse, is its negative.
    return real - complete(imaginary, harmonics, orientations).chunk(2, dim=1)[1]
