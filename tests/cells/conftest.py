"""Membrane-like textures: Voronoi cells with blurred, noisy and broken borders."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.spatial import cKDTree


@dataclass(frozen=True)
class Texture:
    """A slice or stack of membrane probabilities and the cells that it was made from."""

    probabilities: NDArray[np.float32]
    truth: NDArray[np.int64]  #: 0 on membranes


def _slice(
    points: NDArray[np.float64], shape: tuple[int, int], noise: float, generator: np.random.Generator
) -> Texture:
    pixels = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1).reshape(-1, 2)
    distances, nearest = cKDTree(points).query(pixels, k=2)
    gap = np.linalg.norm(points[nearest[:, 0]] - points[nearest[:, 1]], axis=1)
    to_border = (distances[:, 1] ** 2 - distances[:, 0] ** 2) / (2 * gap)  # borders are midway between points
    border = np.exp(-((to_border / 2) ** 2)).reshape(shape)
    smooth = ndimage.gaussian_filter(generator.standard_normal(shape), 2.5)
    logits = 6 * border - 3 + noise * smooth / smooth.std()  # weak places in membranes, dark ones in cells
    truth = np.where(border > 0.5, 0, nearest[:, 0].reshape(shape) + 1)
    return Texture((1 / (1 + np.exp(-logits))).astype(np.float32), truth.astype(np.int64))


def make_texture(shape: tuple[int, ...], cells: int, seed: int, noise: float = 1.0) -> Texture:
    """A slice (H, W), or a stack (Z, H, W) in which the cells drift from slice to slice."""
    generator = np.random.default_rng(seed)
    plane = (shape[-2], shape[-1])
    points = generator.uniform(0, plane, (cells, 2))
    if len(shape) == 2:
        return _slice(points, plane, noise, generator)
    slices = []
    for _ in range(shape[0]):
        points = points + generator.normal(0, 0.7, points.shape)
        slices.append(_slice(points, plane, noise, generator))
    return Texture(
        np.stack([one.probabilities for one in slices]),
        np.stack([one.truth for one in slices]),
    )
