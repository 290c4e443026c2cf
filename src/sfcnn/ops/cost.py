"""Which engine is fastest for the shapes at hand: a model of their times, fitted to measurements.

The time of an engine is taken as a sum of a few kinds of work, each at a price: multiply-adds of its products, numbers
it copies or keeps, calls it makes. `work` counts them and `PRICES` holds the prices, in nanoseconds, that
`benchmarks/engines.py fit` found on one machine, none below what the machine can do at its best; the same script checks
the choices on shapes it was not fitted to.
Prices differ from machine to machine, but mostly by a common factor, which does not change the choice. "compiled" is
the spectral engine by its compiled kernel; its prices are estimates from the share of the peak that the kernel reaches.
"""

from dataclasses import dataclass
from functools import lru_cache

from sfcnn.ops.geometry import Geometry
from sfcnn.ops.spectral.chunks import count_chunks, tile_maps

#: Nanoseconds per unit of each kind of work, by engine: for a training step (forward and backward) and for evaluation.
PRICES: dict[str, dict[str, tuple[float, ...]]] = {
    "training": {
        "direct": (1_430_000, 0.0315, 4.62, 6.54),
        "atomic": (1_190_000, 0.126, 10.6, 0.02, 1.65, 6.58),
        "spectral": (2_730_000, 2_490_000, 0.0406, 1.86, 0.02, 0.3, 5.44, 26.7),
        "compiled": (3_500_000, 0.6, 0.045, 3.0, 27.0),
    },
    "evaluation": {
        "direct": (161_000, 0.00945, 0.99, 0.597),
        "atomic": (233_000, 0.0201, 1.68, 0.00667, 0.609, 0.355),
        "spectral": (431_000, 928_000, 0.0134, 0.437, 0.00667, 0.1, 2.43, 4.83),
        "compiled": (360_000, 0.2, 0.015, 1.0, 5.0),
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
        "compiled": (1.0, responses, p.pixels * mixing, maps + padding, mixing),
    }


def predict(problem: Problem, training: bool) -> dict[str, float]:
    """Nanoseconds that each engine is expected to take."""
    prices, amounts = PRICES["training" if training else "evaluation"], work(problem)
    return {name: sum(a * b for a, b in zip(amounts[name], prices[name], strict=True)) for name in prices}


@lru_cache(maxsize=1024)
def fastest_engine(problem: Problem, training: bool, compiled: bool = False) -> str:
    """The engine with the least predicted time; `compiled` says whether the spectral one has its kernel."""
    times = predict(problem, training)
    kernel = times.pop("compiled")
    if compiled:
        times["spectral"] = kernel
    return min(times, key=times.__getitem__)
