"""Parts of the plain CNN twins: the blocks of `sfcnn.nn` without orientations, and how wide a twin has to be.

A twin has the depth, kernel sizes, pooling and head of its steerable network. Its width matches

- "channels": the number of learned filters Ĉ of each layer;
- "effective-channels": the number of maps ĈΛ (2ĈΛ with reflections) of each layer, which costs the same to compute;
- "parameters": the total number of parameters, by one factor on all channels.
"""

from collections.abc import Callable

import torch
from torch import nn

from sfcnn.nn.blocks import Residual

MATCHES = ("channels", "effective-channels", "parameters")

#: What settings call a network: steerable, or one of its plain twins.
KINDS = ("steerable", *(f"plain-{match}" for match in MATCHES))


class PlainConvBlock(nn.Sequential):
    """Conv2d → BatchNorm2d → ReLU → Dropout2d, He-initialised: (B, C, H, W) → (B, Ĉ, H', W')."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, *, padding: str = "same", dropout: float = 0.0
    ) -> None:
        conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=padding, bias=False)
        nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
        layers: list[nn.Module] = [conv, nn.BatchNorm2d(out_channels), nn.ReLU()]
        if dropout:
            layers.append(nn.Dropout2d(dropout))
        super().__init__(*layers)


class PlainResidualBlock(Residual):
    """x + f(x) with `depth` plain convolution blocks: (B, C, H, W) → (B, C, H, W)."""

    def __init__(self, channels: int, kernel_size: int, *, depth: int = 1, dropout: float = 0.0) -> None:
        blocks = [PlainConvBlock(channels, channels, kernel_size, dropout=dropout) for _ in range(depth)]
        super().__init__(nn.Sequential(*blocks))


def count_parameters(model: nn.Module) -> int:
    """Number of learnable parameters in a model."""
    return sum(parameter.numel() for parameter in model.parameters())


def matching_width(
    match: str, orientations: int, steerable: Callable[[], nn.Module], plain: Callable[[float], nn.Module]
) -> float:
    """The factor on a plain twin's channels that makes it match its steerable network as `match` says.

    `orientations` is the number of maps for each channel, Λ or with reflections 2Λ. `steerable` and `plain` build the
    two models, the second for a given factor. They are built without memory, on the meta device, only to count
    parameters.
    """
    if match not in MATCHES:
        raise ValueError(f"unknown match {match!r}, choose one of {list(MATCHES)}")
    if match == "channels":
        return 1.0
    if match == "effective-channels":
        return float(orientations)
    with torch.device("meta"):
        target = count_parameters(steerable())
        low, high = 0.0, 4.0 * orientations
        for _ in range(24):
            middle = (low + high) / 2
            low, high = (middle, high) if count_parameters(plain(middle)) < target else (low, middle)
        return min((low, high), key=lambda width: abs(count_parameters(plain(width)) - target))


def scale_channels(channels: int, width: float) -> int:
    """Channels of a twin's layer: at least one."""
    return max(1, round(channels * width))
