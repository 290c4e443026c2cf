"""Make an existing network equivariant by replacing its layers; its structure and its `forward` stay the same.

`replace_convs` replaces every 2-D layer that works on maps by its counterpart for features (B, C, Λ, H, W), and pools
over orientations before the global pooling, so that input and output shapes stay the same. Fewer channels than before
are usually enough, since each is now a filter in Λ orientations.
"""

import math

import torch
from torch import Tensor, nn

from sfcnn import equivariance_error
from sfcnn.models import replace_convs


class PlainNet(nn.Module):
    """A plain CNN, as an example of an existing network."""

    def __init__(self, channels: int = 8, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, channels, 5, padding=2, bias=False), nn.BatchNorm2d(channels), nn.ReLU())
        self.pool = nn.MaxPool2d(2)
        self.block = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.Dropout2d(0.1))
        self.average = nn.AdaptiveAvgPool2d(1)
        self.classify = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 1, H, W) → logits (B, classes)."""
        maps = self.pool(self.stem(images))
        maps = maps + self.block(maps)
        logits: Tensor = self.classify(torch.flatten(self.average(maps), 1))
        return logits


class Depthwise(nn.Module):
    """A network with layers that cannot be converted; the error names each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 4, stride=4)
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8, padding=1)
        self.classify = nn.Sequential(nn.Flatten(), nn.Linear(8 * 49, 10))

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 1, 28, 28) → logits (B, 10)."""
        logits: Tensor = self.classify(self.depthwise(self.stem(images)))
        return logits


def main(orientations: int = 8) -> None:
    torch.manual_seed(0)
    plain = PlainNet().eval()
    net = replace_convs(plain, orientations)
    print(net)
    images = torch.rand(4, 1, 28, 28)
    for name, model in (("plain", plain), ("replaced", net)):
        error = equivariance_error(model, images, math.pi / 2)
        print(f"{name}: logits {tuple(model(images).shape)}, change by a quarter turn {error:.0e}")
    try:
        replace_convs(Depthwise(), orientations)
    except ValueError as error:
        print(error)


if __name__ == "__main__":
    main()
