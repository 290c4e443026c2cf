"""Combining responses in one product is the 1×1 convolution, with all its derivatives."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sfcnn import LiftConv2d
from sfcnn.ops import resolve_engine
from sfcnn.ops.combine import combine, combines_quickly
from sfcnn.ops.spectral.compiled import instruction_set

COMPILED = pytest.mark.skipif(instruction_set() is None, reason="there is no compiled kernel")


def operands(dtype: torch.dtype = torch.float64, batch: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    shapes = (batch, 5, 4, 3), (7, 5, 1, 1), (7,)
    return tuple(torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes)  # type: ignore[return-value]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [0, 1, 2, 17])
@pytest.mark.parametrize("with_bias", [False, True])
def test_it_is_a_convolution_with_a_kernel_of_one_pixel(dtype: torch.dtype, batch: int, with_bias: bool) -> None:
    responses, kernel, bias = operands(dtype, batch)
    given = (responses, kernel, bias if with_bias else None)
    found, expected = combine(*given), F.conv2d(*given)
    torch.testing.assert_close(found, expected)
    gradient = torch.randn_like(expected)
    wanted = [tensor for tensor in given if tensor is not None]
    for one, other in zip(
        torch.autograd.grad(found, wanted, gradient), torch.autograd.grad(expected, wanted, gradient), strict=True
    ):
        torch.testing.assert_close(one, other)


@COMPILED
def test_first_and_second_derivatives() -> None:
    assert combines_quickly(operands()[0])
    assert torch.autograd.gradcheck(combine, operands())
    assert torch.autograd.gradgradcheck(combine, operands())


def test_nan_stays_in_its_image() -> None:
    responses, kernel, bias = operands()
    with torch.no_grad():
        responses[0, 0, 0, 0] = float("nan")
        found = combine(responses, kernel, bias)
    assert found[0].isnan().any()
    assert not found[1].isnan().any()


def test_transforms_and_autocast_take_the_convolution() -> None:
    responses, kernel, bias = (tensor.detach() for tensor in operands(torch.float32))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert combine(responses, kernel, bias).dtype == torch.bfloat16
    mapped: Tensor = torch.func.vmap(lambda image: combine(image[None], kernel, bias)[0])(responses)
    torch.testing.assert_close(mapped, F.conv2d(responses, kernel, bias))


@COMPILED
@pytest.mark.parametrize("reflections", [False, True])
def test_large_outputs_are_lifted_by_responses(reflections: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = LiftConv2d(2, 6, 7, 8, padding="same", reflections=reflections)
    images = torch.rand(3, 2, 20, 20)
    assert layer._choose_engine(images) is resolve_engine("direct")
    expected = layer(images)
    scale, shift = torch.rand(6), torch.randn(6)
    with torch.no_grad():
        rectified = layer.rectified(images, scale, shift)
    monkeypatch.setattr("sfcnn.nn.conv._LARGE_OUTPUT", 0)
    assert layer._choose_engine(images) is resolve_engine("atomic")
    torch.testing.assert_close(layer(images), expected, atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(layer.rectified(images, scale, shift), rectified, atol=1e-5, rtol=1e-5)
    pixels = LiftConv2d(2, 6, 7, 4, basis="pixels", reflections=reflections)  # as many atoms as pixels: nothing to save
    assert pixels._choose_engine(images) is resolve_engine("direct")
    assert LiftConv2d(2, 6, 7, 8, engine="direct")._choose_engine(images) is resolve_engine("direct")


def test_a_large_image_is_as_good_in_one_graph() -> None:
    torch.compiler.reset()
    layer = LiftConv2d(1, 12, 9, 16, padding="same").eval()
    images = torch.rand(1, 1, 200, 200)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(images), layer(images), atol=1e-4, rtol=1e-4)
