"""Circular harmonics: the atoms ψ_jk(r, φ) = τ_j(r) e^{ikφ} that every filter is a linear combination of (§3.1).

The radial parts are Gaussian rings τ_j(r) = exp(−(r − μ_j)² / 2σ_j²), and ring j carries the angular frequencies
k = 0 … K_j. A `Basis` names the rings and their limits; `complex_atoms` samples it on a pixel grid and `real_atoms`
gives the real tensor that layers work with.

Coordinates: x grows to the right, y grows upward, the origin is the centre pixel of an odd grid, and φ turns
counter-clockwise as a person sees the image. Lengths are in steps of the filter's own grid.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from sfcnn.pixels import pixel_atoms, pixel_harmonics, pixel_mirror_signs

# An atom whose samples have a smaller norm than this is not a filter: normalising it would only amplify rounding.
_DEAD_ATOM = 1e-12


@dataclass(frozen=True)
class Basis:
    """The rings of a system of circular harmonics and the angular frequencies that each carries.

    >>> Basis(radii=(0, 1, 2), sigmas=(0.6, 0.6, 0.6), cutoffs=(0, 2, 3)).size
    13
    """

    radii: tuple[float, ...]  #: μ_j, in grid steps from the centre
    sigmas: tuple[float, ...]  #: σ_j, the width of each ring
    cutoffs: tuple[int, ...]  #: K_j, the highest angular frequency on each ring
    subpixels: int = 1  #: atoms are averaged over subpixels × subpixels points of each pixel; 1 samples its centre

    def __post_init__(self) -> None:
        """Check each field on its own and against the others."""
        if not self.radii or not len(self.radii) == len(self.sigmas) == len(self.cutoffs):
            raise ValueError(
                "a basis needs one radius, one sigma and one cutoff per ring, "
                f"got {len(self.radii)}, {len(self.sigmas)} and {len(self.cutoffs)}"
            )
        if self.subpixels < 1:
            raise ValueError(f"subpixels must be at least 1, got {self.subpixels}")
        if self.is_pixels:
            return
        for radius, sigma, cutoff in zip(self.radii, self.sigmas, self.cutoffs, strict=True):
            if not radius >= 0 or not sigma > 0:
                raise ValueError(f"a ring needs radius ≥ 0 and sigma > 0, got radius {radius} and sigma {sigma}")
            # The square ring of pixels at distance r has 8r pixels: its Nyquist frequency is 4r.
            if not 0 <= cutoff <= 4 * radius or cutoff != int(cutoff):
                raise ValueError(
                    f"cutoff K = {cutoff} on the ring of radius {radius:g} is beyond the grid: "
                    f"its {8 * radius:g} pixels carry whole frequencies 0 … {int(4 * radius)}"
                )

    @property
    def is_pixels(self) -> bool:
        """Whether the atoms are those of single pixels (`sfcnn.pixels`): rings without a width."""
        rings = tuple(range(len(self.radii)))
        return not any(self.sigmas) and self.radii == rings and self.cutoffs == tuple(4 * j for j in rings)

    @property
    def harmonics(self) -> tuple[tuple[int, int], ...]:
        """The pairs (j, k) of ring and angular frequency, one for each complex atom."""
        if self.is_pixels:
            return pixel_harmonics(self.natural_kernel_size)
        return tuple((j, k) for j, cutoff in enumerate(self.cutoffs) for k in range(int(cutoff) + 1))

    @property
    def frequencies(self) -> tuple[int, ...]:
        """The angular frequency k of each real atom: once for k = 0, twice (real, imaginary) for k > 0."""
        return tuple(k for _, k in self.harmonics for _ in range(2 if k else 1))

    @property
    def mirror_signs(self) -> tuple[int, ...]:
        """±1 for each real atom: what the mirror φ → π − φ multiplies it by.

        It maps ψ_jk to ψ_jk(r, π − φ) = (−1)^k conj ψ_jk(r, φ), so that Re ψ gets the sign (−1)^k and −Im ψ the other.
        """
        if self.is_pixels:
            return pixel_mirror_signs(self.natural_kernel_size)
        return tuple(sign for _, k in self.harmonics for sign in ((-1) ** k, -((-1) ** k))[: 2 if k else 1])

    @property
    def size(self) -> int:
        """Q, the number of real atoms, and so of real weights of one filter."""
        return self.natural_kernel_size**2 if self.is_pixels else sum(2 * int(cutoff) + 1 for cutoff in self.cutoffs)

    @property
    def natural_kernel_size(self) -> int:
        """The smallest odd grid with pixels on both sides of the outermost ring, as in all presets."""
        return 2 * math.ceil(max(self.radii)) + 1

    def dilated(self, dilation: float) -> "Basis":
        """The same rings spread by a factor: what a convolution with `dilation` applies to the image."""
        return Basis(
            tuple(dilation * r for r in self.radii),
            tuple(dilation * s for s in self.sigmas),
            self.cutoffs,
            self.subpixels,
        )

    def to_tensor(self) -> Tensor:
        """The rings as numbers, to be saved beside weights: float64 (4, rings) of radii, sigmas, cutoffs, subpixels."""
        rows = self.radii, self.sigmas, self.cutoffs, (self.subpixels,) * len(self.radii)
        return torch.tensor(rows, dtype=torch.float64, device="cpu")

    @classmethod
    def from_tensor(cls, rings: Tensor) -> "Basis":
        """The inverse of `to_tensor`.

        >>> Basis.from_tensor(averaged(7).to_tensor()) == averaged(7)
        True
        """
        fits = isinstance(rings, Tensor) and rings.is_floating_point() and rings.dim() == 2 and len(rings) == 4
        if not fits or rings.shape[1] == 0 or not bool(torch.isfinite(rings).all()):
            found = f"{rings.dtype} {tuple(rings.shape)}" if isinstance(rings, Tensor) else type(rings).__name__
            raise ValueError(f"a saved basis must be a tensor of finite numbers (4, rings), got {found}")
        radii, sigmas, cutoffs, subpixels = rings.tolist()
        if any(number != int(number) for number in (*cutoffs, *subpixels)) or len(set(subpixels)) != 1:
            raise ValueError(f"cutoffs and subpixels of a saved basis must be whole, got {cutoffs} and {subpixels}")
        return cls(tuple(radii), tuple(sigmas), tuple(map(int, cutoffs)), int(subpixels[0]))


def _check_kernel_size(kernel_size: int) -> None:
    if not isinstance(kernel_size, int) or kernel_size < 1 or kernel_size % 2 == 0:
        raise ValueError(f"kernel_size must be an odd whole number (1, 3, 5, …), got {kernel_size!r}")


def paper(kernel_size: int) -> Basis:
    """The limits used in the paper: K_0 = 0, K_j = 2(j + 1), σ = 0.6; on each ring close to aliasing."""
    rings = range(kernel_size // 2 + 1)
    return Basis(tuple(map(float, rings)), tuple(0.6 for _ in rings), tuple(2 * (j + 1) if j else 0 for j in rings))


def bandlimited(kernel_size: int) -> Basis:
    """Tighter limits that keep rotated filters similar on the grid: K = 0 | 2 | 3 | 6 | 7 …, outermost ring 2."""
    outer = kernel_size // 2

    def cutoff(j: int) -> int:
        return 0 if j == 0 else 2 if j == outer else 2 * j - (j + 1) % 2

    def sigma(j: int) -> float:
        return 0.005 if j == 0 else 0.4 if j == outer else 0.6

    rings = range(outer + 1)
    return Basis(tuple(map(float, rings)), tuple(map(sigma, rings)), tuple(map(cutoff, rings)))


def averaged(kernel_size: int) -> Basis:
    """The limits of `bandlimited`, sampled more accurately: the same number of filters, with a smaller rotation error.

    Each pixel holds the mean of the atom over its area instead of the value at its centre. Rings are narrower, since
    the mean widens them, and the outermost stays away from the border, which would cut it along the axes but not along
    the diagonals. The centre is a small Gaussian instead of a single pixel.
    """
    limits, outer = bandlimited(kernel_size), kernel_size // 2
    radii = tuple(r - 0.1 if 0 < r == outer else r for r in limits.radii)
    sigmas = tuple(0.6 if r == 0 else 0.35 if r == outer else 0.45 for r in limits.radii)
    return Basis(radii, sigmas, limits.cutoffs, subpixels=3)


def pixels(kernel_size: int) -> Basis:
    """All s² pixels, for 1, 2 or 4 orientations: an ordinary convolution, or the group convolution p4 (`sfcnn.pixels`).

    As rings they have no width, and the 8j pixels at distance j carry frequencies up to 4j.
    """
    rings = range(kernel_size // 2 + 1)
    return Basis(tuple(map(float, rings)), tuple(0.0 for _ in rings), tuple(4 * j for j in rings))


PRESETS: dict[str, Callable[[int], Basis]] = {
    "bandlimited": bandlimited,
    "averaged": averaged,
    "paper": paper,
    "pixels": pixels,
}

#: What layers and models accept as a basis: a preset's name, a `Basis`, or a function from kernel size to `Basis`.
BasisLike: TypeAlias = str | Basis | Callable[[int], Basis]


def resolve_basis(basis: BasisLike, kernel_size: int) -> Basis:
    """The basis that `basis` means on a kernel_size × kernel_size grid.

    >>> resolve_basis("bandlimited", 7).cutoffs
    (0, 2, 3, 2)
    """
    _check_kernel_size(kernel_size)
    if isinstance(basis, str):
        if basis not in PRESETS:
            raise ValueError(f"unknown basis preset {basis!r}, choose one of {sorted(PRESETS)} or pass a Basis")
        basis = PRESETS[basis]
    resolved = basis if isinstance(basis, Basis) else basis(kernel_size)
    if max(resolved.radii) > kernel_size / 2:
        raise ValueError(
            f"a ring of radius {max(resolved.radii):g} does not fit a {kernel_size}×{kernel_size} kernel: "
            f"radii must be at most {kernel_size / 2:g}"
        )
    return resolved


def preset_name(basis: Basis, kernel_size: int) -> str | None:
    """The preset that has these rings on this grid, if there is one."""
    return next((name for name, preset in PRESETS.items() if preset(kernel_size) == basis), None)


def describe_basis(basis: Basis) -> str:
    """A basis in a message: the name of a preset, or else its rings.

    >>> describe_basis(averaged(7))
    "'averaged' of 7×7 kernels"
    """
    size = basis.natural_kernel_size
    # Presets have a ring for each pixel from the centre. A damaged file may name a ring at a distance of billions.
    name = preset_name(basis, size) if len(basis.radii) == size // 2 + 1 else None
    return f"{name!r} of {size}×{size} kernels" if name else str(basis)


def pixel_grid(kernel_size: int, subpixels: int = 1) -> tuple[Tensor, Tensor]:
    """Coordinates (x, y) of all sample points, each of shape (s·n, s·n), y growing upward."""
    _check_kernel_size(kernel_size)
    samples = kernel_size * subpixels
    axis = (torch.arange(samples, dtype=torch.float64, device="cpu") - (samples - 1) / 2) / subpixels
    y, x = torch.meshgrid(-axis, axis, indexing="ij")
    return x, y


def complex_atoms(basis: BasisLike, kernel_size: int, *, normalize: bool = True) -> Tensor:
    """Sample ψ_jk(r, φ) = τ_j(r) e^{ikφ} on the grid: complex128 of shape (atoms, s, s).

    The centre pixel is 0 for k > 0. With `normalize` the modulus is scaled to ‖ψ‖₂ = 1 for k = 0 and √2 for k > 0
    (App. B), which gives the real and imaginary parts unit norm on average and, unlike scaling each of them to 1,
    keeps the atom steerable.
    """
    basis = resolve_basis(basis, kernel_size)
    if basis.is_pixels:
        margin = (kernel_size - basis.natural_kernel_size) // 2
        return F.pad(pixel_atoms(basis.natural_kernel_size), (margin,) * 4)
    x, y = pixel_grid(kernel_size, basis.subpixels)
    r, phi = torch.hypot(x, y), torch.atan2(y, x)
    j, k = torch.tensor(basis.harmonics, dtype=torch.float64, device="cpu").T[..., None, None]
    mu, sigma = torch.tensor([basis.radii, basis.sigmas], dtype=torch.float64, device="cpu")[:, j.long()]
    psi = torch.polar(torch.exp(-((r - mu) ** 2) / (2 * sigma**2)), k * phi)  # (atoms, s·n, s·n)
    n = basis.subpixels
    psi = psi.unflatten(-1, (kernel_size, n)).unflatten(-3, (kernel_size, n)).mean((-3, -1))  # (atoms, s, s)
    centre = kernel_size // 2
    psi[k.flatten() > 0, centre, centre] = 0
    norm = atom_norms(psi)
    if bool((norm < _DEAD_ATOM).any()):
        ring, frequency = basis.harmonics[int(norm.argmin())]
        raise ValueError(
            f"the atom with frequency {frequency} on the ring of radius {basis.radii[ring]:g} and sigma "
            f"{basis.sigmas[ring]:g} vanishes on a {kernel_size}×{kernel_size} grid: widen the ring or lower its cutoff"
        )
    if not normalize:
        return psi
    return psi * (1 + (k > 0).double()).sqrt() / norm[:, None, None]


def atom_norms(atoms: Tensor) -> Tensor:
    """‖ψ‖₂ of each atom: (atoms, s, s) → (atoms,)."""
    return torch.linalg.vector_norm(atoms, dim=(-2, -1))


@lru_cache(maxsize=64)
def _real_atoms(basis: Basis, kernel_size: int) -> Tensor:
    atoms = complex_atoms(basis, kernel_size)
    parts = torch.stack([atoms.real, -atoms.imag], dim=1)  # (atoms, 2, s, s)
    keep = torch.tensor([[True, k > 0] for _, k in basis.harmonics], device="cpu")
    return parts[keep]


def real_atoms(
    basis: BasisLike,
    kernel_size: int,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Tensor:
    """The normalised atoms as real filters (Q, s, s): Re ψ and, for k > 0, −Im ψ.

    With a weight w = a + ib, Re(w ψ) = a Re ψ + b (−Im ψ): the real weights (a, b) multiply these two filters.
    Values are computed in float64 once and then cast, so float32 and float64 agree to rounding.
    """
    return _real_atoms(resolve_basis(basis, kernel_size), kernel_size).to(dtype=dtype, device=device, copy=True)
