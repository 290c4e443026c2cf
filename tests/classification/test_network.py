"""Settings become the network they describe."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from sfcnn import assert_equivariant
from sfcnn.classification.config import NETWORKS, ImagesConfig, ModelConfig
from sfcnn.classification.network import build_network, network_sizes
from sfcnn.models import count_parameters, mnist_baseline
from sfcnn.models.classifier import BASELINE, BENCHMARK, ClassifierSizes
from sfcnn.models.twins import KINDS
from sfcnn.nn import BackgroundNorm, DiskMask, GroupConv2d, LiftConv2d, MaxBlurPool


def test_full_width_is_the_paper_s_table() -> None:
    assert network_sizes(ModelConfig()) == BASELINE
    assert network_sizes(ModelConfig(network="benchmark")) == BENCHMARK


@pytest.mark.parametrize("width", [0.001, 0.25, 0.5, 2.0])
def test_width_scales_every_convolution_and_nothing_else(width: float) -> None:
    sizes = network_sizes(ModelConfig(width=width))
    assert isinstance(sizes, ClassifierSizes)
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


def test_reflections_reach_the_layers() -> None:
    net = build_network(ModelConfig(orientations=2, width=0.1, reflections=True, restrict_after=5))
    layers = [module for module in net.modules() if isinstance(module, LiftConv2d | GroupConv2d)]
    assert [layer.reflections for layer in layers] == [True] * 5 + [False]
    assert net.eval()(torch.rand(2, 1, 28, 28)).shape == (2, 10)
    with pytest.raises(ValueError, match="restrict_after gives up reflections, got 5 for a network without"):
        ModelConfig(restrict_after=5)
    with pytest.raises(ValueError, match="1 … 5, got 6"):
        ModelConfig(reflections=True, restrict_after=6)


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


@pytest.mark.parametrize("kind", KINDS)
def test_the_padding_is_that_of_the_network_unless_it_is_named(kind: str) -> None:
    def maps(**settings: str) -> int:
        net = build_network(ModelConfig(kind=kind, orientations=2, width=0.1, **settings))  # type: ignore[arg-type]
        side: int = net.get_submodule("features")(torch.rand(2, 1, 28, 28)).shape[-1]
        return side

    assert (maps(network="benchmark"), maps(network="baseline")) == (1, 7)
    assert (maps(network="benchmark", padding="same"), maps(network="baseline", padding="inner")) == (7, 1)


def test_images_that_are_too_small_for_an_unpadded_network_are_refused() -> None:
    def build(size: int, padding: str = "auto") -> torch.nn.Module:
        images = ImagesConfig("folder", size=size, classes=("a", "b"))
        return build_network(ModelConfig("benchmark", orientations=2, width=0.1, padding=padding), images)

    for size in (28, 33, 64):
        assert build(size)(torch.rand(2, 1, size, size)).shape == (2, 2)
    assert build(8, "same")(torch.rand(2, 1, 8, 8)).shape == (2, 2)
    with pytest.raises(
        ValueError, match=r"images of 27 pixels are too small: .* needs 28\. Set model\.padding to 'same'"
    ):
        build(27)


CONVOLUTIONS = {"resnet18": 20, "resnet34": 36, "small-resnet": 15}  # convolutions, projections included


@pytest.mark.parametrize("network", CONVOLUTIONS)
@pytest.mark.parametrize("side", [28, 64, 128])
def test_residual_networks_fit_the_size_of_the_images(network: str, side: int) -> None:
    images = ImagesConfig("folder", size=side, channels=3, classes=("a", "b"))
    net = build_network(ModelConfig(network=network, orientations=4, width=0.1), images).eval()
    layers = [module for module in net.modules() if isinstance(module, LiftConv2d | GroupConv2d)]
    assert len(layers) == CONVOLUTIONS[network]
    maps = net.get_submodule("features")(torch.rand(1, 3, side, side))
    assert min(maps.shape[-2:]) >= 3
    assert net(torch.rand(1, 3, side, side)).shape == (1, 2)


@pytest.mark.parametrize("network", ["baseline", "small-resnet"])
@pytest.mark.parametrize("pool", ["max", "mean"])
def test_plain_networks_on_views_are_invariant(network: str, pool: str) -> None:
    model = ModelConfig(network=network, kind="plain-channels", orientations=4, width=0.2)
    images = torch.rand(2, 1, 28, 28)
    plain = build_network(model).eval()
    net = build_network(replace(model, views=4, view_pool=pool)).eval()
    assert count_parameters(net) == count_parameters(plain)
    assert_equivariant(net, images)
    with pytest.raises(AssertionError):
        assert_equivariant(plain, images)
    both = build_network(replace(model, views=4, mirrored_views=True)).eval()
    torch.testing.assert_close(both(images), both(images.flip(-1)), atol=1e-5, rtol=1e-5)


def test_views_are_for_plain_networks() -> None:
    with pytest.raises(ValueError, match=r"views and mirrored_views are for plain networks: set kind to one of \['pla"):
        ModelConfig(views=4)
    with pytest.raises(ValueError, match="views must be a whole number from 1 to 360, got 0"):
        ModelConfig(kind="plain-channels", views=0)
    with pytest.raises(ValueError, match=r"view_pool must be one of|unknown view_pool"):
        ModelConfig(kind="plain-channels", view_pool="sum")


@pytest.mark.parametrize("kind", KINDS)
def test_residual_networks_with_reflections(kind: str) -> None:
    model = ModelConfig(network="small-resnet", kind=kind, orientations=4, width=0.2, reflections=True)
    net, images = build_network(model).eval(), torch.rand(2, 1, 28, 28)
    if kind == "steerable":
        assert_equivariant(net, images, reflections=True)
    else:
        with pytest.raises(AssertionError):
            assert_equivariant(net, images, reflections=True)


@pytest.mark.parametrize("settings", [{"padding": "inner"}, {"reflections": True, "restrict_after": 2}])
def test_residual_networks_pad_and_are_not_restricted(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="padding 'inner' and restrict_after are for the networks 'baseline' and"):
        ModelConfig(network="resnet18", **settings)
