"""Layers on features (B, C, Λ, H, W) that correspond to PyTorch layers on maps (B, C, H, W)."""

import copy
from functools import singledispatch
from typing import Any

from torch import nn

from sfcnn.models.resnet import LayerOptions
from sfcnn.nn import GroupConv2d, LiftConv2d, OrientationPool

#: Layers that do the same on features as on maps.
UNCHANGED = (
    nn.CELU, nn.ELU, nn.GELU, nn.Hardshrink, nn.Hardsigmoid, nn.Hardswish, nn.Hardtanh, nn.LeakyReLU, nn.LogSigmoid,
    nn.Mish, nn.PReLU, nn.ReLU, nn.ReLU6, nn.SELU, nn.Sigmoid, nn.SiLU, nn.Softplus, nn.Softshrink, nn.Softsign,
    nn.Tanh, nn.Tanhshrink, nn.Threshold, nn.Dropout, nn.AlphaDropout, nn.Identity, nn.GroupNorm, nn.SyncBatchNorm,
)  # fmt: skip


class NoCounterpartError(ValueError):
    """A layer that cannot be converted; the message says why."""


def is_global_pool(module: nn.Module) -> bool:
    """Whether a layer pools maps to one pixel."""
    pools = isinstance(module, nn.AdaptiveAvgPool2d | nn.AdaptiveMaxPool2d)
    return pools and module.output_size in (1, (1, 1), [1, 1])


def counterpart(module: nn.Module, orientations: int, *, lift: bool, layers: LayerOptions, pool: str) -> nn.Module:
    """The layer on features for a layer on maps, or for a first convolution on images; new layers have new weights.

    >>> counterpart(nn.MaxPool2d(2), 8, lift=False, layers={}, pool="max")
    MaxPool3d(kernel_size=(1, 2, 2), stride=(1, 2, 2), padding=(0, 0, 0), dilation=(1, 1, 1), ceil_mode=False)
    """
    if type(module) is nn.Conv2d:
        return _convolution(module, orientations, lift, layers)
    if is_global_pool(module):
        return nn.Sequential(OrientationPool(pool), copy.deepcopy(module))
    if isinstance(module, UNCHANGED):
        return copy.deepcopy(module)
    return _on_features(module, orientations)


def _convolution(old: nn.Conv2d, orientations: int, lift: bool, layers: LayerOptions) -> nn.Module:
    options: dict[str, Any] = {"padding_mode": old.padding_mode, "bias": old.bias is not None, **layers}
    reasons = []
    if old.groups != 1:
        reasons.append(f"groups={old.groups}, expected 1: group convolutions connect all channels")
    for name in ("kernel_size", "stride", "padding", "dilation"):
        value = getattr(old, name)
        if isinstance(value, tuple) and len(set(value)) != 1:
            reasons.append(f"{name}={value}, expected the same along both axes, which quarter turns exchange")
        options[name] = value[0] if isinstance(value, tuple) else value
    if any(size % 2 == 0 for size in old.kernel_size):
        reasons.append(f"kernel_size={old.kernel_size}, expected odd numbers: filters turn about a pixel")
    if reasons:
        raise NoCounterpartError("; ".join(reasons))
    layer = LiftConv2d if lift else GroupConv2d
    options |= {"device": old.weight.device, "dtype": old.weight.dtype}
    return layer(old.in_channels, old.out_channels, orientations=orientations, **options)


@singledispatch
def _on_features(module: nn.Module, orientations: int) -> nn.Module:
    raise NoCounterpartError("no layer on features does the same")


@_on_features.register
def _batch_norm(old: nn.BatchNorm2d, orientations: int) -> nn.Module:
    new = nn.BatchNorm3d(old.num_features, old.eps, old.momentum, old.affine, old.track_running_stats)
    return _like(new, old)


