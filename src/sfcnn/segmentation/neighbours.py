"""Neighbouring slices of a stack as further channels of each slice.

A membrane that is cut obliquely is a faint band in one slice and a sharp line in the next, so a network sees more in
2n + 1 adjacent slices than in one. Beyond the ends of a stack, the first and last slices are repeated; an image that
belongs to no stack is its own neighbour.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def window(z: int, depth: int, neighbours: int) -> list[int]:
    """The slices that belong to slice z of a stack of `depth` slices, in order: z − n … z + n, inside the stack.

    >>> window(0, 3, 1), window(1, 3, 1), window(0, 1, 1)
    ([0, 0, 1], [0, 1, 2], [0, 0, 0])
    """
    if not 0 <= z < depth:
        raise ValueError(f"slice {z} is not in a stack of {depth} slices, expected 0 … {depth - 1}")
    return [min(max(z + step, 0), depth - 1) for step in range(-neighbours, neighbours + 1)]


def with_neighbours(images: Sequence[Tensor], neighbours: int) -> list[Tensor]:
    """Each slice (C, H, W) with its neighbours as channels, slice by slice: ((2n + 1)·C, H, W).

    >>> stack = [torch.full((1, 1, 1), float(z)) for z in range(3)]
    >>> [image.flatten().tolist() for image in with_neighbours(stack, 1)]
    [[0.0, 0.0, 1.0], [0.0, 1.0, 2.0], [1.0, 2.0, 2.0]]
    """
    if neighbours == 0:
        return list(images)
    sizes = {tuple(image.shape) for image in images}
    if len(sizes) > 1:
        raise ValueError(f"neighbouring slices need images of the same size, got {sorted(sizes)}")
    depth = len(images)
    return [torch.cat([images[index] for index in window(z, depth, neighbours)]) for z in range(depth)]


def without_neighbours(crops: Tensor, neighbours: int, chosen: Tensor) -> Tensor:
    """Replace the neighbours of the chosen crops by the slice itself: (B, (2n + 1)·C, H, W), (B,) → the same shape."""
    count = 2 * neighbours + 1
    if crops.shape[1] % count:
        raise ValueError(f"{crops.shape[1]} channels are not {count} slices of as many channels each")
    own = crops.unflatten(1, (count, -1))[:, neighbours]
    return torch.where(chosen[:, None, None, None], own.repeat(1, count, 1, 1), crops)
