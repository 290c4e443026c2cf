"""Convolution with a fixed set of small filters as matrix products on tiles of a map.

A tile is a rectangle of outputs, its window the rectangle of inputs that they depend on. All tiles of a map share the
Toeplitz matrix T from window to outputs, and the responses of a map to all filters are T · (windows side by side).
A matrix product and its adjoint run near the machine's peak, unlike `conv2d` with one input channel and, even more so,
its adjoint; the price is the zeros in T, few for tiles of a suitable size.

Maps are stored phase by phase: pixels at the same position in their tiles are contiguous, in the order of tiles, with
images innermost. Windows are then a few contiguous blocks, and a map that is a single tile is its own window.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import EllipsisType
from typing import TypeAlias

import torch
from torch import Tensor

from sfcnn.ops.geometry import Geometry

#: An index into the trailing axes of a tensor.
Index: TypeAlias = tuple[EllipsisType | slice, ...]

# Costs of handling one number relative to one multiply-add of a matrix product, as measured on two cores.
_COPY_COST = 100.0
_BREAK_COST = 300.0
_PASS_COST = 20.0
_NARROW_COST = 4.0


@dataclass(frozen=True)
class AxisTiling:
    """Tiles along one axis of a map.

    The window of a single tile is the map itself: zero padding is left out of it.
    """

    size: int  #: of the map
    outputs: int  #: positions of the filter
    tile: int  #: outputs per tile
    stride: int
    dilation: int
    kernel_size: int
    margin: int  #: zeros added on each side

    @property
    def tiles(self) -> int:
        """The number of tiles that cover all outputs."""
        return math.ceil(self.outputs / self.tile)

    @property
    def window(self) -> int:
        """Inputs that the outputs of a tile depend on."""
        if self.tiles == 1:
            return self.size
        return (self.tile - 1) * self.stride + self.dilation * (self.kernel_size - 1) + 1

    @property
    def step(self) -> int:
        """Inputs from one window to the next; all of them for a single tile."""
        return self.size if self.tiles == 1 else self.tile * self.stride

    @property
    def reach(self) -> int:
        """Steps that a window spans."""
        return math.ceil(self.window / self.step)

    @property
    def lead(self) -> int:
        """Zeros before the first pixel of the map."""
        return 0 if self.tiles == 1 else self.margin

    def taps(self) -> Tensor:
        """Which filter pixel meets window position u at output i: int64 (tile, window), −1 for none."""
        inside = self.margin if self.tiles == 1 else 0
        outputs = torch.arange(self.tile, device="cpu")[:, None]
        position = torch.arange(self.window, device="cpu") + inside - self.stride * outputs
        tap = position.div(self.dilation, rounding_mode="floor")
        hits = (position % self.dilation == 0) & (tap >= 0) & (tap < self.kernel_size)
        return torch.where(hits, tap, -1)


@dataclass(frozen=True)
class Tiling:
    """Tiles of a map in both directions."""

    rows: AxisTiling
    columns: AxisTiling

    @property
    def pixels(self) -> int:
        """Outputs of a tile."""
        return self.rows.tile * self.columns.tile

    @property
    def window(self) -> int:
        """Inputs of a tile."""
        return self.rows.window * self.columns.window

    @property
    def single(self) -> bool:
        """Whether one tile covers the map."""
        return self.rows.tiles == self.columns.tiles == 1

    def toeplitz(self, filters: Tensor) -> Tensor:
        """T: filters (Q, s, s) → (Q, pixels, window)."""
        index = _toeplitz_index(self.rows, self.columns).to(filters.device)
        padded = torch.cat([filters.flatten(1), filters.new_zeros(len(filters), 1)], dim=1)
        return padded[:, index]

    def blocks(self, tile_rows: int) -> Iterator[tuple[Index, Index]]:
        """The blocks that make up the windows of some tile rows: pairs of an index into windows and one into phases.

        Windows are (…, window rows, window columns, tile rows, tile columns, images) and phases
        (…, row phase, column phase, rows of phases, columns of phases, images).
        """
        r, c = self.rows, self.columns
        for down in range(r.reach):
            for right in range(c.reach):
                height = min(r.step, r.window - down * r.step)
                width = min(c.step, c.window - right * c.step)
                window = (slice(down * r.step, down * r.step + height), slice(right * c.step, right * c.step + width))
                phases = slice(height), slice(width), slice(down, down + tile_rows), slice(right, right + c.tiles)
                yield (..., *window, *[slice(None)] * 3), (..., *phases, slice(None))


@lru_cache(maxsize=256)
def _toeplitz_index(rows: AxisTiling, columns: AxisTiling) -> Tensor:
    """For each output and window position, the index of the filter's pixel, s² for none: (pixels, window)."""
    size = rows.kernel_size
    down, right = rows.taps()[:, None, :, None], columns.taps()[None, :, None, :]
    index = torch.where((down >= 0) & (right >= 0), down * size + right, size * size)
    return index.flatten(2).flatten(0, 1)


@lru_cache(maxsize=256)
def choose_tiling(height: int, width: int, geometry: Geometry, filters: int, out_channels: int, images: int) -> Tiling:
    """The tiles with the lowest cost: few zeros in T, few copies of windows, few outputs outside the map.

    `images` is the number processed together; products with few columns, that is few tiles and images, are slow.
    """

    def axis(size: int, tile: int) -> AxisTiling:
        g, outputs = geometry, geometry.output_size(size)
        return AxisTiling(size, outputs, min(tile, outputs), g.stride, g.dilation, g.kernel_size, g.margin)

    def cost(tiling: Tiling) -> float:
        """Multiply-adds per map, or work of equal duration."""
        places = tiling.rows.tiles * tiling.columns.tiles
        run = tiling.columns.tiles if tiling.columns.tiles > 1 else places  # contiguous numbers
        copies = 0.0 if tiling.single else tiling.window * (_COPY_COST + _BREAK_COST / run)
        products = tiling.window * (1 + _NARROW_COST / (places * images))
        responses = filters * tiling.pixels * (products + _PASS_COST + 2 * out_channels)
        return places * (responses + copies)

    sizes = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
    candidates = [
        Tiling(axis(height, down), axis(width, right)) for down in (*sizes, height) for right in (*sizes, width)
    ]
    return min(candidates, key=cost)
