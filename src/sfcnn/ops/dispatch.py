"""The engines that compute the two operators of the network, all with the same outputs and gradients.

An engine works in two steps: `*_kernel` converts weights to a kernel (which depends on the weights only, so that layers
cache it while the weights are frozen), and `lift` or `group` applies it. A layer looks up its engine once per call and
uses the same object for both.
"""

from typing import Protocol

import torch
from torch import Tensor

from sfcnn.ops import atomic, direct, spectral
from sfcnn.ops.atoms import Atoms
from sfcnn.ops.geometry import Geometry


class Engine(Protocol):
    """The interface of an engine, implemented by modules of this package."""

    def lift_kernel(self, weight: Tensor, atoms: Atoms) -> Tensor:
        """Prepare the weights (Ĉ, C, Q) of a lifting layer."""

    def group_kernel(self, weight: Tensor, atoms: Atoms) -> Tensor:
        """Prepare the weights (Ĉ, C, Λ, Q) of a group convolution."""

    def lift(self, images: Tensor, kernel: Tensor, atoms: Atoms, bias: Tensor | None, geometry: Geometry) -> Tensor:
        """Lift images to the group: y_ĉ(x, θ) = Σ_c (I_c ∗ ρ_θ Ψ_ĉc)(x) + β_ĉ (§3.2, input layer).

        images (B, C, H, W), kernel from `lift_kernel` → features (B, Ĉ, Λ, H', W').
        """

    def group(self, features: Tensor, kernel: Tensor, atoms: Atoms, bias: Tensor | None, geometry: Geometry) -> Tensor:
        """Convolve on the group: y_ĉ(x, θ) = Σ_c Σ_φ (ζ_c(·, φ) ∗ ρ_φ Ψ_ĉc(·, θ−φ))(x) + β_ĉ (§3.2).

        features (B, C, Λ, H, W), kernel from `group_kernel` → features (B, Ĉ, Λ, H', W').
        """

    def rectified(
        self, features: Tensor, kernel: Tensor, atoms: Atoms, scale: Tensor, shift: Tensor, geometry: Geometry
    ) -> Tensor:
        """max(0, scale · y + shift) for y of `group`, scale and shift (Ĉ,): batch norm and ReLU, without gradients."""


ENGINES: dict[str, Engine] = {"direct": direct, "atomic": atomic, "spectral": spectral}

#: What layers accept: an engine, or a way to choose the fastest for the given shapes, by a cost model ("auto") or by
#: timing ("measured").
ENGINE_CHOICES = ("auto", "measured", *ENGINES)

#: The value assumed for dynamic sizes in torch.compile or torch.export, to choose one engine for all of them.
_OPEN_SIZE = 32


def check_engine(name: str) -> None:
    """Raise unless `name` is an engine, "auto" or "measured"."""
    if name not in ENGINE_CHOICES:
        raise ValueError(f"unknown engine {name!r}, choose one of {sorted(ENGINE_CHOICES)}")


def resolve_engine(name: str) -> Engine:
    """The engine called `name`."""
    if name not in ENGINES:
        raise ValueError(f"unknown engine {name!r}, choose one of {sorted(ENGINES)}")
    return ENGINES[name]


def known_size(size: int) -> int:
    """The size, or a typical one while tracing a graph with dynamic sizes."""
    if not torch.compiler.is_compiling():
        return size
    from torch.fx.experimental.symbolic_shapes import has_static_value

    return size if has_static_value(size) else _OPEN_SIZE
