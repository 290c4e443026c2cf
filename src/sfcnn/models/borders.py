"""How the maps of a classifier end, and how they get smaller; see `sfcnn.nn.borders` for the layers.

Borders, applied to every block of convolution, batch norm and ReLU:

- "none": as in the paper. Padding adds zeros to features whose background is another constant.
- "disk": features are multiplied by a disk, so that the border turns with the image.
- "background": a disk, and a batch norm that keeps a background of zeros, so that padding continues the background. For
  images on black that may have wider borders than in training.

Pooling, between blocks: "max" is the paper's maximum over 2×2 pixels, "blur" the same without aliasing.
"""

from typing import cast

from torch import nn

from sfcnn.nn import BackgroundNorm, DiskMask, MaxBlurPool, SpatialMaxPool

BORDERS = ("none", "disk", "background")
POOLS = ("max", "blur")


def with_border(block: nn.Sequential, border: str) -> nn.Sequential:
    """A block that starts with a convolution, batch norm and ReLU, changed in place to end its maps as `border` says.

    >>> from sfcnn.nn import ConvBlock
    >>> [type(layer).__name__ for layer in with_border(ConvBlock(4, 4, 5, 8), "background")]
    ['GroupConv2d', 'BackgroundNorm', 'DiskMask']
    """
    if border not in BORDERS:
        raise ValueError(f"unknown border {border!r}, choose one of {list(BORDERS)}")
    if border == "background":
        norm = cast(nn.BatchNorm2d | nn.BatchNorm3d, block[1])
        block[1] = BackgroundNorm(norm.num_features, dimensions=3 if isinstance(norm, nn.BatchNorm3d) else 2)
        del block[2]  # the ReLU
    if border != "none":
        block.append(DiskMask())
    return block


def make_pool(kind: str, dimensions: int = 3) -> nn.Module:
    """The layer that halves features (`dimensions=3`) or maps (2).

    >>> make_pool("blur")
    MaxBlurPool()
    """
    if kind not in POOLS:
        raise ValueError(f"unknown pool {kind!r}, choose one of {list(POOLS)}")
    if kind == "blur":
        return MaxBlurPool()
    return SpatialMaxPool() if dimensions == 3 else nn.MaxPool2d(2)
