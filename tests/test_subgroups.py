import math

import pytest
import torch
from torch import Tensor

from sfcnn import reflect_features, restrict, rotate_features
from sfcnn.subgroups import coset_indices, products

QUARTER = math.pi / 2


@pytest.fixture
def features() -> Tensor:
    return torch.randn(2, 3, 16, 5, 5)


@pytest.mark.parametrize("orientations", [1, 2, 4, 8])
@pytest.mark.parametrize(("reflections", "keep"), [(False, False), (True, False), (True, True)])
def test_restriction_commutes_with_the_subgroup(
    features: Tensor, orientations: int, reflections: bool, keep: bool
) -> None:
    def down(values: Tensor) -> Tensor:
        return restrict(values, orientations, reflections=reflections, keep_reflections=keep)

    order = orientations * (2 if keep else 1)
    assert down(features).shape == (2, 3 * 16 // order, order, 5, 5)
    assert torch.equal(down(features).flatten().sort().values, features.flatten().sort().values)
    if orientations % 4 == 0:
        turned = rotate_features(features, QUARTER, reflections=reflections)
        assert torch.equal(down(turned), rotate_features(down(features), QUARTER, reflections=keep))
    if keep:
        assert torch.equal(down(reflect_features(features)), reflect_features(down(features)))


def test_reflections_go_without_moving_a_number(features: Tensor) -> None:
    assert torch.equal(restrict(features, reflections=True), features.view(2, 6, 8, 5, 5))
    assert torch.equal(restrict(features), features)
    assert restrict(features, reflections=True).data_ptr() == features.data_ptr()


def test_every_orientation_is_in_one_coset() -> None:
    for orientations in (1, 2, 3, 6):
        index = coset_indices(12, orientations, reflections=True, keep_reflections=True)
        assert index.shape == (6 // orientations, 2 * orientations)
        assert index.flatten().sort().values.tolist() == list(range(12))


@pytest.mark.parametrize("orientations", [1, 2, 3, 8])
def test_the_table_is_that_of_the_matrices(orientations: int) -> None:
    angle = torch.arange(orientations, dtype=torch.float64) * (2 * math.pi / orientations)
    turns = torch.stack([torch.stack([angle.cos(), -angle.sin()], -1), torch.stack([angle.sin(), angle.cos()], -1)], -2)
    elements = torch.cat([turns, turns @ torch.diag(torch.tensor([-1.0, 1.0], dtype=torch.float64))])
    table = products(orientations, reflections=True)
    torch.testing.assert_close(elements[table], elements[:, None] @ elements)
    assert torch.equal(products(orientations), table[:orientations, :orientations])


def test_wrong_input_is_named(features: Tensor) -> None:
    with pytest.raises(ValueError, match=r"cannot restrict Λ = 8 orientations to 3, choose one of \[1, 2, 4, 8\]"):
        restrict(features, 3, reflections=True)
    with pytest.raises(ValueError, match="keep_reflections needs features with reflections: pass reflections=True"):
        restrict(features, 4, keep_reflections=True)
    with pytest.raises(ValueError, match="2Λ orientations, an even number, got 5"):
        restrict(features[:, :, :5], reflections=True)
    with pytest.raises(ValueError, match=r"restrict expects features of shape \(B, C, Λ, H, W\), got \(3, 16, 5, 5\)"):
        restrict(features[0])
