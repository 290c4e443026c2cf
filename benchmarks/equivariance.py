"""The equivariance error of networks with random weights, at angles that are not multiples of 90°.

    python benchmarks/equivariance.py [--quick] [--out FILE]

A lifting layer and two group convolutions of 8 channels, Λ = 16, ReLU between them, the maximum over orientations at
the end: its output f(x) is a map that should only rotate with the image. Both libraries get the same images, which are
functions on the plane, sampled directly on every rotated grid. The error is relative, in the L2 norm, within 16 pixels
of the centre of a 65×65 view, over the angles 2πa/Λ. It is measured in two ways:

exact      ‖f_φ(q) − f_0(q)‖ / ‖f_0(q)‖ at random points q of the disk, where f_φ(q) is the output for the grid that is
           centred on q and rotated by φ. Nothing is resampled, so this is the error of the network alone.
resampled  ‖f(ρ_φ I) − ρ_φ f(I)‖ / ‖ρ_φ f(I)‖ at all pixels of the disk, as usual. ρ_φ f(I) is interpolated by splines;
           ReLU and maximum make maps that are not smooth, which adds an error that no network can avoid.

Rotation by 90° is exact in both libraries, so that a = 1, 2, 3 represent all angles. Pixels that do not affect the disk
are not computed. EM images are used if the environment variable SFCNN_DATA names a folder with
isbi2012/train-volume.tif.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import gaussian_filter, map_coordinates, spline_filter
from skimage import data
from torch import Tensor, nn

from sfcnn import Basis, GroupConv2d, LiftConv2d, OrientationPool
from sfcnn.harmonics import PRESETS, BasisLike, paper, real_atoms
from sfcnn.ops import direct, sample_atoms

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # e2cnn 0.2.3 uses deprecated names of the libraries that it imports
    from e2cnn import gspaces
    from e2cnn import nn as e2nn
    from e2cnn.nn.init import generalized_he_init

Array = NDArray[np.float64]
#: An image as a function on the plane: rows and columns in pixels from its centre → values.
Texture = Callable[[Array, Array], Array]
#: Images (N, 1, H, W) → maps (N, 8, H', W').
Network = Callable[[Tensor], Tensor]

ORIENTATIONS = 16
CHANNELS = 8
TURNS = (1, 2, 3)  # a of the angles 2πa/Λ; the others follow by rotations of 90°
RADIUS = 16  # of the disk, in pixels
SPLINE = 5  # order of interpolation
MAIN = (7, 7, 5)  # kernel sizes
OTHER = (7, 5, 5)
SHORTEST_WAVE = 5.0  # pixels, in the random textures
PITCH, BLUR = 2.0, 0.7  # photographs: source pixels per pixel, and σ of the Gaussian before sampling, in pixels


# --- images -----------------------------------------------------------------------------------------------------------


def random_waves(seed: int, waves: int = 300) -> Texture:
    """A sum of plane waves, uniform in the disk of frequencies up to 1 / SHORTEST_WAVE: variance 1, exact anywhere."""
    rng = np.random.default_rng(seed)
    frequency = 2 * math.pi / SHORTEST_WAVE * np.sqrt(rng.random(waves))
    direction, phase = 2 * math.pi * rng.random((2, waves))
    row, column = frequency * np.sin(direction), frequency * np.cos(direction)

    def texture(rows: Array, columns: Array) -> Array:
        total: Array = np.cos(rows[..., None] * row + columns[..., None] * column + phase).sum(-1)
        return total * math.sqrt(2 / waves)

    return texture


def photograph(pixels: NDArray[Any]) -> Texture:
    """The centre of a photograph, standardised, smoothed and interpolated by splines from a finer grid."""
    image = pixels.astype(np.float64)
    spline = spline_filter(gaussian_filter((image - image.mean()) / image.std(), PITCH * BLUR), SPLINE)
    centre_row, centre_column = ((n - 1) / 2 for n in image.shape)

    def texture(rows: Array, columns: Array) -> Array:
        places = [centre_row + PITCH * rows, centre_column + PITCH * columns]
        values: Array = map_coordinates(spline, places, order=SPLINE, prefilter=False)
        return values

    return texture


def all_textures(count: int) -> dict[str, list[Texture]]:
    """`count` images of each available kind."""
    photos = (data.gravel, data.grass, data.camera, data.coins, data.brick)
    kinds = {
        "waves": [random_waves(seed) for seed in range(count)],
        "photos": [photograph(photo()) for photo in photos[:count]],
    }
    folder = os.environ.get("SFCNN_DATA")
    volume = Path(folder) / "isbi2012" / "train-volume.tif" if folder else None
    if volume is not None and volume.exists():
        with Image.open(volume) as stack:
            slices = np.linspace(0, getattr(stack, "n_frames", 1) - 1, count).round().astype(int)
            kinds["em"] = []
            for index in slices:
                stack.seek(int(index))
                kinds["em"].append(photograph(np.asarray(stack)))
    return kinds


def turned_grid(size: int, angle: float) -> tuple[Array, Array]:
    """Source rows and columns of the pixels of a size × size image rotated counter-clockwise by `angle`."""
    axis = np.arange(size) - (size - 1) / 2
    row, column = np.meshgrid(axis, axis, indexing="ij")
    cos, sin = math.cos(angle), math.sin(angle)
    return sin * column + cos * row, cos * column - sin * row


def as_images(views: Sequence[Array]) -> Tensor:
    """Views (…, H, W) → one batch of images (N, 1, H, W)."""
    stacked = np.stack(views)
    return torch.from_numpy(stacked.reshape(-1, 1, *stacked.shape[-2:])).float()


# --- the two measures -------------------------------------------------------------------------------------------------


def _angle(turn: int) -> float:
    return 2 * math.pi * turn / ORIENTATIONS


@dataclass(frozen=True)
class Views:
    """The images for a measure, created once for all networks: upright, and rotated by each angle."""

    upright: Tensor  # (N, 1, H, W)
    turned: tuple[Tensor, ...]  # each (N, 1, H', W')


def point_views(textures: Sequence[Texture], field: int, points: int) -> Views:
    """Patches of the size of the receptive field around random points of the disk, on grids rotated by each angle."""
    rng = np.random.default_rng(0)
    distance = RADIUS * np.sqrt(rng.random((len(textures), points, 1, 1)))
    direction = 2 * math.pi * rng.random(distance.shape)
    rows, columns = distance * np.sin(direction), distance * np.cos(direction)

    def patches(turn: int) -> Tensor:
        row, column = turned_grid(field, _angle(turn))
        return as_images([t(r + row, c + column) for t, r, c in zip(textures, rows, columns, strict=True)])

    return Views(patches(0), tuple(map(patches, TURNS)))


def disk_views(textures: Sequence[Texture], field: int) -> Views:
    """The part of a 65×65 view that affects the disk, on grids rotated by each angle."""

    def views(turn: int, margin: int) -> Tensor:
        row, column = turned_grid(2 * (RADIUS + margin) + field, _angle(turn))
        return as_images([texture(row, column) for texture in textures])

    return Views(views(0, margin=4), tuple(views(turn, margin=0) for turn in TURNS))


def _relative(differences: Sequence[Tensor], references: Sequence[Tensor]) -> float:
    def energy(maps: Sequence[Tensor]) -> float:
        return float(sum(m.double().square().sum() for m in maps))

    return math.sqrt(energy(differences) / energy(references))


@torch.no_grad()
def exact_error(net: Network, views: Views) -> float:
    """The error at points, without resampling."""
    reference = net(views.upright)
    return _relative([net(turned) - reference for turned in views.turned], [reference] * len(TURNS))


@torch.no_grad()
def resampled_error(net: Network, views: Views) -> float:
    """The error at the pixels of the disk, against the interpolated output for the upright image."""
    upright = net(views.upright)  # (N, C, S, S), slightly larger than the disk
    splines = spline_filter_maps(upright)
    axis = torch.arange(-RADIUS, RADIUS + 1)
    disk = axis[:, None] ** 2 + axis**2 <= RADIUS**2
    differences, references = [], []
    for turn, images in zip(TURNS, views.turned, strict=True):
        row, column = (g + (upright.shape[-1] - 1) / 2 for g in turned_grid(2 * RADIUS + 1, _angle(turn)))
        turned = [map_coordinates(s, [row, column], order=SPLINE, prefilter=False) for s in splines]
        want = torch.from_numpy(np.stack(turned)).unflatten(0, upright.shape[:2])[..., disk]
        references.append(want)
        differences.append(net(images)[..., disk] - want)
    return _relative(differences, references)


def spline_filter_maps(maps: Tensor) -> list[Array]:
    """Spline coefficients of each map of (N, C, S, S)."""
    return [spline_filter(m, SPLINE) for m in maps.double().flatten(0, 1).numpy()]


# --- the networks -----------------------------------------------------------------------------------------------------


def sfcnn_network(basis: BasisLike, kernel_sizes: Sequence[int], init: str = "coeff") -> nn.Sequential:
    """Our network, with weights drawn with the current seed."""
    lift, *group = kernel_sizes
    layers: list[nn.Module] = [LiftConv2d(1, CHANNELS, lift, ORIENTATIONS, basis=basis, init=init)]
    for size in group:
        layers += [nn.ReLU(), GroupConv2d(CHANNELS, CHANNELS, size, ORIENTATIONS, basis=basis, init=init)]
    return nn.Sequential(*layers, OrientationPool("max")).eval()


class E2cnnNetwork:
    """e2cnn's network, with its default options; built once, since that takes seconds, and redrawn for each seed."""

    def __init__(self, kernel_sizes: Sequence[int]) -> None:
        space = gspaces.Rot2dOnR2(ORIENTATIONS)
        self.image = e2nn.FieldType(space, [space.trivial_repr])
        features = e2nn.FieldType(space, CHANNELS * [space.regular_repr])
        sources = [self.image] + [features] * (len(kernel_sizes) - 1)
        self.convolutions = [
            e2nn.R2Conv(source, features, size, initialize=False)
            for source, size in zip(sources, kernel_sizes, strict=True)
        ]
        layers = [self.convolutions[0]]
        for convolution in self.convolutions[1:]:
            layers += [e2nn.ReLU(features), convolution]
        self.net = e2nn.SequentialModule(*layers, e2nn.GroupPooling(features))

    def draw(self) -> "E2cnnNetwork":
        """Draw weights with e2cnn's own scheme and the current seed."""
        self.net.train()
        for convolution in self.convolutions:
            generalized_he_init(convolution.weights.data, convolution.basisexpansion, cache=True)
        self.net.eval()
        return self

    def __call__(self, images: Tensor) -> Tensor:
        """Apply it to plain tensors."""
        maps: Tensor = self.net(e2nn.GeometricTensor(images, self.image)).tensor
        return maps


