"""What the compiled kernel has to know about atoms and orientations, as tables of numbers.

Windows are split by the symmetry of the square grid (`symmetry.h`), and each part of an atom must lie in one of its
classes.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from sfcnn.ops.spectral.spectrum import group_harmonics, mixing_runs, spectrum_matrix

#: Rounding of atoms that are symmetric but for it, in units of their precision.
_ROUNDING = 64


@dataclass(frozen=True)
class Tables:
    """The tables of `struct Problem`, kept for as long as their addresses are used."""

    rings: Tensor  #: int32 (harmonics,)
    parts: Tensor  #: int32 (harmonics,)
    classes: Tensor  #: int32 (harmonics, 2)
    feeds: Tensor  #: int32 (Λ, harmonics): 2m + column part that the responses of a slab feed
    coefficients: Tensor  #: float64 (Q, s²): atoms by harmonic, part and ring, in components
    spectrum: Tensor  #: float64 (Λ, Λ)


def components(windows: Tensor) -> list[Tensor]:
    """Windows (…, s, s) → their components, for each class A1, A2, B1, B2, Ex, Ey: (…, components)."""
    radius = windows.shape[-1] // 2
    classes: list[list[Tensor]] = [[] for _ in range(6)]
    a1, a2, b1, b2, ex, ey = classes

    def at(y: int, x: int) -> Tensor:
        return windows[..., radius + y, radius + x]

    def parities(y: int, x: int) -> tuple[Tensor, Tensor]:
        below, above = (at(y, x), at(y, -x)), (at(-y, x), at(-y, -x))
        ex.append(below[0] - below[1] + above[0] - above[1])
        ey.append(below[0] + below[1] - above[0] - above[1])
        return sum((*below, *above)), below[0] - below[1] - above[0] + above[1]  # type: ignore[return-value]

    a1.append(at(0, 0))
    for a in range(1, radius + 1):
        x, y = at(0, a) + at(0, -a), at(a, 0) + at(-a, 0)
        a1.append(x + y)
        b1.append(x - y)
        ex.append(at(0, a) - at(0, -a))
        ey.append(at(a, 0) - at(-a, 0))
    for a in range(1, radius + 1):
        even, odd = parities(a, a)
        a1.append(even)
        b2.append(odd)
    for a in range(1, radius + 1):
        for b in range(a + 1, radius + 1):
            (even, odd), (even_turned, odd_turned) = parities(b, a), parities(a, b)
            a1.append(even + even_turned)
            b1.append(even - even_turned)
            b2.append(odd + odd_turned)
            a2.append(odd - odd_turned)
    empty = windows.new_empty(*windows.shape[:-2], 0)
    return [torch.stack(some, dim=-1) if some else empty for some in classes]


def make_tables(filters: Tensor, frequencies: tuple[int, ...], orientations: int) -> Tables | None:
    """The tables for atoms (Q, s, s) on the CPU, or None if some atom lies in no class."""
    shape = filters.shape[0], filters.shape[-1]
    return _make_tables(filters.contiguous().numpy().tobytes(), filters.dtype, shape, frequencies, orientations)


@lru_cache(maxsize=256)
def _make_tables(
    atoms: bytes, dtype: torch.dtype, shape: tuple[int, int], frequencies: tuple[int, ...], orientations: int
) -> Tables | None:
    count, size = shape
    filters = torch.frombuffer(bytearray(atoms), dtype=dtype).view(count, size, size).double()
    # The components of single pixels are the columns of an orthogonal matrix.
    pieces = components(torch.eye(size * size, dtype=torch.float64, device="cpu").view(-1, size, size))
    bounds = torch.tensor([0, *(piece.shape[1] for piece in pieces)]).cumsum(0).tolist()
    matrix = torch.cat(pieces, dim=1)
    coefficients = filters.flatten(1) @ matrix / matrix.square().sum(0)  # (Q, s²)
    tolerance = _ROUNDING * torch.finfo(dtype).eps * filters.abs().max()
    harmonics = group_harmonics(frequencies)
    rows, classes = [], torch.zeros(len(harmonics), 2, dtype=torch.int32)
    for h, harmonic in enumerate(harmonics):
        for part, (positions, sign) in enumerate(((harmonic.real, 1), (harmonic.imaginary, -1))[: harmonic.parts]):
            part_rows = sign * coefficients[list(positions)]  # the atoms hold −Im ψ, the responses want Im ψ
            outside = [_outside(part_rows, *bounds[number : number + 2]) for number in range(6)]
            if min(outside) > tolerance:
                return None
            classes[h, part] = outside.index(min(outside))
            rows.append(part_rows)
    return Tables(
        torch.tensor([len(harmonic.real) for harmonic in harmonics], dtype=torch.int32),
        torch.tensor([harmonic.parts for harmonic in harmonics], dtype=torch.int32),
        classes,
        _feeds(frequencies, orientations),
        torch.cat(rows).contiguous(),
        spectrum_matrix(orientations).contiguous(),
    )


def _outside(rows: Tensor, first: int, last: int) -> float:
    """The largest coefficient outside the components first … last."""
    rest = rows.abs()
    rest[:, first:last] = 0
    return float(rest.max())


def _feeds(frequencies: tuple[int, ...], orientations: int) -> Tensor:
    """Every slab feeds one frequency m for each harmonic, in one column part: int32 (Λ, harmonics) of 2m + part."""
    harmonics = group_harmonics(frequencies)
    feeds = torch.full((orientations, len(harmonics)), -1, dtype=torch.int32, device="cpu")
    for run in mixing_runs(orientations, harmonics):
        for step in range(run.length):
            feeds[run.first_slab + step, run.harmonic] = 2 * (run.first + step) + run.columns
    return feeds
