"""Which engine is fastest for the shapes at hand: a model of their times, fitted to measurements.

The time of an engine is taken as a sum of a few kinds of work, each at a price: multiply-adds of its products, numbers
it copies or keeps, calls it makes. `work` counts them and `PRICES` holds the prices, in nanoseconds, that
`benchmarks/engines.py fit` found on one machine with two threads, none below what the machine can do at its best. The
same script checks the choices on shapes that the prices were not fitted to.
Prices differ from machine to machine, but mostly by a common factor, which does not change the choice. "compiled" is
the spectral engine by its compiled kernel.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from sfcnn.ops.geometry import Geometry
from sfcnn.ops.spectral.chunks import count_chunks, tile_maps

Prices = dict[str, dict[str, tuple[float, ...]]]

#: Nanoseconds per unit of each kind of work, by engine: for a training step (forward and backward) and for evaluation.
PRICES: Prices = {
    "training": {
        "direct": (493_000, 0.00552, 0.755, 0.471, 3.59, 2.96, 2.47, 0.00333, 0.0221),
        "atomic": (504_000, 170, 0.07, 1.74, 6.19, 3.93, 0.0126, 0.273, 2.13, 3.03),
        "spectral": (10_000, 620_000, 0.0314, 2.01, 0.0129, 0.1, 1.5, 13.5, 0.164, 2.46, 0.259),
        "compiled": (470_000, 30_300, 9_310, 0.166, 0.00153, 0.0085, 0.0201, 0.782, 0.686, 11.5, 0.971),
    },
    "evaluation": {
        "direct": (58_000, 0.00401, 0.101, 0.288, 1.85, 0.24, 0.335),
        "atomic": (91_000, 32.3, 0.00361, 0.457, 2.32, 2.05, 0.00381, 0.115, 0.1, 0.246),
        "spectral": (10_000, 163_000, 0.012, 0.618, 0.00566, 0.1, 0.1, 2.58, 0.0821, 1.77),
        "compiled": (53_300, 6_590, 370, 0.137, 0.00179, 0.00851, 0.0202, 0.4, 0.253, 0.907, 0.197),
    },
}


_BLOCK = 16  # channels that PyTorch's convolutions take at a time
_LANES = 16  # places that the compiled kernel works on at a time, in single precision
_THREADS = 2  # that the prices were measured with
_JOBS = 4  # that the compiled kernel wants at least, to share them between threads
_CACHED_MAPS, _CACHED_WEIGHTS = 4e6, 1e6  # numbers beyond these leave the caches
_FRESH = 2**23  # numbers: the system provides larger blocks anew each time, page by page


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

    @property
    def ins(self) -> int:
        """Input maps of an image."""
        return self.in_channels * self.orientations

    @property
    def outs(self) -> int:
        """Output maps of an image."""
        return self.out_channels * self.orientations

    @property
    def inputs(self) -> float:
        """Numbers of all input maps, with a padded copy unless padding is with zeros."""
        copies = 1 if self.geometry.padding_mode == "zeros" else 2
        return float(copies * self.batch * self.ins * self.height * self.width)

    @property
    def outputs(self) -> float:
        """Numbers of all output maps."""
        return float(self.pixels * self.outs)


def work(problem: Problem, training: bool) -> dict[str, tuple[float, ...]]:
    """How much of each kind of work an engine has to do, in a training step or in evaluation."""
    return {
        "direct": _direct_work(problem, training),
        "atomic": _atomic_work(problem),
        "spectral": _spectral_work(problem, training),
        "compiled": _compiled_work(problem, training),
    }


def _direct_work(p: Problem, training: bool) -> tuple[float, ...]:
    """A call, products, numbers of maps (all, beyond the caches, fresh) and of filters (all, beyond the caches).

    In training also the products of the backward pass, and of steering the weights and summing the atoms to filters.
    Channels come in whole blocks, except that the forward pass can take fewer inputs than a block.
    """
    maps, filters = p.inputs + p.outputs, float(p.ins * p.outs * p.geometry.kernel_size**2)
    products = float(p.pixels * _taps(p) * _blocks(p.outs))
    amounts = (
        *(1.0, products * (p.ins if p.ins < _BLOCK else _blocks(p.ins))),
        *(maps, _beyond(maps, _CACHED_MAPS), _fresh(p.outputs), filters, _beyond(filters, _CACHED_WEIGHTS)),
    )
    steering = filters * p.atoms + float(p.ins * p.outs * p.atoms**2)
    return (*amounts, 2 * products * _blocks(p.ins), steering) if training else amounts


def _atomic_work(p: Problem) -> tuple[float, ...]:
    """A call, images of one channel, products with atoms, responses (all, beyond the caches), fresh numbers.

    Then products with coefficients, and numbers of maps and of coefficients (all, beyond the caches).
    """
    responses, coefficients = float(p.pixels * p.ins * p.atoms), float(p.ins * p.outs * p.atoms)
    return (
        *(1.0, float(p.batch * p.ins), p.pixels * p.ins * _blocks(p.atoms) * _taps(p)),
        *(responses, _beyond(responses, _CACHED_MAPS), _fresh(p.outputs) + _fresh(responses)),
        *(float(p.pixels * _blocks(p.ins * p.atoms) * _blocks(p.outs)), p.inputs + p.outputs),
        *(coefficients, _beyond(coefficients, _CACHED_WEIGHTS)),
    )


def _spectral_work(p: Problem, training: bool) -> tuple[float, ...]:
    """A call, operations of the chunks, products with atoms, responses, mixing, copies, maps, the kernel.

    Then transforms of maps over orientations, and fresh numbers; in training, the transform of the kernel. A chunk
    needs some operations for each harmonic, of which a basis of Q atoms has about √Q.
    """
    shape = (p.batch, p.in_channels, p.orientations, p.height, p.width)
    tiling = tile_maps(shape, p.out_channels, p.atoms, p.geometry)
    chunks = count_chunks(p.batch, p.in_channels, p.orientations, p.atoms, tiling)
    tiles = p.batch * tiling.rows.tiles * tiling.columns.tiles
    responses = float(tiles * tiling.pixels * p.ins * p.atoms)
    kernel = 4.0 * (p.orientations // 2 + 1) * p.out_channels * p.in_channels * p.atoms
    maps = p.inputs + p.outputs
    amounts = (
        *(1.0, chunks * math.sqrt(p.atoms), responses * tiling.window, responses),
        *(tiles * tiling.pixels * kernel, 0.0 if tiling.single else float(tiles * p.ins * tiling.window)),
        *(maps, kernel, maps * p.orientations, _fresh(p.inputs) + _fresh(p.outputs)),
    )
    return (*amounts, kernel * p.orientations) if training else amounts


def _compiled_work(p: Problem, training: bool) -> tuple[float, ...]:
    """A call, starts of threads, atoms, responses, their products, mixing, transforms over orientations, pixels read.

    Then numbers of maps and of the kernel, and fresh numbers. Threads share the jobs, so that the places of the one
    that has most of them count: three times in training, for the result and for two gradients.
    """
    cuts = [_cut(p, backward=False), *([_cut(p, backward=True)] * 2 if training else [])]
    places, framed, jobs = (sum(amounts) for amounts in zip(*cuts, strict=True))
    products = 2 * p.orientations - (p.orientations // 2 + 1)  # three real ones where Y is complex
    kernel = float(products * p.in_channels * p.out_channels * p.atoms)
    half_lanes = _LANES // 2
    lanes = -(-p.out_channels // half_lanes) * half_lanes  # outputs, as the gradient of the kernel has them
    mixing = products * p.in_channels * p.atoms * (lanes if training else p.out_channels)
    responses, taps = float(p.ins * p.atoms), p.geometry.kernel_size**2
    return (
        *(1.0, float(p.orientations > 1) + float(jobs > len(cuts)), float(p.atoms)),
        *(places * responses, places * responses * taps, places * mixing),
        *((framed * p.ins + places * p.outs) * p.orientations, framed * p.ins),
        *(p.inputs + p.outputs, kernel, _fresh(p.inputs) + _fresh(p.outputs)),
    )


def _cut(p: Problem, backward: bool) -> tuple[float, float, int]:
    """How the compiled kernel cuts its work: places of the thread with most of them, the same with frames, all jobs.

    As `Call` in `driver.cpp`: a block of images, or of pieces that images are cut into, fills the lanes. What does not
    fill them is computed all the same, and so is the frame of s − 1 pixels around each piece. Pieces are cut into bands
    to have enough jobs. In the backward pass, even bands come before odd ones.
    """
    size = p.geometry.kernel_size
    height, width = (p.geometry.output_size(n) for n in (p.height, p.width))
    inner, outer = 1.5 * p.atoms * p.out_channels + 6 * size**2, p.orientations + 40  # cycles, in the driver's estimate
    batch, cuts = max(p.batch, 1), []
    for images in range(1, min(batch, _LANES) + 1):
        blocks = -(-batch // images)
        for rows in range(1, _LANES // images + 1):
            high, wide = -(-height // rows), -(-width // (_LANES // images // rows))
            bands = _bands(high, size - 1, -(-_JOBS // blocks), rows > 1)
            pixels, framed = high * wide / bands, (high / bands + size - 1) * (wide + size - 1)  # of a job
            phases = [blocks * -(-bands // 2), blocks * (bands // 2)] if backward else [blocks * bands]
            rounds = sum(-(-jobs // _JOBS) for jobs in phases)
            cuts.append((rounds * (pixels * inner + framed * outer), pixels, framed, phases))
    _, pixels, framed, phases = min(cuts, key=lambda cut: cut[0])
    most = sum(-(-jobs // _THREADS) for jobs in phases)
    return _LANES * most * pixels, _LANES * most * framed, sum(phases)


def _bands(height: int, reach: int, wanted: int, even: bool) -> int:
    """Bands of a piece, each at least as high as the frame; an even number of several if there are pieces below."""
    most = height // max(1, reach)
    if not even:
        return min(wanted, max(2, most))
    return 1 if wanted == 1 or most < 2 else min(wanted + wanted % 2, most - most % 2)


def _taps(p: Problem) -> float:
    """Taps of a filter for each pixel: PyTorch's convolutions skip rows that lie outside the map."""
    g, outputs = p.geometry, p.geometry.output_size(p.height)
    if g.padding_mode != "zeros":
        return float(g.kernel_size**2)
    inside = 0
    for offset in (g.dilation * row - g.margin for row in range(g.kernel_size)):
        first, last = max(0, -(offset // g.stride)), min(outputs - 1, (p.height - 1 - offset) // g.stride)
        inside += max(0, last - first + 1)
    return g.kernel_size * inside / max(1, outputs)


def _blocks(channels: int) -> int:
    """Channels, rounded up to whole blocks."""
    return -(-channels // _BLOCK) * _BLOCK


def _beyond(numbers: float, cached: float) -> float:
    """How many numbers do not fit into the caches."""
    return max(0.0, numbers - cached)


def _fresh(numbers: float) -> float:
    """The numbers of a block of memory if the system provides it anew each time."""
    return numbers if numbers > _FRESH else 0.0


def predict(problem: Problem, training: bool, prices: Prices = PRICES) -> dict[str, float]:
    """Nanoseconds that each engine is expected to take."""
    amounts = work(problem, training)
    known = prices["training" if training else "evaluation"]
    return {name: sum(a * b for a, b in zip(amounts[name], known[name], strict=True)) for name in known}


@lru_cache(maxsize=1024)
def fastest_engine(problem: Problem, training: bool, compiled: bool = False) -> str:
    """The engine with the least predicted time; `compiled` says whether the spectral one has its kernel."""
    times = predict(problem, training)
    kernel = times.pop("compiled")
    if compiled:
        times["spectral"] = kernel
    return min(times, key=times.__getitem__)
