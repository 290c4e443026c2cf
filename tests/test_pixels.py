"""All pixels of a filter as atoms: orthonormal, turned and mirrored by moving pixels, and what networks they make."""

import math

import pytest
import torch
from torch import Tensor, nn

from sfcnn import Basis, GroupConv2d, LiftConv2d, assert_equivariant, steer
from sfcnn.harmonics import describe_basis, pixels, real_atoms, resolve_basis
from sfcnn.initialization import initial_std
from sfcnn.ops import ENGINES
from sfcnn.steering import rotation_matrices

SIZES = (1, 3, 5, 7, 9)


def atoms_of(kernel_size: int) -> Tensor:
    return real_atoms("pixels", kernel_size, dtype=torch.float64)


@pytest.mark.parametrize("kernel_size", SIZES)
def test_atoms_are_an_orthonormal_basis_of_all_filters(kernel_size: int) -> None:
    flat = atoms_of(kernel_size).flatten(1)
    basis = resolve_basis("pixels", kernel_size)
    assert basis.size == len(basis.frequencies) == len(basis.mirror_signs) == kernel_size**2
    torch.testing.assert_close(flat @ flat.T, torch.eye(kernel_size**2, dtype=torch.float64), rtol=0, atol=1e-14)


@pytest.mark.parametrize("kernel_size", SIZES)
def test_turning_phases_and_signs_moves_pixels(kernel_size: int) -> None:
    atoms, basis = atoms_of(kernel_size), pixels(kernel_size)
    matrices = rotation_matrices(basis, [quarter * math.pi / 2 for quarter in range(4)])
    for quarter, matrix in enumerate(matrices):
        turned = torch.einsum("qp,pxy->qxy", matrix, atoms)
        torch.testing.assert_close(turned, torch.rot90(atoms, quarter, (-2, -1)), rtol=0, atol=1e-14)
    signs = torch.tensor(basis.mirror_signs)[:, None, None]
    torch.testing.assert_close(signs * atoms, atoms.flip(-1), rtol=0, atol=1e-14)


def pixels_to_weight(filters: Tensor) -> Tensor:
    """Weights (…, s²) of filters (…, s, s); the paper convolves, so they are the pixels turned by 180°."""
    return filters.flip(-2, -1).flatten(-2) @ atoms_of(filters.shape[-1]).flatten(1).T.to(filters)


@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": "same"}])
def test_one_orientation_is_an_ordinary_convolution(options: dict[str, object], dtype: torch.dtype) -> None:
    plain = nn.Conv2d(3, 4, 5, dtype=dtype, **options)  # type: ignore[arg-type]
    images = torch.randn(2, 3, 12, 13, dtype=dtype)
    for layer in (LiftConv2d, GroupConv2d):
        ours = layer(3, 4, 5, 1, basis="pixels", dtype=dtype, **options)  # type: ignore[arg-type]
        with torch.no_grad():
            ours.weight.copy_(pixels_to_weight(plain.weight).view_as(ours.weight))
            ours.bias.copy_(plain.bias)  # type: ignore[union-attr, arg-type]
        maps = images if layer is LiftConv2d else images[:, :, None]
        torch.testing.assert_close(ours(maps)[:, :, 0], plain(images))


@pytest.mark.parametrize("engine", ENGINES)
def test_four_orientations_are_the_group_convolution_of_quarter_turns(engine: str) -> None:
    """Each pixel is free: any filter at relative orientation θ − φ, turned by φ as a picture."""
    filters = torch.randn(2, 3, 4, 5, 5, dtype=torch.float64)  # (Ĉ, C, relative, s, s)
    layer = GroupConv2d(3, 2, 5, 4, basis="pixels", bias=False, engine=engine, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(pixels_to_weight(filters))
    bank = torch.zeros(2, 4, 3, 4, 5, 5, dtype=torch.float64)
    for theta in range(4):
        for phi in range(4):
            bank[:, theta, :, phi] = torch.rot90(filters[:, :, (theta - phi) % 4], phi, (-2, -1))
    features = torch.randn(2, 3, 4, 9, 9, dtype=torch.float64)
    expected = torch.nn.functional.conv2d(features.flatten(1, 2), bank.flatten(2, 3).flatten(0, 1))
    torch.testing.assert_close(layer(features), expected.unflatten(1, (2, 4)))


@pytest.mark.parametrize("engine", ENGINES)
def test_networks_of_pixels_turn_and_mirror_exactly(engine: str, dtype: torch.dtype) -> None:
    options = {"basis": "pixels", "reflections": True, "engine": engine, "dtype": dtype}
    net = nn.Sequential(LiftConv2d(1, 3, 5, 4, **options), nn.ReLU(), GroupConv2d(3, 2, 3, 4, **options))  # type: ignore[arg-type]
    assert_equivariant(net, torch.randn(2, 1, 10, 10, dtype=dtype), reflections=True)


def test_initial_variance_is_he_s() -> None:
    for init in ("coeff", "he"):
        std = initial_std(init, "pixels", 5, fan_in=12, fan_out=1)
        torch.testing.assert_close(std, torch.full((25,), math.sqrt(2 / (12 * 25)), dtype=torch.float64))
    weight = LiftConv2d(16, 64, 5, 4, basis="pixels").weight.detach()
    filters = steer(weight, "pixels", 5, [0.0])
    assert float(filters.var() * 16 * 25) == pytest.approx(2, rel=0.05)


def test_the_basis_is_saved_and_named() -> None:
    assert Basis.from_tensor(pixels(7).to_tensor()) == pixels(7)
    assert describe_basis(pixels(7)) == "'pixels' of 7×7 kernels"
    layer = LiftConv2d(1, 2, 5, 4, basis="pixels")
    assert "basis='pixels'" in repr(layer)
    copy = LiftConv2d(1, 2, 5, 4, basis="pixels")
    copy.load_state_dict(layer.state_dict())
    assert torch.equal(copy.weight, layer.weight)
    with pytest.raises(RuntimeError, match="belong to the basis 'pixels' of 5×5 kernels, the layer has 'bandlimited'"):
        LiftConv2d(1, 2, 5, 4).load_state_dict(layer.state_dict())


def test_a_smaller_grid_lies_in_the_middle_of_a_larger_one() -> None:
    wide = real_atoms(pixels(3), 7, dtype=torch.float64)
    torch.testing.assert_close(wide[:, 2:5, 2:5], atoms_of(3))
    assert float(wide.abs().sum()) == pytest.approx(float(atoms_of(3).abs().sum()))


def test_other_angles_are_refused() -> None:
    message = r"'pixels' is for 1, 2 or 4 orientations \(Λ\), choose 'bandlimited', 'averaged' or 'paper' for others"
    with pytest.raises(ValueError, match=message + ", got Λ = 8"):
        GroupConv2d(1, 1, 3, 8, basis="pixels")
    with pytest.raises(ValueError, match=message):
        steer(torch.randn(9), "pixels", 3, [0.1])
    with pytest.raises(ValueError, match=r"sigma > 0, got radius 1\.0 and sigma 0"):
        Basis((0.0, 1.0), (0.5, 0.0), (0, 4))
