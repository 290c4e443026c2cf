"""Images continued by reflection, so that networks that halve them can take any size."""

import torch
from torch import Tensor


def _reflected(length: int, before: int, after: int) -> Tensor:
    """Indices of a row that is continued by reflection without repeating its ends, as far as one likes."""
    period = max(2 * (length - 1), 1)
    index = torch.arange(-before, length + after).remainder(period)
    return torch.minimum(index, period - index) if length > 1 else torch.zeros_like(index)


def margins(length: int, margin: int, multiple: int) -> tuple[int, int]:
    """Pixels before and after a row: `margin` each, and what it lacks to a whole `multiple`.

    That is shared by both ends, so that coarse pixels lie the same way in a turned image, if it can be shared evenly.

    >>> margins(10, 0, 8)
    (3, 3)
    """
    lacking = -(length + 2 * margin) % multiple
    return margin + lacking // 2, margin + lacking - lacking // 2


def pad_by_reflection(images: Tensor, margin: int, multiple: int) -> Tensor:
    """Continue images (…, H, W) by at least `margin` on each side, to whole multiples.

    >>> pad_by_reflection(torch.tensor([[1, 2, 3]]), 0, 5).shape
    torch.Size([5, 5])
    """
    height, width = (
        _reflected(length, *margins(length, margin, multiple)).to(images.device) for length in images.shape[-2:]
    )
    return images[..., height, :][..., width]
