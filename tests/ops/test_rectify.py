"""Batch norm and ReLU in one pass with the convolution: the same numbers as one after the other, by every engine."""

import pytest
import torch

from sfcnn import GroupConv2d
from sfcnn.ops import ENGINES, PADDING_MODES

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


@torch.no_grad()
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("engine", [*ENGINES, "auto"])
@pytest.mark.parametrize("reflections", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("stride", "padding_mode"), [(2, "zeros"), *((1, mode) for mode in PADDING_MODES)])
def test_it_is_the_output_scaled_shifted_and_rectified(
    dtype: torch.dtype, engine: str, bias: bool, reflections: bool, stride: int, padding_mode: str
) -> None:
    options = {
        "padding": 2,
        "stride": stride,
        "padding_mode": padding_mode,
        "bias": bias,
        "engine": engine,
        "reflections": reflections,
    }
    layer = GroupConv2d(3, 5, 5, 6, dtype=dtype, **options).eval()  # type: ignore[arg-type]
    if layer.bias is not None:
        layer.bias.normal_()
    features = torch.randn(3, 3, layer.group_order, 9, 11, dtype=dtype)
    scale, shift = torch.randn(2, 5, dtype=dtype)
    expected = (layer(features) * scale.view(-1, 1, 1, 1) + shift.view(-1, 1, 1, 1)).relu()
    assert (expected == 0).any()
    assert (expected > 0).any()
    torch.testing.assert_close(layer.rectified(features, scale, shift), expected, rtol=0, atol=TOLERANCE[dtype])


@torch.no_grad()
@pytest.mark.parametrize("engine", ENGINES)
def test_nan_is_not_rectified(engine: str) -> None:
    layer = GroupConv2d(2, 3, 3, 4, engine=engine).eval()
    features = torch.randn(2, 2, 4, 8, 8)
    features[0] = torch.nan
    found = layer.rectified(features, torch.ones(3), torch.zeros(3))
    assert found[0].isnan().all()
    assert found[1].isfinite().all()
