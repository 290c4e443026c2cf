"""How one call of the spectral group convolution is cut into chunks of images and rows, which share their buffers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from sfcnn.ops.geometry import Geometry
from sfcnn.ops.spectral.toeplitz import Tiling, choose_tiling

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


def plan(shape: Sequence[int], out_channels: int, atoms: int, geometry: Geometry) -> tuple[Tiling, list[Chunk]]:
    """The tiles for features (B, C, Λ, H, W), and chunks whose responses stay within bounds."""
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
    """Memory under names, kept from chunk to chunk.

    Fresh memory costs page faults, several times the price of writing to it, so every large temporary is a named
    buffer that lives as long as the call.
    """

    def __init__(self, like: Tensor) -> None:
        self._new = like.new_empty
        self._kept: dict[str, Tensor] = {}

    def get(self, name: str, *shape: int) -> Tensor:
        """The memory of a name, cut to the shape that is wanted. It holds what was last written to it."""
        size = math.prod(shape)
        kept = self._kept.get(name)
        if kept is None or kept.numel() < size:
            kept = self._kept[name] = self._new(size)
        return kept[:size].view(shape)

    def count(self) -> int:
        """How many numbers are held in all."""
        return sum(kept.numel() for kept in self._kept.values())
