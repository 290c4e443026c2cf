"""Make an existing PyTorch network equivariant by replacing its layers.

The rule. The network is traced once (`torch.fx`) to see what flows into each layer: images, features on the group, or
numbers without orientations. Layers on features are replaced by those that do the same at every orientation:

    Conv2d on images → LiftConv2d              Conv2d on features → GroupConv2d
    BatchNorm2d, InstanceNorm2d, Dropout2d, MaxPool2d, AvgPool2d, Upsample, ReflectionPad2d … → their 3-D forms
    AdaptiveAvgPool2d(1), AdaptiveMaxPool2d(1) → OrientationPool, then the same layer
    activations, GroupNorm, Dropout, Identity, layers on images and behind the global pool → as they are
    a layer whose features the network returns → the layer, then OrientationPool

so that the converted network takes and returns what the plain one does. Its class, its `forward` and the names of its
layers stay. Everything that cannot be converted is named in one error, before anything is built.
"""

import copy
import operator
from enum import Enum, auto
from typing import Any, TypeVar, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from sfcnn.models.counterparts import NoCounterpartError, counterpart, is_global_pool
from sfcnn.models.resnet import LayerOptions
from sfcnn.nn import OrientationPool
from sfcnn.nn.functions import CONCATENATIONS, POINTWISE, POINTWISE_METHODS
from sfcnn.steering import check_orientations

Net = TypeVar("Net", bound=nn.Module)


class Flow(Enum):
    """What a value of the network is."""

    IMAGES = auto()  #: (B, C, H, W), before the first convolution
    FEATURES = auto()  #: (B, C, H, W), to become (B, C, Λ, H, W)
    SHAPE = auto()  #: the shape of features, whose entries from the third on are not those of maps
    POOLED = auto()  #: anything that has no orientations any more
    TENSOR = auto()  #: a parameter or buffer of a module
    OTHER = auto()  #: anything that is not a tensor


#: Functions and methods that treat every pixel alike if they act along channels.
_ALONG_CHANNELS = (F.softmax, F.log_softmax, torch.softmax, torch.log_softmax, "softmax", "log_softmax")

#: Functions and methods after which there are no maps any more.
_REDUCING = ("adaptive_avg_pool2d", "adaptive_max_pool2d", "amax", "flatten", "mean", "reshape", "sum", "view")

#: Layers to use in place of functions.
_LAYERS = {
    "max_pool2d": "nn.MaxPool2d",
    "avg_pool2d": "nn.AvgPool2d",
    "adaptive_avg_pool2d": "nn.AdaptiveAvgPool2d(1)",
    "adaptive_max_pool2d": "nn.AdaptiveMaxPool2d(1)",
    "mean": "nn.AdaptiveAvgPool2d(1)",
    "amax": "nn.AdaptiveMaxPool2d(1)",
    "interpolate": "nn.Upsample",
    "dropout2d": "nn.Dropout2d",
    "batch_norm": "nn.BatchNorm2d",
}


