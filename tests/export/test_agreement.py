import pytest
import torch
from torch import nn

from sfcnn import OrientationReadout
from sfcnn.export.agreement import check_agreement, outputs_of


def test_rounding_agrees_and_mistakes_do_not(dtype: torch.dtype) -> None:
    net, values = nn.ReLU(), 1000 * torch.randn(3, 4, dtype=dtype)
    tolerance = {torch.float32: 1e-4, torch.float64: 1e-9}[dtype] * float(values.abs().max())
    check_agreement(net, [values], [values + 0.9 * tolerance], "it")
    with pytest.raises(ValueError, match="output 1 of it differs from the model's by"):
        check_agreement(net, [values] * 2, [values, values + 1.1 * tolerance], "it")
    with pytest.raises(ValueError, match="differs"):
        check_agreement(net, [values], [torch.where(values > 0, values, torch.nan)], "it")
    with pytest.raises(ValueError, match="it has 2 outputs, the model has 1"):
        check_agreement(net, [values], [values] * 2, "it")
    with pytest.raises(ValueError, match=r"output 0 of it is \(3,\), the model's \(3, 4\)"):
        check_agreement(net, [values], [values[:, 0]], "it")


def test_zeros_and_whole_numbers() -> None:
    check_agreement(nn.ReLU(), [torch.zeros(3)], [torch.full((3,), 1e-6)], "it")
    check_agreement(nn.ReLU(), [torch.arange(3), torch.empty(0)], [torch.arange(3), torch.empty(0)], "it")
    with pytest.raises(ValueError, match="differs"):
        check_agreement(nn.ReLU(), [torch.arange(3)], [torch.arange(3) + 1], "it")


def test_a_few_angles_may_jump() -> None:
    angles = torch.rand(1000)
    jumped = angles.clone()
    jumped[:5] += 3
    check_agreement(nn.Sequential(OrientationReadout()), [angles], [jumped], "it")
    with pytest.raises(ValueError, match="differs"):
        check_agreement(nn.ReLU(), [angles], [jumped], "it")
    jumped[:20] += 3
    with pytest.raises(ValueError, match="differs"):
        check_agreement(OrientationReadout(), [angles], [jumped], "it")


def test_all_tensors_of_a_result_count() -> None:
    a, b, c = torch.rand(3, 2).unbind()
    assert [value is wanted for value, wanted in zip(outputs_of({"x": (a, [b]), "y": c}), (a, b, c), strict=True)]
