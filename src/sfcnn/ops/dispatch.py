"""The two operators of the network, each computed by an engine of choice. Same function, same gradients, any engine.

An engine works in two steps: `*_kernel` turns weights into what it convolves with (this depends on the weights only,
so that layers keep it while the weights are frozen), and `lift` or `group` applies it.
"""

from typing import Protocol

import torch
from torch import Tensor

from sfcnn.ops import atomic, direct, spectral
from sfcnn.ops.cost import Problem, fastest_engine
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


#: What layers accept: an engine, or the choice of the fastest for the shapes at hand.
ENGINE_CHOICES = ("auto", *ENGINES)

#: What a size is taken as that torch.compile or torch.export leaves open, to choose one engine for all its values.
_OPEN_SIZE = 32


def check_engine(name: str) -> None:
    """Raise unless `name` is an engine or "auto"."""
    if name not in ENGINE_CHOICES:
        raise ValueError(f"unknown engine {name!r}, choose one of {sorted(ENGINE_CHOICES)}")


def _fastest(sizes: tuple[int, ...], geometry: tuple[int, int, int, int, str], training: bool) -> str:
    """`fastest_engine` from plain numbers, which torch.compile takes as a constant."""
    batch, in_channels, out_channels, orientations, atoms, height, width = sizes
    problem = Problem(batch, in_channels, out_channels, orientations, atoms, height, width, Geometry(*geometry))
    return fastest_engine(problem, training)


# All that `torch.compiler.assume_constant_result` does, but it imports the compiler: 850 modules that most never need.
_fastest._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _known(size: int) -> int:
    """The size, or a usual one while a graph is made that serves many sizes."""
    if not torch.compiler.is_compiling():
        return size
    from torch.fx.experimental.symbolic_shapes import has_static_value

    return size if has_static_value(size) else _OPEN_SIZE


def choose_group_engine(
    features: Tensor, weight: Tensor, geometry: Geometry, *, training: bool, engine: str = "auto"
) -> str:
    """The engine to use for features (B, C, Λ, H, W) and weights (Ĉ, C, Λ, Q): `engine`, or for "auto" the fastest."""
    if engine != "auto":
        return engine
    batch, in_channels, orientations, height, width = [_known(size) for size in features.shape]
    sizes = (batch, in_channels, weight.shape[0], orientations, weight.shape[-1], height, width)
    g = geometry
    choice: str = _fastest(sizes, (g.kernel_size, g.stride, g.margin, g.dilation, g.padding_mode), training)
    return choice


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
