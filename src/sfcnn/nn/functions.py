"""Elementwise functions, which act on maps (B, C·Λ, H, W) as on features (B, C, Λ, H, W)."""

import operator

import torch
import torch.nn.functional as F

_UNARY = (
    "abs", "ceil", "clamp", "clip", "cos", "exp", "expm1", "floor", "log", "log1p", "neg", "negative", "reciprocal",
    "relu", "round", "rsqrt", "sigmoid", "sign", "sin", "sqrt", "square", "tan", "tanh",
)  # fmt: skip
_BINARY = ("add", "div", "divide", "maximum", "minimum", "mul", "multiply", "pow", "sub", "subtract", "true_divide")
_ACTIVATIONS = (
    "celu", "elu", "gelu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish",
    "relu", "relu6", "selu", "sigmoid", "silu", "softplus", "softshrink", "softsign", "tanh", "tanhshrink",
)  # fmt: skip
_OPERATORS = ("add", "iadd", "imul", "isub", "itruediv", "mul", "neg", "pow", "sub", "truediv")

#: Functions of tensors of one shape, and numbers, to a tensor of the same shape.
POINTWISE = frozenset(
    [getattr(torch, name) for name in (*_UNARY, *_BINARY)]
    + [getattr(F, name) for name in _ACTIVATIONS]
    + [getattr(operator, name) for name in _OPERATORS]
)

#: The same as methods of tensors, with their forms that write in place.
POINTWISE_METHODS = frozenset(
    [*_UNARY, *_BINARY, *(f"{name}_" for name in (*_UNARY, *_BINARY)), "clone", "contiguous", "detach"]
)

CONCATENATIONS = frozenset([torch.cat, torch.concat, torch.concatenate])
