"""What the tests of export share: networks that look trained, and how equal outputs must be."""

from pathlib import Path
from typing import Any, TypeVar

import onnxruntime
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_leaves

Net = TypeVar("Net", bound=nn.Module)

#: Largest difference, as a part of the largest value.
LIMITS = {torch.float32: 1e-5, torch.float64: 1e-10}


def trained(net: Net, dtype: torch.dtype = torch.float32) -> Net:
    """A network in eval mode whose batch norms and biases are not those of the start, which hide mistakes."""
    net.to(dtype).eval()
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, _BatchNorm) and module.running_mean is not None and module.running_var is not None:
                module.running_mean.normal_(0, 0.2)
                module.running_var.uniform_(0.5, 2)
        for name, parameter in net.named_parameters():
            if parameter.dim() == 1:
                parameter.uniform_(0.5, 1.5) if name.endswith("weight") else parameter.normal_()
    return net


@torch.no_grad()
def assert_same(found: Any, expected: Any) -> None:
    """All tensors of two results are equal to rounding, in shape and dtype too."""
    pairs = list(zip(tree_leaves(found), tree_leaves(expected), strict=True))
    assert pairs
    for have, want in pairs:
        if not isinstance(want, Tensor):
            assert have == want
            continue
        assert (have.shape, have.dtype) == (want.shape, want.dtype)
        limit = LIMITS.get(want.dtype, 0.0) * float(want.abs().max())
        assert float((have - want).abs().max()) <= limit


def onnx_result(path: Path, *inputs: Tensor) -> list[Tensor]:
    """What onnxruntime makes of inputs with an ONNX file."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    feed = {name: value.numpy() for name, value in zip(names, inputs, strict=True)}
    return [torch.from_numpy(value) for value in session.run(None, feed)]
