import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sfcnn.harmonics import complex_atoms, real_atoms, resolve_basis
from sfcnn.steering import orientation_angles, rotation_matrices, steer

ANGLES = st.floats(-10, 10, allow_nan=False)


def random_weight(preset: str, kernel_size: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(3, resolve_basis(preset, kernel_size).size, dtype=dtype)


@pytest.mark.parametrize("preset", ["bandlimited", "paper"])
def test_steering_is_the_formula_in_complex_numbers(preset: str) -> None:
    """ρ_θ Ψ = Re Σ_jk w_jk e^{−ikθ} ψ_jk, with the paper's complex weights."""
    basis, atoms = resolve_basis(preset, 7), complex_atoms(preset, 7)
    weight = torch.randn(basis.size, dtype=torch.float64)
    theta, expected, start = 0.7, torch.zeros(7, 7, dtype=torch.float64), 0
    for atom, (_, k) in zip(atoms, basis.harmonics, strict=True):
        w = torch.complex(weight[start], weight[start + 1] if k else torch.zeros((), dtype=torch.float64))
        expected += (w * torch.exp(torch.tensor(-1j * k * theta, dtype=torch.complex128)) * atom).real
        start += 2 if k else 1
    torch.testing.assert_close(steer(weight, basis, 7, [theta])[0], expected)


@pytest.mark.parametrize("preset", ["bandlimited", "paper"])
@pytest.mark.parametrize("kernel_size", [1, 3, 7, 9])
def test_full_turn_returns_the_filter_and_quarter_turns_move_pixels(
    preset: str, kernel_size: int, dtype: torch.dtype
) -> None:
    weight = random_weight(preset, kernel_size, dtype)
    quarters = [index * math.pi / 2 for index in range(5)]
    filters = steer(weight, preset, kernel_size, quarters)
    for turns in range(5):
        torch.testing.assert_close(filters[:, turns], torch.rot90(filters[:, 0], turns, (-2, -1)), atol=1e-5, rtol=1e-5)
    atoms = real_atoms(preset, kernel_size, dtype=dtype)
    torch.testing.assert_close(filters[:, 0], torch.einsum("nq,qxy->nxy", weight, atoms))


@given(ANGLES, ANGLES)
def test_angles_add(alpha: float, beta: float) -> None:
    basis = resolve_basis("paper", 5)
    first, second, both = rotation_matrices(basis, [alpha, beta, alpha + beta])
    torch.testing.assert_close(first @ second, both, atol=1e-12, rtol=0)


@given(ANGLES)
def test_rotation_matrices_are_orthogonal(alpha: float) -> None:
    matrix = rotation_matrices(resolve_basis("bandlimited", 7), [alpha])[0]
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(18, dtype=torch.float64), atol=1e-12, rtol=0)


def test_orientation_angles() -> None:
    assert orientation_angles(4).tolist() == pytest.approx([0, math.pi / 2, math.pi, 3 * math.pi / 2])


@pytest.mark.parametrize("orientations", [0, -1, 2.0, True, "8"])
def test_wrong_orientations_are_named(orientations: object) -> None:
    with pytest.raises(ValueError, match=f"whole number of at least 1, got {orientations!r}"):
        orientation_angles(orientations)  # type: ignore[arg-type]


def test_wrong_number_of_weights_is_named() -> None:
    with pytest.raises(ValueError, match="weight has 7 coefficients in its last axis, the basis has 18"):
        steer(torch.zeros(2, 7), "bandlimited", 7, [0.0])
