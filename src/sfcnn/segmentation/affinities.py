"""Affinities of pixel pairs, (…, D, Λ, H, W): targets, averaging over both ends, and how they rotate.

The entry (d, a) at pixel x stands for the pair of x and x + o_da, with the offsets o of `oriented_offsets`. It is 1 if
both are in the same cell,

    t_da(x) = 1  ⇔  ℓ(x) = ℓ(x + o_da) > 0,

where the label image ℓ has a number for each cell and 0 on membranes. Negative labels mark unknown pixels. A pair is
invalid if either end is unknown or outside the image.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfcnn.segmentation.offsets import pair_windows

#: Offsets (D, Λ, 2) from `oriented_offsets`.
Offsets = NDArray[np.int64]


class PairTargets(NamedTuple):
    """Ground truth for pairs of pixels."""

    same: Tensor  #: (…, D, Λ, H, W), bool: both pixels are in the same cell
    valid: Tensor  #: (…, D, Λ, H, W), bool: both pixels are inside the image and known


def affinity_targets(labels: Tensor, offsets: Offsets) -> PairTargets:
    """Label images (…, H, W) → whether each pair is in the same cell, and whether that is known.

    >>> same, valid = affinity_targets(torch.tensor([[1, 1, 0, 0, 2]]), np.array([[[0, 1], [0, -1]]]))
    >>> same[0, 0, 0].tolist(), valid[0, 0, 0].tolist()
    ([True, False, False, False, False], [True, True, True, True, False])
    """
    if labels.dim() < 2 or labels.is_floating_point():
        raise ValueError(f"expected integer label images (…, H, W), got {tuple(labels.shape)}, {labels.dtype}")
    radii, orientations, _ = offsets.shape
    *batch, height, width = labels.shape
    same = torch.zeros(*batch, radii, orientations, height, width, dtype=torch.bool, device=labels.device)
    valid = torch.zeros_like(same)
    for d, a in np.ndindex(radii, orientations):
        here, there = pair_windows((height, width), offsets[d, a].tolist())
        mine, other = labels[..., *here], labels[..., *there]
        same[..., d, a, *here] = (mine == other) & (mine > 0)
        valid[..., d, a, *here] = (mine >= 0) & (other >= 0)
    return PairTargets(same, valid)


def same_shares(labels: Sequence[Tensor], offsets: Offsets) -> Tensor:
    """Fraction of valid pairs in label images (H, W) that are in the same cell, per radius: (D,), ½ without pairs."""
    counts = torch.zeros(2, len(offsets))
    for image in labels:
        counts += torch.stack([part.sum((1, 2, 3)) for part in affinity_targets(image, offsets)])
    return torch.where(counts[1] > 0, counts[0] / counts[1].clamp_min(1), 0.5)


def average_pairs(affinities: Tensor, offsets: Offsets) -> Tensor:
    """Give both ends of each pair the mean of their two values: (…, D, Λ, H, W) → the same shape.

    The partner of (d, a) at x is (d, a + Λ/2) at x + o_da. Odd Λ have no partners, so nothing changes; pairs that leave
    the image do not change either.
    """
    radii, orientations, _ = offsets.shape
    if affinities.shape[-4:-2] != (radii, orientations):
        raise ValueError(f"expected affinities (…, {radii}, {orientations}, H, W), got {tuple(affinities.shape)}")
    if orientations % 2:
        return affinities
    averaged = affinities.clone()
    for d, a in np.ndindex(radii, orientations // 2):
        here, there = pair_windows(affinities.shape[-2:], offsets[d, a].tolist())
        back = a + orientations // 2
        mean = (affinities[..., d, a, *here] + affinities[..., d, back, *there]) / 2
        averaged[..., d, a, *here] = mean
        averaged[..., d, back, *there] = mean
    return averaged


def turn_affinities(affinities: Tensor, turns: int, *, mirrored: bool = False) -> Tensor:
    """Affinities (…, D, Λ, H, W) of the image after an optional left-right flip, then a rotation by 90°·turns.

    Each value moves with its pixel, and its direction θ becomes π − θ (flip) and θ + 90°·turns (rotation).
    """
    orientations = affinities.shape[-3]
    if (turns * orientations) % 4 or (mirrored and orientations % 2):
        what = "mirrored" if mirrored and orientations % 2 else f"rotated by {90 * turns}°"
        raise ValueError(
            f"affinities in {orientations} directions cannot be {what}: choose a number of orientations divisible by 4"
        )
    if mirrored:  # a → Λ/2 − a
        affinities = affinities.flip((-3, -1)).roll(orientations // 2 + 1, dims=-3)
    return affinities.rot90(turns, (-2, -1)).roll(turns * orientations // 4, dims=-3)
