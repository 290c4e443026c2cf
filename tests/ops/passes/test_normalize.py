"""Batch norm and ReLU by the compiled passes: what nn.BatchNorm3d and nn.ReLU compute, forwards and backwards."""

import copy
from typing import cast

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from sfcnn import ConvBlock, GroupConv2d
from sfcnn.nn import SpatialMaxPool
from sfcnn.ops.passes import is_covered, normalize_rectify
from sfcnn.ops.spectral.kernel import load

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-11}
LIBRARY = load()
SETS = LIBRARY.instruction_sets() if LIBRARY else ()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="the kernel is not there")

#: Features (B, C, Λ, H, W): blocks of 2048 numbers that are full and that are not, rests of every vector, one pixel.
SHAPES = [(2, 3, 4, 5, 7), (1, 2, 3, 29, 31), (5, 1, 1, 1, 3), (3, 4, 1, 1, 1), (2, 1, 16, 16, 16), (1, 1, 1, 1, 2)]


def batch_norm(channels: int, dtype: torch.dtype) -> nn.BatchNorm3d:
    """With weights of both signs and running statistics of its own."""
    norm = nn.BatchNorm3d(channels, dtype=dtype)
    for vector in (norm.weight, norm.bias, norm.running_mean):
        nn.init.normal_(cast(Tensor, vector))
    return norm


def by_layers(norm: nn.BatchNorm3d, features: Tensor) -> Tensor:
    return norm(features).relu()


def by_passes(norm: nn.BatchNorm3d, features: Tensor) -> Tensor:
    assert is_covered(features)
    statistics = cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)
    return normalize_rectify(features, norm.weight, norm.bias, *statistics, cast(float, norm.momentum), norm.eps)


def solve(compute: object, norm: nn.BatchNorm3d, features: Tensor, gradient: Tensor) -> list[Tensor]:
    """Result, gradients of features, weight and bias, and running statistics."""
    norm, given = copy.deepcopy(norm), features.clone().requires_grad_()
    result = compute(norm, given)  # type: ignore[operator]
    found = torch.autograd.grad(result, (given, norm.weight, norm.bias), gradient)
    return [result.detach(), *found, cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)]


def assert_alike(found: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    for one, other in zip(found, expected, strict=True):
        largest = max(1.0, other.abs().max().item())
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance * largest, equal_nan=True)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("instructions", SETS)
def test_it_is_batch_norm_and_relu(
    shape: tuple[int, ...], instructions: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SFCNN_KERNEL", instructions)
    features, gradient = torch.randn(2, *shape, dtype=dtype)
    norm = batch_norm(shape[1], dtype)
    found, expected = (solve(compute, norm, 3 * features + 1, gradient) for compute in (by_passes, by_layers))
    assert_alike(found, expected, TOLERANCE[dtype])


def test_a_mean_far_from_zero_costs_no_digits(dtype: torch.dtype) -> None:
    """Against double precision, about as exact as numbers so far from zero can be."""
    offset = 1e3 if dtype == torch.float32 else 1e4
    features = (torch.randn(4, 2, 3, 40, 17, dtype=torch.float64) + offset).to(dtype)
    norm = batch_norm(2, dtype)
    _, _, _, _, mean, variance = solve(by_passes, norm, features, torch.ones_like(features))
    exact = features.double().transpose(0, 1).flatten(1)
    before = [cast(Tensor, vector) for vector in (norm.running_mean, norm.running_var)]
    for found, old, new in zip((mean, variance), before, (exact.mean(1), exact.var(1)), strict=True):
        torch.testing.assert_close(found, 0.9 * old + 0.1 * new.to(dtype), rtol=TOLERANCE[dtype] / 10, atol=0)


def test_derivatives_are_those_of_differences() -> None:
    features = torch.randn(2, 2, 1, 3, 3, dtype=torch.float64, requires_grad=True)
    norm = batch_norm(2, torch.float64)

    def compute(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        running = torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
        return normalize_rectify(features, weight, bias, *running, 0.1, 1e-5)

    arguments = features, norm.weight, norm.bias
    assert torch.autograd.gradcheck(compute, arguments)
    assert torch.autograd.gradgradcheck(compute, arguments)
    fixed = norm.weight.detach(), norm.bias.detach()
    assert torch.autograd.gradgradcheck(lambda given: compute(given, *fixed), features)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_the_number_of_threads_changes_no_bit(dtype: torch.dtype) -> None:
    features, gradient = torch.randn(2, 8, 7, 4, 33, 35, dtype=dtype)  # enough to start threads
    norm, results = batch_norm(7, dtype), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(solve(by_passes, norm, features, gradient))
    for others in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(results[0], others, strict=True))


def test_the_gradient_takes_the_place_of_features_that_are_given_away() -> None:
    norm, given = batch_norm(3, torch.float64), torch.randn(2, 3, 4, 5, 5, dtype=torch.float64, requires_grad=True)
    gradient = torch.randn_like(given)
    expected = solve(by_passes, norm, given.detach(), gradient)[1]
    for consume in (False, True):
        features = given.clone()
        statistics = cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)
        result = normalize_rectify(features, norm.weight, norm.bias, *statistics, 0.1, norm.eps, consume)
        for retain in (True, False):
            (found,) = torch.autograd.grad(result, given, gradient, retain_graph=retain)
            assert found.equal(expected)
            assert features.equal(found if consume and not retain else given)