def copy_filters(theirs: E2cnnNetwork, ours: nn.Sequential) -> nn.Sequential:
    """Copy e2cnn's filters to our layers by least squares; exact, since they span the same space."""
    layers = [layer for layer in ours if isinstance(layer, LiftConv2d | GroupConv2d)]
    for layer, convolution in zip(layers, theirs.convolutions, strict=True):
        prepare = direct.lift_kernel if isinstance(layer, LiftConv2d) else direct.group_kernel
        shape = layer.weight.shape[2:]  # (Q,) or (Λ, Q)
        units = torch.eye(math.prod(shape)).view(-1, 1, *shape)
        atoms = sample_atoms(layer.basis, layer.kernel_size, ORIENTATIONS)
        banks = prepare(units, atoms).reshape(len(units), -1)
        axes = (CHANNELS, ORIENTATIONS, layer.in_channels, -1, layer.kernel_size**2)
        pairs = convolution.filter.detach().reshape(axes).transpose(1, 2).reshape(-1, banks.shape[1])
        # The normal equations are well-conditioned (about 2²) and much smaller than the banks.
        weight = torch.linalg.solve((banks @ banks.T).double(), (banks @ pairs.T).double()).T
        with torch.no_grad():
            layer.weight.copy_(weight.view_as(layer.weight))
    return ours


