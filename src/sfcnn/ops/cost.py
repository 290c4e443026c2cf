"""Which engine is fastest for the shapes at hand: a model of their times, fitted to measurements.

The time of an engine is taken as a sum of a few kinds of work, each at a price: multiply-adds of its products, numbers
it copies or keeps, calls it makes. `work` counts them and `PRICES` holds the prices, in nanoseconds, that
`benchmarks/engines.py fit` found on one machine; the same script checks the choices on shapes it was not fitted to.
Prices differ from machine to machine, but mostly by a common factor, which does not change the choice.
"""

from dataclasses import dataclass
from functools import lru_cache

from sfcnn.ops.chunks import count_chunks, tile_maps
from sfcnn.ops.geometry import Geometry

#: Nanoseconds per unit of each kind of work, by engine: for a training step (forward and backward) and for evaluation.
PRICES: dict[str, dict[str, tuple[float, ...]]] = {
    "training": {
        "direct": (1_430_000, 0.0314, 4.64, 6.49),
        "atomic": (1_150_000, 0.127, 11.8, 0.00253, 2.23, 8.66),
        "spectral": (2_270_000, 2_960_000, 0.0499, 2.09, 0, 0, 6.91, 30.7),
    },
    "evaluation": {
        "direct": (162_000, 0.00941, 0.994, 0.593),
        "atomic": (239_000, 0.0237, 1.31, 0.0067, 0.672, 0.428),
        "spectral": (479_000, 858_000, 0.0162, 0.477, 0, 0.0508, 3.03, 6.12),
    },
}


@dataclass(frozen=True)
class Problem:
    """The shapes of a group convolution."""

    batch: int
    in_channels: int
    out_channels: int
    orientations: int
    atoms: int
    height: int
    width: int
    geometry: Geometry

    @property
    def pixels(self) -> int:
        """Output pixels of all images."""
        size = self.geometry.output_size(self.height), self.geometry.output_size(self.width)
        return self.batch * size[0] * size[1]


def work(problem: Problem) -> dict[str, tuple[float, ...]]:
    """How much of each kind of work an engine has to do."""
    p, taps = problem, problem.geometry.kernel_size**2
    ins, outs = p.in_channels * p.orientations, p.out_channels * p.orientations
    maps = float(p.batch * ins * p.height * p.width + p.pixels * outs)
    padding = maps if p.geometry.padding_mode != "zeros" else 0.0
    responses = float(p.pixels * ins * p.atoms)
    shape = (p.batch, p.in_channels, p.orientations, p.height, p.width)
    tiling = tile_maps(shape, p.out_channels, p.atoms, p.geometry)
    tiles = p.batch * tiling.rows.tiles * tiling.columns.tiles
    covered = float(tiles * tiling.pixels)
    copies = 0.0 if tiling.single else float(tiles * ins * tiling.window)
    mixing = 4.0 * (p.orientations // 2 + 1) * p.out_channels * p.in_channels * p.atoms
    return {
        "direct": (1.0, p.pixels * outs * ins * taps, maps + padding, ins * outs * taps),
        "atomic": (1.0, responses * taps, responses, responses * outs, maps + padding, ins * outs * p.atoms),
        "spectral": (
            1.0,
            count_chunks(p.batch, p.in_channels, p.orientations, p.atoms, tiling),
            covered * ins * p.atoms * tiling.window,
            covered * ins * p.atoms,
            covered * mixing,
            copies,
            maps + padding,
            mixing,
        ),
    }


@lru_cache(maxsize=1024)
def fastest_engine(problem: Problem, training: bool) -> str:
    """The engine with the least predicted time."""
    prices = PRICES["training" if training else "evaluation"]
    amounts = work(problem)
    return min(prices, key=lambda engine: sum(a * b for a, b in zip(amounts[engine], prices[engine], strict=True)))
