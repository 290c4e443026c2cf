"""The angle of an object, read from the orientations of a steerable classifier (§3.2: features shift as images rotate).

The last features ζ_c(x, θ_a) of a classifier keep the orientation that its pooling discards. With the largest response
of each orientation, z_c(θ_a) = max_x ζ_c(x, θ_a), a convolution over the group of rotations gives every class k a score
for each orientation,

    s_k(θ_a) = Σ_c Σ_b w_kcb z_c(θ_a − θ_b),        θ_a = 2πa/Λ

Turning the image by 2πj/Λ shifts z and therefore s by j places, whatever w is. The angle of an object of class k is the
circular mean of the distribution over orientations that the scores stand for,

    φ_k = arg Σ_a softmax_a(s_k)_a e^{iθ_a},

counter-clockwise, so that rotating the image by φ adds φ. Angle zero is that of the images that w was trained on. There
is no bias: it would be the same for all orientations, and the softmax is invariant to it.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sfcnn.nn import OrientationReadout
from sfcnn.subgroups import restrict

#: With fewer orientations an angle is ambiguous: two determine it only up to a half of the circle.
LEAST_ORIENTATIONS = 3


def pooled_responses(features: Tensor, *, reflections: bool = False) -> Tensor:
    """z_c(θ_a) = max_x ζ_c(x, θ_a): (B, C, Λ, H, W) → (B, C, Λ).

    Features with mirrored orientations, (B, C, 2Λ, H, W), are restricted to rotations first: (B, 2C, Λ).

    >>> pooled_responses(torch.randn(2, 8, 16, 5, 5)).shape
    torch.Size([2, 8, 16])
    """
    return (restrict(features, reflections=True) if reflections else features).amax((-2, -1))


def pose_scores(responses: Tensor, weight: Tensor) -> Tensor:
    """s_k(θ_a) = Σ_c Σ_b w_kcb z_c(θ_a − θ_b): responses (B, C, Λ), weight (K, C, Λ) → (B, K, Λ).

    >>> responses = torch.randn(2, 8, 16)
    >>> weight = torch.randn(10, 8, 16)
    >>> turned = pose_scores(responses.roll(3, -1), weight)
    >>> bool(torch.allclose(turned, pose_scores(responses, weight).roll(3, -1), atol=1e-4))
    True
    """
    # conv1d correlates, so the weights are reversed, and the circle is cut open before its first orientation.
    return F.conv1d(F.pad(responses, (weight.shape[-1] - 1, 0), mode="circular"), weight.flip(-1))


def pose_angles(scores: Tensor) -> Tensor:
    """arg Σ_a softmax(s)_a e^{iθ_a}: scores (B, K, Λ) → angles (B, K), float64 radians in [0, 2π).

    >>> pose_angles(torch.tensor([[[0.0, 9.0, 9.0, 0.0]]])) / math.pi
    tensor([[0.7500]], dtype=torch.float64)
    """
    angles = OrientationReadout("soft")(scores.double()[..., None, None]).angle[..., 0, 0]
    # Adding a whole circle keeps the remainder of a tiny negative number from being rounded up to the full circle.
    return torch.remainder(angles + 2 * math.pi, 2 * math.pi)


def pose_targets(angles: Tensor, orientations: int) -> Tensor:
    """Probabilities of the orientations whose circular mean is the angle: (B,) → (B, Λ), Λ ≥ 3.

    Between θ_a and θ_{a+1}, a step Δ = 2π/Λ apart, they are the shares of

        e^{iφ} sin Δ = sin(θ_{a+1} − φ) e^{iθ_a} + sin(φ − θ_a) e^{iθ_{a+1}}.

    >>> pose_targets(torch.tensor([math.pi / 8, -math.pi / 4]), 8).round(decimals=2)
    tensor([[0.5000, 0.5000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000],
            [0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 1.0000]])
    """
    step = 2 * math.pi / orientations
    places = torch.remainder(angles, 2 * math.pi) / step
    below = places.floor()
    before, after = (torch.sin(step * part) for part in (below + 1 - places, places - below))
    shares = torch.stack([before, after], -1) / (before + after).unsqueeze(-1)
    columns = torch.stack([below, below + 1], -1).long() % orientations
    return angles.new_zeros(len(angles), orientations).scatter_add_(1, columns, shares)


class PoseReadout(nn.Module):
    """Scores of all orientations for each class, from the last features of a steerable classifier.

    Shapes: features (B, C, Λ, H, W), or (B, C, 2Λ, H, W) with reflections → scores (B, K, Λ); weight (K, C, Λ), or
    (K, 2C, Λ) with reflections. `pose_angles` turns scores to angles.

    A mirror image of an object has no angle: with reflections the features are restricted to rotations, and "upright"
    is defined by the training images.

    Args:
        channels: C of the features.
        classes: K.
        orientations: Λ, at least 3.
        reflections: whether features have mirrored orientations.

    >>> readout = PoseReadout(8, 10, 16)
    >>> pose_angles(readout(torch.randn(2, 8, 16, 5, 5))).shape
    torch.Size([2, 10])
    """

    def __init__(self, channels: int, classes: int, orientations: int, *, reflections: bool = False) -> None:
        super().__init__()
        if orientations < LEAST_ORIENTATIONS:
            raise ValueError(f"an angle needs at least {LEAST_ORIENTATIONS} orientations (Λ), got {orientations}")
        self.reflections = reflections
        # Training starts at zero, where all orientations are equally likely.
        self.weight = nn.Parameter(torch.zeros(classes, (1 + reflections) * channels, orientations))

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, C, Λ, H, W) → scores (B, K, Λ)."""
        return pose_scores(pooled_responses(features, reflections=self.reflections), self.weight)

    def extra_repr(self) -> str:
        """Sizes."""
        classes, channels, orientations = self.weight.shape
        reflections = ", reflections=True" if self.reflections else ""
        return f"{channels // (1 + self.reflections)}, {classes}, orientations={orientations}{reflections}"
