"""Settings become the network they describe."""

from dataclasses import replace

import pytest
import torch

from sfcnn.classification.config import NETWORKS, ImagesConfig, ModelConfig
from sfcnn.classification.network import build_network, network_sizes
from sfcnn.models import count_parameters, mnist_baseline
from sfcnn.models.classifier import BASELINE, BENCHMARK
from sfcnn.models.twins import KINDS
from sfcnn.nn import BackgroundNorm, DiskMask, GroupConv2d, LiftConv2d, MaxBlurPool


def test_full_width_is_the_paper_s_table() -> None:
    assert network_sizes(ModelConfig()) == BASELINE
    assert network_sizes(ModelConfig(network="benchmark")) == BENCHMARK


@pytest.mark.parametrize("width", [0.001, 0.25, 0.5, 2.0])
def test_width_scales_every_convolution_and_nothing_else(width: float) -> None:
    sizes = network_sizes(ModelConfig(width=width))
    assert all(abs(ours - width * full) < 1 for ours, full in zip(sizes.channels, BASELINE.channels, strict=True))
    assert min(sizes.channels) >= 1
    assert (sizes.kernel_sizes, sizes.hidden) == (BASELINE.kernel_sizes, BASELINE.hidden)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_classifies_digits(network: str, kind: str) -> None:
    net = build_network(ModelConfig(network=network, kind=kind, orientations=2, width=0.1)).eval()
    assert net(torch.rand(3, 1, 28, 28)).shape == (3, 10)
    steerable = any(isinstance(module, LiftConv2d | GroupConv2d) for module in net.modules())
    assert steerable == (kind == "steerable")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("channels", [1, 3])
def test_channels_and_classes_are_those_of_the_images(kind: str, channels: int) -> None:
    images = ImagesConfig("folder", size=16, channels=channels, classes=("a", "b", "c"))
    net = build_network(ModelConfig(kind=kind, orientations=2, width=0.1), images).eval()
    assert net(torch.rand(2, channels, 16, 16)).shape == (2, 3)


def test_a_folder_whose_classes_are_not_known_has_no_network() -> None:
    with pytest.raises(ValueError, match=r"images\.classes must name the classes of the folder"):
        build_network(ModelConfig(), ImagesConfig("folder", path="mine"))


@pytest.mark.parametrize("kind", ["steerable", "plain-parameters"])
def test_borders_and_pooling_reach_the_layers(kind: str) -> None:
    config = ModelConfig(kind=kind, orientations=2, width=0.1)
    for border, masks, norms in (("none", 0, 0), ("disk", 6, 0), ("background", 6, 6)):
        for pool, blurs in (("max", 0), ("blur", 2)):
            modules = list(build_network(replace(config, border=border, pool=pool)).modules())
            counts = [sum(isinstance(m, layer) for m in modules) for layer in (DiskMask, BackgroundNorm, MaxBlurPool)]
            assert counts == [masks, norms, blurs]


def test_the_settings_reach_the_layers() -> None:
    config = ModelConfig(orientations=4, width=0.2, basis="averaged", engine="direct", dropout=0.125)
    net = build_network(config)
    layers = [module for module in net.modules() if isinstance(module, LiftConv2d | GroupConv2d)]
    assert len(layers) == 6
    for layer in layers:
        assert (layer.orientations, layer.engine) == (4, "direct")
    assert {module.p for module in net.modules() if isinstance(module, torch.nn.Dropout)} == {0.125}
    other = build_network(replace(config, basis="paper"))
    paper = next(module for module in other.modules() if isinstance(module, LiftConv2d))
    assert layers[0].weight.shape != paper.weight.shape  # another basis has other atoms


def test_the_weights_come_from_the_generator_and_the_scheme() -> None:
    config = ModelConfig(orientations=2, width=0.1)

    def weights(init: str, seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        net = build_network(ModelConfig(orientations=2, width=0.1, init=init))
        return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])

    assert torch.equal(weights("coeff", 3), weights("coeff", 3))
    assert not torch.equal(weights("coeff", 3), weights("coeff", 4))
    assert not torch.equal(weights("coeff", 3), weights("he", 3))
    assert count_parameters(build_network(config)) == len(weights("he", 0))


def test_the_default_is_the_baseline() -> None:
    assert str(build_network(ModelConfig())) == str(mnist_baseline(16, border="disk", pool="blur"))
    assert str(build_network(ModelConfig(border="none", pool="max"))) == str(mnist_baseline(16))


@pytest.mark.parametrize("name", ["basis", "init", "engine"])
def test_a_wrong_name_is_refused_with_its_choices(name: str) -> None:
    with pytest.raises(ValueError, match=r"'mine', (choose|expected)") as caught:
        build_network(ModelConfig(width=0.1, orientations=2, **{name: "mine"}))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
