"""Pool over orientations, or read out the orientation of the strongest response (§3.2, output layer)."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sfcnn.ops.passes import halve, is_covered
from sfcnn.steering import orientation_angles
from sfcnn.subgroups import split_orientations


def _check_features(module: nn.Module, features: Tensor) -> None:
    if features.dim() != 5:
        name = type(module).__name__
        raise ValueError(f"{name} expects features of shape (B, C, Λ, H, W), got {tuple(features.shape)}")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"unknown {name} {value!r}, choose one of {list(choices)}")


class OrientationPool(nn.Module):
    """Pool over orientations: max_θ or mean_θ ζ(x, θ). Rotating the features then only rotates the map.

    Shapes: features (B, C, Λ, H, W) → maps (B, C, H, W). Mirrored orientations, if any, are pooled as well.

    >>> OrientationPool("max")(torch.randn(2, 8, 16, 5, 5)).shape
    torch.Size([2, 8, 5, 5])
    """

    def __init__(self, kind: str = "max") -> None:
        super().__init__()
        _check_choice("kind of orientation pooling", kind, ("max", "mean"))
        self.kind = kind

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, C, Λ, H, W) → maps (B, C, H, W)."""
        _check_features(self, features)
        return features.amax(2) if self.kind == "max" else features.mean(2)

    def extra_repr(self) -> str:
        """The kind of pooling."""
        return repr(self.kind)


def readout_angles(size: int, reflections: bool) -> Tensor:
    """The angle of each of `size` orientations: θ_a, and with reflections θ_a + π in the second half."""
    angles = orientation_angles(split_orientations(size, reflections))
    return torch.cat([angles, angles + math.pi]) if reflections else angles


class SpatialMaxPool(nn.MaxPool3d):
    """The maximum over 2×2 pixels, orientation by orientation: `nn.MaxPool3d((1, 2, 2))`, faster and with less memory.

    PyTorch's layer also computes the position of the maximum, which is needed only for gradients and takes far longer.
    For gradients it stores its input and eight bytes per maximum, the compiled kernel one byte (`sfcnn.ops.passes`).

    Shapes: features (B, C, Λ, H, W) → (B, C, Λ, H // 2, W // 2).

    >>> SpatialMaxPool()(torch.randn(2, 8, 4, 28, 15)).shape
    torch.Size([2, 8, 4, 14, 7])
    """

    def __init__(self) -> None:
        super().__init__((1, 2, 2))

    def forward(self, input: Tensor) -> Tensor:
        """Features (B, C, Λ, H, W) → half the height and width."""
        gradients = torch.is_grad_enabled()
        if gradients and is_covered(input) and input.dim() == 5 and min(input.shape[-2:]) >= 2:
            return halve(input)
        plain = gradients or torch.compiler.is_compiling() or input.device.type != "cpu"
        if plain or min(input.shape[-2:]) < 2:
            pooled: Tensor = super().forward(input)
            return pooled
        even = input[..., : input.shape[-2] // 2 * 2, : input.shape[-1] // 2 * 2]
        rows = torch.maximum(even[..., 0::2, :], even[..., 1::2, :])
        return torch.maximum(rows[..., 0::2], rows[..., 1::2])


class OrientedResponse(NamedTuple):
    """What `OrientationReadout` returns."""

    response: Tensor  #: (B, C, H, W), its strength
    angle: Tensor  #: (B, C, H, W), its direction, in radians in [0, period)


class OrientationReadout(nn.Module):
    """The pooled response and its angle, at every pixel. Rotating the input by φ adds φ to the angle.

    "argmax": the largest response and its orientation θ_a.
    "soft": weights p_a = softmax_a(ζ_a / temperature); the response is Σ_a p_a ζ_a and the angle the circular mean
        arg(Σ_a p_a e^{inθ_a}) / n. Both are differentiable.

    Shapes: features (B, C, Λ, H, W) → response and angle, each (B, C, H, W).

    Args:
        kind: "argmax" or "soft".
        temperature: of the soft weights; small values approach the maximum.
        symmetry: n, the rotational symmetry of the structure: 1 for arrows, 2 for lines and fibres, whose direction is
            known only up to 180°. The angle lies in [0, 2π/n).
        reflections: whether features have mirrored orientations, (B, C, 2Λ, H, W). Orientation r_θ m has the angle
            θ + π: as the mirror maps an arrow at θ to one at π − θ, it maps the angle α that is read out to π − α.

    >>> response, angle = OrientationReadout("soft", symmetry=2)(torch.randn(2, 8, 16, 5, 5))
    >>> angle.shape
    torch.Size([2, 8, 5, 5])
    """

    def __init__(
        self, kind: str = "argmax", *, temperature: float = 1.0, symmetry: int = 1, reflections: bool = False
    ) -> None:
        super().__init__()
        _check_choice("kind of orientation readout", kind, ("argmax", "soft"))
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature!r}")
        if isinstance(symmetry, bool) or not isinstance(symmetry, int) or symmetry < 1:
            raise ValueError(f"symmetry must be a whole number of at least 1, got {symmetry!r}")
        self.kind, self.temperature, self.symmetry, self.reflections = kind, temperature, symmetry, reflections

    def forward(self, features: Tensor) -> OrientedResponse:
        """Features (B, C, Λ, H, W) → (response, angle), each (B, C, H, W)."""
        _check_features(self, features)
        period = 2 * math.pi / self.symmetry
        angles = readout_angles(features.shape[2], self.reflections).to(features)
        if self.kind == "argmax":
            response, index = features.max(2)
            return OrientedResponse(response, torch.remainder(angles[index], period))
        share = torch.softmax(features / self.temperature, dim=2)
        turned = self.symmetry * angles[:, None, None]
        phase = torch.atan2((share * turned.sin()).sum(2), (share * turned.cos()).sum(2))
        return OrientedResponse((share * features).sum(2), torch.remainder(phase / self.symmetry, period))

    def extra_repr(self) -> str:
        """The kind of read-out and its settings."""
        temperature = f", temperature={self.temperature:g}" if self.kind == "soft" else ""
        reflections = ", reflections=True" if self.reflections else ""
        return f"{self.kind!r}{temperature}, symmetry={self.symmetry}{reflections}"
