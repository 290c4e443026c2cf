"""The inner steps of the spectral group convolution: responses to the atoms, and one product per frequency.

`responses` → `mix`; the backward pass recomputes the responses and applies the adjoints in reverse order. For the
equations, see `spectrum`.
"""

from itertools import product

import torch
from torch import Tensor

from sfcnn.ops.spectral.chunks import Buffers
from sfcnn.ops.spectral.spectrum import (
    Harmonic,
    Run,
    complete,
    complete_adjoint,
    group_harmonics,
    half_spectrum,
    mixing_runs,
)
from sfcnn.ops.spectral.toeplitz import Tiling


class Mixing:
    """The atoms and the kernel (half, Ĉ, 2·C·Q) of one call, as matrices for its tiles."""

    def __init__(
        self,
        orientations: int,
        kernel: Tensor,
        filters: Tensor,
        frequencies: list[int],
        tiling: Tiling,
        buffers: Buffers,
    ) -> None:
        self.orientations = orientations
        self.half = half_spectrum(orientations)
        self.out_channels = kernel.shape[1]
        self.channels = kernel.shape[2] // (2 * len(frequencies))
        self.harmonics: tuple[Harmonic, ...] = group_harmonics(tuple(frequencies))
        self.runs: tuple[Run, ...] = mixing_runs(orientations, self.harmonics)
        self.kernel = complete(kernel, self.harmonics, orientations)
        self.tiling = tiling
        self.buffers = buffers
        self.toeplitz = [self._toeplitz(filters, harmonic) for harmonic in self.harmonics]
        self.columns = self._columns()
        self._cleared = -1  #: places of the chunk for which Im Y was last zeroed

    def _toeplitz(self, filters: Tensor, harmonic: Harmonic) -> Tensor:
        """T of one harmonic: (parts · rings · pixels, window). The atoms store −Im ψ, the responses need Im ψ."""
        parts = [filters[list(harmonic.real)], -filters[list(harmonic.imaginary)]]
        return self.tiling.toeplitz(torch.cat(parts)).flatten(0, 1)

    def _columns(self) -> list[tuple[slice, slice]]:
        """The positions of the two column parts of each harmonic in the kernel."""
        columns, start = [], 0
        for harmonic in self.harmonics:
            width = self.channels * harmonic.size
            columns.append((slice(start, start + width), slice(start + width, start + 2 * width)))
            start += 2 * width
        return columns

    def responses(self, windows: Tensor) -> list[Tensor]:
        """A_q(±n) for all harmonics: each (Λ, C, parts, rings · pixels · tiles · images), slabs as in `spectrum`."""
        maps, _, places = windows.shape
        result = []
        for index, (harmonic, toeplitz) in enumerate(zip(self.harmonics, self.toeplitz, strict=True)):
            response = self.buffers.get(f"responses {index}", maps, len(toeplitz), places)
            torch.bmm(toeplitz.expand(maps, -1, -1), windows, out=response)
            slabs = response.view(self.orientations, self.channels, harmonic.parts, -1)
            if harmonic.frequency:
                (xa, xb), (va, vb) = self._pairs(slabs)
                xa.sub_(vb)  # Re A(n) = Xa − Vb
                torch.add(xa, vb, alpha=2, out=vb)  # Re A(−n) = Xa + Vb
                xb.add_(va)  # Im A(n) = Xb + Va
                torch.add(xb, va, alpha=-2, out=va)  # Im A(−n) = Xb − Va
            result.append(slabs)
        return result

    def responses_adjoint(self, slabs: list[Tensor], places: int) -> Tensor:
        """The adjoint of `responses`: the gradient of the windows. Overwrites the slabs."""
        maps = self.orientations * self.channels
        windows = self.buffers.get("windows", maps, self.tiling.window, places)
        for index, (harmonic, toeplitz) in enumerate(zip(self.harmonics, self.toeplitz, strict=True)):
            if harmonic.frequency:
                (xa, xb), (va, vb) = self._pairs(slabs[index])
                xa.add_(vb)
                torch.lerp(xa, vb, 2.0, out=vb)
                xb.add_(va)
                torch.add(xb, va, alpha=-2, out=va)
            response = slabs[index].view(maps, len(toeplitz), places)
            adjoint = toeplitz.T.expand(maps, -1, -1)
            torch.baddbmm(windows, adjoint, response, beta=1 if index else 0, out=windows)
        return windows

    def _pairs(self, slabs: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """The parts (a, b) of the slabs X_n and V_n of all n that have both."""
        mirrored = self.orientations - self.half
        x, v = slabs[1 : 1 + mirrored], slabs[self.half :]
        return (x[:, :, 0], x[:, :, 1]), (v[:, :, 0], v[:, :, 1])

    def _rows(self, slabs: list[Tensor], run: Run, places: int) -> Tensor:
        """The slabs of a run as matrices: (length, C · parts · rings, pixels · tiles · images)."""
        length = self.tiling.pixels * places
        return slabs[run.harmonic][run.first_slab : run.first_slab + run.length].view(run.length, -1, length)

    def _coefficients(self, run: Run) -> Tensor:
        """The part of the kernel that a run uses: (length, 2Ĉ, C · parts · rings); only Re Y where m = −m."""
        rows = slice(None if run.mirrored else self.out_channels)
        return self.kernel[run.first : run.first + run.length, rows, self.columns[run.harmonic][run.columns]]

    def _spectrum_rows(self, mixed: Tensor, run: Run) -> Tensor:
        """Y(m) of a run: (length, 2Ĉ or Ĉ, pixels · tiles · images)."""
        return mixed[run.first : run.first + run.length, : None if run.mirrored else self.out_channels]

    def mix(self, slabs: list[Tensor], places: int) -> Tensor:
        """Y(m) = Σ kernel · responses: (half, 2Ĉ, pixels · tiles · images). Im Y is 0 where m = −m."""
        mixed = self.mixed(places)
        if self._cleared != places:  # for chunks of another shape, the memory of Im Y held other values
            mixed[0, self.out_channels :] = 0
            if self.orientations % 2 == 0:
                mixed[-1, self.out_channels :] = 0
            self._cleared = places
        started: set[int] = set()
        for run in self.runs:
            target, rows = self._spectrum_rows(mixed, run), self._rows(slabs, run, places)
            torch.baddbmm(target, self._coefficients(run), rows, beta=1 if run.first in started else 0, out=target)
            started.update(range(run.first, run.first + run.length))
        return mixed

    def mixed(self, places: int) -> Tensor:
        """A buffer for Y: (half, 2Ĉ, pixels · tiles · images)."""
        return self.buffers.get("mixed", self.half, 2 * self.out_channels, self.tiling.pixels * places)

    def mix_adjoint(self, mixed: Tensor, slabs: list[Tensor], totals: list[Tensor] | None, places: int) -> None:
        """The adjoint of `mix`: add to the runs' kernel gradients, and overwrite the responses with their gradient."""
        matrices = [self._rows(slabs, run, places) for run in self.runs]
        for run, rows, total in zip(self.runs, matrices, totals or (), strict=False):
            total.baddbmm_(self._spectrum_rows(mixed, run), rows.mT)
        used: set[tuple[int, int]] = set()
        for run, rows in zip(self.runs, matrices, strict=True):
            gradient, adjoint = self._spectrum_rows(mixed, run), self._coefficients(run).mT
            reached = [(run.harmonic, run.first_slab + index) for index in range(run.length)]
            if used.isdisjoint(reached):
                torch.bmm(adjoint, gradient, out=rows)
            else:  # frequencies beyond Λ/2 wrap around to slabs that are already in use
                for index, slab in enumerate(reached):
                    rows[index].addmm_(adjoint[index], gradient[index], beta=1 if slab in used else 0)
            used.update(reached)
        for harmonic, position in product(range(len(slabs)), range(self.orientations)):
            if (harmonic, position) not in used:
                slabs[harmonic][position].zero_()

    def kernel_totals(self) -> list[Tensor]:
        """Zero-initialised sums of the gradients of the runs' coefficients."""
        return [torch.zeros_like(self._coefficients(run), memory_format=torch.contiguous_format) for run in self.runs]

    def kernel_gradient(self, totals: list[Tensor]) -> Tensor:
        """The totals of all runs, combined: (half, Ĉ, 2·C·Q)."""
        gradient = torch.zeros_like(self.kernel)
        rows = [slice(None if run.mirrored else self.out_channels) for run in self.runs]
        for run, some, total in zip(self.runs, rows, totals, strict=True):
            gradient[run.first : run.first + run.length, some, self.columns[run.harmonic][run.columns]] = total
        return complete_adjoint(gradient, self.harmonics, self.orientations)
