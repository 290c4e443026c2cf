"""Which engine is fastest for the shapes at hand: a model of their times, fitted to measurements.

The time of an engine is taken as a sum of a few kinds of work, each at a price: multiply-adds of its products, numbers
it copies or keeps, calls it makes. `work` counts them and `PRICES` holds the prices, in nanoseconds, that
`benchmarks/engines.py fit` found on one machine, none below what the machine can do at its best; the same script checks
the choices on shapes it was not fitted to.
Prices differ from machine to machine, but mostly by a common factor, which does not change the choice. "compiled" is
the spectral engine by its compiled kernel.
"""

from dataclasses import dataclass
from functools import lru_cache

from sfcnn.ops.geometry import Geometry
from sfcnn.ops.spectral.chunks import count_chunks, tile_maps

#: Nanoseconds per unit of each kind of work, by engine: for a training step (forward and backward) and for evaluation.
PRICES: dict[str, dict[str, tuple[float, ...]]] = {
    "training": {
        "direct": (559_000, 0.0201, 4.96, 6.83),
        "atomic": (563_000, 0.114, 6.65, 0.0308, 1.04, 0.88),
        "spectral": (2_330_000, 83_500, 0.0516, 1.48, 0.02, 0.3, 4.74, 15.2),
        "compiled": (1_820_000, 0.136, 0.165, 0.00994, 0.00559, 0.0195, 0.316, 1.92, 16.4),
    },
    "evaluation": {
        "direct": (68_100, 0.00671, 0.893, 0.328),
        "atomic": (158_000, 0.0168, 0.455, 0.0117, 0.36, 0.1),
        "spectral": (10_000, 822_000, 0.018, 0.475, 0.00667, 0.1, 1.51, 2.32),
        "compiled": (229_000, 0.0442, 0.0878, 0.00245, 0.00913, 0.0005, 0.0508, 0.249, 2.19),
    },
}


_LANES = 16  # of the compiled kernel in single precision


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
        "compiled": (*_compiled_work(p), maps + padding, mixing),
    }


def _compiled_work(p: Problem) -> tuple[float, ...]:
    """Calls, pixels of windows, responses, their products, mixing, and the transforms of the compiled kernel.

    It works on 16 places at a time: images, or pieces that an image is cut into if there are fewer. What does not fill
    the 16 is computed all the same, and so is the frame of s − 1 pixels around each piece.
    """
    size, (height, width) = p.geometry.kernel_size, (p.geometry.output_size(n) for n in (p.height, p.width))
    images = min(max(p.batch, 1), _LANES)
    pieces = _LANES // images
    cuts = [(-(-height // rows), -(-width // (pieces // rows))) for rows in range(1, pieces + 1)]
    places = _LANES * -(-p.batch // images)
    covered = float(places * min(h * w for h, w in cuts))
    framed = float(places * min((h + size - 1) * (w + size - 1) for h, w in cuts))
    ins, outs = p.in_channels * p.orientations, p.out_channels * p.orientations
    half_lanes = _LANES // 2
    lanes = -(-p.out_channels // half_lanes) * half_lanes  # outputs, as the gradient of the kernel has them
    products = 2.0 * p.orientations - (p.orientations // 2 + 1)  # three real ones where Y is complex
    mixing = products * p.in_channels * p.atoms
    return (
        1.0,
        covered * ins * size**2,
        covered * ins * p.atoms,
        covered * ins * p.atoms * size**2,
        covered * mixing * p.out_channels,
        covered * mixing * lanes,
        framed * ins * p.orientations + covered * outs * p.orientations,
    )


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