@torch.no_grad()
def whiten(net: nn.Sequential) -> nn.Sequential:
    """Replace weights w by w G^{−½}, with the Gram matrix G of the atoms: random filters without a preferred direction.

    Where atoms overlap, independent weights favour what they have in common, which is smooth. With whitening, all
    filters of the space are equally likely, and a basis gains nothing from atoms that are nearly dependent.
    """
    for layer in net:
        if isinstance(layer, LiftConv2d | GroupConv2d):
            atoms = real_atoms(layer.basis, layer.kernel_size, dtype=torch.float64).flatten(1)
            values, vectors = torch.linalg.eigh(atoms @ atoms.T)
            layer.weight.copy_(layer.weight.double() @ (vectors / values.sqrt()) @ vectors.T)
    return net


def condition(basis: BasisLike, kernel_size: int) -> dict[str, float]:
    """Number and rank of the atoms, and the condition number of their Gram matrix within its rank."""
    atoms = real_atoms(basis, kernel_size, dtype=torch.float64).flatten(1)
    values = torch.linalg.svdvals(atoms)
    rank = int((values > 1e-6 * values[0]).sum())
    return {"atoms": len(atoms), "rank": rank, "gram_condition": float((values[0] / values[rank - 1]) ** 2)}


# --- running ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """One cell of a table."""

    network: str
    kernel_sizes: tuple[int, ...]
    measure: str
    textures: str
    errors: tuple[float, ...]  #: one per seed

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return float(np.mean(self.errors))

    @property
    def standard_error(self) -> float:
        """Standard error of the mean."""
        return float(np.std(self.errors, ddof=1)) / math.sqrt(len(self.errors))


