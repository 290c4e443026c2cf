"""Trace a model to a graph of layers and functions, or explain why it cannot be traced.

The model is run once with symbols in place of tensors (`torch.fx`), which records the layers and functions it calls.
Python code on sizes and values cannot be recorded, with one exception: conditions that only raise, such as

    if images.shape[-1] % 16:
        raise ValueError(…)

Both branches of a condition are tried. If one of them raises, the other is the network; the check itself is dropped.
"""

import inspect
import operator
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch import fx, nn
from torch.fx.proxy import Attribute
from torch.nn.utils.parametrize import is_parametrized

from sfcnn.models.unet import Crop
from sfcnn.nn import (
    BackgroundNorm,
    DiskMask,
    GroupConv2d,
    LiftConv2d,
    MaxBlurPool,
    OrientationPool,
    OrientationReadout,
    OrientedResponse,
    Restrict,
    SpatialMaxPool,
)

#: The modules that are converted as a whole; all others in this package are composed of them.
LAYERS = (
    *(LiftConv2d, GroupConv2d, OrientationPool, OrientationReadout, Restrict, Crop),
    *(BackgroundNorm, DiskMask, MaxBlurPool, SpatialMaxPool),
)

#: What a subclass of a layer may override, besides its constructor, without changing what the layer computes.
_HARMLESS = ("extra_repr", "reset_parameters")

#: Maximum number of paths through a model that are tried, and of conditions on one path.
_MOST_WAYS = 500

_FX = str(Path(fx.__file__).parent)


def check_exportable(model: nn.Module) -> None:
    """Raise if a part of the model does something that a graph of layers cannot represent."""
    for name, module in model.named_modules():
        where = f"{type(module).__name__} {name!r}" if name else f"the {type(module).__name__} itself"
        if module.training:
            raise ValueError(f"cannot export a model in training mode ({where}): call model.eval() first")
        if module._forward_hooks or module._forward_pre_hooks:
            raise ValueError(f"cannot export a module with forward hooks ({where}): remove them first")
        if "forward" in vars(module):
            raise ValueError(f"cannot export a module whose forward was replaced ({where}): unwrap the model first")
        if is_parametrized(module):
            raise ValueError(
                f"cannot export a parametrized module ({where}): apply remove_parametrizations of torch.nn.utils first"
            )
        changed = _overridden(module)
        if changed:
            raise ValueError(
                f"cannot export a subclassed layer that overrides {', '.join(changed)} ({where}): "
                "move the change into a module that calls the layer"
            )


def _overridden(module: nn.Module) -> list[str]:
    """Names that the class of a module overrides in the layer that it derives from."""
    for layer in LAYERS:
        if isinstance(module, layer):
            derived = type(module).__mro__[: type(module).__mro__.index(layer)]
            names = {name for cls in derived for name in vars(cls)}
            own = {name for name in names if not name.startswith("__") or name == "__call__"}
            return sorted(name for name in own & set(dir(layer)) if name not in _HARMLESS)
    return []


