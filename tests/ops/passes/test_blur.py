"""The blurred maximum by the compiled kernel: that of PyTorch's operators, with one byte kept for each maximum."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sfcnn.nn import MaxBlurPool
from sfcnn.nn.borders import max_blur_pool
from sfcnn.ops.passes import blurred_maximum
from sfcnn.ops.spectral.kernel import load

LIBRARY = load()
SETS = LIBRARY.instruction_sets() if LIBRARY else ()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="the kernel is not there")
SIZES = [(2, 2), (2, 3), (3, 2), (3, 3), (4, 5), (6, 8), (7, 5), (15, 16), (17, 33), (20, 20), (35, 64), (5, 131)]


def by_pytorch(features: Tensor) -> Tensor:
    taps = MaxBlurPool().to(features.dtype).taps
    return max_blur_pool(features.flatten(1, -3), taps).unflatten(1, features.shape[1:-2])


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("ties", [False, True])
def test_it_is_that_of_pytorch(
    size: tuple[int, int], instructions: str, ties: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SFCNN_KERNEL", instructions)
    features = torch.randn(2, 3, 2, *size, dtype=dtype)
    features = features.round().clamp(-1, 1) if ties else features
    gradient = torch.randn(2, 3, 2, size[0] // 2, size[1] // 2, dtype=dtype)
    given = [features.clone().requires_grad_() for _ in range(2)]
    found, expected = (pool(x) for pool, x in zip((blurred_maximum, by_pytorch), given, strict=True))
    torch.testing.assert_close(found, expected)
    for result in (found, expected):
        result.backward(gradient)
    torch.testing.assert_close(given[0].grad, given[1].grad)
    assert torch.equal(blurred_maximum(features), found)  # without gradients


def test_the_layer_uses_it_for_features_and_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    features = torch.randn(2, 3, 4, 9, 12)
    found = [MaxBlurPool()(x) for x in (features, features[:, :, 0].contiguous())]
    assert torch.equal(found[0], blurred_maximum(features))
    assert torch.equal(found[1], found[0][:, :, 0])
    monkeypatch.setenv("SFCNN_KERNEL", "0")
    torch.testing.assert_close(MaxBlurPool()(features), found[0])
    assert not torch.equal(MaxBlurPool()(features), found[0])  # other operators, other rounding


def test_not_a_number_stays_where_it_is() -> None:
    features = torch.randn(3, 2, 1, 8, 8)
    features[1, 0, 0, 4, 4] = torch.nan
    result = blurred_maximum(features)
    assert result[1, 0].isnan().any()
    result[1, 0] = 0
    assert not result.isnan().any()


def test_the_result_does_not_depend_on_threads() -> None:
    features, gradient = torch.randn(3, 5, 7, 61, 43), torch.randn(3, 5, 7, 30, 21)
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        given = features.clone().requires_grad_()
        result = blurred_maximum(given)
        (found,) = torch.autograd.grad(result, given, gradient)
        results.append(torch.cat([result.detach().flatten(), found.flatten()]))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("size", [(4, 5), (5, 4)], ids=str)
def test_derivatives_are_those_of_differences(size: tuple[int, int]) -> None:
    features = torch.randperm(6 * size[0] * size[1]).double().view(2, 3, *size).requires_grad_()
    assert torch.autograd.gradcheck(blurred_maximum, features)
    assert torch.autograd.gradgradcheck(blurred_maximum, features)


def test_a_byte_is_kept_for_each_maximum(kept_bytes: Callable[..., int]) -> None:
    assert kept_bytes(blurred_maximum, (2, 3, 4, 6, 8)) == 2 * 3 * 4 * 5 * 7


def test_an_empty_batch() -> None:
    assert MaxBlurPool()(torch.zeros(0, 2, 4, 6, 6)).shape == (0, 2, 4, 3, 3)
