"""Make an existing network equivariant: its convolutions are replaced, its structure and its `forward` stay.

`replace_convolutions` exchanges every 2-D layer that works on maps for its counterpart on features (B, C, Λ, H, W).
Where the orientations end is yours to say: put an `OrientationPool` in front of the layers that are to see maps as
before. Fewer channels than before are usually enough, since each is now a filter in Λ orientations.
"""

import copy
import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from sfcnn import GroupConv2d, LiftConv2d, OrientationPool, equivariance_error

Net = TypeVar("Net", bound=nn.Module)


def _convolution(old: nn.Conv2d, orientations: int, lift: bool) -> nn.Module:
    if old.groups != 1:
        raise ValueError(f"{old} has groups={old.groups}, expected 1: group convolutions connect all channels")
    options: dict[str, Any] = {"padding_mode": old.padding_mode, "bias": old.bias is not None}
    for name in ("kernel_size", "stride", "padding", "dilation"):
        value = getattr(old, name)
        if isinstance(value, tuple) and len(set(value)) != 1:
            raise ValueError(f"{old} has {name}={value}, expected the same along both axes, which rotations exchange")
        options[name] = value[0] if isinstance(value, tuple) else value
    layer = LiftConv2d if lift else GroupConv2d
    return layer(old.in_channels, old.out_channels, orientations=orientations, **options)


def _norm(old: nn.BatchNorm2d) -> nn.Module:
    return nn.BatchNorm3d(old.num_features, old.eps, old.momentum, old.affine, old.track_running_stats)


def _each(value: int | tuple[int, ...], orientations: int = 1) -> Any:
    """A size of a 2-D pool for a 3-D one that treats every orientation by itself."""
    return (orientations, *((value, value) if isinstance(value, int) else value))


def _max_pool(old: nn.MaxPool2d) -> nn.Module:
    return nn.MaxPool3d(_each(old.kernel_size), _each(old.stride), _each(old.padding, 0), ceil_mode=old.ceil_mode)


def _average_pool(old: nn.AvgPool2d) -> nn.Module:
    return nn.AvgPool3d(_each(old.kernel_size), _each(old.stride), _each(old.padding, 0), ceil_mode=old.ceil_mode)


COUNTERPARTS: dict[type[nn.Module], Callable[[Any], nn.Module]] = {
    nn.BatchNorm2d: _norm,
    nn.MaxPool2d: _max_pool,
    nn.AvgPool2d: _average_pool,
    nn.Dropout2d: lambda old: nn.Dropout3d(old.p),
}


def replace_convolutions(net: Net, orientations: int, first: tuple[str, ...] | None = None) -> Net:
    """A copy of `net`, with new weights, whose convolutions are equivariant.

    `first` names the convolutions that see images and lift them; by default it is the one that was defined first.
    Layers of other kinds stay: pointwise ones are equivariant as they are, pooling to a given size belongs behind an
    `OrientationPool`, and what else is 2-D (ConvTranspose2d …) refuses features when it meets them.
    """
    net = copy.deepcopy(net)
    convolutions = [name for name, module in net.named_modules() if isinstance(module, nn.Conv2d)]
    first = tuple(convolutions[:1]) if first is None else first
    replaced: dict[nn.Module, nn.Module] = {}  # a layer that is used twice stays one layer
    for name, old in list(net.named_modules(remove_duplicate=False)):
        if old not in replaced and isinstance(old, nn.Conv2d):
            replaced[old] = _convolution(old, orientations, name in first).train(old.training)
        elif old not in replaced and type(old) in COUNTERPARTS:
            replaced[old] = COUNTERPARTS[type(old)](old).train(old.training)
        if old in replaced:
            net.set_submodule(name, replaced[old])
    return net


class PlainNet(nn.Module):
    """Stands for somebody else's network."""

    def __init__(self, channels: int = 8, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, channels, 5, padding=2, bias=False), nn.BatchNorm2d(channels), nn.ReLU())
        self.pool = nn.MaxPool2d(2)
        self.block = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.Dropout2d(0.1))
        self.average: nn.Module = nn.AdaptiveAvgPool2d(1)
        self.classify = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 1, H, W) → logits (B, classes)."""
        maps = self.pool(self.stem(images))
        maps = maps + self.block(maps)
        logits: Tensor = self.classify(torch.flatten(self.average(maps), 1))
        return logits


def main(orientations: int = 8) -> None:
    torch.manual_seed(0)
    plain = PlainNet().eval()
    net = replace_convolutions(plain, orientations)
    net.average = nn.Sequential(OrientationPool("max"), net.average)
    print(net)
    images = torch.rand(4, 1, 28, 28)
    for name, model in (("plain", plain), ("replaced", net)):
        error = equivariance_error(model, images, math.pi / 2)
        print(f"{name}: logits {tuple(model(images).shape)}, change by a quarter turn {error:.0e}")


if __name__ == "__main__":
    main()
