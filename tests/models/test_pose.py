"""Scores of orientations shift as images turn, angles turn with them, and the formulas are those of the docstring."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from sfcnn.group import reflect_features, rotate, rotate_features
from sfcnn.models import ClassifierSizes, PoseReadout, steerable_classifier
from sfcnn.models.pose import pooled_responses, pose_angles, pose_scores, pose_targets
from sfcnn.nn import GroupConv2d

TOLERANCES = {torch.float32: 2e-5, torch.float64: 1e-12}


def random_readout(
    channels: int, orientations: int, dtype: torch.dtype, classes: int = 3, *, reflections: bool = False
) -> PoseReadout:
    readout = PoseReadout(channels, classes, orientations, reflections=reflections).to(dtype)
    nn.init.normal_(readout.weight, std=0.3)
    return readout.requires_grad_(False)


def apart(angles: Tensor, others: Tensor) -> float:
    """The largest distance on the circle."""
    return float((torch.remainder(angles - others + math.pi, 2 * math.pi) - math.pi).abs().max())


@pytest.mark.parametrize("reflections", [False, True])
@pytest.mark.parametrize("orientations", [3, 4, 8, 16])
def test_turned_features_shift_the_scores_and_turn_the_angles(
    orientations: int, reflections: bool, dtype: torch.dtype
) -> None:
    readout = random_readout(5, orientations, dtype, reflections=reflections)
    features = torch.randn(4, 5, orientations * (1 + reflections), 7, 7, dtype=dtype)
    scores = readout(features)
    assert scores.shape == (4, 3, orientations)
    for step in range(orientations):
        shifted = features.unflatten(2, (-1, orientations)).roll(step, 3).flatten(2, 3)  # as R_φ does, maps aside
        torch.testing.assert_close(readout(shifted), scores.roll(step, -1))
        turned = pose_angles(scores) + step * 2 * math.pi / orientations
        assert apart(pose_angles(readout(shifted)), turned) < 100 * TOLERANCES[dtype]
    for turns in (0, 1, 2, 3) if orientations % 4 == 0 else ():
        moved = rotate_features(features, turns * math.pi / 2, reflections=reflections)
        torch.testing.assert_close(readout(moved), scores.roll(turns * orientations // 4, -1))


@pytest.mark.parametrize("orientations", [4, 8])
def test_a_quarter_turn_of_an_image_adds_90_degrees(orientations: int, dtype: torch.dtype) -> None:
    """Counter-clockwise, as `rotate` turns and as θ_a is counted."""
    net = steerable_classifier(ClassifierSizes((5, 3), (6, 4), (4,)), orientations).to(dtype).eval()
    readout = random_readout(4, orientations, dtype)
    images = torch.rand(3, 1, 19, 19, dtype=dtype)
    with torch.no_grad():
        before = pose_angles(readout(net.get_submodule("features")(images)))
        for turns in (1, 2, 3):
            after = pose_angles(readout(net.get_submodule("features")(rotate(images, turns * math.pi / 2))))
            assert apart(after, before + turns * math.pi / 2) < 100 * TOLERANCES[dtype]


def test_scores_are_the_sum_of_the_docstring_and_a_group_convolution(dtype: torch.dtype) -> None:
    responses, weight = torch.randn(2, 3, 5, dtype=dtype), torch.randn(4, 3, 5, dtype=dtype)
    expected = torch.zeros(2, 4, 5, dtype=dtype)
    for a in range(5):
        for b in range(5):
            expected[:, :, a] += responses[:, :, (a - b) % 5] @ weight[:, :, b].T
    torch.testing.assert_close(pose_scores(responses, weight), expected)
    layer = GroupConv2d(3, 4, 1, 5, bias=False).to(dtype).requires_grad_(False)
    layer.weight.copy_(weight[..., None])
    amplitude = (
        layer(torch.ones(1, 3, 5, 1, 1, dtype=dtype))[0, 0, 0, 0, 0] / weight[0].sum()
    )  # of a filter of one pixel
    torch.testing.assert_close(layer(responses[..., None, None])[..., 0, 0], expected * amplitude)


def test_responses_are_the_largest_over_positions(dtype: torch.dtype) -> None:
    features = torch.randn(2, 3, 8, 5, 6, dtype=dtype)
    assert torch.equal(pooled_responses(features), features.flatten(3).amax(3))
    mirrored = pooled_responses(features, reflections=True)
    assert mirrored.shape == (2, 6, 4)
    assert torch.equal(mirrored[:, 0], features[:, 0, :4].flatten(2).amax(2))
    assert torch.equal(mirrored[:, 1], features[:, 0, 4:].flatten(2).amax(2))
    other = pooled_responses(reflect_features(features), reflections=True)
    assert torch.equal(other.sort().values, mirrored.unflatten(1, (3, 2)).flip(2).flatten(1, 2).sort().values)


@given(st.integers(3, 24), st.floats(-20, 20))
def test_the_circular_mean_of_the_targets_is_the_angle(orientations: int, angle: float) -> None:
    angles = torch.tensor([angle], dtype=torch.float64)
    targets = pose_targets(angles, orientations)
    assert targets.sum().item() == pytest.approx(1)
    assert float(targets.min()) >= 0
    places = targets[0].nonzero().flatten().tolist()
    assert len(places) <= 2
    assert len(places) < 2 or (places[1] - places[0]) in (1, orientations - 1)
    assert apart(pose_angles(targets.log().clamp_min(-1e4)[None]), angles) < 1e-9


def test_angles_lie_on_the_circle() -> None:
    """A mean that is a little below zero is not rounded up to the whole circle."""
    scores = torch.tensor([[[5.0, 1.0, -3.0, 1.0], [5.0, 1.0, -3.0, 1.0 + 1e-15], [0.0, 0.0, 0.0, 0.0]]]).double()
    angles = pose_angles(scores)
    assert angles.dtype == torch.float64
    assert float(angles.min()) >= 0
    assert float(angles.max()) < 2 * math.pi
    assert apart(angles[0, :2], torch.zeros(2)) < 1e-9


def test_a_new_readout_prefers_nothing_and_says_what_it_is() -> None:
    readout = PoseReadout(8, 10, 16, reflections=True)
    assert readout.weight.shape == (10, 16, 16)
    assert not readout(torch.randn(2, 8, 32, 3, 3)).any()
    assert str(readout) == "PoseReadout(8, 10, orientations=16, reflections=True)"
    for few in (1, 2):
        with pytest.raises(ValueError, match=rf"an angle needs at least 3 orientations \(Λ\), got {few}"):
            PoseReadout(8, 10, few)
