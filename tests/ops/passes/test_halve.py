"""The maximum over 2×2 pixels by the compiled kernel: that of PyTorch, with one byte kept for each."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from sfcnn.nn import SpatialMaxPool
from sfcnn.ops.passes import halve
from sfcnn.ops.spectral.kernel import load

LIBRARY = load()
SETS = LIBRARY.instruction_sets() if LIBRARY else ()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="the kernel is not there")
REFERENCE = nn.MaxPool3d((1, 2, 2))


def solve(layer: nn.Module, features: Tensor, gradient: Tensor) -> list[Tensor]:
    given = features.clone().requires_grad_()
    result = layer(given)
    return [result.detach(), *torch.autograd.grad(result, given, gradient)]


@pytest.mark.parametrize("size", [(2, 2), (6, 8), (7, 5), (2, 3), (3, 2), (4, 35), (5, 66), (28, 28)], ids=str)
@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("values", ["all", "ties", "nan"])
def test_it_is_that_of_pytorch_to_the_bit(
    size: tuple[int, int], instructions: str, values: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SFCNN_KERNEL", instructions)
    features = torch.randn(2, 3, 2, *size, dtype=dtype)
    if values == "ties":
        features = features.round().clamp(-1, 1)
        features[0, 0] = -torch.inf
    elif values == "nan":
        features[torch.rand_like(features) < 0.4] = torch.nan
    gradient = torch.randn(2, 3, 2, size[0] // 2, size[1] // 2, dtype=dtype)
    for found, expected in zip(*(solve(net, features, gradient) for net in (SpatialMaxPool(), REFERENCE)), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def test_threads_share_the_maps() -> None:
    features, gradient = torch.randn(3, 5, 7, 61, 43), torch.randn(3, 5, 7, 30, 21)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found, expected = (solve(net, features, gradient) for net in (SpatialMaxPool(), REFERENCE))
        assert all(map(torch.equal, found, expected))


def test_derivatives_are_those_of_differences() -> None:
    features = torch.randperm(2 * 3 * 5 * 4).double().view(2, 3, 5, 4).requires_grad_()
    assert torch.autograd.gradcheck(halve, features)
    assert torch.autograd.gradgradcheck(halve, features)


def test_a_byte_is_kept_for_each_maximum(kept_bytes: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    shape, maxima = (2, 3, 4, 6, 8), 2 * 3 * 4 * 3 * 4
    assert kept_bytes(SpatialMaxPool(), shape) == maxima
    monkeypatch.setenv("SFCNN_KERNEL", "0")
    assert kept_bytes(SpatialMaxPool(), shape) == kept_bytes(REFERENCE, shape) == maxima * (8 + 4 * 4)


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"maps of at least 2×2 pixels are expected, got shape \(3, 1, 4\)"):
        halve(torch.zeros(3, 1, 4))
    with pytest.raises(RuntimeError, match="too small"):
        SpatialMaxPool()(torch.zeros(1, 2, 4, 1, 6))
    with pytest.raises(RuntimeError, match=r"3D \(unbatched\)|4D|5D|expected"):
        SpatialMaxPool()(torch.zeros(4, 4, 6))
    features = torch.zeros(0, 2, 4, 6, 6, requires_grad=True)
    assert SpatialMaxPool()(features).shape == (0, 2, 4, 3, 3)
