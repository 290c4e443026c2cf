"""Batch norm in evaluation is a scale and a shift of each channel, which the layer before it can do:

γ (Wx + b − μ) / √(σ² + ε) + β = W'x + b'   with   s = γ / √(σ² + ε),   W' = sW,   b' = s(b − μ) + β
"""

import copy
from typing import Any

import torch
from torch import Tensor, fx, nn

from sfcnn.export.layers import on_maps

_PAIRS = ((nn.Conv2d, nn.BatchNorm2d), (nn.ConvTranspose2d, nn.BatchNorm2d), (nn.Linear, nn.BatchNorm1d))


def fold_batch_norms(plain: fx.GraphModule) -> None:
    """Fold each batch norm that directly follows a layer, and whose input nothing else uses, into this layer."""
    folded: dict[tuple[str, str], str] = {}
    for norm in [node for node in plain.graph.nodes if node.op == "call_module"]:
        layer = norm.args[0] if len(norm.args) == 1 and not norm.kwargs else None
        if not (isinstance(layer, fx.Node) and _foldable(plain, layer, norm)):
            continue
        names = str(layer.target), str(norm.target)
        if names not in folded:
            shared = any(node.target == layer.target for node in plain.graph.nodes if node is not layer)
            folded[names] = f"{names[0]}_{names[1].replace('.', '_')}" if shared else names[0]
            plain.add_submodule(folded[names], fold(*map(plain.get_submodule, names)))  # type: ignore[arg-type]
        layer.target = folded[names]
        norm.replace_all_uses_with(layer)
        plain.graph.erase_node(norm)
    plain.delete_all_unused_submodules()
    plain.recompile()


def _foldable(plain: fx.GraphModule, layer: fx.Node, norm: fx.Node) -> bool:
    if layer.op != "call_module" or len(layer.users) != 1:
        return False
    modules = tuple(plain.get_submodule(str(node.target)) for node in (layer, norm))
    # A linear layer acts on the last axis and batch norm on the second: the same one in matrices only.
    fits = any(type(modules[0]) is first and type(modules[1]) is second for first, second in _PAIRS) and (
        not isinstance(modules[0], nn.Linear) or _is_matrix(plain, layer)
    )
    return fits and getattr(modules[1], "running_mean", None) is not None


def _is_matrix(plain: fx.GraphModule, node: Any) -> bool:
    """Whether a value is known to be (B, C), as it is after flattening."""
    while isinstance(node, fx.Node) and node.op == "call_module":
        module = plain.get_submodule(str(node.target))
        if isinstance(module, nn.Flatten):
            return (module.start_dim, module.end_dim) == (1, -1)
        if not isinstance(module, nn.Linear | nn.BatchNorm1d) and on_maps(module, 1, 1) is not module:
            return False  # what is left keeps the shape but for the size of the last axis
        node = node.args[0]
    is_flatten = isinstance(node, fx.Node) and (node.target == "flatten" or node.target is torch.flatten)
    return is_flatten and tuple(node.args[1:]) in ((1,), (1, -1)) and not node.kwargs


@torch.no_grad()
def fold(layer: nn.Conv2d | nn.ConvTranspose2d | nn.Linear, norm: nn.BatchNorm2d | nn.BatchNorm1d) -> nn.Module:
    """The layer that does what `layer` and, after it, `norm` do in evaluation.

    >>> conv, norm = nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3).eval()
    >>> images = torch.randn(2, 1, 8, 8)
    >>> torch.allclose(fold(conv, norm)(images), norm(conv(images)), atol=1e-6)
    True
    """

    def exact(values: Tensor | None, default: float) -> Tensor:
        return values.double() if values is not None else torch.full_like(variance, default)

    assert norm.running_mean is not None and norm.running_var is not None  # noqa: PT018
    variance = norm.running_var.double()
    scale = exact(norm.weight, 1) / torch.sqrt(variance + norm.eps)
    shift = (exact(layer.bias, 0) - norm.running_mean.double()) * scale + exact(norm.bias, 0)
    weight = layer.weight.double()
    if isinstance(layer, nn.ConvTranspose2d):  # (C, Ĉ/groups, s, s): the output channels of each group of inputs
        scales = scale.view(layer.groups, 1, -1, 1, 1)
        weight = (weight.unflatten(0, (layer.groups, -1)) * scales).flatten(0, 1)
    else:
        weight = weight * scale.view(-1, *[1] * (weight.dim() - 1))
    result = copy.copy(layer)
    result._parameters = dict(layer._parameters)
    result.weight = nn.Parameter(weight.to(layer.weight), requires_grad=False)
    result.bias = nn.Parameter(shift.to(layer.weight), requires_grad=False)
    return result
