"""Both engines compute the layer equations of §3.2: against a slow, literal evaluation, and against each other."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sfcnn.harmonics import BasisLike, resolve_basis
from sfcnn.ops import (
    ENGINES,
    PADDING_MODES,
    Geometry,
    Padding,
    resolve_engine,
    sample_atoms,
)
from sfcnn.steering import orientation_angles, steer

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-11}


def lift(
    images: Tensor, weight: Tensor, orientations: int, basis: BasisLike, geometry: Geometry, engine: str
) -> Tensor:
    atoms = sample_atoms(basis, geometry.kernel_size, orientations, images.dtype)
    chosen = resolve_engine(engine)
    return chosen.lift(images, chosen.lift_kernel(weight, atoms), atoms, None, geometry)


def group(features: Tensor, weight: Tensor, basis: BasisLike, geometry: Geometry, engine: str) -> Tensor:
    atoms = sample_atoms(basis, geometry.kernel_size, features.shape[2], features.dtype)
    chosen = resolve_engine(engine)
    return chosen.group(features, chosen.group_kernel(weight, atoms), atoms, None, geometry)


def convolve(maps: Tensor, filters: Tensor) -> Tensor:
    """The paper's ∗ for one map and one filter, pixel by pixel: Σ_u ζ(u) Ψ(x − u), zero outside."""
    height, width = maps.shape
    half = filters.shape[-1] // 2
    result = torch.zeros_like(maps)
    for row in range(height):
        for column in range(width):
            for down in range(-half, half + 1):
                for right in range(-half, half + 1):
                    source = row - down, column - right
                    if 0 <= source[0] < height and 0 <= source[1] < width:
                        result[row, column] += maps[source] * filters[half + down, half + right]
    return result


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("orientations", [1, 2, 3, 5])
def test_lifting_is_the_equation_of_the_input_layer(engine: str, orientations: int) -> None:
    images = torch.randn(1, 2, 5, 6, dtype=torch.float64)
    weight = torch.randn(2, 2, resolve_basis("paper", 3).size, dtype=torch.float64)
    actual = lift(images, weight, orientations, "paper", Geometry(3, padding="same"), engine)
    filters = steer(weight, "paper", 3, orientation_angles(orientations))  # (Ĉ, C, Λ, s, s)
    for o in range(2):
        for theta in range(orientations):
            expected = sum(convolve(images[0, c], filters[o, c, theta]) for c in range(2))
            torch.testing.assert_close(actual[0, o, theta], expected)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("orientations", [1, 2, 4, 5])
def test_group_convolution_is_its_equation(engine: str, orientations: int) -> None:
    """y(θ) = Σ_c Σ_φ ζ_c(φ) ∗ ρ_φ Ψ_c(θ−φ)."""
    features = torch.randn(1, 2, orientations, 4, 5, dtype=torch.float64)
    weight = torch.randn(1, 2, orientations, resolve_basis("bandlimited", 3).size, dtype=torch.float64)
    actual = group(features, weight, "bandlimited", Geometry(3, padding="same"), engine)
    filters = steer(weight, "bandlimited", 3, orientation_angles(orientations))  # (Ĉ, C, Λ_relative, Λ_φ, s, s)
    for theta in range(orientations):
        expected = sum(
            convolve(features[0, c, phi], filters[0, c, (theta - phi) % orientations, phi])
            for c in range(2)
            for phi in range(orientations)
        )
        torch.testing.assert_close(actual[0, 0, theta], expected)


@dataclass(frozen=True)
class Problem:
    """A convolution to be computed by all engines."""

    geometry: Geometry
    basis: str
    orientations: int
    batch: int
    inputs: int
    outputs: int
    size: tuple[int, int]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    kernel_size, dilation, stride = draw(st.sampled_from([1, 3, 5])), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    extent = dilation * (kernel_size - 1) + 1
    size = draw(st.integers(extent, extent + 6)), draw(st.integers(extent, extent + 6))
    mode = draw(st.sampled_from(PADDING_MODES))
    numbers: list[Padding] = [n for n in (0, 1, 2) if mode in ("zeros", "replicate") or n < min(size)]
    padding = draw(st.sampled_from([*numbers, "same", "valid"] if stride == 1 else numbers))
    return Problem(
        Geometry(kernel_size, stride, padding, dilation, mode),
        basis=draw(st.sampled_from(["bandlimited", "averaged", "paper"])),
        orientations=draw(st.sampled_from([1, 2, 3, 4, 7, 8, 16, 17])),
        batch=draw(st.integers(1, 3)),
        inputs=draw(st.integers(1, 3)),
        outputs=draw(st.integers(1, 3)),
        size=size,
    )


