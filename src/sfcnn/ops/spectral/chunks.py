"""Splits a call of the spectral group convolution into chunks of images and rows that share their buffers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from sfcnn.ops.geometry import Geometry
from sfcnn.ops.spectral.toeplitz import Tiling, choose_tiling

# Size of the responses of one chunk. They are written once and read once or twice, so they should stay in cache.
_CHUNK = 6_000_000


@dataclass(frozen=True)
class Chunk:
    """A range of images, and a range of tile rows in each of them."""

    images: slice
    tile_rows: slice

    @property
    def count(self) -> int:
        """Number of images."""
        return int(self.images.stop - self.images.start)

    @property
    def height(self) -> int:
        """Number of tile rows."""
        return int(self.tile_rows.stop - self.tile_rows.start)


def tile_maps(shape: Sequence[int], out_channels: int, atoms: int, geometry: Geometry) -> Tiling:
    """The tiles for features (B, C, Λ, H, W), given the number of images that fit into a chunk."""
    batch, channels, orientations, height, width = shape
    pixels = geometry.output_size(height) * geometry.output_size(width)
    images = max(1, min(batch, _CHUNK // (orientations * channels * atoms * pixels)))
    return choose_tiling(height, width, geometry, atoms, out_channels, images)


def _chunk_size(batch: int, channels: int, orientations: int, atoms: int, tiling: Tiling) -> tuple[int, int]:
    """Images and tile rows of a chunk. A chunk of only a few rows would mostly reload its neighbours' input."""
    per_row = orientations * channels * atoms * tiling.pixels * tiling.columns.tiles
    images = max(1, min(batch, _CHUNK // (per_row * tiling.rows.tiles)))
    rows = max(_CHUNK // (per_row * images), 2 * (tiling.rows.reach - 1), 1)
    return images, min(rows, tiling.rows.tiles)


def count_chunks(batch: int, channels: int, orientations: int, atoms: int, tiling: Tiling) -> int:
    """The number of chunks for a convolution of these sizes."""
    images, rows = _chunk_size(batch, channels, orientations, atoms, tiling)
    return math.ceil(batch / images) * math.ceil(tiling.rows.tiles / rows)


def plan(shape: Sequence[int], out_channels: int, atoms: int, geometry: Geometry) -> tuple[Tiling, list[Chunk]]:
    """The tiles for features (B, C, Λ, H, W), and chunks whose responses have a bounded size."""
    batch, channels, orientations = shape[:3]
    tiling = tile_maps(shape, out_channels, atoms, geometry)
    images, rows = _chunk_size(batch, channels, orientations, atoms, tiling)
    tiles = tiling.rows.tiles
    return tiling, [
        Chunk(slice(image, min(image + images, batch)), slice(row, min(row + rows, tiles)))
        for image in range(0, batch, images)
        for row in range(0, tiles, rows)
    ]


class Buffers:
    """Named memory, reused from chunk to chunk.

    Page faults in fresh memory cost several times as much as writing to it, so every large temporary is a named
    buffer that lives as long as the call.
    """

    def __init__(self, like: Tensor) -> None:
        self._new = like.new_empty
        self._kept: dict[str, Tensor] = {}

    def get(self, name: str, *shape: int) -> Tensor:
        """The buffer of this name in the given shape. It holds whatever was last written to it."""
        size = math.prod(shape)
        kept = self._kept.get(name)
        if kept is None or kept.numel() < size:
            kept = self._kept[name] = self._new(size)
        return kept[:size].view(shape)

    def count(self) -> int:
        """The total number of elements."""
        return sum(kept.numel() for kept in self._kept.values())
