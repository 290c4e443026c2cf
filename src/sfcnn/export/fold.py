"""Batch norm in evaluation scales and shifts each channel, which can be folded into the preceding layer:

γ (Wx + b − μ) / √(σ² + ε) + β = W'x + b'   with   s = γ / √(σ² + ε),   W' = sW,   b' = s(b − μ) + β

PyTorch's function folds one layer into another; its pass over a graph (`torch.fx.experimental.optimization.fuse`) would
also change other calls of a shared layer, and confuse the axes of a linear layer and its batch norm where they differ.
"""

from typing import Any

import torch
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from sfcnn.export.layers import on_maps

_PAIRS = ((nn.Conv2d, nn.BatchNorm2d), (nn.ConvTranspose2d, nn.BatchNorm2d), (nn.Linear, nn.BatchNorm1d))


def fold_batch_norms(plain: fx.GraphModule) -> None:
    """Fold each batch norm into the layer that it directly follows, if nothing else uses that layer's output."""
    folded: dict[tuple[str, str], str] = {}
    for norm in plain.graph.find_nodes(op="call_module"):
        layer = norm.args[0] if len(norm.args) == 1 and not norm.kwargs else None
        if not (isinstance(layer, fx.Node) and _foldable(plain, layer, norm)):
            continue
        names = str(layer.target), str(norm.target)
        if names not in folded:
            shared = any(node.target == layer.target for node in plain.graph.nodes if node is not layer)
            folded[names] = f"{names[0]}_{names[1].replace('.', '_')}" if shared else names[0]
            first: Any = plain.get_submodule(names[0])
            second: Any = plain.get_submodule(names[1])
            transposed = isinstance(first, nn.ConvTranspose2d)
            plain.add_submodule(folded[names], fuse_conv_bn_eval(first, second, transposed))  # linear layers as well
        layer.target = folded[names]
        norm.replace_all_uses_with(layer)
        plain.graph.erase_node(norm)
    plain.delete_all_unused_submodules()
    plain.recompile()


def _foldable(plain: fx.GraphModule, layer: fx.Node, norm: fx.Node) -> bool:
    if layer.op != "call_module" or len(layer.users) != 1:
        return False
    first, second = (plain.get_submodule(str(node.target)) for node in (layer, norm))
    if (type(first), type(second)) not in _PAIRS or getattr(second, "running_mean", None) is None:
        return False
    if isinstance(first, nn.ConvTranspose2d):
        return first.groups == 1  # PyTorch's function supports only this
    # A linear layer acts on the last axis and batch norm on the second: these coincide only for matrices.
    return not isinstance(first, nn.Linear) or _is_matrix(plain, layer)


def _is_matrix(plain: fx.GraphModule, node: Any) -> bool:
    """Whether a value is known to be (B, C), as it is after flattening."""
    while isinstance(node, fx.Node) and node.op == "call_module":
        module = plain.get_submodule(str(node.target))
        if isinstance(module, nn.Flatten):
            return (module.start_dim, module.end_dim) == (1, -1)
        if not isinstance(module, nn.Linear | nn.BatchNorm1d) and on_maps(module, 1, 1) is not module:
            return False  # the remaining layers change at most the size of the last axis
        node = node.args[0]
    is_flatten = isinstance(node, fx.Node) and (node.target == "flatten" or node.target is torch.flatten)
    return is_flatten and tuple(node.args[1:]) in ((1,), (1, -1)) and not node.kwargs
