"""Filters of e2cnn and escnn in layers of this library: an R2Conv becomes a layer with the same output.

Both libraries expand an R2Conv between regular fields of C_Λ or D_Λ to a filter bank F for `conv2d`, and so do our
layers (§3.2), from weights w of atoms ψ:

    lift    F_ĉc(θ) = ρ_θ Ψ_ĉc                Ψ_ĉc = Σ_q w_ĉcq ψ_q
    group   F_ĉc(θ, φ) = ρ_φ Ψ_ĉc(θ − φ)      Ψ_ĉc(d) = Σ_q w_ĉcq(d) ψ_q

With the atoms in all orientations side by side, A_q = (ρ_φ ψ_q)_φ, each filter and each relative orientation d is a
system of linear equations of its own, w_ĉc(d) A = (F_ĉc(φ + d, φ))_φ, solved by least squares. With reflections,
elements h and e of D_Λ take the place of φ and d (`sfcnn.ops.reflections`). The solution is exact
where the filters lie in the span of the atoms, that is where rings and band limits allow; otherwise the residual
measures how much the layers differ.

Nothing of e2cnn or escnn is imported: layers are read by their attributes, which are the same in both.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sfcnn.harmonics import Basis, BasisLike, preset_name, resolve_basis
from sfcnn.nn import GroupConv2d, LiftConv2d
from sfcnn.ops import Atoms, sample_atoms
from sfcnn.steering import check_orientations
from sfcnn.subgroups import products

# Combinations of atoms smaller than this, relative to the largest, are zero but for the float32 of e2cnn's tables.
_RANK_TOLERANCE = 1e-6

# What names a layer's rings: e2cnn counts frequencies with a sign and calls them otherwise than escnn.
_FREQUENCY_NAMES = ("frequency", "irrep:frequency")


@dataclass(frozen=True)
class _Source:
    """An R2Conv in plain numbers; with reflections, 2Λ takes the place of Λ in shapes."""

    filters: Tensor  #: (Ĉ·Λ, C·Λ, s, s), or (Ĉ·Λ, C, s, s) if it lifts
    bias: Tensor | None  #: (Ĉ·Λ,)
    orientations: int
    reflections: bool
    lift: bool
    basis: BasisLike
    options: dict[str, Any]  #: stride, padding, dilation and padding mode

    @property
    def order(self) -> int:
        """Of the group: Λ or 2Λ."""
        return 2 * self.orientations if self.reflections else self.orientations


def load_r2conv(
    source: Any,
    orientations: int | None = None,
    *,
    lift: bool | None = None,
    reflections: bool | None = None,
    bias: Tensor | None = None,
    basis: BasisLike | None = None,
    tolerance: float = 1e-5,
    **options: Any,
) -> LiftConv2d | GroupConv2d:
    """The layer of this library that has the filters, bias, stride and padding of an R2Conv of e2cnn or escnn.

    Its input and output are the R2Conv's with the orientations as an axis of their own: (B, C·Λ, H, W) there is
    `.unflatten(1, (C, Λ))` here, and with reflections `.unflatten(1, (C, 2Λ))`.

    Args:
        source: an R2Conv between regular fields of C_Λ or D_Λ, or from trivial ones, which gives a `LiftConv2d`. Or
            filters (Ĉ·Λ, C·Λ, s, s), or (Ĉ·Λ, C, s, s) of trivial fields, such as the weight of what
            `R2Conv.export()` makes.
        orientations: Λ, to be given with filters.
        lift: whether filters take images, that is trivial fields; to be given with filters if so.
        reflections: whether filters are those of D_Λ, (Ĉ·2Λ, C·2Λ, s, s); to be given with filters if so.
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
        found = _read_filters(source, orientations, bool(reflections), bool(lift), bias)
    else:
        if any(argument is not None for argument in (orientations, lift, reflections, bias)):
            raise ValueError(
                "orientations, lift, reflections and bias of an R2Conv are its own: they are for a tensor of filters"
            )
        found = _read_layer(source)
    kernel_size = found.filters.shape[-1]
    chosen = found.basis if basis is None else basis
    resolved = resolve_basis(chosen, kernel_size)
    atoms = sample_atoms(resolved, kernel_size, found.orientations, torch.float64)
    weight, error = _solve(found, atoms, resolved)
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
    layer = make(*shape, reflections=found.reflections, basis=chosen, bias=found.bias is not None, **arguments)
    with torch.no_grad():
        layer.weight.copy_(weight)
        if layer.bias is not None and found.bias is not None:
            layer.bias.copy_(_bias_per_channel(found.bias, len(weight), found.order, tolerance))
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


def _read_filters(
    filters: Tensor, orientations: int | None, reflections: bool, lift: bool, bias: Tensor | None
) -> _Source:
    """Filters without the layer that they come from."""
    if orientations is None:
        raise ValueError("filters do not state their number of orientations: pass orientations=N of the group C_N")
    check_orientations(orientations)
    order = 2 * orientations if reflections else orientations
    inputs = 1 if lift else order
    if filters.dim() != 4 or filters.shape[0] % order or filters.shape[1] % inputs:
        expected = f"({order}·Ĉ, C, s, s)" if lift else f"({order}·Ĉ, {order}·C, s, s)"
        raise ValueError(f"expected filters of shape {expected}, got {tuple(filters.shape)}")
    if filters.shape[2] != filters.shape[3]:
        raise ValueError(f"expected square filters, got {filters.shape[2]}×{filters.shape[3]} pixels")
    channels = len(filters) // order
    if bias is not None and bias.shape == (channels,):
        bias = bias.repeat_interleave(order)
    if bias is not None and bias.shape != filters.shape[:1]:
        raise ValueError(f"expected a bias of shape ({len(filters)},) or ({channels},), got {tuple(bias.shape)}")
    return _Source(filters.detach(), bias, orientations, reflections, lift, "bandlimited", {})


