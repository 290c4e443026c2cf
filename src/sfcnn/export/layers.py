"""Map layers on features (B, C, Λ, H, W) to ordinary layers that compute the same on maps (B, C·Λ, H, W).

Map number cΛ + a of the plain network is channel c at orientation θ_a. With reflections, 2Λ replaces Λ.
"""

from functools import singledispatch
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from sfcnn.nn import GroupConv2d, LiftConv2d
from sfcnn.ops import direct

Layer = TypeVar("Layer", bound=nn.Module)

#: Layers that return their input in eval mode.
NOTHING = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)

_POINTWISE = (
    nn.CELU | nn.ELU | nn.GELU | nn.Hardshrink | nn.Hardsigmoid | nn.Hardswish | nn.Hardtanh | nn.LeakyReLU
    | nn.LogSigmoid | nn.Mish | nn.ReLU | nn.ReLU6 | nn.SELU | nn.Sigmoid | nn.SiLU | nn.Softplus | nn.Softshrink
    | nn.Softsign | nn.Tanh | nn.Tanhshrink | nn.Threshold
)  # fmt: skip


def _filled(layer: Layer, **tensors: Tensor | None) -> Layer:
    """Give a layer created on the meta device its parameters and buffers."""
    layer.load_state_dict({name: value for name, value in tensors.items() if value is not None}, assign=True)
    return layer


@torch.no_grad()
def plain_convolution(layer: LiftConv2d | GroupConv2d) -> nn.Conv2d:
    """The `nn.Conv2d` whose filters are those of a lifting or group convolution, in all orientations.

    (B, C, H, W) or (B, C·Λ, H, W) → (B, Ĉ·Λ, H', W').
    """
    kernel = layer.build_kernel(direct)  # (Ĉ·Λ, C or C·Λ, s, s)
    g = layer.geometry
    conv = nn.Conv2d(
        kernel.shape[1],
        kernel.shape[0],
        g.kernel_size,
        stride=g.stride,
        padding=g.margin,
        dilation=g.dilation,
        bias=layer.bias is not None,
        padding_mode=g.padding_mode,  # type: ignore[arg-type]
        device="meta",
    )
    bias = None if layer.bias is None else layer.bias.repeat_interleave(layer.group_order)
    return _filled(conv, weight=kernel.contiguous(), bias=bias)


@singledispatch
def on_maps(layer: nn.Module, channels: int, orientations: int) -> nn.Module | None:
    """The layer that computes on (B, C·Λ, H, W) what `layer` computes on (B, C, Λ, H, W); None if there is none.

    >>> on_maps(nn.MaxPool3d((1, 2, 2)), 8, 4)
    MaxPool2d(kernel_size=(2, 2), stride=(2, 2), padding=(0, 0), dilation=(1, 1), ceil_mode=False)
    >>> on_maps(nn.MaxPool3d(2), 8, 4)  # pools over orientations as well
    """
    return None


@on_maps.register(_POINTWISE)
def _pointwise(layer: nn.Module, channels: int, orientations: int) -> nn.Module:
    return layer


def _repeat(values: Tensor | None, orientations: int) -> Tensor | None:
    """One value per channel → one per map."""
    return None if values is None else values.detach().repeat_interleave(orientations)


@on_maps.register(nn.PReLU)
def _prelu(layer: nn.PReLU, channels: int, orientations: int) -> nn.Module | None:
    if layer.num_parameters == 1:
        return layer
    plain = nn.PReLU(channels * orientations, device="meta")
    return _filled(plain, weight=_repeat(layer.weight, orientations))


@on_maps.register(nn.BatchNorm3d | nn.SyncBatchNorm)
def _batch_norm(layer: nn.BatchNorm3d, channels: int, orientations: int) -> nn.Module | None:
    if layer.running_mean is None or layer.num_features != channels:
        return None  # batch statistics are taken over orientations too
    plain = nn.BatchNorm2d(channels * orientations, layer.eps, affine=layer.affine, device="meta")
    names = ("weight", "bias", "running_mean", "running_var")
    tensors = {name: _repeat(getattr(layer, name), orientations) for name in names}
    return _filled(plain, **tensors, num_batches_tracked=layer.num_batches_tracked).eval()


