"""Test-time averaging: the mean of what a classifier says of an image in several orientations."""

import math

from torch import Tensor, nn

from sfcnn.classification.augmentation import ground
from sfcnn.group import rotate


def view_angles(count: int, orientations: int = 1) -> tuple[float, ...]:
    """`count` angles evenly spaced over [0, 2π/Λ), in radians: an equivariant network sees nothing new in others.

    >>> view_angles(2, orientations=4) == (0, math.pi / 4)
    True
    """
    if count < 1:
        raise ValueError(f"the number of views must be at least 1, got {count}")
    return tuple(2 * math.pi * index / (orientations * count) for index in range(count))


class Views(nn.Module):
    """ln of the mean probability over rotations: ln (1/N) Σ_n softmax f(ρ_{φ_n} x), with φ_n of `view_angles`.

    Shapes: images (B, C, H, H) → (B, classes), logits whose softmax is the mean.

    Args:
        network: f, a classifier.
        count: N.
        orientations: Λ, 1 for a plain CNN.
        mode: how images are resampled, as in `sfcnn.rotate`.
    """

    def __init__(self, network: nn.Module, count: int, orientations: int = 1, mode: str = "bilinear") -> None:
        super().__init__()
        self.network, self.angles, self.mode = network, view_angles(count, orientations), mode

    def forward(self, images: Tensor) -> Tensor:
        """Images → logarithms of probabilities."""
        behind = ground(images)
        turned = (rotate(images - behind, angle, self.mode) + behind for angle in self.angles)
        mean = sum(self.network(view).softmax(1) for view in turned) / len(self.angles)
        return mean.log()
