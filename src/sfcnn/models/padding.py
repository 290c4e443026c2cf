"""Pad images by reflection, so that networks that halve them accept any size."""

import torch
from torch import Tensor


def _reflected(length: int, before: int, after: int) -> Tensor:
    """Indices of a row padded by reflection without repeating its ends, to any length."""
    period = max(2 * (length - 1), 1)
    index = torch.arange(-before, length + after).remainder(period)
    return torch.minimum(index, period - index) if length > 1 else torch.zeros_like(index)


def margins(length: int, margin: int, multiple: int) -> tuple[int, int]:
    """Pixels to add before and after a row: `margin` each, and the number that is missing to a whole `multiple`.

    The missing pixels are split between both ends; if the split is even, coarse pixels lie the same way in a rotated
    image.

    >>> margins(10, 0, 8)
    (3, 3)
    """
    lacking = -(length + 2 * margin) % multiple
    return margin + lacking // 2, margin + lacking - lacking // 2


def pad_by_reflection(images: Tensor, margin: int, multiple: int) -> Tensor:
    """Pad images (…, H, W) by reflection by at least `margin` on each side, to whole multiples.

    >>> pad_by_reflection(torch.tensor([[1, 2, 3]]), 0, 5).shape
    torch.Size([5, 5])
    """
    height, width = (
        _reflected(length, *margins(length, margin, multiple)).to(images.device) for length in images.shape[-2:]
    )
    return images[..., height, :][..., width]
