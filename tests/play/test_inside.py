"""Filters at all orientations, and features that turn with the image."""

import math
from pathlib import Path

import pytest
import torch

from classification.test_predict import make_run
from sfcnn.classification import ClassificationConfig, ImagesConfig, ModelConfig
from sfcnn.group import rotate
from sfcnn.play.inside import (
    example_image,
    features_html,
    filter_maps,
    filters_html,
    steerable_layers,
    turned_features,
    watch,
    words,
)
from sfcnn.play.networks import get_network


@pytest.fixture(scope="module", name="run")
def _run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small classifier that has learned nothing."""
    config = ClassificationConfig(ModelConfig(orientations=8, width=0.1, engine="direct"), ImagesConfig("digits"))
    return str(make_run(tmp_path_factory.mktemp("inside") / "run", config))


def test_filters_turn_by_quarters_exactly(run: str) -> None:
    layers = steerable_layers(get_network(run, "cpu"))
    assert len(layers) == 6
    for layer in (layers["features.0.0"], layers["features.1.0"]):
        maps = filter_maps(layer, 1, 0)
        assert maps.shape == (8, layer.kernel_size, layer.kernel_size)
        assert maps.abs().max() > 0
        for steps in (2, 4, 6):
            torch.testing.assert_close(maps[steps], rotate(maps[0], steps * math.pi / 4))
    assert filters_html(maps).count("<img") == 8
    with pytest.raises(ValueError, match=r"output channel 99 is not in the layer: choose 0 … 1"):
        filter_maps(layer, 99, 0)


def test_features_turn_with_the_image_and_shift_along_orientations(run: str) -> None:
    network = get_network(run, "cpu")
    found = turned_features(network, "features.1.0", 0, 2)
    assert found.error < 1e-5
    torch.testing.assert_close(found.back, found.upright, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.turned[2], rotate(found.upright[0], math.pi / 2), rtol=1e-4, atol=1e-5)
    assert (found.turned - found.upright).abs().max() > 0.1
    assert "rounding" in words(found, 90)
    between = turned_features(network, "features.1.0", 0, 1)
    assert 1e-3 < between.error < 1
    assert "not exact" in words(between, 45)
    assert features_html(between).count("<img") == 3 * 9
    with pytest.raises(ValueError, match="channel 77 is not in the layer"):
        turned_features(network, "features.1.0", 77, 1)


def test_watching_leaves_nothing_behind(run: str) -> None:
    network = get_network(run, "cpu")
    image = example_image(network)
    with torch.no_grad():
        before = network.network(image)
        features = watch(network, "features.0.0", image)
        torch.testing.assert_close(features, network.network.features[0](image))
        torch.testing.assert_close(network.network(image), before)
    assert not any(module._forward_hooks for module in network.network.modules())


def test_segmenters_have_an_inside_and_plain_networks_have_none() -> None:
    unet = get_network("isbi2012", "cpu")
    name = next(iter(steerable_layers(unet)))
    assert turned_features(unet, name, 0, 2).error < 1e-4
    with pytest.raises(ValueError, match="a plain network has no steerable filters"):
        steerable_layers(get_network("mnist-rot-plain", "cpu"))


def test_another_purpose_gets_another_copy(run: str) -> None:
    assert get_network(run, "cpu", "inside") is not get_network(run, "cpu")
    assert Path(run).is_dir()