@_on_features.register
def _instance_norm(old: nn.InstanceNorm2d, orientations: int) -> nn.Module:
    momentum: Any = old.momentum
    new = nn.InstanceNorm3d(old.num_features, old.eps, momentum, old.affine, old.track_running_stats)
    return _like(new, old)


def _like(new: nn.Module, old: nn.Module) -> nn.Module:
    """On the device and in the precision of the old layer."""
    tensor = next((t for t in (*old.parameters(), *old.buffers()) if t.is_floating_point()), None)
    return new if tensor is None else new.to(tensor.device, tensor.dtype)


def _each(value: Any, orientations: int = 1) -> Any:
    """A size of a 2-D layer for a 3-D one that treats every orientation by itself."""
    return (orientations, *((value, value) if isinstance(value, int | float) else value))


def _square(**options: Any) -> None:
    for name, value in options.items():
        if isinstance(value, tuple) and len(set(value)) != 1:
            raise NoCounterpartError(f"{name}={value}, expected the same along both axes, which quarter turns exchange")


@_on_features.register
def _max_pool(old: nn.MaxPool2d, orientations: int) -> nn.Module:
    _square(kernel_size=old.kernel_size, stride=old.stride, padding=old.padding, dilation=old.dilation)
    if old.return_indices:
        raise NoCounterpartError("return_indices=True, expected False")
    sizes = _each(old.kernel_size), _each(old.stride), _each(old.padding, 0), _each(old.dilation)
    return nn.MaxPool3d(*sizes, ceil_mode=old.ceil_mode)


@_on_features.register
def _average_pool(old: nn.AvgPool2d, orientations: int) -> nn.Module:
    _square(kernel_size=old.kernel_size, stride=old.stride, padding=old.padding)
    sizes = _each(old.kernel_size), _each(old.stride), _each(old.padding, 0)
    return nn.AvgPool3d(*sizes, old.ceil_mode, old.count_include_pad, old.divisor_override)


@_on_features.register(nn.AdaptiveAvgPool2d | nn.AdaptiveMaxPool2d)
def _adaptive_pool(old: nn.AdaptiveAvgPool2d | nn.AdaptiveMaxPool2d, orientations: int) -> nn.Module:
    _square(output_size=old.output_size)
    new = nn.AdaptiveAvgPool3d if isinstance(old, nn.AdaptiveAvgPool2d) else nn.AdaptiveMaxPool3d
    size: Any = old.output_size
    return new((None, *((size, size) if isinstance(size, int) else size)))


@_on_features.register
def _dropout(old: nn.Dropout2d, orientations: int) -> nn.Module:
    return nn.Dropout3d(old.p, old.inplace)


@_on_features.register
def _upsample(old: nn.Upsample, orientations: int) -> nn.Module:
    _square(size=old.size, scale_factor=old.scale_factor)
    modes = {"nearest": "nearest", "nearest-exact": "nearest-exact", "bilinear": "trilinear"}
    if old.mode not in modes:
        raise NoCounterpartError(f"mode={old.mode!r}, expected one of {list(modes)}")
    where: dict[str, Any] = (
        {"scale_factor": _each(old.scale_factor)} if old.size is None else {"size": _each(old.size, orientations)}
    )
    options = {"align_corners": old.align_corners, "recompute_scale_factor": old.recompute_scale_factor}
    return nn.Upsample(mode=modes[old.mode], **where, **options)


@_on_features.register(nn.ReflectionPad2d | nn.ReplicationPad2d | nn.ZeroPad2d | nn.ConstantPad2d)
def _pad(old: Any, orientations: int) -> nn.Module:
    _square(padding=tuple(old.padding))
    padding = (*old.padding, 0, 0)
    if isinstance(old, nn.ConstantPad2d):  # ZeroPad2d is one
        return nn.ConstantPad3d(padding, old.value)
    return nn.ReflectionPad3d(padding) if isinstance(old, nn.ReflectionPad2d) else nn.ReplicationPad3d(padding)
