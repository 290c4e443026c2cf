from typing import Any

import pytest
import torch
from export_checks import assert_same, trained
from export_networks import SMALL, Field, Mixed
from torch import Tensor, nn

from sfcnn import LiftConv2d, OrientationPool
from sfcnn.export import to_program
from sfcnn.models import ResNetSizes, membrane_unet, mnist_baseline, mnist_baseline_cnn, steerable_resnet

TINY = ResNetSizes((2, 3, 4), (1, 1, 1), stem_kernel_size=5, stem_halvings=0)

NETWORKS: dict[str, tuple[Any, tuple[int, ...], list[tuple[int, ...]]]] = {
    "classifier": (lambda: mnist_baseline(4, SMALL), (1, 1, 12, 12), [(5, 1, 28, 28), (1, 1, 10, 17)]),
    "plain classifier": (lambda: mnist_baseline_cnn("channels", 4, SMALL), (3, 1, 12, 12), [(1, 1, 9, 14)]),
    "resnet": (lambda: steerable_resnet(TINY, 4), (2, 1, 28, 28), [(1, 1, 33, 30), (3, 1, 64, 48)]),
    "mixed": (Mixed, (2, 2, 10, 12), [(1, 2, 8, 14)]),
    "field": (Field, (1, 1, 12, 12), [(2, 1, 14, 10)]),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_programs_take_other_batches_and_sizes(name: str) -> None:
    make, example, others = NETWORKS[name]
    net = trained(make())
    program = to_program(net, torch.randn(example))
    for shape in (example, *others):
        images = torch.randn(shape)
        assert_same(program.module()(images), net(images))


def test_float64_and_layers_that_need_one_size() -> None:
    net = trained(nn.Sequential(LiftConv2d(1, 2, 3, 4), OrientationPool(), nn.Flatten(), nn.Linear(32, 3)))
    images = torch.randn(3, 1, 6, 6)
    with pytest.raises(ValueError, match="accepts no other batch, height, width than the example's"):
        to_program(net, images)
    program = to_program(net.double(), images.double(), dynamic=["batch"])
    assert_same(program.module()(images[:2].double()), net(images[:2].double()))


def test_a_program_of_a_unet_checks_sizes_itself() -> None:
    net = trained(membrane_unet(3, channels=2, levels=3, input_kernel_size=5, kernel_size=3, crop=1))
    with pytest.raises(ValueError, match="pass a larger example"):  # one pixel on the third level
        to_program(net, torch.randn(1, 1, 4, 4))
    module = to_program(net, torch.randn(2, 1, 16, 16)).module()
    for shape in ((1, 1, 24, 12), (3, 1, 32, 8)):
        images = torch.randn(shape)
        assert_same(module(images), net(images))
    with pytest.raises(AssertionError, match="Guard failed"):
        module(torch.randn(1, 1, 10, 12))


class Two(nn.Module):
    """Two inputs, of images and of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.pool = LiftConv2d(1, 2, 3, 4), OrientationPool()

    def forward(self, images: Tensor, shift: Tensor) -> Tensor:
        maps: Tensor = self.pool(self.lift(images))
        return maps + shift[:, :, None, None]


def test_several_inputs() -> None:
    net = trained(Two())
    program = to_program(net, [torch.randn(1, 1, 8, 8), torch.randn(1, 2)])
    inputs = torch.randn(3, 1, 9, 12), torch.randn(3, 2)
    assert_same(program.module()(*inputs), net(*inputs))


def test_mistakes_are_named() -> None:
    net = trained(LiftConv2d(1, 2, 3, 4))
    with pytest.raises(ValueError, match=r"unknown axis 'depth', choose from \['batch', 'height', 'width'\]"):
        to_program(net, torch.randn(1, 1, 8, 8), dynamic=["batch", "depth"])
    with pytest.raises(ValueError, match="sequence of tensors, got a str"):
        to_program(net, "image")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expects a tensor of shape"):
        to_program(net, torch.randn(1, 3, 8, 8))