def networks(kernel_sizes: tuple[int, ...]) -> dict[str, Callable[[], Network]]:
    """The networks to compare: name → function that draws one with the current seed."""
    theirs = E2cnnNetwork(kernel_sizes)
    return {
        "e2cnn default": theirs.draw,
        "sfcnn, e2cnn's filters": lambda: copy_filters(theirs.draw(), sfcnn_network("bandlimited", kernel_sizes)),
        "sfcnn bandlimited": lambda: sfcnn_network("bandlimited", kernel_sizes),
        "sfcnn averaged": lambda: sfcnn_network("averaged", kernel_sizes),
        "sfcnn paper": lambda: sfcnn_network("paper", kernel_sizes),
        "bandlimited, isotropic": lambda: whiten(sfcnn_network("bandlimited", kernel_sizes)),
        "averaged, isotropic": lambda: whiten(sfcnn_network("averaged", kernel_sizes)),
        "sfcnn paper, pixel means": lambda: sfcnn_network(paper_means, kernel_sizes),
    }


def paper_means(kernel_size: int) -> Basis:
    """The paper's atoms with the mean over each pixel instead of the value at its centre."""
    return replace(paper(kernel_size), subpixels=3)


def measure(
    name: str,
    textures: dict[str, list[Texture]],
    kernel_sizes: tuple[int, ...],
    draws: dict[str, Callable[[], Network]],
    seeds: int,
    points: int,
) -> list[Result]:
    """Errors of all networks on all kinds of images by one measure."""
    field = sum(size - 1 for size in kernel_sizes) + 1
    if name == "exact":
        views = {kind: point_views(pictures, field, points) for kind, pictures in textures.items()}
    else:
        views = {kind: disk_views(pictures[:1], field) for kind, pictures in textures.items()}
    error = exact_error if name == "exact" else resampled_error
    results = []
    for network, draw in draws.items():
        errors: dict[str, list[float]] = {kind: [] for kind in views}
        for seed in range(seeds):
            torch.manual_seed(seed)
            net = draw()
            for kind, images in views.items():
                errors[kind].append(error(net, images))
        results += [Result(network, kernel_sizes, name, kind, tuple(values)) for kind, values in errors.items()]
    return results


