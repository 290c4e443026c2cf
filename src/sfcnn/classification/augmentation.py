"""Rotate and shift each image of a batch individually, for augmentation and rotated data sets (§4.1).

The paper trains without augmentation, with rotations by multiples of π/2 or π/4, and with angles from [0, 2π). A
network that is equivariant under rotations by 2π/Λ learns nothing new from these: only angles in [0, 2π/Λ) matter.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from sfcnn.group import ground as ground
from sfcnn.group import inverse_rotations

#: Random rotations of training images.
AUGMENTATIONS = ("none", "quarter-turns", "eighth-turns", "continuous", "between-orientations")

#: Interpolation between pixels.
RESAMPLINGS = ("bilinear", "bicubic")

_RIGHT_ANGLE = math.pi / 2
_GOLDEN = (math.sqrt(5) - 1) / 2


def random_angles(kind: str, count: int, generator: torch.Generator) -> Tensor:
    """Angles (count,) in [0, 2π), drawn independently and uniformly from those that `kind` allows.

    "between-orientations", which depends on Λ and the epoch, is drawn by `angles_between` instead.

    >>> random_angles("quarter-turns", 4, torch.Generator().manual_seed(0)) / (math.pi / 2)
    tensor([0., 3., 1., 0.], dtype=torch.float64)
    """
    if kind == "none":
        return torch.zeros(count, dtype=torch.float64)
    if kind == "continuous":
        return torch.rand(count, dtype=torch.float64, generator=generator) * (2 * math.pi)
    turns = {"quarter-turns": 4, "eighth-turns": 8}
    if kind not in turns:
        raise ValueError(f"unknown augmentation {kind!r}, choose one of {[*turns, 'none', 'continuous']}")
    return torch.randint(turns[kind], (count,), generator=generator).double() * (2 * math.pi / turns[kind])


def angles_between(orientations: int, epoch: int, offsets: Tensor) -> Tensor:
    """Angles in [0, 2π/Λ) of images with offsets u ∈ [0, 1), (N,), spread evenly over the epochs e = 0, 1, …

        φ = (2π/Λ) · frac(u + e (√5 − 1)/2)

    Multiples of the golden ratio fill the circle evenly, however many there are, so the views of an image are well
    spread over any number of epochs. Uniform offsets give uniform angles in each epoch.

    >>> angles = torch.stack([angles_between(4, epoch, torch.zeros(1)) for epoch in range(5)])
    >>> (angles.squeeze(1).sort().values / (2 * math.pi / 4)).round(decimals=2)
    tensor([0.0000, 0.2400, 0.4700, 0.6200, 0.8500])
    """
    return torch.remainder(offsets + epoch * _GOLDEN, 1) * (2 * math.pi / orientations)


def random_shifts(most: float, count: int, generator: torch.Generator) -> Tensor:
    """Shifts (count, 2) in pixels, to the right and down, drawn uniformly from the square [−most, most]²."""
    return (torch.rand(count, 2, dtype=torch.float64, generator=generator) * 2 - 1) * most


def rotate_each(images: Tensor, angles: Tensor, mode: str = "bilinear", shifts: Tensor | None = None) -> Tensor:
    """ρ_φ with one angle φ_b per image: (B, C, H, H), (B,) → (B, C, H, H), counter-clockwise, padded with zeros.

    Each angle is split into quarter turns, which are exact, and a remainder of at most 45°, which is resampled unless
    it is zero. `shifts` (B, 2) then move each image to the right and down, in pixels.

    >>> rotate_each(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), torch.tensor([math.pi / 2]))
    tensor([[[[2., 4.],
              [1., 3.]]]])
    """
    if mode not in RESAMPLINGS:
        raise ValueError(f"unknown resampling {mode!r}, choose one of {list(RESAMPLINGS)}")
    if images.dim() != 4 or images.shape[-1] != images.shape[-2]:
        raise ValueError(f"rotate_each expects square images (B, C, H, H), got {tuple(images.shape)}")
    if angles.shape != images.shape[:1]:
        raise ValueError(f"expected one angle for each of {len(images)} images, got shape {tuple(angles.shape)}")
    turns = torch.round(angles / _RIGHT_ANGLE)
    rest = angles - turns * _RIGHT_ANGLE
    turned = images.clone()
    for turn in (1, 2, 3):
        chosen = turns.long() % 4 == turn
        turned[chosen] = images[chosen].rot90(turn, (-2, -1))
    shifts = angles.new_zeros(len(angles), 2) if shifts is None else shifts.to(angles)
    if shifts.shape != (len(images), 2):
        raise ValueError(f"expected two shifts for each of {len(images)} images, got shape {tuple(shifts.shape)}")
    between = (rest.abs() > 1e-9) | (shifts != 0).any(1)
    if between.any():
        turned[between] = _resample(turned[between], rest[between], shifts[between], mode)
    return turned


def move_each(images: Tensor, offsets: Tensor) -> Tensor:
    """Move each image by its own integer offsets, down and to the right: (B, C, H, W), (B, 2) → (B, C, H, W).

    Pixels that leave the image are lost, and the gap is filled with zeros.

    >>> move_each(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), torch.tensor([[0, 1]]))
    tensor([[[[0., 1.],
              [0., 3.]]]])
    """
    if offsets.shape != (len(images), 2) or offsets.is_floating_point():
        raise ValueError(
            f"expected integer offsets (B, 2) for {len(images)} images, got {offsets.dtype} {tuple(offsets.shape)}"
        )
    height, width = images.shape[-2:]
    rows = torch.arange(height) - offsets[:, :1]  # (B, H), where the pixels come from
    columns = torch.arange(width) - offsets[:, 1:]
    known = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None]
    rows, columns = rows.clamp(0, height - 1), columns.clamp(0, width - 1)
    batch = torch.arange(len(images))[:, None, None]
    moved = images.movedim(1, -1)[batch, rows[:, :, None], columns[:, None]].movedim(-1, 1)  # (B, C, H, W)
    return torch.where(known[:, None], moved, torch.zeros_like(moved))


def _resample(images: Tensor, angles: Tensor, shifts: Tensor, mode: str) -> Tensor:
    """Sample each image at the points ρ_{−φ} (x − t), in coordinates in which it has side length 2."""
    matrices = inverse_rotations(angles)
    moved = -matrices @ (shifts * (2 / images.shape[-1])).unsqueeze(-1)
    matrices = torch.cat([matrices, moved], -1).to(images.dtype)  # (B, 2, 3)
    grid = F.affine_grid(matrices, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode=mode, padding_mode="zeros", align_corners=False)
