"""Synthetic membranes: textures that look roughly like electron micrographs, for demos and tests without data.

Cells are the Voronoi regions of random points, in coordinates deformed by a smooth field; membranes lie where the
distances to the two nearest points are nearly equal. The points move a little from slice to slice, so cells continue.
The images do not model real tissue: any result on them must be labelled synthetic.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Membranes(NamedTuple):
    """Images and their membrane masks."""

    images: Tensor  #: (Z, H, W), float32 in [0, 1]
    membranes: Tensor  #: (Z, H, W), bool


def smooth_noise(shape: tuple[int, ...], size: int, scale: float, generator: torch.Generator) -> Tensor:
    """Noise (…, size, size) with variance about 1 that varies over `scale` pixels."""
    coarse = max(2, round(size / scale) + 1)
    noise = torch.randn(*shape, coarse, coarse, generator=generator)
    fine = F.interpolate(noise.reshape(-1, 1, coarse, coarse), (size, size), mode="bicubic", align_corners=True)
    return fine.reshape(*shape, size, size)


def synthetic_membranes(
    slices: int, size: int, *, seed: int = 0, cell: float = 40.0, thickness: float = 2.5
) -> Membranes:
    """Slices (size × size) of cells about `cell` pixels wide, with membranes about `thickness` pixels thick.

    >>> images, membranes = synthetic_membranes(2, 64, seed=1)
    >>> images.shape, bool(membranes.any()), bool(images[membranes].mean() < images[~membranes].mean())
    (torch.Size([2, 64, 64]), True, True)
    """
    for name, value, smallest in (
        ("slices", slices, 1),
        ("size", size, 8),
        ("cell", cell, 4),
        ("thickness", thickness, 1),
    ):
        if value < smallest:
            raise ValueError(f"{name} must be at least {smallest}, got {value}")
    generator = torch.Generator().manual_seed(seed)
    extent = size + 2 * cell  # points beyond the border, so that cells at the border look like the others
    count = max(2, round((extent / cell) ** 2))
    points = torch.rand(count, 2, generator=generator) * extent - cell
    axis = torch.arange(size, dtype=torch.float32)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1)  # (H, W, 2)
    bend = smooth_noise((2,), size, cell, generator).movedim(0, -1) * (0.15 * cell)
    images, membranes = [], []
    for _ in range(slices):
        distances = torch.cdist((grid + bend).reshape(-1, 2), points).topk(2, largest=False).values
        # The border is where both distances are equal; their difference grows twice as fast as the distance from it.
        gap = (distances[:, 1] - distances[:, 0]).reshape(size, size) / 2
        membrane = gap < thickness / 2
        nearest = distances[:, 0].reshape(size, size)
        organelle = 0.12 * torch.sigmoid(4 * smooth_noise((), size, cell / 4, generator) - 6) * (nearest < cell / 3)
        smooth = torch.sigmoid(2 * (gap - thickness / 2))
        image = 0.25 + 0.4 * smooth - organelle + 0.04 * smooth_noise((), size, 6.0, generator)
        image = image + 0.06 * torch.randn(size, size, generator=generator)
        images.append(image.clamp(0, 1))
        membranes.append(membrane)
        points = points + 0.06 * cell * torch.randn(points.shape, generator=generator)
    return Membranes(torch.stack(images), torch.stack(membranes))
