"""Label images, with a number for each cell and 0 on membranes, and conversion from and to membrane masks."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage
from torch import Tensor

_LARGEST = 2**24  # float32, in which labels are deformed with their crops, represents integers exactly up to here


def cells_of_mask(membranes: Tensor) -> Tensor:
    """Label the cells of a mask (H, W) that is 1 on membranes: the 4-connected components of the rest, int64.

    >>> cells_of_mask(torch.tensor([[0, 1, 0], [0, 1, 0]]))
    tensor([[1, 0, 2],
            [1, 0, 2]])
    """
    numbers, _ = ndimage.label((membranes == 0).cpu().numpy())
    return torch.from_numpy(numbers.astype(np.int64))


def membranes_of_cells(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Membrane mask (H, W): 1 where a label image is 0 and on both sides of the border between touching cells.

    >>> membranes_of_cells(np.array([[1, 1, 0, 2, 3, 3]]))
    array([[0, 0, 1, 1, 1, 0]])
    """
    membranes = labels == 0
    for axis in (0, 1):
        ahead, behind = np.moveaxis(labels, axis, 0)[1:], np.moveaxis(labels, axis, 0)[:-1]
        touching = (ahead != behind) & (ahead > 0) & (behind > 0)
        view = np.moveaxis(membranes, axis, 0)  # writes through
        view[1:] |= touching
        view[:-1] |= touching
    return membranes.astype(np.int64)


def as_labels(image: NDArray[Any], name: object) -> NDArray[np.int64]:
    """Convert a label image to non-negative integers; `name` is used in error messages.

    >>> as_labels(np.array([[0.0, 7.0]]), "my labels")
    array([[0, 7]])
    """
    if image.min() < 0 or image.max() > _LARGEST or (image % 1 != 0).any():
        raise ValueError(
            f"{name} is not a label image: expected integers from 0 to {_LARGEST}, got {image.min():g} … "
            f"{image.max():g}"
        )
    return image.astype(np.int64)
