"""Tied weights are the layers of D_Λ: against a literal sum over the group, with filters moved as pictures."""

import itertools

import pytest
import torch
from torch import Tensor

from sfcnn.harmonics import resolve_basis
from sfcnn.ops import ENGINES, Geometry, resolve_engine, sample_atoms
from sfcnn.ops.reflections import as_reflections, as_rotations, expand_group_weight, expand_lift_weight
from sfcnn.steering import steer

BASIS, SIZE = "paper", 3
Element = tuple[int, int]  # (a, s): mirrored s times, then turned a times by 2π/Λ


def matrix(element: Element, orientations: int) -> Tensor:
    """What an element does to the plane; y upward."""
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])  # a quarter
    mirror = torch.diag(torch.tensor([-1.0, 1.0]))
    return torch.linalg.matrix_power(turn, element[0] * 4 // orientations) @ torch.linalg.matrix_power(
        mirror, element[1]
    )


def elements(orientations: int) -> list[Element]:
    return [(a, s) for s in range(2) for a in range(orientations)]


def relative(h: Element, g: Element, orientations: int) -> int:
    """The number of h⁻¹g, found among all elements by their matrices."""
    wanted = torch.linalg.inv(matrix(h, orientations)) @ matrix(g, orientations)
    return next(i for i, e in enumerate(elements(orientations)) if torch.equal(matrix(e, orientations), wanted))


def moved(filters: Tensor, element: Element, orientations: int) -> Tensor:
    """gΨ as a picture."""
    mirrored = filters.flip(-1) if element[1] else filters
    return torch.rot90(mirrored, element[0] * 4 // orientations, (-2, -1))


def mirror_signs() -> Tensor:
    return torch.tensor(resolve_basis(BASIS, SIZE).mirror_signs, dtype=torch.float64)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("orientations", [1, 2, 4])
def test_layers_are_the_sums_over_the_group(engine: str, orientations: int) -> None:
    chosen, geometry = resolve_engine(engine), Geometry(SIZE)
    atoms = sample_atoms(BASIS, SIZE, orientations, torch.float64)
    group = elements(orientations)
    features = torch.randn(2, 2, 2 * orientations, 7, 6, dtype=torch.float64)
    weight = torch.randn(3, 2, 2 * orientations, len(atoms.filters), dtype=torch.float64)
    filters = steer(weight, BASIS, SIZE, [0.0])[..., 0, :, :].flip(-2, -1)  # (Ĉ, C, 2Λ, s, s), to correlate with

    bank = torch.zeros(3, len(group), 2, len(group), SIZE, SIZE, dtype=torch.float64)
    for (i, g), (j, h) in itertools.product(enumerate(group), repeat=2):
        bank[:, i, :, j] = moved(filters[:, :, relative(h, g, orientations)], h, orientations)
    expected = torch.nn.functional.conv2d(features.flatten(1, 2), bank.flatten(2, 3).flatten(0, 1))
    kernel = chosen.group_kernel(expand_group_weight(weight, mirror_signs()), atoms)
    actual = as_reflections(chosen.group(as_rotations(features), kernel, atoms, None, geometry))
    torch.testing.assert_close(actual, expected.unflatten(1, (3, -1)))

    images = features[:, :, 0]
    bank = torch.stack([moved(filters[:, :, 0], g, orientations) for g in group], dim=1)
    expected = torch.nn.functional.conv2d(images, bank.flatten(0, 1))
    kernel = chosen.lift_kernel(expand_lift_weight(weight[:, :, 0], mirror_signs()), atoms)
    actual = as_reflections(chosen.lift(images, kernel, atoms, None, geometry))
    torch.testing.assert_close(actual, expected.unflatten(1, (3, -1)))


def test_each_weight_is_used_twice_with_a_sign() -> None:
    weight = torch.arange(1.0, 2 * 3 * 8 * 5 + 1).view(2, 3, 8, 5)
    tied = expand_group_weight(weight, torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0]))
    assert tied.shape == (4, 6, 4, 5)
    assert torch.equal(tied.abs().flatten().sort().values, weight.repeat(2, 1, 1, 1).flatten().sort().values)
    assert torch.equal(tied[0, 0], weight[0, 0, :4])
    assert torch.equal(tied[1, 0], weight[0, 0, 4:])
    assert torch.equal(tied[0, 1, 1].abs(), weight[0, 0, 4 + 3])


def test_features_keep_their_order() -> None:
    features = torch.randn(2, 3, 8, 4, 4)
    assert torch.equal(as_rotations(features), features.view(2, 6, 4, 4, 4))
    assert torch.equal(as_reflections(as_rotations(features)), features)
