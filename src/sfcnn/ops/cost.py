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
        "direct": (448_000, 0.0104, 1.22, 3.6, 3.49, 7.26),
        "atomic": (434_000, 0.0477, 2.63, 12, 0.0111, 0.776, 2.83),
        "spectral": (30_000, 1_520_000, 0.0357, 1.19, 0.01, 0.3, 4.37, 14.5),
        "compiled": (838_000, 0.112, 0.428, 0.00344, 0.0015, 0.013, 0.103, 1.06, 10.1),
    },
    "evaluation": {
        "direct": (50_800, 0.00337, 0.197, 0.842, 0.305, 3.96),
        "atomic": (92_500, 0.00365, 0.404, 4.18, 0.00346, 0.211, 0.279),
        "spectral": (10_000, 502_000, 0.0125, 0.298, 0.00333, 0.24, 1.56, 3.89),
        "compiled": (117_000, 0.0189, 0.0485, 0.00118, 0.00842, 0.00143, 0.0347, 0.106, 0.701),
    },
}


_LANES = 16  # of the compiled kernel in single precision
_BLOCK = 16  # channels that PyTorch's convolutions take at a time, unless the input has fewer
_CACHED = 4e6  # numbers beyond these cost more: they leave the caches, and their memory comes fresh from the system


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
    filters = float(ins * outs * taps)
    blocks = (ins if ins < _BLOCK else _blocks(ins)) * _blocks(outs)
    return {
        "direct": (1.0, p.pixels * blocks * taps, maps + padding, _beyond(maps), filters, _beyond(filters)),
        "atomic": (
            *(1.0, responses * taps, responses, _beyond(responses), responses * outs),
            *(maps + padding, ins * outs * p.atoms),
        ),
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


def _blocks(channels: int) -> int:
    """Channels, rounded up to whole blocks."""
    return -(-channels // _BLOCK) * _BLOCK


def _beyond(numbers: float) -> float:
    """How many numbers do not fit into the caches."""
    return max(0.0, numbers - _CACHED)


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
