"""The two operators of the network, each computed by an engine of choice. Same function, same gradients, any engine.

An engine works in two steps: `*_kernel` turns weights into what it convolves with (this depends on the weights only,
so that layers keep it while the weights are frozen), and `lift` or `group` applies it.
"""

from typing import Protocol

import torch
from torch import Tensor

from sfcnn.ops import atomic, direct, spectral
from sfcnn.ops.geometry import Geometry
from sfcnn.ops.kernels import Atoms


class Engine(Protocol):
    """What a module in this package must offer to be an engine."""

    def lift_kernel(self, weight: Tensor, atoms: Atoms) -> Tensor:
        """Prepare the weights (Ĉ, C, Q) of a lifting layer."""

    def group_kernel(self, weight: Tensor, atoms: Atoms) -> Tensor:
        """Prepare the weights (Ĉ, C, Λ, Q) of a group convolution."""

    def lift(self, images: Tensor, kernel: Tensor, atoms: Atoms, bias: Tensor | None, geometry: Geometry) -> Tensor:
        """Images (B, C, H, W) → features (B, Ĉ, Λ, H', W')."""

    def group(self, features: Tensor, kernel: Tensor, atoms: Atoms, bias: Tensor | None, geometry: Geometry) -> Tensor:
        """Features (B, C, Λ, H, W) → features (B, Ĉ, Λ, H', W')."""


ENGINES: dict[str, Engine] = {"direct": direct, "atomic": atomic, "spectral": spectral}


def resolve_engine(name: str) -> Engine:
    """The engine called `name`."""
    if name not in ENGINES:
        raise ValueError(f"unknown engine {name!r}, choose one of {sorted(ENGINES)}")
    return ENGINES[name]


def prepare_lift(weight: Tensor, atoms: Atoms, engine: str = "direct") -> Tensor:
    """The kernel of a lifting convolution for `engine`, in the weights' own precision also under autocast."""
    with torch.autocast(weight.device.type, enabled=False):
        return resolve_engine(engine).lift_kernel(weight, atoms)


def prepare_group(weight: Tensor, atoms: Atoms, engine: str = "direct") -> Tensor:
    """The kernel of a group convolution for `engine`, in the weights' own precision also under autocast."""
    with torch.autocast(weight.device.type, enabled=False):
        return resolve_engine(engine).group_kernel(weight, atoms)


def lift_convolution(
    images: Tensor,
    kernel: Tensor,
    atoms: Atoms,
    geometry: Geometry,
    bias: Tensor | None = None,
    engine: str = "direct",
) -> Tensor:
    """Lift images to the group: y_ĉ(x, θ) = Σ_c (I_c ∗ ρ_θ Ψ_ĉc)(x) + β_ĉ (§3.2, input layer).

    images (B, C, H, W), kernel from `prepare_lift` → features (B, Ĉ, Λ, H', W').
    """
    return resolve_engine(engine).lift(images, kernel, atoms, bias, geometry)


def group_convolution(
    features: Tensor,
    kernel: Tensor,
    atoms: Atoms,
    geometry: Geometry,
    bias: Tensor | None = None,
    engine: str = "direct",
) -> Tensor:
    """Convolve on the group: y_ĉ(x, θ) = Σ_c Σ_φ (ζ_c(·, φ) ∗ ρ_φ Ψ_ĉc(·, θ−φ))(x) + β_ĉ (§3.2).

    features (B, C, Λ, H, W), kernel from `prepare_group` → features (B, Ĉ, Λ, H', W').
    """
    return resolve_engine(engine).group(features, kernel, atoms, bias, geometry)