def _read_layer(layer: Any) -> _Source:
    """Filters and options of an R2Conv."""
    needed = ("in_type", "out_type", "expand_parameters", "basisexpansion")
    if not all(hasattr(layer, name) for name in needed):
        raise ValueError(f"expected an R2Conv of e2cnn or escnn, or a tensor of filters, got {type(layer).__name__}")
    orientations, reflections = _symmetry(layer.in_type.gspace)
    if _kind(layer.out_type) != "regular":
        kind = _kind(layer.out_type)
        instead = ": from regular to trivial fields use GroupConv2d and OrientationPool('mean')"
        raise ValueError(
            f"the output of the R2Conv has {kind} fields, expected regular ones{instead if kind == 'trivial' else ''}"
        )
    if layer.groups != 1:
        raise ValueError(f"the R2Conv has groups={layer.groups}, expected 1: our layers connect all channels")
    kind = _kind(layer.in_type)
    if kind not in ("regular", "trivial"):
        raise ValueError(f"the input of the R2Conv has {kind} fields, expected all regular or all trivial ones")
    options = {name: _one_number(name, getattr(layer, name)) for name in ("stride", "padding", "dilation")}
    filters, bias = layer.expand_parameters()
    bias = None if bias is None else bias.detach()
    source = _read_filters(filters, orientations, reflections, kind == "trivial", bias)
    options["padding_mode"] = layer.padding_mode
    return replace(source, basis=r2conv_basis(layer), options=options)


def _symmetry(space: Any) -> tuple[int, bool]:
    """Λ and whether there are reflections, if the group of a space of e2cnn or escnn is C_Λ or D_Λ on the plane."""
    order, kind = int(space.fibergroup.order()), type(space.fibergroup).__name__
    axis = _mirror_axis(space)
    # Mirror images alone are a group of two elements as well. escnn tells the number of rotations, e2cnn has a name.
    turns = int(
        getattr(space, "rotations_order", 1 if kind == "CyclicGroup" and "flip" in space.name.lower() else order)
    )
    mirrors = kind == "DihedralGroup" or (kind == "CyclicGroup" and order == 2 and turns == 1)
    if kind not in ("CyclicGroup", "DihedralGroup") or getattr(space, "dimensionality", 2) != 2:
        raise ValueError(
            f"the symmetry of the R2Conv is {space.name}, expected rotations of the plane in a group C_N, or D_N with "
            "reflections"
        )
    if not mirrors:
        return order, False
    if axis is None or not math.isclose(axis, math.pi / 2, abs_tol=1e-6):
        found = f"mirrors at {math.degrees(axis):g}°" if axis is not None else "does not state its axis of reflection"
        instead = (
            ""
            if axis is not None
            else (": if this is its axis, pass its filters, with orientations and reflections=True")
        )
        raise ValueError(
            f"the space {space.name} of the R2Conv {found}, expected 90°, left and right exchanged{instead}"
        )
    return order // 2, True


def _mirror_axis(space: Any) -> float | None:
    """The angle of the axis of reflection of a space of e2cnn, or of escnn, which keeps (2 · axis, N) for D_N."""
    group = getattr(space, "_sg_id", None)
    twice = group[0] if isinstance(group, tuple) else None
    axis: float | None = getattr(space, "axis", twice / 2 if isinstance(twice, float) else None)
    return axis


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


def _solve(source: _Source, atoms: Atoms, basis: Basis) -> tuple[Tensor, float]:
    """Weights (Ĉ, C, Q) or (Ĉ, C, Λ, Q) by least squares, and the relative error that remains."""
    order = source.order
    moved = atoms.rotations @ atoms.filters.flatten(1)  # hψ_q for all h: (Λ, Q, s²)
    if source.reflections:
        moved = torch.cat([moved, torch.tensor(basis.mirror_signs)[:, None] * moved])
    design = moved.transpose(0, 1).flatten(1)  # A: (Q, Λ·s²)
    bank = source.filters.detach().to("cpu", torch.float64).flatten(2).unflatten(0, (-1, order))  # (Ĉ, Λ, …, s²)
    if source.lift:
        filters = bank.transpose(1, 2)  # (Ĉ, C, Λ_g, s²)
    else:
        pairs = bank.unflatten(2, (-1, order)).permute(0, 2, 1, 3, 4)  # (Ĉ, C, Λ_g, Λ_h, s²)
        g = products(source.orientations, source.reflections).T  # (e, h) with g = he
        filters = pairs[:, :, g, torch.arange(order, device="cpu")]  # (Ĉ, C, e, Λ_h, s²)
    target = filters.flatten(-2)
    weight = target @ torch.linalg.pinv(design, rtol=_RANK_TOLERANCE)
    scale = torch.linalg.vector_norm(target)
    rest = torch.linalg.vector_norm(target - weight @ design)
    return weight, float(rest / scale) if scale > 0 else 0.0


def _bias_per_channel(bias: Tensor, channels: int, order: int, tolerance: float) -> Tensor:
    """(Ĉ·Λ,) → (Ĉ,), if all orientations of a channel have the same."""
    fields = bias.view(channels, order)
    mean = fields.mean(1)
    spread = float((fields - mean[:, None]).abs().max())
    if spread > tolerance * max(1.0, float(fields.abs().max())):
        raise ValueError(f"the bias differs by {spread:.2g} between the orientations of a channel, expected none")
    return mean
