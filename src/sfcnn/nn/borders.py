"""Borders and strides that preserve rotation equivariance.

A rotation turns the content of an image, but not its square frame. Three things reveal the frame to a network:

- Maps end at the frame: a response in a corner is kept, one at the same distance along an axis is cut off. `DiskMask`
  ends maps at a circle instead.
- Padding adds zeros, but batch norm and ReLU turn a black background into another constant, so that the frame becomes
  an edge in every layer. `BackgroundNorm` subtracts that constant: zero stays zero, and padding continues the
  background.
- A maximum over 2×2 pixels with stride 2 depends on where the grid lies. `MaxBlurPool` takes the maximum everywhere and
  blurs it before the stride.

All three are exact under quarter turns, on maps of any size.
"""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sfcnn.ops.passes import TAPS, blurred_maximum, is_covered


def disk(maps: Tensor, radius: float = 1.0, edge: float = 1.0) -> Tensor:
    """The disk m(x) = clip((R − |x|) / edge + ½, 0, 1) about the centre of maps (…, H, W): a tensor (H, W) like them.

    R is `radius` times half the side. On oblong maps it is an ellipse that touches all four sides.

    >>> disk(torch.zeros(3, 3))
    tensor([[0.5858, 1.0000, 0.5858],
            [1.0000, 1.0000, 1.0000],
            [0.5858, 1.0000, 0.5858]])
    """
    height, width = maps.shape[-2], maps.shape[-1]
    # Twice the distances from the centre are whole numbers, so that opposite pixels get the same value to the last bit.
    rows = 2 * torch.arange(height, device=maps.device, dtype=torch.float32) - (height - 1)
    columns = 2 * torch.arange(width, device=maps.device, dtype=torch.float32) - (width - 1)
    high, wide = rows[-1] + 1, columns[-1] + 1  # the sides as tensors, which exported programs can compute with
    distance = ((rows / high).square()[:, None] + (columns / wide).square()).sqrt()  # 1 on the inscribed circle
    return ((radius - distance) * ((high * wide).sqrt() / (2 * edge)) + 0.5).clamp(0, 1).to(maps)


class DiskMask(nn.Module):
    """Multiply maps by a disk with a soft edge, sized by the maps themselves: ζ(x, θ) → m(x) ζ(x, θ).

    Shapes: (…, H, W) → (…, H, W), features and maps alike.

    Args:
        radius: of the disk, in halves of the side.
        edge: width of the edge in pixels, over which the disk falls from 1 to 0.

    >>> DiskMask()(torch.ones(2, 8, 4, 5, 5))[0, 0, 0, 0]
    tensor([0.1716, 0.7639, 1.0000, 0.7639, 0.1716])
    """

    def __init__(self, radius: float = 1.0, edge: float = 1.0) -> None:
        super().__init__()
        for name, value in (("radius", radius), ("edge", edge)):
            if not value > 0:
                raise ValueError(f"{name} of a disk must be positive, got {value!r}")
        self.radius, self.edge = radius, edge

    def forward(self, maps: Tensor) -> Tensor:
        """Maps (…, H, W) → maps that vanish outside the disk."""
        return maps * disk(maps, self.radius, self.edge)

    def extra_repr(self) -> str:
        """Radius and edge."""
        return f"radius={self.radius:g}, edge={self.edge:g}"


def _larger(before: Tensor, after: Tensor) -> Tensor:
    """The larger of two. As a sum with a ReLU it costs a third of `torch.maximum` in training."""
    return before + F.relu(after - before)


def max_blur_pool(maps: Tensor, taps: Tensor) -> Tensor:
    """Maps (B, C, H, W) → (B, C, H // 2, W // 2), with the taps (2, 4) of `MaxBlurPool`."""
    largest = _larger(maps[..., :-1, :], maps[..., 1:, :])
    largest = _larger(largest[..., :-1], largest[..., 1:])  # (B, C, H − 1, W − 1), between the pixels
    even, odd = taps[0], taps[1]
    # Arithmetic instead of a condition, so that one program can be exported for all sizes.
    rows, columns = (even + (odd - even) * (maps.shape[axis] % 2) for axis in (-2, -1))
    weight = (rows[:, None] * columns).expand(maps.shape[1], 1, -1, -1)
    return F.conv2d(F.pad(largest, (1, 2, 1, 2), mode="replicate"), weight, stride=2, groups=maps.shape[1])


class MaxBlurPool(nn.Module):
    """Halve maps without aliasing: the maximum over 2×2 pixels at every position, blurred, at every second position.

    The blur is the binomial (1, 2, 1)/4 along even sides and (1, 3, 3, 1)/8 along odd ones, which leaves the grid of
    outputs centred on that of inputs, so that quarter turns are exact. Beyond the border, maps are padded with their
    outermost values.

    Shapes: features (B, C, Λ, H, W) → (B, C, Λ, H // 2, W // 2), and maps without Λ.

    >>> MaxBlurPool()(torch.randn(2, 8, 4, 28, 15)).shape
    torch.Size([2, 8, 4, 14, 7])
    """

    taps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("taps", torch.tensor(TAPS, dtype=torch.float32) / 8, persistent=False)

    def forward(self, maps: Tensor) -> Tensor:
        """Features (B, C, Λ, H, W) or maps (B, C, H, W) → half the height and width."""
        if maps.dim() not in (4, 5) or maps.shape[-2] < 2 or maps.shape[-1] < 2:
            raise ValueError(
                f"MaxBlurPool expects (B, C, Λ, H, W) or (B, C, H, W) of at least 2×2 pixels, got {tuple(maps.shape)}"
            )
        if is_covered(maps):
            return blurred_maximum(maps)
        pooled = max_blur_pool(maps.flatten(1, -3), self.taps).to(maps.dtype)  # autocast computes in lower precision
        return pooled.unflatten(1, maps.shape[1:-2])


class BackgroundNorm(nn.Module):
    """Batch norm and ReLU that keep a background of zeros: y = ReLU(N(x)) − ReLU(N(0)).

    N(x) = γ (x − μ) / √(σ² + ε) + β is batch norm. Where an image is black, a convolution without bias is 0, and so is
    y. Zeros of padding then continue the background instead of ending it, in every layer. What is subtracted is the
    same for all pixels and, in training too, from the running μ and σ.

    Shapes: features (B, C, Λ, H, W) → the same, with `dimensions=2` maps (B, C, H, W).

    >>> layer = BackgroundNorm(8)
    >>> _ = layer(torch.randn(2, 8, 4, 5, 5))  # a step of training
    >>> layer.eval()(torch.zeros(2, 8, 4, 5, 5)).abs().max()
    tensor(0., grad_fn=<MaxBackward1>)
    """

    def __init__(self, channels: int, dimensions: int = 3) -> None:
        super().__init__()
        if dimensions not in (2, 3):
            raise ValueError(f"dimensions must be 2 (maps) or 3 (features), got {dimensions!r}")
        self.dimensions = dimensions
        self.norm = nn.BatchNorm3d(channels) if dimensions == 3 else nn.BatchNorm2d(channels)

    def background(self) -> Tensor:
        """ReLU(N(0)) with the running statistics: (C,)."""
        norm = self.norm
        mean, variance = cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)
        return F.relu(norm.bias - mean * norm.weight * torch.rsqrt(variance + norm.eps))

    def forward(self, maps: Tensor) -> Tensor:
        """Features (B, C, Λ, H, W) → the same shape."""
        response = F.relu(self.norm(maps))
        background = self.background().to(response.dtype)
        return response - background.view(-1, *(1,) * self.dimensions)
