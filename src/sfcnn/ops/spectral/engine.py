"""The spectral engine: group convolution at cost Λ instead of Λ², by a Fourier transform over orientations.

    features → spectrum over orientations → responses to the atoms → one product per frequency → inverse transform

The mathematics is in `spectrum`. Maps are processed in chunks (`chunks`) and cut into tiles (`toeplitz`, `maps`), where
responses and mixing are matrix products (`mixing`). The backward pass recomputes the responses, so that memory does not
grow with the batch. A lifting convolution has no orientations to sum over and is computed by the direct engine.
"""

from typing import Any

import torch
from torch import Tensor

from sfcnn.ops import direct
from sfcnn.ops.atoms import Atoms
from sfcnn.ops.geometry import Geometry
from sfcnn.ops.rectify import rectify_
from sfcnn.ops.spectral import compiled
from sfcnn.ops.spectral.chunks import Buffers, Chunk, plan
from sfcnn.ops.spectral.maps import TiledMaps
from sfcnn.ops.spectral.mixing import Mixing
from sfcnn.ops.spectral.spectrum import (
    group_harmonics,
    half_spectrum,
    join_channels,
    mixing_kernel,
    mixing_kernel_adjoint,
    split_channels,
)

lift_kernel = direct.lift_kernel
lift = direct.lift


def group_kernel(weight: Tensor, atoms: Atoms) -> Tensor:
    """The coefficients (⌊Λ/2⌋ + 1, Ĉ, 2·C·Q) of all products, from weights (Ĉ, C, Λ, Q)."""
    kernel: Tensor = torch.ops.sfcnn.spectral_kernel(weight, list(atoms.frequencies))
    return kernel