def replace_convs(net: Net, orientations: int, *, orientation_pool: str = "max", **layers: Unpack[LayerOptions]) -> Net:
    """A copy of `net` whose convolutions are equivariant, with new weights in every layer that was replaced.

    It takes and returns tensors of the same shapes: rotating the image leaves numbers as they are and turns maps with
    it. Quarter turns are exact if Λ is divisible by 4 and strides end where they began (see `docs/equivariance.md`),
    as in a ResNet on 225×225 pixels.

    Args:
        net: any network that `torch.fx` can trace, of the layers listed in this module.
        orientations: Λ. Each channel is computed in all of them, so a narrower network is often enough.
        orientation_pool: "max" or "mean", where orientations end.
        layers: basis, init and engine of the convolutions.

    Raises:
        ValueError: with a line for each part that cannot be converted, and why.

    >>> plain = nn.Sequential(nn.Conv2d(3, 8, 5), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> replace_convs(plain, 8)
    Sequential(
      (0): LiftConv2d(3, 8, kernel_size=5, orientations=8, basis='bandlimited' K=[0, 2, 2], engine='auto')
      (1): BatchNorm3d(8, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
      (2): ReLU()
      (3): Sequential(
        (0): OrientationPool('max')
        (1): AdaptiveAvgPool2d(output_size=1)
      )
      (4): Flatten(start_dim=1, end_dim=-1)
    )
    """
    check_orientations(orientations)
    OrientationPool(orientation_pool)  # which checks the name
    survey = _Survey(net)
    made: dict[nn.Module, nn.Module] = {}
    for name, (module, flow) in survey.flows.items():
        try:
            new = counterpart(module, orientations, lift=flow is Flow.IMAGES, layers=layers, pool=orientation_pool)
        except NoCounterpartError as error:
            survey.note(name, str(error))
        else:
            if name in survey.last:
                new = nn.Sequential(new, OrientationPool(orientation_pool))
            made[module] = new.train(module.training)
    if survey.problems:
        lines = "".join(f"\n  {problem}" for problem in survey.problems)
        raise ValueError(f"cannot convert the {type(net).__name__}, obstacles: {len(survey.problems)}{lines}")
    copies = copy.deepcopy(net)
    for name, module in list(net.named_modules(remove_duplicate=False)):
        if module in made and name:
            copies.set_submodule(name, made[module])
    return made.get(net, copies)  # type: ignore[return-value]


