from collections.abc import Callable

import pytest
import torch
from export_checks import assert_same, trained
from torch import Tensor, nn

from sfcnn import GroupConv2d, LiftConv2d, OrientationPool
from sfcnn.export import to_plain


def norms(net: nn.Module) -> int:
    return sum(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in net.modules())


class Skips(nn.Module):
    """A batch norm whose input is needed elsewhere, too."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = LiftConv2d(4, 2, 3, 4, padding=1), nn.BatchNorm3d(2)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.conv(images)
        return features + self.norm(features)


def matrix_head(*first: nn.Module) -> nn.Module:
    return nn.Sequential(*first, nn.Linear(36, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2), nn.BatchNorm1d(2))


#: Networks on (2, 4, 6, 6), and how many of their batch norms remain.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "lift": (lambda: nn.Sequential(LiftConv2d(4, 2, 3, 4), nn.BatchNorm3d(2)), 0),
    "group": (lambda: nn.Sequential(LiftConv2d(4, 2, 3, 4), GroupConv2d(2, 3, 3, 4), nn.BatchNorm3d(3)), 0),
    "two in a row": (lambda: nn.Sequential(LiftConv2d(4, 2, 3, 4), nn.BatchNorm3d(2), nn.BatchNorm3d(2)), 0),
    "after dropout": (lambda: nn.Sequential(LiftConv2d(4, 2, 3, 4), nn.Dropout3d(), nn.BatchNorm3d(2)), 0),
    "after flattening": (lambda: matrix_head(nn.Conv2d(4, 1, 1), nn.Flatten()), 0),
    "no bias, groups": (
        lambda: nn.Sequential(nn.Conv2d(4, 6, 3, stride=2, groups=2, bias=False), nn.BatchNorm2d(6)),
        0,
    ),
    "padding mode": (lambda: nn.Sequential(nn.Conv2d(4, 6, 3, padding_mode="reflect"), nn.BatchNorm2d(6)), 0),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(4, 6, 3, stride=2), nn.BatchNorm2d(6, eps=0.1)), 0),
    "not affine": (
        lambda: nn.Sequential(nn.ConvTranspose2d(4, 3, 3, bias=False), nn.BatchNorm2d(3, affine=False)),
        0,
    ),
    "linear, not affine": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(144, 3, bias=False), nn.BatchNorm1d(3, affine=False)),
        0,
    ),
    "transposed, groups": (lambda: nn.Sequential(nn.ConvTranspose2d(4, 6, 3, groups=2), nn.BatchNorm2d(6)), 1),
    "before the filters": (lambda: nn.Sequential(nn.BatchNorm2d(4), LiftConv2d(4, 2, 3, 4)), 1),
    "after ReLU": (lambda: nn.Sequential(LiftConv2d(4, 2, 3, 4), nn.ReLU(), nn.BatchNorm3d(2)), 1),
    "after pooling": (lambda: nn.Sequential(LiftConv2d(4, 2, 3, 4), OrientationPool(), nn.BatchNorm2d(2)), 1),
    "of the batch": (lambda: nn.Sequential(nn.Conv2d(4, 2, 1), nn.BatchNorm2d(2, track_running_stats=False)), 1),
    "input used twice": (Skips, 1),
    # A linear layer on (2, 4, 36) acts on the last axis and batch norm on the second, of the same size by chance.
    "linear with three axes": (
        lambda: nn.Sequential(nn.Flatten(2), nn.Linear(36, 4), nn.BatchNorm1d(4), nn.Flatten()),
        1,
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_batch_norm_is_folded_where_it_can_be(name: str, dtype: torch.dtype) -> None:
    make, remaining = NETWORKS[name]
    net = trained(make(), dtype)
    maps = torch.randn(2, 4, 6, 6, dtype=dtype)
    plain = to_plain(net)
    assert_same(plain(maps), net(maps))
    assert norms(plain) == remaining
    assert_same(to_plain(net)(maps), plain(maps))  # the layers of the model itself are not changed
