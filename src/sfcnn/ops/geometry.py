"""How a filter moves over a map: stride, padding and dilation, as in `nn.Conv2d` but with one value per option.

Options are single numbers, the same for both axes, because a rotation by 90° exchanges the axes.
"""

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")

Padding = int | Literal["same", "valid"]


@dataclass(frozen=True)
class Geometry:
    """Stride, padding, dilation and padding mode of a convolution with square kernels."""

    kernel_size: int
    stride: int = 1
    padding: Padding = 0
    dilation: int = 1
    padding_mode: str = "zeros"

    def __post_init__(self) -> None:
        """Check every option."""
        for name, lowest in (("stride", 1), ("dilation", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
                raise ValueError(f"{name} must be a whole number of at least {lowest}, got {value!r}")
        if isinstance(self.padding, str):
            if self.padding not in ("same", "valid"):
                raise ValueError(f"padding must be a whole number, 'same' or 'valid', got {self.padding!r}")
            if self.padding == "same" and self.stride != 1:
                raise ValueError(f"padding='same' needs stride 1, got stride {self.stride}: pass a number instead")
        elif isinstance(self.padding, bool) or not isinstance(self.padding, int) or self.padding < 0:
            raise ValueError(f"padding must be a whole number ≥ 0, 'same' or 'valid', got {self.padding!r}")
        if self.padding_mode not in PADDING_MODES:
            raise ValueError(f"unknown padding_mode {self.padding_mode!r}, choose one of {list(PADDING_MODES)}")

    @property
    def margin(self) -> int:
        """Pixels added on each side."""
        if self.padding == "same":
            return self.dilation * (self.kernel_size // 2)
        return 0 if self.padding == "valid" else int(self.padding)

    def output_size(self, size: int) -> int:
        """Height or width of the output, given that of the input."""
        return (size + 2 * self.margin - self.dilation * (self.kernel_size - 1) - 1) // self.stride + 1

    def check_map(self, height: int, width: int) -> None:
        """Raise unless the filter fits into a map of this size and the padding can be filled."""
        smallest = min(height, width)
        if self.output_size(smallest) < 1:
            extent = self.dilation * (self.kernel_size - 1) + 1
            raise ValueError(
                f"a map of {height}×{width} with padding {self.margin} is smaller than the kernel's extent of {extent}"
            )
        limit = {"reflect": smallest - 1, "circular": smallest}.get(self.padding_mode, self.margin)
        if self.margin > limit:
            raise ValueError(
                f"padding of {self.margin} is too wide for padding_mode={self.padding_mode!r} "
                f"on a map of {height}×{width}: at most {limit}"
            )

    def pad(self, maps: Tensor) -> Tensor:
        """Add the margin around maps (B, C, H, W) according to the padding mode."""
        if self.margin == 0:
            return maps
        mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
        return F.pad(maps, (self.margin,) * 4, mode=mode)

    def correlate(self, maps: Tensor, filters: Tensor, bias: Tensor | None = None) -> Tensor:
        """Pad maps (B, C, H, W) and slide filters (Ĉ, C, s, s) over them."""
        if self.padding_mode == "zeros":  # conv2d pads with zeros itself, without a copy
            return F.conv2d(maps, filters, bias, self.stride, self.margin, self.dilation)
        return F.conv2d(self.pad(maps), filters, bias, self.stride, 0, self.dilation)
