"""Distances on the circle, and their means and medians by class."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sfcnn.classification.angles import angle_errors, angular_distance


@given(st.floats(-10, 10), st.floats(-10, 10))
def test_a_distance_is_that_of_points_on_the_circle(one: float, other: float) -> None:
    found = angular_distance(*torch.tensor([one, other], dtype=torch.float64)).item()
    chord = math.dist((math.cos(one), math.sin(one)), (math.cos(other), math.sin(other)))
    assert 0 <= found <= math.pi
    assert 2 * math.sin(found / 2) == pytest.approx(chord, abs=1e-7)


def test_means_and_medians_are_those_of_each_class() -> None:
    found = torch.tensor([[0.0, 10.0, 350.0, 90.0], [0.0, 20.0, 330.0, 90.0]]).deg2rad()
    errors = angle_errors(found, torch.zeros(2, 4), torch.tensor([0, 0, 0, 2]), ["a", "b", "c"])
    assert errors.mean == pytest.approx((10 + 10 + 90 + 20 + 30 + 90) / 8, abs=1e-4)
    assert errors.median == pytest.approx(10, abs=1e-3)  # the lower of the two in the middle
    first, second, third = errors.scores()
    assert (first.name, first.images, third.images) == ("a", 3, 1)
    assert (first.mean, first.median) == pytest.approx((70 / 6, 10), abs=1e-3)
    assert third.mean == pytest.approx(90, abs=1e-3)
    assert second.images == 0
    assert math.isnan(second.mean)
    assert errors.as_dict()["classes"][1] == {"name": "b", "images": 0, "mean": None, "median": None}  # type: ignore[index]