def group(features: Tensor, kernel: Tensor, atoms: Atoms, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """Features (B, C, Λ, H, W) → features (B, Ĉ, Λ, H', W')."""
    maps, margin = _pad(features.to(kernel.dtype), geometry)
    moves = [geometry.stride, margin, geometry.dilation]
    result: Tensor = torch.ops.sfcnn.spectral_group(maps, kernel, atoms.filters, list(atoms.frequencies), moves)
    if bias is not None:
        result = result.add_(
            bias.view(-1, 1, 1, 1)
        )  # in place: a copy of large maps takes as long as some convolutions
    return _in_format_of(features, result)


def rectified(
    features: Tensor, kernel: Tensor, atoms: Atoms, scale: Tensor, shift: Tensor, geometry: Geometry
) -> Tensor:
    """max(0, scale · y + shift) for the group convolution y, without gradients; scale and shift (Ĉ,)."""
    maps, margin = _pad(features.to(kernel.dtype), geometry)
    moves = [geometry.stride, margin, geometry.dilation]
    options = list(atoms.frequencies), moves, scale, shift
    result: Tensor = torch.ops.sfcnn.spectral_rectified(maps, kernel, atoms.filters, *options)
    return _in_format_of(features, result)


def _pad(maps: Tensor, geometry: Geometry) -> tuple[Tensor, int]:
    """Maps (B, C, Λ, H, W), padded unless with zeros, and the zero margin that remains to be added."""
    if geometry.padding_mode == "zeros":
        return maps, geometry.margin
    return geometry.pad(maps.flatten(1, 2)).unflatten(1, maps.shape[1:3]), 0


def _in_format_of(features: Tensor, result: Tensor) -> Tensor:
    """The result in the dtype of autocast, if enabled."""
    device = features.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return result.to(torch.get_autocast_dtype(device))
    return result


# The steps below are custom operators, opaque to torch.compile and torch.export. A schema cannot hold objects: `moves`
# are the stride, margin and dilation of a geometry, from which `_geometry` restores it.


@torch.library.custom_op("sfcnn::spectral_kernel", mutates_args=())
def spectral_kernel(weight: Tensor, frequencies: list[int]) -> Tensor:
    """Weights (Ĉ, C, Λ, Q) → coefficients (⌊Λ/2⌋ + 1, Ĉ, 2·C·Q)."""
    return mixing_kernel(weight, group_harmonics(tuple(frequencies)))


@spectral_kernel.register_fake
def _(weight: Tensor, frequencies: list[int]) -> Tensor:
    out_channels, in_channels, orientations, size = weight.shape
    return weight.new_empty(half_spectrum(orientations), out_channels, 2 * in_channels * size)


@torch.library.custom_op("sfcnn::spectral_kernel_backward", mutates_args=())
def spectral_kernel_backward(gradient: Tensor, shape: list[int], frequencies: list[int]) -> Tensor:
    """The adjoint of `spectral_kernel`."""
    return mixing_kernel_adjoint(gradient, group_harmonics(tuple(frequencies)), shape)


@spectral_kernel_backward.register_fake
def _(gradient: Tensor, shape: list[int], frequencies: list[int]) -> Tensor:
    return gradient.new_empty(shape)


def _remember_weight(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.shape, ctx.frequencies = list(inputs[0].shape), inputs[1]


def _differentiate_kernel(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
    return torch.ops.sfcnn.spectral_kernel_backward(gradient, ctx.shape, ctx.frequencies), None


spectral_kernel.register_autograd(_differentiate_kernel, setup_context=_remember_weight)


def _geometry(filters: Tensor, moves: list[int]) -> Geometry:
    stride, margin, dilation = moves
    return Geometry(filters.shape[-1], stride, margin, dilation)


def _prepare(
    features: Tensor, kernel: Tensor, filters: Tensor, frequencies: list[int], geometry: Geometry
) -> tuple[list[Chunk], TiledMaps, Mixing]:
    """The chunks, maps and matrices of one call, which share their buffers."""
    out_channels = kernel.shape[1]
    tiling, chunks = plan(features.shape, out_channels, len(frequencies), geometry)
    buffers = Buffers(features)
    maps = TiledMaps(features, out_channels, tiling, buffers)
    return chunks, maps, Mixing(features.shape[2], kernel, filters, frequencies, tiling, buffers)


def _room(features: Tensor, kernel: Tensor, geometry: Geometry) -> Tensor:
    """An empty tensor for the result (B, Ĉ, Λ, H', W')."""
    batch, _, orientations, height, width = features.shape
    size = geometry.output_size(height), geometry.output_size(width)
    return features.new_empty(batch, kernel.shape[1], orientations, *size)


@torch.library.custom_op("sfcnn::spectral_group", mutates_args=())
def spectral_group(
    features: Tensor, kernel: Tensor, filters: Tensor, frequencies: list[int], moves: list[int]
) -> Tensor:
    """Features (B, C, Λ, H, W), kernel from `group_kernel`, filters (Q, s, s) → features (B, Ĉ, Λ, H', W')."""
    geometry = _geometry(filters, moves)
    result = _room(features, kernel, geometry)
    call = compiled.prepare(features, kernel, filters, frequencies, geometry, backward=False)
    if call is not None:
        call.forward(features, kernel, result)
        return result
    chunks, maps, mixing = _prepare(features, kernel, filters, frequencies, geometry)
    for chunk in chunks:
        windows = maps.windows(features, chunk)
        mixed = mixing.mix(mixing.responses(windows), windows.shape[-1])
        maps.synthesize(mixed, result, chunk)
    return result


@torch.library.custom_op("sfcnn::spectral_rectified", mutates_args=())
def spectral_rectified(
    features: Tensor,
    kernel: Tensor,
    filters: Tensor,
    frequencies: list[int],
    moves: list[int],
    scale: Tensor,
    shift: Tensor,
) -> Tensor:
    """max(0, scale · y + shift) for y of `spectral_group`; with the compiled kernel, in the same pass over memory."""
    geometry = _geometry(filters, moves)
    call = compiled.prepare(features, kernel, filters, frequencies, geometry, backward=False)
    if call is None:
        return rectify_(spectral_group(features, kernel, filters, frequencies, moves), scale, shift)
    result = _room(features, kernel, geometry)
    call.forward(features, kernel, result, scale, shift)
    return result


def _fake_result(
    features: Tensor, kernel: Tensor, filters: Tensor, frequencies: list[int], moves: list[int], *after: Tensor
) -> Tensor:
    return _room(features, kernel, _geometry(filters, moves))


spectral_group.register_fake(_fake_result)
spectral_rectified.register_fake(_fake_result)


@torch.library.custom_op("sfcnn::spectral_group_backward", mutates_args=())
def spectral_group_backward(
    gradient: Tensor,
    features: Tensor,
    kernel: Tensor,
    filters: Tensor,
    frequencies: list[int],
    moves: list[int],
    kernel_too: bool,
) -> tuple[Tensor, Tensor]:
    """Gradients of features and kernel; the second is empty unless `kernel_too`."""
    geometry = _geometry(filters, moves)
    call = compiled.prepare(features, kernel, filters, frequencies, geometry, backward=True)
    if call is not None:
        features_gradient = torch.empty_like(features, memory_format=torch.contiguous_format)
        kernel_gradient = torch.empty_like(kernel, memory_format=torch.contiguous_format) if kernel_too else None
        call.backward(gradient, features, kernel, features_gradient, kernel_gradient)
        return features_gradient, kernel.new_empty(0) if kernel_gradient is None else kernel_gradient
    size = compiled.channels_at_once(features, kernel, filters, frequencies, geometry)
    if size:
        return _backward_in_parts(gradient, features, kernel, size, filters, frequencies, moves, kernel_too)
    chunks, maps, mixing = _prepare(features, kernel, filters, frequencies, geometry)
    features_gradient = torch.zeros_like(features, memory_format=torch.contiguous_format)
    totals = mixing.kernel_totals() if kernel_too else None
    for chunk in chunks:
        windows = maps.windows(features, chunk)
        places = windows.shape[-1]
        slabs = mixing.responses(windows)
        mixed = mixing.mixed(places)
        maps.synthesize_adjoint(gradient, mixed, chunk)
        mixing.mix_adjoint(mixed, slabs, totals, places)
        maps.windows_adjoint(mixing.responses_adjoint(slabs, places), features_gradient, chunk)
    return features_gradient, kernel.new_empty(0) if totals is None else mixing.kernel_gradient(totals)


def _backward_in_parts(
    gradient: Tensor, features: Tensor, kernel: Tensor, size: int, filters: Tensor, frequencies: list[int], *rest: Any
) -> tuple[Tensor, Tensor]:
    """The same with `size` input channels at a time, whose gradients do not depend on the others."""
    harmonics, maps = group_harmonics(tuple(frequencies)), features.split(size, dim=1)
    sizes = [part.shape[1] for part in maps]
    parts = zip(maps, split_channels(kernel, harmonics, sizes), strict=True)
    found = [spectral_group_backward(gradient, *part, filters, frequencies, *rest) for part in parts]
    of_features, of_kernels = zip(*found, strict=True)
    joined = join_channels(of_kernels, harmonics, sizes) if of_kernels[0].numel() else of_kernels[0]
    return torch.cat(of_features, dim=1), joined


@spectral_group_backward.register_fake
def _(
    gradient: Tensor,
    features: Tensor,
    kernel: Tensor,
    filters: Tensor,
    frequencies: list[int],
    moves: list[int],
    kernel_too: bool,
) -> tuple[Tensor, Tensor]:
    kernel_gradient = torch.empty_like(kernel) if kernel_too else kernel.new_empty(0)
    return torch.empty_like(features, memory_format=torch.contiguous_format), kernel_gradient


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.options = inputs[3:]


def _differentiate(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    kernel_too = ctx.needs_input_grad[1]
    features, kernel = torch.ops.sfcnn.spectral_group_backward(gradient, *ctx.saved_tensors, *ctx.options, kernel_too)
    return features, kernel if kernel_too else None, None, None, None


def _no_second_derivative(ctx: Any, *gradients: Tensor) -> None:
    raise RuntimeError("the spectral engine has no second derivatives: use engine='direct' or engine='atomic'")


spectral_group.register_autograd(_differentiate, setup_context=_remember)
spectral_group_backward.register_autograd(_no_second_derivative)