def _is_torch(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.nn")


def is_layer(module: nn.Module) -> bool:
    """Whether a module is one node of the graph: a layer of this package or of PyTorch, not a composition of them."""
    if isinstance(module, LAYERS):
        return True
    return not isinstance(module, nn.Sequential) and all(map(_is_torch, module.modules()))


class _Symbol(fx.Proxy):
    """Stands for a tensor or other value of the model. Unlike its base class, it has a length, though a dummy one."""

    tracer: "_Tracer"

    def __getattr__(self, name: str) -> "_Part":
        return _Part(self, name)

    def __len__(self) -> int:
        return self.tracer.stop_later("takes the length of a tensor or its shape")

    def __setitem__(self, index: Any, value: Any) -> None:
        self.tracer.create_proxy("call_function", operator.setitem, (self, index, value), {})


def _in_place(function: Callable[[Any, Any], Any]) -> Callable[[_Symbol, Any], Any]:
    """`x += y` writes to the tensor x, which may have other names; the base class records x = x + y instead."""
    return lambda x, y: x.tracer.create_proxy("call_function", function, (x, y), {})


for _name in ("iadd", "isub", "imul", "itruediv"):
    setattr(_Symbol, f"__{_name}__", _in_place(getattr(operator, _name)))


class _Part(Attribute, _Symbol):
    """An attribute of a symbol."""


class _Tracer(fx.Tracer):
    """Records what a model calls; conditions are answered from a list, then with False."""

    def __init__(self, answers: tuple[bool, ...]) -> None:
        super().__init__()
        self.answers, self.places = list(answers), list[str]()
        self.obstacle: str | None = None

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Symbol(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return is_layer(m)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        result = super().call_module(m, forward, args, kwargs)
        # The one layer with two results: as a tuple it can be unpacked in any way.
        return OrientedResponse(result[0], result[1]) if isinstance(m, OrientationReadout) else result

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        """A symbol for each required argument; the others keep their defaults."""
        arguments: list[Any] = [self.root]
        for name, parameter in list(inspect.signature(root_fn).parameters.items())[1:]:
            required = parameter.default is parameter.empty
            if required and parameter.kind is parameter.KEYWORD_ONLY:
                raise ValueError(f"forward has the keyword argument {name!r} without a default")
            if required and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
                arguments.append(self.create_proxy("placeholder", name, (), {}))
        return root_fn, arguments

    def to_bool(self, obj: fx.Proxy) -> bool:
        number = len(self.places)
        if number == _MOST_WAYS:  # perhaps a loop that would never end
            raise RecursionError(f"the condition at {_place()} is evaluated more than {_MOST_WAYS} times")
        self.places.append(_place())
        if number == len(self.answers):
            self.answers.append(False)
        return self.answers[number]

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        return iter((obj,) * self.stop_later("iterates over a tensor or its shape"))

    def stop_later(self, reason: str) -> int:
        """Note why the model cannot be traced, but continue: tuple(x.shape) is often part of a check's message."""
        self.obstacle = self.obstacle or f"{_place()} {reason}"
        return 1


def _place() -> str:
    """File and line of the code being traced."""
    frame = sys._getframe(1)
    while frame.f_back and (frame.f_code.co_filename.startswith(_FX) or frame.f_code.co_filename == __file__):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _is_check(error: Exception) -> bool:
    """Whether the model itself raised the error, rather than the tracer."""
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    raised_by_fx = trace is not None and trace.tb_frame.f_code.co_filename.startswith(_FX)
    may_be = isinstance(error, ValueError | RuntimeError | AssertionError) and not isinstance(error, RecursionError)
    return may_be and not raised_by_fx


def trace(model: nn.Module) -> fx.Graph:
    """The graph of layers and functions of a model that has passed `check_exportable`."""
    name = type(model).__name__
    found: fx.Graph | None = None
    failure: str | None = None
    ways: list[tuple[bool, ...]] = [()]  # prefixes of answers for the paths still to be tried
    for _ in range(_MOST_WAYS):
        if not ways:
            break
        start = ways.pop()
        tracer = _Tracer(start)
        try:
            graph = tracer.trace(model)
        except Exception as error:
            if not _is_check(error):
                reason = tracer.obstacle or " ".join(str(error).split())
                raise ValueError(f"cannot export {name}, its computation cannot be traced: {reason}") from error
            failure = failure or tracer.obstacle or f"it raises for any input: {error}"
        else:
            if tracer.obstacle:
                raise ValueError(f"cannot export {name}: {tracer.obstacle}")
            if found is not None:
                place = tracer.places[len(start) - 1]
                raise ValueError(f"cannot export {name}: its control flow depends on the input at {place}")
            found = graph
        answers = tuple(tracer.answers[: len(tracer.places)])
        ways += [(*answers[:i], not answers[i]) for i in range(len(start), len(answers))]
    if ways:
        raise ValueError(f"cannot export {name}: it has too many conditions on its input")
    if found is None:
        raise ValueError(f"cannot export {name}: {failure}")
    return found