def solve(problem: Problem, engine: str, dtype: torch.dtype) -> list[Tensor]:
    """Outputs of both operators and gradients with respect to inputs and weights."""
    p, atoms = problem, resolve_basis(problem.basis, problem.geometry.kernel_size).size
    torch.manual_seed(0)
    images = torch.randn(p.batch, p.inputs, *p.size, dtype=dtype, requires_grad=True)
    features = torch.randn(p.batch, p.inputs, p.orientations, *p.size, dtype=dtype, requires_grad=True)
    lift_weight = torch.randn(p.outputs, p.inputs, atoms, dtype=dtype, requires_grad=True)
    group_weight = torch.randn(p.outputs, p.inputs, p.orientations, atoms, dtype=dtype, requires_grad=True)
    lifted = lift(images, lift_weight, p.orientations, p.basis, p.geometry, engine)
    grouped = group(features, group_weight, p.basis, p.geometry, engine)
    assert grouped.shape == (p.batch, p.outputs, p.orientations, *map(p.geometry.output_size, p.size))
    loss = lifted.square().sum() + grouped.square().sum()
    gradients = torch.autograd.grad(loss, (images, features, lift_weight, group_weight))
    return [lifted.detach(), grouped.detach(), *gradients]


@given(problems(), st.sampled_from([torch.float32, torch.float64]))
def test_engines_agree_in_outputs_and_gradients(problem: Problem, dtype: torch.dtype) -> None:
    reference = solve(problem, "direct", dtype)
    for engine in ENGINES:
        for ours, expected in zip(solve(problem, engine, dtype), reference, strict=True):
            limit = TOLERANCE[dtype] * float(expected.abs().max())
            torch.testing.assert_close(ours, expected, atol=limit, rtol=0)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("orientations", [1, 4, 5])
@pytest.mark.parametrize("mode", ["zeros", "reflect"])
def test_gradcheck(engine: str, orientations: int, mode: str) -> None:
    geometry = Geometry(3, stride=2, padding=1, padding_mode=mode)
    size = resolve_basis("paper", 3).size
    images = torch.randn(2, 2, 5, 4, dtype=torch.float64, requires_grad=True)
    features = torch.randn(1, 2, orientations, 4, 3, dtype=torch.float64, requires_grad=True)
    lift_weight = torch.randn(2, 2, size, dtype=torch.float64, requires_grad=True)
    group_weight = torch.randn(1, 2, orientations, size, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, w: lift(x, w, orientations, "paper", geometry, engine), (images, lift_weight)
    )
    assert torch.autograd.gradcheck(lambda x, w: group(x, w, "paper", geometry, engine), (features, group_weight))


@pytest.mark.parametrize("engine", ENGINES)
def test_second_derivatives_or_a_clear_error(engine: str) -> None:
    features = torch.randn(1, 2, 4, 3, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(1, 2, 4, resolve_basis("paper", 3).size, dtype=torch.float64, requires_grad=True)

    def square(x: Tensor, w: Tensor) -> Tensor:
        return group(x, w, "paper", Geometry(3, padding=1), engine).square()

    if engine != "spectral":
        assert torch.autograd.gradgradcheck(square, (features, weight))
        return
    (gradient,) = torch.autograd.grad(square(features, weight).sum(), features, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives: use engine='direct' or engine='atomic'"):
        gradient.sum().backward()


@pytest.mark.parametrize("engine", ENGINES)
def test_an_empty_batch_gives_an_empty_result_and_zero_gradients(engine: str) -> None:
    weight = torch.randn(2, 3, 4, resolve_basis("bandlimited", 3).size, requires_grad=True)
    features = torch.zeros(0, 3, 4, 6, 6, requires_grad=True)
    result = group(features, weight, "bandlimited", Geometry(3), engine)
    assert result.shape == (0, 2, 4, 4, 4)
    result.sum().backward()
    assert weight.grad is not None
    assert not weight.grad.any()


@pytest.mark.parametrize("engine", ENGINES)
def test_strided_inputs(engine: str) -> None:
    """Inputs that are views (transposed, sliced, channels last) give what their contiguous copies give."""
    weight = torch.randn(2, 3, 4, resolve_basis("bandlimited", 3).size)
    base = torch.randn(2, 3, 4, 12, 10)
    views = base.transpose(-1, -2), base[..., ::2, 1:], base.permute(0, 3, 4, 1, 2).contiguous().permute(0, 3, 4, 1, 2)
    for view in views:
        expected = group(view.contiguous(), weight, "bandlimited", Geometry(3, padding=1), engine)
        torch.testing.assert_close(group(view, weight, "bandlimited", Geometry(3, padding=1), engine), expected)
