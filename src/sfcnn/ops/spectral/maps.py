"""The outer steps of the spectral group convolution: from pixels to windows of their spectrum, and back to pixels.

`windows` transforms the features of a chunk over orientations and cuts them into the input windows of its tiles;
`synthesize` transforms the mixed responses back and puts the tiles in place. Each has an adjoint.
"""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from sfcnn.ops.spectral.chunks import Buffers, Chunk
from sfcnn.ops.spectral.spectrum import half_spectrum, spectrum_matrix, synthesis_matrix
from sfcnn.ops.spectral.toeplitz import Tiling


@lru_cache(maxsize=64)
def _matrices(orientations: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """F and G with the dtype and device of the features."""
    to = {"dtype": dtype, "device": device}
    return spectrum_matrix(orientations).to(**to), synthesis_matrix(orientations).to(**to)  # type: ignore[call-overload]


class TiledMaps:
    """The features and outputs of one call, chunk by chunk."""

    def __init__(self, features: Tensor, out_channels: int, tiling: Tiling, buffers: Buffers) -> None:
        self.channels, self.orientations = features.shape[1:3]
        self.out_channels = out_channels
        self.half = half_spectrum(self.orientations)
        self.tiling = tiling
        self.buffers = buffers
        self.spectrum, self.synthesis = _matrices(self.orientations, features.dtype, features.device)
        self._zeros: tuple[torch.Size, tuple[slice, slice]] | None = None

    def _staging(self, chunk: Chunk, name: str) -> tuple[Tensor, tuple[slice, slice], tuple[slice, slice]]:
        """A buffer for the chunk's zero-padded inputs (Λ, C, rows, columns, images), and source and target slices."""
        r, c = self.tiling.rows, self.tiling.columns
        rows, columns = (chunk.height + r.reach - 1) * r.step, (c.tiles + c.reach - 1) * c.step
        top = chunk.tile_rows.start * r.step - r.lead
        source = slice(max(top, 0), min(top + rows, r.size)), slice(0, min(columns - c.lead, c.size))
        target = (
            slice(source[0].start - top, source[0].stop - top),
            slice(c.lead, c.lead + source[1].stop),
        )
        return self.buffers.get(name, self.orientations, self.channels, rows, columns, chunk.count), source, target

    def _phases(self, staging: Tensor) -> Tensor:
        """View (Λ, C, rows, columns, images) by phases: (Λ, C, row phase, column phase, rows, columns, images)."""
        r, c = self.tiling.rows, self.tiling.columns
        split = staging.unflatten(3, (-1, c.step)).unflatten(2, (-1, r.step))
        return split.permute(0, 1, 3, 5, 2, 4, 6)

    def windows(self, features: Tensor, chunk: Chunk) -> Tensor:
        """The windows of the chunk's spectrum: (Λ·C, window, tiles · images)."""
        staging, source, target = self._staging(chunk, "staging")
        if self._zeros != (staging.shape, target):  # each chunk overwrites the pixels of the previous one
            staging.zero_()
            self._zeros = staging.shape, target
        pixels = features[chunk.images, :, :, source[0], source[1]].permute(2, 1, 3, 4, 0)
        staging[:, :, target[0], target[1]] = pixels
        phases = self._phases(staging)
        arranged = self.buffers.get("arranged", *phases.shape)
        arranged.copy_(phases)
        spectrum = self.buffers.get("spectrum", *phases.shape)
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
        return self.buffers.get("windows", self.orientations, self.channels, *window, *places)

    def windows_adjoint(self, windows: Tensor, gradient: Tensor, chunk: Chunk) -> None:
        """Add the gradient of the chunk's windows to that of the features."""
        staging, source, target = self._staging(chunk, "gradient staging")
        phases = self._phases(staging)
        spectrum = self.buffers.get("spectrum", *phases.shape)
        if self.tiling.single:
            spectrum = windows.view(spectrum.shape)
        else:
            spectrum.zero_()
            blocks = windows.view(self._window_buffer(chunk).shape)
            for out_of, into in self.tiling.blocks(chunk.height):
                spectrum[into] += blocks[out_of]
        arranged = self.buffers.get("arranged", *phases.shape)
        torch.mm(self.spectrum.T, spectrum.view(self.orientations, -1), out=arranged.view(self.orientations, -1))
        phases.copy_(arranged)
        pixels = staging[:, :, target[0], target[1]].permute(4, 1, 0, 2, 3)
        gradient[chunk.images, :, :, source[0], source[1]] += pixels

    def synthesize(self, mixed: Tensor, result: Tensor, chunk: Chunk) -> None:
        """Y (half, 2Ĉ, pixels · tiles · images) → the chunk's part of the result (B, Ĉ, Λ, H', W')."""
        outputs = self._outputs(chunk)
        torch.mm(self.synthesis, mixed.view(2 * self.half, -1), out=outputs.view(self.orientations, -1))
        self._collect(outputs, result[chunk.images, :, :, self._output_rows(chunk)])

    def synthesize_adjoint(self, gradient: Tensor, mixed: Tensor, chunk: Chunk) -> None:
        """The gradient (B, Ĉ, Λ, H', W') of the result → that of Y, written to `mixed`."""
        outputs = self._outputs(chunk)
        self._distribute(gradient[chunk.images, :, :, self._output_rows(chunk)], outputs)
        torch.mm(self.synthesis.T, outputs.view(self.orientations, -1), out=mixed.view(2 * self.half, -1))

    def _outputs(self, chunk: Chunk) -> Tensor:
        """A buffer for the chunk's outputs: (Λ, Ĉ, tile row, tile column, rows of tiles, columns of tiles, images)."""
        r, c = self.tiling.rows, self.tiling.columns
        shape = r.tile, c.tile, chunk.height, c.tiles, chunk.count
        return self.buffers.get("outputs", self.orientations, self.out_channels, *shape)

    def _output_rows(self, chunk: Chunk) -> slice:
        """The rows of the result that the chunk computes."""
        tile, outputs = self.tiling.rows.tile, self.tiling.rows.outputs
        return slice(chunk.tile_rows.start * tile, min(chunk.tile_rows.stop * tile, outputs))

    def _collect(self, outputs: Tensor, target: Tensor) -> None:
        """Copy the outputs of all tiles to their places (images, Ĉ, Λ, rows, columns), cropped to the map."""
        pixels = outputs.permute(6, 1, 0, 4, 2, 5, 3)
        whole = self._by_tiles(target)
        if whole is not None:
            whole.copy_(pixels)
        else:
            target.copy_(pixels.flatten(5, 6).flatten(3, 4)[..., : target.shape[-2], : target.shape[-1]])

    def _distribute(self, source: Tensor, outputs: Tensor) -> None:
        """The adjoint of `_collect`: zero outside the map."""
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
