"""Filters of e2cnn and escnn in layers of this library: an R2Conv becomes a layer with the same output.

Both libraries expand an R2Conv between regular fields of C_Λ to a filter bank F for `conv2d`, and so do our layers
(§3.2), from weights w of atoms ψ:

    lift    F_ĉc(θ) = ρ_θ Ψ_ĉc                Ψ_ĉc = Σ_q w_ĉcq ψ_q
    group   F_ĉc(θ, φ) = ρ_φ Ψ_ĉc(θ − φ)      Ψ_ĉc(d) = Σ_q w_ĉcq(d) ψ_q

With the atoms in all orientations side by side, A_q = (ρ_φ ψ_q)_φ, each filter and each relative orientation d is a
system of linear equations of its own, w_ĉc(d) A = (F_ĉc(φ + d, φ))_φ, solved by least squares. The solution is exact
where the filters lie in the span of the atoms, that is where rings and band limits allow, and what is left over tells
how much the layers differ where they do not.

Nothing of e2cnn or escnn is imported: layers are read by their attributes, which are the same in both.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sfcnn.harmonics import Basis, BasisLike, preset_name, resolve_basis
from sfcnn.nn import GroupConv2d, LiftConv2d
from sfcnn.ops import Atoms, sample_atoms
from sfcnn.steering import check_orientations

# Combinations of atoms smaller than this, relative to the largest, are zero but for the float32 of e2cnn's tables.
_RANK_TOLERANCE = 1e-6

# What names a layer's rings: e2cnn counts frequencies with a sign and calls them otherwise than escnn.
_FREQUENCY_NAMES = ("frequency", "irrep:frequency")


@dataclass(frozen=True)
class _Source:
    """An R2Conv in plain numbers."""

    filters: Tensor  #: (Ĉ·Λ, C·Λ, s, s), or (Ĉ·Λ, C, s, s) if it lifts
    bias: Tensor | None  #: (Ĉ·Λ,)
    orientations: int
    lift: bool
    basis: BasisLike
    options: dict[str, Any]  #: stride, padding, dilation and padding mode


def load_r2conv(
    source: Any,
    orientations: int | None = None,
    *,
    lift: bool | None = None,
    bias: Tensor | None = None,
    basis: BasisLike | None = None,
    tolerance: float = 1e-5,
    **options: Any,
) -> LiftConv2d | GroupConv2d:
    """The layer of this library that has the filters, bias, stride and padding of an R2Conv of e2cnn or escnn.

    Its input and output are the R2Conv's with the orientations as an axis of their own: (B, C·Λ, H, W) there is
    `.unflatten(1, (C, Λ))` here.

    Args:
        source: an R2Conv between regular fields of C_Λ, or from trivial ones, which gives a `LiftConv2d`. Or filters
            (Ĉ·Λ, C·Λ, s, s), or (Ĉ·Λ, C, s, s) of trivial fields, such as the weight of what `R2Conv.export()` makes.
        orientations: Λ, to be given with filters.
        lift: whether filters take images, that is trivial fields; to be given with filters if so.
        bias: of the filters, (Ĉ·Λ,) or (Ĉ,).
        basis: of the new layer. By default that of the R2Conv (`r2conv_basis`), or "bandlimited" for filters, which
            has the limits that e2cnn and escnn have by default.
        tolerance: how large ‖F − F'‖₂ / ‖F‖₂ may be, with the filters F of the R2Conv and F' of the new layer.
        options: further arguments of the layer. Stride, padding, dilation and padding mode are those of the R2Conv
            unless they are given here.

    Raises:
        ValueError: if the filters are not in the span of the basis, with the relative error, and if the R2Conv has
            no counterpart here: other groups, other fields, even kernels, groups of channels.

    >>> identity = torch.eye(2 * 8)[:, :, None, None]  # filters of 1×1 pixel from two channels to two
    >>> layer = load_r2conv(identity, orientations=8)
    >>> features = torch.randn(1, 2, 8, 5, 5)
    >>> torch.allclose(layer(features), features, atol=1e-6)
    True
    """
    if isinstance(source, Tensor):
        found = _read_filters(source, orientations, bool(lift), bias)
    else:
        if orientations is not None or lift is not None or bias is not None:
            raise ValueError("orientations, lift and bias of an R2Conv are its own: they are for a tensor of filters")
        found = _read_layer(source)
    kernel_size = found.filters.shape[-1]
    chosen = found.basis if basis is None else basis
    atoms = sample_atoms(resolve_basis(chosen, kernel_size), kernel_size, found.orientations, torch.float64)
    weight, error = _solve(found, atoms)
    make = LiftConv2d if found.lift else GroupConv2d
    if not error <= tolerance:
        name = repr(chosen) if isinstance(chosen, str) else str(resolve_basis(chosen, kernel_size))
        raise ValueError(
            f"the filters are not those of a {make.__name__} with {found.orientations} orientations and basis {name}: "
            f"the relative error is {error:.2g}, the tolerance {tolerance:g}. Choose a basis with the rings and band "
            "limits of the R2Conv, or a larger tolerance for a layer that comes near"
        )
    arguments = {**found.options, "dtype": found.filters.dtype, "device": found.filters.device, **options}
    shape = weight.shape[1], weight.shape[0], kernel_size, found.orientations
    layer = make(*shape, basis=chosen, bias=found.bias is not None, **arguments)
    with torch.no_grad():
        layer.weight.copy_(weight)
        if layer.bias is not None and found.bias is not None:
            layer.bias.copy_(_bias_per_channel(found.bias, len(weight), found.orientations, tolerance))
    return layer


def r2conv_basis(layer: Any) -> BasisLike:
    """The rings, widths and band limits of an R2Conv: the name of a preset if they are its own, else a `Basis`.

    e2cnn and escnn measure in pixels of the image, a `Basis` in steps of the filter's own grid, which are `dilation`
    pixels long.
    """
    dilation = _one_number("dilation", layer.dilation)
    rings: dict[tuple[float, float], int] = {}
    for element in layer.basisexpansion.get_basis_info():
        frequency = next(abs(int(element[name])) for name in _FREQUENCY_NAMES if name in element)
        # Tables in float32 have 0.4000000059; no preset has more than three digits.
        ring = round(float(element["radius"]) / dilation, 6), round(float(element["sigma"]) / dilation, 6)
        rings[ring] = max(frequency, rings.get(ring, 0))
    radii, sigmas = zip(*sorted(rings), strict=True)
    basis = Basis(radii, sigmas, tuple(rings[ring] for ring in sorted(rings)))
    return preset_name(basis, _one_number("kernel_size", layer.kernel_size)) or basis


def _read_filters(filters: Tensor, orientations: int | None, lift: bool, bias: Tensor | None) -> _Source:
    """Filters without the layer that they come from."""
    if orientations is None:
        raise ValueError("filters do not tell their number of orientations: pass orientations=N of the group C_N")
    check_orientations(orientations)
    inputs = 1 if lift else orientations
    if filters.dim() != 4 or filters.shape[0] % orientations or filters.shape[1] % inputs:
        expected = f"({orientations}·Ĉ, C, s, s)" if lift else f"({orientations}·Ĉ, {orientations}·C, s, s)"
        raise ValueError(f"expected filters of shape {expected}, got {tuple(filters.shape)}")
    if filters.shape[2] != filters.shape[3]:
        raise ValueError(f"expected square filters, got {filters.shape[2]}×{filters.shape[3]} pixels")
    channels = len(filters) // orientations
    if bias is not None and bias.shape == (channels,):
        bias = bias.repeat_interleave(orientations)
    if bias is not None and bias.shape != filters.shape[:1]:
        raise ValueError(f"expected a bias of shape ({len(filters)},) or ({channels},), got {tuple(bias.shape)}")
    return _Source(filters.detach(), bias, orientations, lift, "bandlimited", {})


def _read_layer(layer: Any) -> _Source:
    """Filters and options of an R2Conv."""
    needed = ("in_type", "out_type", "expand_parameters", "basisexpansion")
    if not all(hasattr(layer, name) for name in needed):
        raise ValueError(f"expected an R2Conv of e2cnn or escnn, or a tensor of filters, got {type(layer).__name__}")
    orientations = _rotations(layer.in_type.gspace)
    if _kind(layer.out_type) != "regular":
        raise ValueError(
            f"the output of the R2Conv has {_kind(layer.out_type)} fields, expected regular ones: from regular to "
            "trivial fields use GroupConv2d and OrientationPool('mean')"
        )
    if layer.groups != 1:
        raise ValueError(f"the R2Conv has groups={layer.groups}, expected 1: our layers connect all channels")
    kind = _kind(layer.in_type)
    if kind not in ("regular", "trivial"):
        raise ValueError(f"the input of the R2Conv has {kind} fields, expected all regular or all trivial ones")
    options = {name: _one_number(name, getattr(layer, name)) for name in ("stride", "padding", "dilation")}
    filters, bias = layer.expand_parameters()
    source = _read_filters(filters, orientations, kind == "trivial", None if bias is None else bias.detach())
    options["padding_mode"] = layer.padding_mode
    return _Source(source.filters, source.bias, orientations, source.lift, r2conv_basis(layer), options)


def _rotations(space: Any) -> int:
    """Λ, if the group of a space of e2cnn or escnn is C_Λ and its elements turn the plane."""
    order = int(space.fibergroup.order())
    # Mirror images alone are a group of two elements as well. escnn tells the number of rotations, e2cnn has a name.
    turns = getattr(space, "rotations_order", 1 if "flip" in space.name.lower() else order)
    if type(space.fibergroup).__name__ != "CyclicGroup" or order != turns or getattr(space, "dimensionality", 2) != 2:
        raise ValueError(f"the symmetry of the R2Conv is {space.name}, expected rotations of the plane in a group C_N")
    return order


def _kind(fields: Any) -> str:
    """What all fields of a type are, "regular", "trivial", or the names of what they are instead."""
    space = fields.gspace
    names = {"trivial" if field == space.trivial_repr else str(field.name) for field in fields.representations}
    return " and ".join(sorted(names))


def _one_number(name: str, value: int | Iterable[int]) -> int:
    """The value of an option that must be the same along both axes."""
    values = {value} if isinstance(value, int) else set(value)
    if len(values) != 1:
        raise ValueError(f"{name} of the R2Conv is {value!r}, expected the same along both axes")
    return int(values.pop())


def _solve(source: _Source, atoms: Atoms) -> tuple[Tensor, float]:
    """Weights (Ĉ, C, Q) or (Ĉ, C, Λ, Q) by least squares, and the relative error that remains."""
    orientations = source.orientations
    turned = atoms.rotations @ atoms.filters.flatten(1)  # (Λ, Q, s²)
    design = turned.transpose(0, 1).flatten(1)  # A: (Q, Λ·s²)
    bank = source.filters.detach().to("cpu", torch.float64).flatten(2).unflatten(0, (-1, orientations))  # (Ĉ, Λ, …, s²)
    if source.lift:
        filters = bank.transpose(1, 2)  # (Ĉ, C, Λ_θ, s²)
    else:
        pairs = bank.unflatten(2, (-1, orientations)).permute(0, 2, 1, 3, 4)  # (Ĉ, C, Λ_θ, Λ_φ, s²)
        phi = torch.arange(orientations, device="cpu")
        filters = pairs[:, :, (phi + phi[:, None]) % orientations, phi]  # (Ĉ, C, d, Λ_φ, s²) with θ = φ + d
    target = filters.flatten(-2)
    weight = target @ torch.linalg.pinv(design, rtol=_RANK_TOLERANCE)
    scale = torch.linalg.vector_norm(target)
    rest = torch.linalg.vector_norm(target - weight @ design)
    return weight, float(rest / scale) if scale > 0 else 0.0


def _bias_per_channel(bias: Tensor, channels: int, orientations: int, tolerance: float) -> Tensor:
    """(Ĉ·Λ,) → (Ĉ,), if all orientations of a channel have the same."""
    fields = bias.view(channels, orientations)
    mean = fields.mean(1)
    spread = float((fields - mean[:, None]).abs().max())
    if spread > tolerance * max(1.0, float(fields.abs().max())):
        raise ValueError(f"the bias differs by {spread:.2g} between the orientations of a channel, expected none")
    return mean
