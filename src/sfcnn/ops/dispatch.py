"""The two operators of the network, each computed by an engine of choice. Same function, same gradients, any engine.

An engine works in two steps: `*_kernel` turns weights into what it convolves with (this depends on the weights only,
so that layers keep it while the weights are frozen), and `lift` or `group` applies it.
"""

from typing import Protocol

import torch
from torch import Tensor

from sfcnn.ops import atomic, direct
from sfcnn.ops.geometry import Geometry


class Engine(Protocol):
    """What a module in this package must offer to be an engine."""

    def lift_kernel(self, weight: Tensor, atoms: Tensor, rotations: Tensor) -> Tensor:
        """Prepare the weights (Ĉ, C, Q) of a lifting layer."""

    def group_kernel(self, weight: Tensor, atoms: Tensor, rotations: Tensor) -> Tensor:
        """Prepare the weights (Ĉ, C, Λ, Q) of a group convolution."""

    def lift(self, images: Tensor, kernel: Tensor, atoms: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
        """Images (B, C, H, W) → maps (B, Ĉ·Λ, H', W')."""

    def group(self, features: Tensor, kernel: Tensor, atoms: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
        """Features (B, C, Λ, H, W) → maps (B, Ĉ·Λ, H', W')."""


ENGINES: dict[str, Engine] = {"direct": direct, "atomic": atomic}


def resolve_engine(name: str) -> Engine:
    """The engine called `name`."""
    if name not in ENGINES:
        raise ValueError(f"unknown engine {name!r}, choose one of {sorted(ENGINES)}")
    return ENGINES[name]


def _per_orientation(bias: Tensor | None, orientations: int) -> Tensor | None:
    """One bias per channel, the same for all orientations: (Ĉ,) → (Ĉ·Λ,)."""
    return None if bias is None else bias.repeat_interleave(orientations)


def prepare_lift(weight: Tensor, atoms: Tensor, rotations: Tensor, engine: str = "direct") -> Tensor:
    """The kernel of a lifting convolution for `engine`, in the weights' own precision also under autocast."""
    with torch.autocast(weight.device.type, enabled=False):
        return resolve_engine(engine).lift_kernel(weight, atoms, rotations)


def prepare_group(weight: Tensor, atoms: Tensor, rotations: Tensor, engine: str = "direct") -> Tensor:
    """The kernel of a group convolution for `engine`, in the weights' own precision also under autocast."""
    with torch.autocast(weight.device.type, enabled=False):
        return resolve_engine(engine).group_kernel(weight, atoms, rotations)


def lift_convolution(
    images: Tensor,
    kernel: Tensor,
    atoms: Tensor,
    orientations: int,
    geometry: Geometry,
    bias: Tensor | None = None,
    engine: str = "direct",
) -> Tensor:
    """Lift images to the group: y_ĉ(x, θ) = Σ_c (I_c ∗ ρ_θ Ψ_ĉc)(x) + β_ĉ (§3.2, input layer).

    images (B, C, H, W), kernel from `prepare_lift`, atoms (Q, s, s) → features (B, Ĉ, Λ, H', W').
    """
    maps = resolve_engine(engine).lift(images, kernel, atoms, _per_orientation(bias, orientations), geometry)
    return maps.unflatten(1, (-1, orientations))


def group_convolution(
    features: Tensor,
    kernel: Tensor,
    atoms: Tensor,
    geometry: Geometry,
    bias: Tensor | None = None,
    engine: str = "direct",
) -> Tensor:
    """Convolve on the group: y_ĉ(x, θ) = Σ_c Σ_φ (ζ_c(·, φ) ∗ ρ_φ Ψ_ĉc(·, θ−φ))(x) + β_ĉ (§3.2).

    features (B, C, Λ, H, W), kernel from `prepare_group`, atoms (Q, s, s) → features (B, Ĉ, Λ, H', W').
    """
    orientations = features.shape[2]
    maps = resolve_engine(engine).group(features, kernel, atoms, _per_orientation(bias, orientations), geometry)
    return maps.unflatten(1, (-1, orientations))
