"""Deform each image of a batch individually, as handwriting varies in width, slant and bends (Simard et al. 2003).

Given an angle φ, a symmetric positive stretch S and a smooth displacement field u, the deformed image samples the
original at the points

    S ρ_{−φ} x + u(x)

in a single step, since every resampling blurs. No direction is preferred: S stretches along perpendicular axes at a
random angle, and both components of u have the same distribution.

Bends move an object's centre of mass, whose position may carry information: MNIST's digits are centred by it.
`centre_bends` shifts each object back, so that bends change shapes but not positions.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from sfcnn.classification.augmentation import RESAMPLINGS
from sfcnn.group import inverse_rotations

_BEND_SCALE = 7  # pixels between nodes of the field: about a third of a digit


def random_stretches(most: float, count: int, generator: torch.Generator) -> Tensor:
    """S = ρ_ψ diag(e^a, e^b) ρ_{−ψ} with ψ uniform and a, b uniform in [−most, most]: (count, 2, 2).

    >>> stretches = random_stretches(0.1, 100, torch.Generator().manual_seed(0))
    >>> bool((stretches == stretches.mT).all()), bool((stretches.det().log().abs() <= 0.2).all())
    (True, True)
    """
    draws = torch.rand(count, 3, dtype=torch.float64, generator=generator)
    angles = draws[:, 0] * math.pi
    first, second = ((draws[:, 1:] * 2 - 1) * most).exp().unbind(1)
    cos, sin = angles.cos(), angles.sin()
    mixed = (first - second) * cos * sin
    rows = [first * cos**2 + second * sin**2, mixed, mixed, first * sin**2 + second * cos**2]
    return torch.stack(rows, -1).view(count, 2, 2)


def random_bends(pixels: float, side: int, count: int, generator: torch.Generator) -> Tensor:
    """u: smooth displacements (count, side, side, 2) to the right and down, with a standard deviation of `pixels`.

    Independent normal samples at nodes 7 pixels apart are interpolated bicubically; between nodes the deviation is
    slightly smaller.
    """
    nodes = max(2, math.ceil(side / _BEND_SCALE) + 1)
    noise = torch.randn(count, 2, nodes, nodes, dtype=torch.float64, generator=generator) * pixels
    return F.interpolate(noise, (side, side), mode="bicubic", align_corners=True).movedim(1, -1)


def centre_bends(images: Tensor, angles: Tensor, stretches: Tensor, bends: Tensor) -> Tensor:
    """u shifted such that centres of mass are where they would be without u: (B, H, H, 2).

    If u moves the centre of mass of an image, on a ground of 0, by d, the image has to be shifted by −d. To first
    order this is u + S ρ_{−φ} d.
    """
    without = _centres(deform_each(images, angles, stretches, torch.zeros_like(bends)))
    moved = _centres(deform_each(images, angles, stretches, bends)) - without
    sampled = stretches @ inverse_rotations(angles).to(stretches) @ moved.to(stretches)[..., None]  # (B, 2, 1)
    return bends + sampled[:, None, None, :, 0]


def _centres(images: Tensor) -> Tensor:
    """Centres of mass, to the right and down of the middle, in pixels: (B, C, H, H) → (B, 2)."""
    mass = images.abs().sum(1)
    axis = torch.arange(mass.shape[-1], dtype=mass.dtype, device=mass.device) - (mass.shape[-1] - 1) / 2
    moments = torch.stack([(mass * axis).sum((1, 2)), (mass * axis[:, None]).sum((1, 2))], dim=-1)
    return moments / mass.sum((1, 2)).clamp_min(1e-6)[:, None]


def deform_each(images: Tensor, angles: Tensor, stretches: Tensor, bends: Tensor, mode: str = "bilinear") -> Tensor:
    """Rotate each image counter-clockwise by its own angle φ, stretch and bend it: (B, C, H, H) → (B, C, H, H).

    `angles` (B,), `stretches` S (B, 2, 2) and `bends` u (B, H, H, 2), in pixels. Images are padded with zeros;
    bicubic overshoot beyond the range of an image is clipped.

    >>> image = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> still = deform_each(image, torch.zeros(1), torch.eye(2)[None], torch.zeros(1, 8, 8, 2))
    >>> torch.allclose(still, image, atol=1e-6)
    True
    """
    if mode not in RESAMPLINGS:
        raise ValueError(f"unknown resampling {mode!r}, choose one of {list(RESAMPLINGS)}")
    if images.dim() != 4 or images.shape[-1] != images.shape[-2]:
        raise ValueError(f"deform_each expects square images (B, C, H, H), got {tuple(images.shape)}")
    count, side = len(images), images.shape[-1]
    expected = {"angles": (count,), "stretches": (count, 2, 2), "bends": (count, side, side, 2)}
    given = {"angles": angles, "stretches": stretches, "bends": bends}
    for name, shape in expected.items():
        if tuple(given[name].shape) != shape:
            raise ValueError(f"expected {name} {shape} for {count} images, got {tuple(given[name].shape)}")
    matrices = F.pad(stretches @ inverse_rotations(angles).to(stretches), (0, 1))  # (B, 2, 3), without a shift
    grid = F.affine_grid(matrices, list(images.shape), align_corners=False) + bends.to(stretches) * (2 / side)
    found = F.grid_sample(images, grid.to(images.dtype), mode=mode, padding_mode="zeros", align_corners=False)
    # The range includes the zeros of the padding.
    low, high = images.amin((2, 3), keepdim=True).clamp_max(0), images.amax((2, 3), keepdim=True).clamp_min(0)
    return found.clamp(low, high)