def table(results: Sequence[Result]) -> str:
    """The results as text: one block per measure and architecture, with the ratio to e2cnn."""
    lines = []
    for name, kernel_sizes in dict.fromkeys((r.measure, r.kernel_sizes) for r in results):
        block = [r for r in results if (r.measure, r.kernel_sizes) == (name, kernel_sizes)]
        kinds = list(dict.fromkeys(r.textures for r in block))
        cells = {(r.network, r.textures): r for r in block}
        sizes = ", ".join(f"{k}×{k}" for k in kernel_sizes)
        seeds = len(block[0].errors)
        lines += ["", f"{name} error, kernels {sizes}, {seeds} seeds: mean ± standard error (ratio to e2cnn)"]
        lines.append(f"{'':26}" + "".join(f"{kind:>24}" for kind in kinds))
        for network in dict.fromkeys(r.network for r in block):
            row = f"{network:26}"
            for kind in kinds:
                cell, reference = cells[network, kind], cells["e2cnn default", kind]
                row += f"{cell.mean:11.4f} ± {cell.standard_error:.4f} ({cell.mean / reference.mean:.2f})".rjust(24)
            lines.append(row)
    return "\n".join(lines)


def environment() -> dict[str, Any]:
    """What is needed to reproduce the results: command, date, commit, versions, machine."""
    here = Path(__file__).parent
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, cwd=here, capture_output=True, text=True, check=False).stdout.strip()
    packages = ("sfcnn", "torch", "e2cnn", "numpy", "scipy", "scikit-image")
    return {
        "command": " ".join(["python", f"{here.name}/{Path(__file__).name}", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit or None,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2 seeds and few points, to check that it runs")
    parser.add_argument("--out", type=Path, help="where to write the results as JSON")
    parser.add_argument("--threads", type=int, default=1, help="threads for PyTorch (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", module="e2cnn")
    start = time.perf_counter()
    seeds, points, pictures = (2, 8, 2) if options.quick else (20, 12, 5)
    textures = all_textures(pictures)
    main_draws, other_draws = networks(MAIN), networks(OTHER)
    results = measure("exact", textures, MAIN, main_draws, seeds, points)
    few = ("e2cnn default", "sfcnn bandlimited", "sfcnn averaged", "sfcnn paper")
    results += measure("resampled", textures, MAIN, {name: main_draws[name] for name in few}, seeds, points)
    results += measure("exact", textures, OTHER, {name: other_draws[name] for name in few}, seeds, points)
    print(table(results))
    if "em" not in textures:
        print("\nno EM images: set SFCNN_DATA to a folder with isbi2012/train-volume.tif")
    if options.out:
        settings = {
            "orientations": ORIENTATIONS,
            "channels": CHANNELS,
            "radius": RADIUS,
            "turns": TURNS,
            "seeds": seeds,
            "pictures": {kind: len(of_kind) for kind, of_kind in textures.items()},
            "points_per_picture": points,
            "shortest_wave": SHORTEST_WAVE,
            "photo_pitch": PITCH,
            "photo_blur": BLUR,
        }
        report = environment() | {
            "seconds": round(time.perf_counter() - start),
            "settings": settings,
            "atoms": {name: condition(name, 7) for name in PRESETS},
            "results": [asdict(r) | {"mean": r.mean, "standard_error": r.standard_error} for r in results],
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
