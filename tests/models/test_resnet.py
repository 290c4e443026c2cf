"""Residual networks: exact under quarter turns at every size, the right sizes, twins that match."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from sfcnn import GroupConv2d, LiftConv2d, assert_equivariant
from sfcnn.models import (
    MATCHES,
    RESNET18,
    RESNET34,
    SMALL,
    ResNetSizes,
    count_parameters,
    plain_resnet,
    resnet_twin,
    steerable_resnet,
)

Convolution = (LiftConv2d, GroupConv2d, nn.Conv2d)
TINY = ResNetSizes((2, 3, 4), (1, 2, 1), stem_kernel_size=5, stem_halvings=1)


def with_statistics(net: nn.Sequential, images: torch.Tensor) -> nn.Sequential:
    """In eval mode, with running statistics and weights of batch norm that are not those of the start."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm3d):
            module.momentum = 1.0
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
    with torch.no_grad():
        net(images)
    return net.eval()


@pytest.mark.parametrize("size", [(28, 28), (29, 29), (30, 45), (33, 31)], ids=str)
@pytest.mark.parametrize("channels", [1, 3])
def test_quarter_turns_are_exact_at_every_size(size: tuple[int, int], channels: int, dtype: torch.dtype) -> None:
    images = torch.rand(2, channels, *size, dtype=dtype)
    net = with_statistics(steerable_resnet(TINY, 4, in_channels=channels).to(dtype), images)
    assert_equivariant(net, images)
    assert_equivariant(net.get_submodule("features"), images)


@pytest.mark.parametrize("engine", ["direct", "atomic", "spectral"])
@pytest.mark.parametrize("orientations", [4, 8])
def test_quarter_turns_are_exact_with_every_engine(engine: str, orientations: int, dtype: torch.dtype) -> None:
    images = torch.rand(2, 1, 28, 28, dtype=dtype)
    net = with_statistics(steerable_resnet(SMALL.wider(0.2), orientations, engine=engine).to(dtype), images)
    assert_equivariant(net, images)


def test_the_check_finds_a_plain_network_and_a_stride() -> None:
    images = torch.rand(2, 1, 28, 28)
    with pytest.raises(AssertionError, match="relative error"):
        assert_equivariant(with_statistics(plain_resnet(TINY), images), images)
    net = with_statistics(steerable_resnet(TINY, 4), images)
    features = net.get_submodule("features")
    assert isinstance(features, nn.Sequential)
    features[1] = GroupConv2d(2, 2, 3, 4, stride=2, padding=1)  # begins at one end of an even side
    with pytest.raises(AssertionError, match="relative error"):
        assert_equivariant(net.eval(), images)


def test_sizes_are_those_of_resnets() -> None:
    """The plain networks of four times the channels have the parameters of ResNet-18 and ResNet-34."""
    with torch.device("meta"):
        for sizes, depth, parameters in ((RESNET18, 18, 11_689_512), (RESNET34, 34, 21_797_672)):
            net = plain_resnet(sizes, 4, in_channels=3, classes=1000)
            assert count_parameters(net) == parameters
            kernels = [module.kernel_size[0] for module in net.modules() if isinstance(module, nn.Conv2d)]
            assert kernels.count(1) == 3
            assert len(kernels) - 3 + 1 == depth  # and the linear layer
            steerable = steerable_resnet(sizes, 4)
            assert [m.kernel_size for m in steerable.modules() if isinstance(m, LiftConv2d | GroupConv2d)] == kernels
        assert steerable_resnet(RESNET18, 4, in_channels=3)(torch.rand(1, 3, 224, 224)).shape == (1, 10)


def test_maps_are_halved_in_the_stem_and_between_stages() -> None:
    features = steerable_resnet(TINY, 4).eval().get_submodule("features")
    assert features(torch.rand(1, 1, 48, 32)).shape == (1, 4, 4, 6, 4)
    assert isinstance(features, nn.Sequential)
    halve = features[1]
    maps = torch.rand(2, 3, 4, 8, 6)
    torch.testing.assert_close(halve(maps), nn.AvgPool3d((1, 2, 2))(maps))
    with pytest.raises(ValueError, match=r"one entry per stage.*got \(4, 8\) and \(1,\)"):
        ResNetSizes((4, 8), (1,))
    with pytest.raises(ValueError, match="stem_halvings must be at least 0, got -1"):
        replace(TINY, stem_halvings=-1)


@pytest.mark.parametrize("sizes", [RESNET18, SMALL], ids=["resnet18", "small"])
def test_twins_match(sizes: ResNetSizes) -> None:
    def channels(net: nn.Module) -> list[int]:
        return [m.out_channels for m in net.modules() if isinstance(m, Convolution)]

    with torch.device("meta"):
        ours = steerable_resnet(sizes, 8)
        twins = {match: resnet_twin(sizes, 8, match) for match in MATCHES}
    assert channels(twins["channels"]) == channels(ours)
    assert channels(twins["effective-channels"]) == [8 * count for count in channels(ours)]
    assert count_parameters(twins["parameters"]) / count_parameters(ours) == pytest.approx(1, abs=0.02)
    with pytest.raises(ValueError, match="unknown match 'size'"):
        resnet_twin(sizes, 8, "size")


def test_options_reach_every_layer_and_gradients_every_parameter() -> None:
    net = steerable_resnet(TINY, 4, classes=3, dropout=0.25, basis="paper", init="he", engine="direct")
    layers = [module for module in net.modules() if isinstance(module, LiftConv2d | GroupConv2d)]
    assert {(layer.basis_name, layer.init, layer.engine) for layer in layers} == {("paper", "he", "direct")}
    assert [module.p for module in net.modules() if isinstance(module, nn.Dropout)] == [0.25]
    nn.functional.cross_entropy(net(torch.rand(4, 1, 28, 28)), torch.tensor([0, 1, 2, 0])).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
