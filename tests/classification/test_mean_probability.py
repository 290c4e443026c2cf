"""Test-time averaging against its formula, and where it is used."""

import math

import pytest
import torch

from sfcnn.classification.config import ClassificationConfig, ImagesConfig, ModelConfig
from sfcnn.classification.labelled import LabelledImages
from sfcnn.classification.network import build_network
from sfcnn.classification.predict import Classifier
from sfcnn.group import rotate
from sfcnn.models.views import MeanProbability, make_views


def test_views_are_even_within_a_step_of_the_network() -> None:
    for count, orientations in ((1, 4), (3, 1), (5, 16)):
        angles = [math.pi / 2 * view.turns + view.rest for view in make_views(count, orientations=orientations)]
        assert angles == pytest.approx([2 * math.pi / (orientations * count) * index for index in range(count)])
    with pytest.raises(ValueError, match="views must be a whole number from 1 to 360, got 0"):
        make_views(0)


def classifier(kind: str = "steerable", orientations: int = 4) -> Classifier:
    config = ClassificationConfig(ModelConfig(kind=kind, orientations=orientations, width=0.1), ImagesConfig("digits"))
    torch.manual_seed(0)
    net = build_network(config.model)
    for _ in range(3):
        net(torch.rand(8, 1, 28, 28))
    return Classifier(net.eval(), config, torch.device("cpu"))


@pytest.mark.parametrize(("kind", "equivariance"), [("steerable", 4), ("plain-channels", 1)])
def test_the_mean_probability_decides(kind: str, equivariance: int) -> None:
    ours, images = classifier(kind), torch.rand(6, 1, 28, 28) * torch.ones(6, 1, 28, 28)
    images[..., 0] = images[..., -1] = images[..., 0, :] = images[..., -1, :] = 0
    with torch.no_grad():
        parts = [
            ours.network(rotate(images, 2 * math.pi / (3 * equivariance) * index, "bilinear")).softmax(1)
            for index in range(3)
        ]
        mean = torch.stack(parts).mean(0)
        torch.testing.assert_close(
            MeanProbability(ours.network, 3, orientations=equivariance).eval()(images).softmax(1), mean
        )
    found, plain = ours.predict(images, views=3), ours.predict(images)
    assert torch.equal(found.numbers, mean.argmax(1))
    torch.testing.assert_close(found.probabilities, mean.amax(1))
    assert (found.orientations is None) == (plain.orientations is None) == (kind != "steerable")
    labelled = LabelledImages(images, mean.argmax(1))
    assert ours.evaluate(labelled, views=3).errors == (0.0,)
    assert ours.evaluate(labelled, views=1).counts.equal(ours.evaluate(labelled).counts)


def test_the_orientation_is_that_of_the_image_as_it_is() -> None:
    ours = classifier(orientations=8)
    images = torch.rand(20, 1, 28, 28)
    found, plain = ours.predict(images, views=2), ours.predict(images)
    same = found.numbers == plain.numbers
    assert bool(same.any())
    assert found.orientations is not None
    assert plain.orientations is not None
    assert torch.equal(found.orientations[same], plain.orientations[same])
