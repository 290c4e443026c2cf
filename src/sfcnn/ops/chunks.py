"""One call of the spectral group convolution, in chunks of images and rows that share their buffers.

Forward: `windows` → `responses` → `mix` → `collect`. Each step has its adjoint, and the backward pass runs through
them in reverse order after it has computed the responses anew. Fresh memory costs page faults, several times the price
of writing to it, so every large temporary is a named buffer that lives as long as the call.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from sfcnn.ops.geometry import Geometry
from sfcnn.ops.spectrum import (
    Harmonic,
    Run,
    group_harmonics,
    half_spectrum,
    mixing_runs,
    spectrum_matrix,
    synthesis_matrix,
)
from sfcnn.ops.tiling import Tiling, choose_tiling

# Numbers in the responses of one chunk. They are written once and read once or twice, so they should stay in cache.
_CHUNK = 6_000_000


@dataclass(frozen=True)
class Chunk:
    """Some images, and in each of them some rows of tiles."""

    images: slice
    tile_rows: slice

    @property
    def count(self) -> int:
        """Number of images."""
        return int(self.images.stop - self.images.start)

    @property
    def height(self) -> int:
        """Rows of tiles."""
        return int(self.tile_rows.stop - self.tile_rows.start)


def tile_maps(shape: Sequence[int], out_channels: int, atoms: int, geometry: Geometry) -> Tiling:
    """The tiles for features (B, C, Λ, H, W), given how many images go into a chunk."""
    batch, channels, orientations, height, width = shape
    pixels = geometry.output_size(height) * geometry.output_size(width)
    images = max(1, min(batch, _CHUNK // (orientations * channels * atoms * pixels)))
    return choose_tiling(height, width, geometry, atoms, out_channels, images)


def _chunk_size(batch: int, channels: int, orientations: int, atoms: int, tiling: Tiling) -> tuple[int, int]:
    """Images and rows of tiles in a chunk. Less than some rows would see mostly the inputs of their neighbours."""
    per_row = orientations * channels * atoms * tiling.pixels * tiling.columns.tiles
    images = max(1, min(batch, _CHUNK // (per_row * tiling.rows.tiles)))
    rows = max(_CHUNK // (per_row * images), 2 * (tiling.rows.reach - 1), 1)
    return images, min(rows, tiling.rows.tiles)


def count_chunks(batch: int, channels: int, orientations: int, atoms: int, tiling: Tiling) -> int:
    """How many chunks a convolution of these sizes is split into."""
    images, rows = _chunk_size(batch, channels, orientations, atoms, tiling)
    return math.ceil(batch / images) * math.ceil(tiling.rows.tiles / rows)


@lru_cache(maxsize=64)
def _matrices(orientations: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """F and G in the precision and place of the features."""
    to = {"dtype": dtype, "device": device}
    return spectrum_matrix(orientations).to(**to), synthesis_matrix(orientations).to(**to)  # type: ignore[call-overload]


class ChunkedConvolution:
    """One call of the operator: shapes, matrices and the buffers that all chunks share."""

    def __init__(
        self, features: Tensor, kernel: Tensor, filters: Tensor, frequencies: list[int], geometry: Geometry
    ) -> None:
        self.batch, self.channels, self.orientations = features.shape[:3]
        self.out_channels = kernel.shape[1] // 2
        self.half = half_spectrum(self.orientations)
        self.harmonics: tuple[Harmonic, ...] = group_harmonics(tuple(frequencies))
        self.runs: tuple[Run, ...] = mixing_runs(self.orientations, self.harmonics)
        self.tiling: Tiling = tile_maps(features.shape, self.out_channels, len(frequencies), geometry)
        self.spectrum, self.synthesis = _matrices(self.orientations, features.dtype, features.device)
        self.kernel = kernel
        self.new = features.new_empty
        self.toeplitz = [self._toeplitz(filters, harmonic) for harmonic in self.harmonics]
        self.columns = self._columns()
        self._buffers: dict[str, Tensor] = {}
        self._zeros: tuple[torch.Size, tuple[slice, slice]] | None = None

    def _toeplitz(self, filters: Tensor, harmonic: Harmonic) -> Tensor:
        """T of one harmonic: (parts · rings · pixels, window). The atoms hold −Im ψ, the responses want Im ψ."""
        parts = [filters[list(harmonic.real)], -filters[list(harmonic.imaginary)]]
        return self.tiling.toeplitz(torch.cat(parts)).flatten(0, 1)

    def _columns(self) -> list[tuple[slice, slice]]:
        """Where the two column parts of each harmonic lie in the kernel."""
        columns, start = [], 0
        for harmonic in self.harmonics:
            width = self.channels * harmonic.size
            columns.append((slice(start, start + width), slice(start + width, start + 2 * width)))
            start += 2 * width
        return columns

    def chunks(self) -> list[Chunk]:
        """Split batch and maps so that the responses of each chunk stay within bounds."""
        tiles, atoms = self.tiling.rows.tiles, sum(harmonic.size for harmonic in self.harmonics)
        images, rows = _chunk_size(self.batch, self.channels, self.orientations, atoms, self.tiling)
        return [
            Chunk(slice(image, min(image + images, self.batch)), slice(row, min(row + rows, tiles)))
            for image in range(0, self.batch, images)
            for row in range(0, tiles, rows)
        ]

    def buffer(self, name: str, *shape: int) -> Tensor:
        """Memory under a name, kept from chunk to chunk and cut to the shape that is wanted."""
        size = math.prod(shape)
        kept = self._buffers.get(name)
        if kept is None or kept.numel() < size:
            kept = self._buffers[name] = self.new(size)
        return kept[:size].view(shape)

    def _staging(self, chunk: Chunk, name: str) -> tuple[Tensor, tuple[slice, slice], tuple[slice, slice]]:
        """Room for the chunk's inputs with their zeros, (Λ, C, rows, columns, images), and which pixels go where."""
        r, c = self.tiling.rows, self.tiling.columns
        rows, columns = (chunk.height + r.reach - 1) * r.step, (c.tiles + c.reach - 1) * c.step
        top = chunk.tile_rows.start * r.step - r.lead
        source = slice(max(top, 0), min(top + rows, r.size)), slice(0, min(columns - c.lead, c.size))
        target = (
            slice(source[0].start - top, source[0].stop - top),
            slice(c.lead, c.lead + source[1].stop),
        )
        return self.buffer(name, self.orientations, self.channels, rows, columns, chunk.count), source, target

    def _phases(self, staging: Tensor) -> Tensor:
        """View (Λ, C, rows, columns, images) by phases: (Λ, C, row phase, column phase, rows, columns, images)."""
        r, c = self.tiling.rows, self.tiling.columns
        split = staging.unflatten(3, (-1, c.step)).unflatten(2, (-1, r.step))
        return split.permute(0, 1, 3, 5, 2, 4, 6)

    def windows(self, features: Tensor, chunk: Chunk) -> Tensor:
        """The windows of the chunk's spectrum: (Λ·C, window, tiles · images)."""
        staging, source, target = self._staging(chunk, "staging")
        if self._zeros != (staging.shape, target):  # the pixels of every chunk overwrite those of the one before
            staging.zero_()
            self._zeros = staging.shape, target
        pixels = features[chunk.images, :, :, source[0], source[1]].permute(2, 1, 3, 4, 0)
        staging[:, :, target[0], target[1]] = pixels
        phases = self._phases(staging)
        arranged = self.buffer("arranged", *phases.shape)
        arranged.copy_(phases)
        spectrum = self.buffer("spectrum", *phases.shape)
        torch.mm(self.spectrum, arranged.view(self.orientations, -1), out=spectrum.view(self.orientations, -1))
        maps = self.orientations * self.channels
        if self.tiling.single:
            return spectrum.view(maps, self.tiling.window, -1)
        windows = self._window_buffer(chunk)
        for into, out_of in self.tiling.blocks(chunk.height):
            windows[into] = spectrum[out_of]
        return windows.view(maps, self.tiling.window, -1)

    def _window_buffer(self, chunk: Chunk) -> Tensor:
        window = self.tiling.rows.window, self.tiling.columns.window
        places = chunk.height, self.tiling.columns.tiles, chunk.count
        return self.buffer("windows", self.orientations, self.channels, *window, *places)

    def features_gradient(self, windows: Tensor, gradient: Tensor, chunk: Chunk) -> None:
        """The adjoint of `windows`: add the gradient of the chunk's windows to that of the features."""
        staging, source, target = self._staging(chunk, "gradient staging")
        phases = self._phases(staging)
        spectrum = self.buffer("spectrum", *phases.shape)
        if self.tiling.single:
            spectrum = windows.view(spectrum.shape)
        else:
            spectrum.zero_()
            blocks = windows.view(self._window_buffer(chunk).shape)
            for out_of, into in self.tiling.blocks(chunk.height):
                spectrum[into] += blocks[out_of]
        arranged = self.buffer("arranged", *phases.shape)
        torch.mm(self.spectrum.T, spectrum.view(self.orientations, -1), out=arranged.view(self.orientations, -1))
        phases.copy_(arranged)
        pixels = staging[:, :, target[0], target[1]].permute(4, 1, 0, 2, 3)
        gradient[chunk.images, :, :, source[0], source[1]] += pixels

    def responses(self, windows: Tensor) -> list[Tensor]:
        """A_q(±n) for all harmonics: each (Λ, C, parts, rings · pixels · tiles · images), slabs as in `spectrum`."""
        maps, _, places = windows.shape
        result = []
        for index, (harmonic, toeplitz) in enumerate(zip(self.harmonics, self.toeplitz, strict=True)):
            response = self.buffer(f"responses {index}", maps, len(toeplitz), places)
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

    def windows_gradient(self, slabs: list[Tensor], places: int) -> Tensor:
        """The adjoint of `responses`, which it overwrites: the gradient of the windows."""
        maps = self.orientations * self.channels
        windows = self.buffer("windows", maps, self.tiling.window, places)
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

    def rows(self, slabs: list[Tensor], run: Run, places: int) -> Tensor:
        """The slabs of a run as matrices: (length, C · parts · rings, pixels · tiles · images)."""
        length = self.tiling.pixels * places
        return slabs[run.harmonic][run.first_slab : run.first_slab + run.length].view(run.length, -1, length)

    def coefficients(self, run: Run) -> Tensor:
        """The part of the kernel that a run uses: (length, 2Ĉ, C · parts · rings); only Re Y counts where m = −m."""
        rows = slice(None if run.mirrored else self.out_channels)
        return self.kernel[run.first : run.first + run.length, rows, self.columns[run.harmonic][run.columns]]

    def _spectrum_rows(self, mixed: Tensor, run: Run) -> Tensor:
        """Y(m) of a run: (length, 2Ĉ or Ĉ, pixels · tiles · images)."""
        return mixed[run.first : run.first + run.length, : None if run.mirrored else self.out_channels]

    def mix(self, slabs: list[Tensor], places: int) -> Tensor:
        """Y(m) = Σ kernel · responses: (half, 2Ĉ, pixels · tiles · images). Im Y stays zero where m = −m."""
        mixed = self.mixed(places)
        started: set[int] = set()
        for run in self.runs:
            target, rows = self._spectrum_rows(mixed, run), self.rows(slabs, run, places)
            torch.baddbmm(target, self.coefficients(run), rows, beta=1 if run.first in started else 0, out=target)
            started.update(range(run.first, run.first + run.length))
        return mixed

    def mixed(self, places: int) -> Tensor:
        """Room for Y: (half, 2Ĉ, pixels · tiles · images)."""
        known = "mixed" in self._buffers
        mixed = self.buffer("mixed", self.half, 2 * self.out_channels, self.tiling.pixels * places)
        return mixed if known else mixed.zero_()

    def mix_gradients(self, mixed: Tensor, slabs: list[Tensor], totals: list[Tensor] | None, places: int) -> None:
        """The adjoint of `mix`: add to the kernel's gradient by run, and put that of the responses in their place."""
        matrices = [self.rows(slabs, run, places) for run in self.runs]
        for run, rows, total in zip(self.runs, matrices, totals or (), strict=False):
            total.baddbmm_(self._spectrum_rows(mixed, run), rows.mT)
        used: set[tuple[int, int]] = set()
        for run, rows in zip(self.runs, matrices, strict=True):
            gradient, adjoint = self._spectrum_rows(mixed, run), self.coefficients(run).mT
            reached = [(run.harmonic, run.first_slab + index) for index in range(run.length)]
            if used.isdisjoint(reached):
                torch.bmm(adjoint, gradient, out=rows)
            else:  # frequencies beyond Λ/2 come back to slabs that others have reached
                for index, slab in enumerate(reached):
                    rows[index].addmm_(adjoint[index], gradient[index], beta=1 if slab in used else 0)
            used.update(reached)
        for harmonic, position in product(range(len(slabs)), range(self.orientations)):
            if (harmonic, position) not in used:
                slabs[harmonic][position].zero_()

    def kernel_totals(self) -> list[Tensor]:
        """Zeros to add the gradients of the runs' coefficients to."""
        return [torch.zeros_like(self.coefficients(run), memory_format=torch.contiguous_format) for run in self.runs]

    def kernel_gradient(self, totals: list[Tensor]) -> Tensor:
        """The totals of all runs, put together: (half, 2Ĉ, 2·C·Q)."""
        gradient = torch.zeros_like(self.kernel)
        rows = [slice(None if run.mirrored else self.out_channels) for run in self.runs]
        for run, some, total in zip(self.runs, rows, totals, strict=True):
            gradient[run.first : run.first + run.length, some, self.columns[run.harmonic][run.columns]] = total
        return gradient

    def outputs(self, chunk: Chunk) -> Tensor:
        """Room for the chunk's outputs: (Λ, Ĉ, tile row, tile column, rows of tiles, columns of tiles, images)."""
        r, c = self.tiling.rows, self.tiling.columns
        shape = r.tile, c.tile, chunk.height, c.tiles, chunk.count
        return self.buffer("outputs", self.orientations, self.out_channels, *shape)

    def output_rows(self, chunk: Chunk) -> slice:
        """The rows of the result that the chunk computes."""
        tile, outputs = self.tiling.rows.tile, self.tiling.rows.outputs
        return slice(chunk.tile_rows.start * tile, min(chunk.tile_rows.stop * tile, outputs))

    def collect(self, outputs: Tensor, target: Tensor) -> None:
        """Put the outputs of all tiles in their places (images, Ĉ, Λ, rows, columns), without those beyond the map."""
        pixels = outputs.permute(6, 1, 0, 4, 2, 5, 3)
        whole = self._by_tiles(target)
        if whole is not None:
            whole.copy_(pixels)
        else:
            target.copy_(pixels.flatten(5, 6).flatten(3, 4)[..., : target.shape[-2], : target.shape[-1]])

    def distribute(self, source: Tensor, outputs: Tensor) -> None:
        """The adjoint of `collect`: zero beyond the map."""
        pixels = outputs.permute(6, 1, 0, 4, 2, 5, 3)
        whole = self._by_tiles(source)
        if whole is None:
            missing_rows = pixels.shape[3] * pixels.shape[4] - source.shape[-2]
            missing_columns = pixels.shape[5] * pixels.shape[6] - source.shape[-1]
            whole = self._by_tiles(F.pad(source, (0, missing_columns, 0, missing_rows)))
        assert whole is not None
        pixels.copy_(whole)

    def _by_tiles(self, maps: Tensor) -> Tensor | None:
        """View (…, rows, columns) as (…, rows of tiles, tile row, columns of tiles, tile column), if tiles fit."""
        down, right = self.tiling.rows.tile, self.tiling.columns.tile
        if maps.shape[-2] % down or maps.shape[-1] % right:
            return None
        return maps.unflatten(-1, (-1, right)).unflatten(-3, (-1, down))