def test_nan_spreads_as_in_pytorch(dtype: torch.dtype) -> None:
    features, gradient = torch.randn(2, 3, 2, 4, 5, 5, dtype=dtype)
    features[1, 0] = torch.nan
    results = [solve(compute, batch_norm(2, dtype), features, gradient) for compute in (by_passes, by_layers)]
    assert results[0][0][:, 0].isnan().all()
    for found, expected in zip(*results, strict=True):
        assert found.isnan().equal(expected.isnan())


def blocks(dtype: torch.dtype, momentum: float | None = 0.1) -> tuple[ConvBlock, nn.Sequential]:
    """A block, and the same layers one after the other."""
    block = ConvBlock(2, 3, 3, 4, padding="same", engine="direct").to(dtype)
    block[1].momentum = momentum  # type: ignore[assignment]
    layers = copy.deepcopy(block)
    return block, nn.Sequential(*layers)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_a_block_keeps_the_state_of_its_layers(dtype: torch.dtype, momentum: float | None) -> None:
    block, layers = blocks(dtype, momentum)
    for _ in range(3):
        features = torch.randn(3, 2, 4, 6, 5, dtype=dtype)
        outputs = [net(features) for net in (block, layers)]
        torch.testing.assert_close(*outputs, rtol=0, atol=TOLERANCE[dtype])
        for output in outputs:
            output.square().sum().backward()
    assert "normalize_rectify" in str(block(features).grad_fn).lower()
    layers(features)
    assert block.state_dict().keys() == layers.state_dict().keys()
    for found, expected in zip(block.state_dict().values(), layers.state_dict().values(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE[dtype])
    for one, other in zip(block.parameters(), layers.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4 if dtype == torch.float32 else 1e-9, atol=1e-4)


def test_what_the_passes_do_not_cover_is_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    block, layers = blocks(torch.float32)
    features = torch.randn(3, 2, 4, 6, 5)
    assert not is_covered(features.to(torch.bfloat16))
    assert not is_covered(features.to("meta"))
    assert not is_covered(features.transpose(0, 1))
    assert not is_covered(features[:0])
    monkeypatch.setenv("SFCNN_KERNEL", "0")
    assert not is_covered(features)
    assert block(features).equal(layers(features))
    monkeypatch.setenv("SFCNN_KERNEL", "1")
    for net in (block, layers):
        assert net(features[:0]).shape == (0, 3, 4, 6, 5)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        ConvBlock(2, 3, 3, 1)(torch.randn(1, 2, 1, 3, 3))


def test_transforms_of_functions_see_the_operators_of_pytorch() -> None:
    """Forward derivatives and vmap, which know nothing of the kernel's."""
    features = torch.randn(3, 2, 4, 6, 5)
    with forward_ad.dual_level():
        assert not is_covered(features)
    pool = torch.func.vmap(torch.func.grad(lambda one: SpatialMaxPool()(one).sum()))
    assert pool(features[None]).shape == (1, *features.shape)
    assert is_covered(features)


def test_the_result_of_relu_is_not_kept() -> None:
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    conv, norm, _ = block = ConvBlock(2, 3, 3, 4, padding="same", engine="direct")
    assert isinstance(conv, GroupConv2d)
    features = torch.randn(3, 2, 4, 6, 5)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = block(features)
    storages = {tensor.untyped_storage().data_ptr() for tensor in kept}
    assert result.untyped_storage().data_ptr() not in storages
    assert cast(Tensor, norm.weight).untyped_storage().data_ptr() in storages