@on_maps.register(nn.GroupNorm)
def _group_norm(layer: nn.GroupNorm, channels: int, orientations: int) -> nn.Module | None:
    plain = nn.GroupNorm(
        layer.num_groups, channels * orientations, layer.eps, affine=layer.weight is not None, device="meta"
    )
    return _filled(plain, weight=_repeat(layer.weight, orientations), bias=_repeat(layer.bias, orientations))


@on_maps.register(nn.InstanceNorm3d)
def _instance_norm(layer: nn.InstanceNorm3d, channels: int, orientations: int) -> nn.Module | None:
    if layer.running_mean is not None:
        return None
    # The maps of a channel at all orientations are normalised together: a group of Λ maps.
    plain = nn.GroupNorm(channels, channels * orientations, layer.eps, affine=layer.affine, device="meta")
    return _filled(plain, weight=_repeat(layer.weight, orientations), bias=_repeat(layer.bias, orientations))


def _triple(value: Any) -> tuple[Any, Any, Any]:
    """An option of a 3-D layer as one value for each axis: orientations, rows, columns."""
    values = tuple(value) if isinstance(value, tuple | list) else (value,) * 3
    return values[0], values[1], values[2]


def _within_maps(layer: nn.MaxPool3d | nn.AvgPool3d) -> dict[str, Any] | None:
    """Kernel, stride and padding of a pooling layer in space, None if it also pools over orientations."""
    options = {name: _triple(getattr(layer, name)) for name in ("kernel_size", "stride", "padding")}
    if tuple(values[0] for values in options.values()) != (1, 1, 0):
        return None
    return {name: values[1:] for name, values in options.items()}


@on_maps.register(nn.MaxPool3d)
def _max_pool(layer: nn.MaxPool3d, channels: int, orientations: int) -> nn.Module | None:
    options = _within_maps(layer)
    if options is None or layer.return_indices:
        return None
    return nn.MaxPool2d(**options, dilation=_triple(layer.dilation)[1:], ceil_mode=layer.ceil_mode)


@on_maps.register(nn.AvgPool3d)
def _average_pool(layer: nn.AvgPool3d, channels: int, orientations: int) -> nn.Module | None:
    options = _within_maps(layer)
    if options is None:
        return None
    names = ("ceil_mode", "count_include_pad", "divisor_override")
    return nn.AvgPool2d(**options, **{name: getattr(layer, name) for name in names})


@on_maps.register(nn.AdaptiveAvgPool3d | nn.AdaptiveMaxPool3d)
def _adaptive_pool(
    layer: nn.AdaptiveAvgPool3d | nn.AdaptiveMaxPool3d, channels: int, orientations: int
) -> nn.Module | None:
    kept, *size = _triple(layer.output_size)
    if kept not in (None, orientations) or getattr(layer, "return_indices", False):
        return None
    plain = nn.AdaptiveAvgPool2d if isinstance(layer, nn.AdaptiveAvgPool3d) else nn.AdaptiveMaxPool2d
    return plain((size[0], size[1]))


@on_maps.register(nn.Upsample)
def _upsample(layer: nn.Upsample, channels: int, orientations: int) -> nn.Module | None:
    modes = {"nearest": "nearest", "nearest-exact": "nearest-exact", "trilinear": "bilinear"}
    name, keeps = ("size", orientations) if layer.size is not None else ("scale_factor", 1)
    kept, *space = _triple(getattr(layer, name))
    if kept != keeps or layer.mode not in modes:
        return None
    options: dict[str, Any] = {name: tuple(space), "recompute_scale_factor": layer.recompute_scale_factor}
    return nn.Upsample(mode=modes[layer.mode], align_corners=layer.align_corners, **options)