class _Survey:
    """The inputs of each layer of a network, and the obstacles to a conversion."""

    def __init__(self, net: nn.Module) -> None:
        self.net = net if not _is_leaf(net) else nn.Sequential(net)
        self.flows: dict[str, tuple[nn.Module, Flow]] = {}  #: layers to be replaced, and what they get
        self.last: set[str] = set()  #: layers whose features the network returns
        self.problems: list[str] = []  #: places and reasons
        self._called: dict[nn.Module, Flow] = {}
        self._values: dict[fx.Node, Flow] = {}
        try:
            graph = fx.Tracer().trace(self.net)
        except Exception as error:  # whatever the network does with symbols in place of tensors
            self.note("", f"its forward cannot be traced: {' '.join(str(error).split())}")
            return
        for node in graph.nodes:
            self._values[node] = self._visit(node)
        for name, module in self.net.named_modules():
            if _is_leaf(module) and module not in self._called and next(module.parameters(), None) is not None:
                self.note(name, "forward does not call it")

    def note(self, name: str, reason: str) -> None:
        """Record why a module cannot be converted."""
        kind = type(self.net.get_submodule(name)).__name__
        problem = f"{name} ({kind}): {reason}" if name else f"the {kind} itself: {reason}"
        if problem not in self.problems:
            self.problems.append(problem)

    def _visit(self, node: fx.Node) -> Flow:
        """The kind of value that a node returns."""
        match node.op:
            case "placeholder":
                return Flow.IMAGES
            case "get_attr":
                value = operator.attrgetter(str(node.target))(self.net)
                return Flow.TENSOR if isinstance(value, Tensor) and value.numel() > 1 else Flow.OTHER
            case "call_module":
                return self._layer(node, str(node.target))
            case "output":
                for source in node.all_input_nodes:
                    self._returned(source)
                return Flow.OTHER
            case _:
                return self._function(node)

    def _inputs(self, node: fx.Node) -> list[Flow]:
        return [self._values[source] for source in node.all_input_nodes]

    def _layer(self, node: fx.Node, name: str) -> Flow:
        module, inputs = self.net.get_submodule(name), self._inputs(node)
        if len(inputs) != 1:
            self.note(name, f"it is called with {len(inputs)} tensors, expected 1")
            return Flow.POOLED
        flow = inputs[0]
        if self._called.setdefault(module, flow) is not flow:
            self.note(name, "it is used on features and elsewhere, where it would have to be another layer")
            return flow
        if flow in (Flow.POOLED, Flow.TENSOR, Flow.OTHER):
            return Flow.POOLED
        if flow is Flow.SHAPE:
            self.note(name, "it is called with a shape")
            return Flow.POOLED
        if isinstance(module, nn.Flatten | nn.Linear):
            kind = "features" if flow is Flow.FEATURES else "images"
            what = "flattens" if isinstance(module, nn.Flatten) else "acts on the columns of"
            self.note(name, f"it {what} {kind}, which depends on positions: pool to 1×1 before it")
            return Flow.POOLED
        if isinstance(module, nn.Conv2d) or flow is Flow.FEATURES:
            self.flows[name] = module, flow
        if is_global_pool(module):
            return Flow.POOLED
        return Flow.FEATURES if isinstance(module, nn.Conv2d) else flow

    def _returned(self, source: fx.Node) -> None:
        if self._values[source] is not Flow.FEATURES:
            return
        if source.op != "call_module" or len(source.users) != 1:
            self.note(_scope(source), "it returns features that are not those of its last layer alone")
            return
        if sum(node.target == source.target for node in source.graph.nodes) > 1:
            self.note(str(source.target), "the network returns its features and also uses it elsewhere")
        self.last.add(str(source.target))

    def _function(self, node: fx.Node) -> Flow:
        """What a function or method returns that `forward` calls."""
        inputs = set(self._inputs(node))
        if not inputs & {Flow.IMAGES, Flow.FEATURES, Flow.SHAPE}:
            return Flow.POOLED if Flow.POOLED in inputs else Flow.TENSOR if Flow.TENSOR in inputs else Flow.OTHER
        shape = self._shape(node)
        if shape is not None:
            return shape
        flow = _common(inputs)
        if flow is not None and _keeps_orientations(node):
            return flow
        called = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
        met = " and ".join(sorted(value.name.lower() for value in inputs - {Flow.OTHER}))
        kind = "a function" if node.op == "call_function" else "a method"
        self.note(_scope(node), f"its forward calls {kind} {called} on {met}{_advice(called)}")
        # As if it could be converted, to find what else cannot.
        return Flow.POOLED if flow is None or called in _REDUCING else flow

    def _shape(self, node: fx.Node) -> Flow | None:
        """Shapes of maps: batch and channels stay where they are, height and width do not."""
        if node.target == "size" and len(node.args) == 1 and not node.kwargs:
            return Flow.SHAPE
        if node.target is getattr and node.args[1] == "shape":
            return Flow.SHAPE
        if node.target is getattr and node.args[1] in ("device", "dtype"):
            return Flow.OTHER
        from_shape = node.target is operator.getitem and self._values[node.all_input_nodes[0]] is Flow.SHAPE
        if (from_shape or node.target == "size") and node.args[1] in (0, 1):
            return Flow.OTHER
        return None


def _is_leaf(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.nn") and not isinstance(module, nn.Sequential)


def _scope(node: fx.Node) -> str:
    """The path of the module whose forward made a node."""
    stack: dict[str, Any] = node.meta.get("nn_module_stack") or {}
    names = [path for path, *_ in stack.values()]
    return str(names[-1]) if names else ""


def _common(inputs: set[Flow]) -> Flow | None:
    """Images or features, if numbers that are not tensors are all that they meet."""
    met = inputs - {Flow.OTHER}
    return next(iter(met)) if met in ({Flow.IMAGES}, {Flow.FEATURES}) else None


def _dim(node: fx.Node) -> Any:
    """The axis along which a function acts that takes it as its second argument."""
    return node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)


def _keeps_orientations(node: fx.Node) -> bool:
    """Whether a function does to every orientation what it does to maps."""
    target: Any = node.target
    if target in CONCATENATIONS or target in _ALONG_CHANNELS:
        return bool(_dim(node) == 1)
    return target is F.dropout or target in (POINTWISE_METHODS if node.op == "call_method" else POINTWISE)


def _advice(called: str) -> str:
    if called in _LAYERS:
        return f": make it a layer, {_LAYERS[called]}"
    return ": pool to 1×1 before it" if called in _REDUCING else ""
