"""Pixels as atoms: all filters on a grid, turned by quarter turns and mirrored by moving pixels.

A filter of s × s free pixels is a filter of s² orthonormal atoms that turn by phases as circular harmonics do. The
centre is an atom by itself. The others form shells of 8 pixels that quarter turns and the mirror φ → π − φ map onto
themselves: (±x, ±y) and (±y, ±x) for 0 < y < x, and for y = 0 the four on the axes together with the four corners
(±x, ±x). Let σ = ±1 distinguish the two orbits of quarter turns in a shell. Its atoms, which are 0 outside it, are

    1,  e^{iφ},  e^{2iφ},  σ,  σ e^{iφ}      (in shells with y > 0, i σ e^{iφ})

each part normalised by itself: 1 + 2 + 2 + 1 + 2 = 8 real atoms for 8 pixels. A turn by φ multiplies an atom of
frequency k by e^{−ikφ}, if φ is a multiple of 90° (the parts of e^{2iφ} then never mix), and the mirror multiplies each
real atom by a sign. So orientations are 1, 2 or 4.
"""

from functools import lru_cache

import torch
from torch import Tensor

#: Frequencies of the complex atoms of a shell.
_SHELL = (0, 1, 2, 0, 1)


def _shells(kernel_size: int) -> list[tuple[int, int]]:
    """One pixel (x, y), 0 ≤ y < x, of each shell."""
    return [(x, y) for x in range(1, kernel_size // 2 + 1) for y in range(x)]


def pixel_harmonics(kernel_size: int) -> tuple[tuple[int, int], ...]:
    """Pairs (shell, k), one for each complex atom; shell 0 is the centre.

    >>> pixel_harmonics(3)
    ((0, 0), (1, 0), (1, 1), (1, 2), (1, 0), (1, 1))
    """
    shells = range(1, len(_shells(kernel_size)) + 1)
    return ((0, 0), *((shell, k) for shell in shells for k in _SHELL))


def pixel_mirror_signs(kernel_size: int) -> tuple[int, ...]:
    """The sign that the mirror gives each real atom; σ changes its own if y > 0."""
    signs = [1]
    for _, y in _shells(kernel_size):
        signs += [1, -1, 1, 1, -1, -1 if y else 1, -1, 1]
    return tuple(signs)


@lru_cache(maxsize=16)
def pixel_atoms(kernel_size: int) -> Tensor:
    """The atoms as complex filters, whose real and imaginary parts are orthonormal: complex128 (atoms, s, s)."""
    half = kernel_size // 2
    axis = torch.arange(-half, half + 1, device="cpu")
    y, x = torch.meshgrid(-axis, axis, indexing="ij")
    phi = torch.atan2(y.double(), x.double())
    far, near = torch.maximum(x.abs(), y.abs()), torch.minimum(x.abs(), y.abs())
    atoms = [((x == 0) & (y == 0)).to(torch.complex128)]
    for x0, y0 in _shells(kernel_size):
        first = (far == x0) & (near == y0)  # one orbit, or for y0 > 0 both
        shell = (first | (near == x0) & (far == x0)) if y0 == 0 else first
        sigma = (2 * first.double() - 1) if y0 == 0 else torch.sin(4 * phi).sign()
        wave, phase = torch.polar(torch.ones_like(phi), phi), 1j if y0 else 1.0
        for atom in (torch.ones_like(wave), wave, wave**2, sigma * torch.ones_like(wave), phase * sigma * wave):
            atoms.append(_normalized(shell * atom))
    return torch.stack(atoms)


def _normalized(atom: Tensor) -> Tensor:
    """The atom with each of its parts at norm 1, or 0 if there is none."""
    parts = torch.view_as_real(atom)  # (s, s, 2)
    norms = torch.linalg.vector_norm(parts, dim=(0, 1))
    return torch.view_as_complex(torch.where(norms > 1e-6, parts / norms.clamp_min(1e-6), 0.0))
