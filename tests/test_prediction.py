import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from sfcnn.models import ClassifierSizes, plain_classifier, steerable_classifier
from sfcnn.prediction import peak_angle, predict

SIZES = ClassifierSizes((5, 3, 3), (6, 8, 8), (8,))


def seasoned(orientations: int | None, dtype: torch.dtype = torch.float64) -> nn.Module:
    """A network, or a plain one for None, whose batch norms have seen images."""
    net = plain_classifier(SIZES) if orientations is None else steerable_classifier(SIZES, orientations)
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
            layer.momentum = None  # keep the mean of all that is seen
    for _ in range(2):
        net(torch.rand(16, 1, 28, 28))
    return net.to(dtype)


def apart(angles: Tensor, others: Tensor) -> Tensor:
    """Distances on the circle."""
    return (torch.remainder(angles - others + math.pi, 2 * math.pi) - math.pi).abs()


@pytest.mark.parametrize("orientations", [4, 8, 16])
def test_quarter_turns_add_to_the_orientation_and_to_nothing_else(orientations: int) -> None:
    net, images = seasoned(orientations), torch.rand(5, 1, 28, 28, dtype=torch.float64)
    before = predict(net, images)
    assert before.orientations is not None
    for turns in (1, 2, 3):
        after = predict(net, images.rot90(turns, (-2, -1)))
        assert torch.equal(before.classes, after.classes)
        torch.testing.assert_close(before.probabilities, after.probabilities)
        assert after.orientations is not None
        assert apart(after.orientations, before.orientations + turns * math.pi / 2).max() < 1e-3


def test_the_orientation_is_that_of_the_evidence(dtype: torch.dtype) -> None:
    net, images = seasoned(8, dtype), torch.rand(3, 1, 28, 28, dtype=dtype)
    predictions = predict(net, images)
    net.eval()
    features = net.get_submodule("features")(images)
    evidence = torch.stack([net.get_submodule("head")(features[:, :, a].amax((-2, -1))) for a in range(8)], 1)
    chosen = torch.stack([row[:, c] for row, c in zip(evidence, predictions.classes, strict=True)])
    assert predictions.orientations is not None
    step = 2 * math.pi / 8
    assert apart(predictions.orientations, chosen.argmax(1) * step).max() <= step / 2 + 1e-6


@pytest.mark.parametrize("orientations", [None, 1, 2, 8])
def test_class_and_probability_are_those_of_the_network(orientations: int | None) -> None:
    net, images = seasoned(orientations), torch.rand(7, 1, 28, 28)
    predictions = predict(net, images, batch_size=3)
    assert net.training
    expected = net.eval()(images.double()).softmax(1)
    assert torch.equal(predictions.classes, expected.argmax(1))
    torch.testing.assert_close(predictions.probabilities, expected.amax(1).detach())
    assert not predictions.probabilities.requires_grad


@pytest.mark.parametrize("orientations", [None, 1, 2])
def test_some_networks_know_no_orientation(orientations: int | None) -> None:
    assert predict(seasoned(orientations), torch.rand(2, 1, 28, 28)).orientations is None


@given(st.integers(3, 24), st.floats(0, 2 * math.pi), st.floats(-100, 100))
def test_the_peak_of_a_wave_is_found_between_samples(count: int, angle: float, level: float) -> None:
    step = 2 * math.pi / count
    wave = torch.cos(torch.arange(count) * step - angle) + level
    assert apart(peak_angle(wave), torch.tensor(angle, dtype=torch.float64)) < step / 8


def test_the_peak_of_a_parabola_is_exact_and_equal_samples_have_one() -> None:
    places = torch.arange(9, dtype=torch.float64)
    torch.testing.assert_close(peak_angle(-((places - 4.3) ** 2)), torch.tensor(4.3 * 2 * math.pi / 9).double())
    assert peak_angle(torch.ones(2, 5)).tolist() == [0, 0]
    assert 0 <= peak_angle(torch.tensor([1.0, 0.0, 0.0, 1.0])) < 2 * math.pi


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match=r"images of shape \(N, C, H, W\), at least one, got \(1, 28, 28\)"):
        predict(seasoned(4), torch.rand(1, 28, 28))
    with pytest.raises(ValueError, match=r"at least one, got \(0, 1, 28, 28\)"):
        predict(seasoned(4), torch.rand(0, 1, 28, 28))
    with pytest.raises(ValueError, match="at least 3 samples on the circle, got 2"):
        peak_angle(torch.ones(2))
