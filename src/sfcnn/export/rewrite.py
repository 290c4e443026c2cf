"""From the graph of a model to the graph of a plain network.

Features (B, C, Λ, H, W) become maps (B, C·Λ, H, W), and layers and functions become their equivalents on maps. Anything
without an equivalent (a function in the model's own code, say a sum over orientations) gets the features in their full
shape (`unflatten` is a view), so any mixture of layers is correct, and networks of the usual layers have only 4-D
tensors.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.proxy import GraphAppendingTracer

from sfcnn.export.layers import NOTHING, on_maps, plain_convolution
from sfcnn.export.shapes import Features, alike, restore
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
)
from sfcnn.nn.borders import disk, max_blur_pool
from sfcnn.nn.functions import CONCATENATIONS, POINTWISE, POINTWISE_METHODS
from sfcnn.nn.pool import readout_angles
from sfcnn.subgroups import coset_indices


def rewrite(model: nn.Module, graph: fx.Graph) -> fx.GraphModule:
    """The plain network for a model and its graph; it reuses the model's layers, so pass a copy."""
    builder = _Builder(model)
    values: dict[fx.Node, Any] = {}
    for node in graph.nodes:
        arguments = fx.node.map_arg((node.args, dict(node.kwargs)), values.__getitem__)
        values[node] = builder.add(node, *arguments)
    plain = fx.GraphModule(nn.Module(), fx.Graph(), class_name="Plain")
    for name, part in builder.parts.items():
        if isinstance(part, nn.Module):
            plain.add_submodule(name, part)
        else:
            plain.register_buffer(name, part.detach())
    plain.graph = builder.graph
    plain.graph.eliminate_dead_code(is_impure_node=lambda node: _may_write(plain, node))
    plain.delete_all_unused_submodules()
    plain.recompile()
    return plain.eval().requires_grad_(False)


_WRITING = (operator.iadd, operator.imul, operator.isub, operator.itruediv, operator.setitem)


def _may_write(plain: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a node may change a tensor in place, or is needed even though its result is unused."""
    if node.op in ("placeholder", "output"):
        return True
    if node.op == "call_module":
        return bool(getattr(plain.get_submodule(str(node.target)), "inplace", False))
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or node.target in _WRITING or bool(node.kwargs.get("inplace")) or "out" in node.kwargs


class _Builder:
    """Adds the plain form of each node in turn to a new graph."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.graph = fx.Graph()
        self.tracer = GraphAppendingTracer(self.graph)
        self.parts: dict[str, nn.Module | Tensor] = {}  #: layers and tensors of the plain network by name
        self._modules = {name for name, _ in model.named_modules()}
        self._made: dict[tuple[str, int, int], str] = {}  #: names of created layers, by name and sizes

    def add(self, node: fx.Node, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The value of a node in the plain network."""
        target: Any = node.target
        match node.op:
            case "get_attr":
                return self._tensor(target, operator.attrgetter(target)(self.model))
            case "call_module":
                return self._layer(target, self.model.get_submodule(target), arguments, options)
            case "call_function":
                return self._function(target, arguments, options)
            case "call_method":
                return self._method(target, arguments, options)
            case _:  # placeholder and output
                return self._same(node.op, target, arguments, options)

    def _same(self, kind: str, target: Any, arguments: Any, options: Any) -> fx.Proxy:
        """The node unchanged, on features in their full shape."""
        return self.tracer.create_proxy(kind, target, restore(arguments), restore(options))

    def _put(self, name: str, part: nn.Module | Tensor) -> str:
        """Store a part under its name, or under a name derived from it if that is taken."""
        free, number = name, 0
        while free in self.parts and self.parts[free] is not part:
            number += 1
            free = f"{name}_{number}"
        self.parts[free] = part
        return free

    def _tensor(self, name: str, value: Any) -> fx.Proxy:
        if not isinstance(value, Tensor):
            raise ValueError(f"cannot export a model that passes its {type(value).__name__} {name!r} to a function")
        name = name.replace(".", "_")
        while name in self._modules:
            name += "_"
        return self.tracer.create_proxy("get_attr", self._put(name, value), (), {})

    def _call(self, name: str, make: Callable[[], nn.Module], maps: fx.Proxy, channels: int = 0, turns: int = 0) -> Any:
        """Call the layer `make()`, which is created once for each name, channels and orientations."""
        key = (name, channels, turns)
        if key not in self._made:
            layer = make()
            known = self.parts.get(name)
            same = known is not None and not layer.state_dict() and repr(known) == repr(layer)
            self._made[key] = name if same else self._put(name, layer)
        return self.tracer.create_proxy("call_module", self._made[key], (maps,), {})

    def _layer(self, name: str, layer: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        given = (*arguments, *options.values())
        value = given[0] if len(given) == 1 else None
        match layer:
            case LiftConv2d():
                return self._convolution(name, layer, restore(value))
            case GroupConv2d():
                return self._convolution(name, layer, _group_input(name, layer, value))
            case OrientationPool():
                features = restore(value)
                return features.amax(2) if layer.kind == "max" else features.mean(2)
            case OrientationReadout():
                return self._readout(name, layer, value)
            case Restrict():
                return self._restriction(name, layer, value)
            case Crop():
                return _crop(layer.margin, value)
            case DiskMask():
                return _on_each_map(lambda maps: maps * disk(maps, layer.radius, layer.edge), value)
            case MaxBlurPool():
                return self._max_blur_pool(name, layer, value)
            case BackgroundNorm():
                return self._background_norm(name, layer, value)
        if isinstance(layer, NOTHING):
            return value
        if isinstance(value, Features):
            plain = on_maps(layer, value.channels, value.orientations)
            if plain is not None:
                sizes = value.channels, value.orientations
                return value.like(self._call(name, lambda: plain, value.maps, *sizes))
        return self._same("call_module", self._put(name, layer), arguments, options)

    def _convolution(self, name: str, layer: LiftConv2d | GroupConv2d, maps: fx.Proxy) -> Features:
        result = self._call(name, lambda: plain_convolution(layer), maps)
        return Features(result, layer.out_channels, layer.group_order)

    def _restriction(self, name: str, layer: Restrict, value: Any) -> Features:
        """Reorder the maps; the order is unchanged if only the reflections are dropped."""
        if not isinstance(value, Features):
            raise ValueError(f"cannot export {name}: a layer before it must determine its number of orientations")
        options = {"reflections": layer.reflections, "keep_reflections": layer.keep_reflections}
        index = coset_indices(value.orientations, layer.orientations, **options)
        cosets, order = index.shape
        positions = (torch.arange(value.channels)[:, None] * value.orientations + index.flatten()).flatten()
        maps: Any = value.maps
        if not torch.equal(positions, torch.arange(len(positions))):
            maps = maps[:, self._tensor(f"{name}.order", positions)]
        return Features(maps, value.channels * cosets, order)

    def _max_blur_pool(self, name: str, layer: MaxBlurPool, value: Any) -> Any:
        taps: Any = self._tensor(f"{name}.taps", layer.taps)
        if isinstance(value, Features):
            return value.like(max_blur_pool(value.maps, taps))  # type: ignore[arg-type]
        return max_blur_pool(value.flatten(1, -3), taps).unflatten(1, value.shape[1:-2])

    def _background_norm(self, name: str, layer: BackgroundNorm, value: Any) -> Any:
        """Batch norm as a layer, which can be folded, and ReLU(N(0)) as a constant."""
        normalized = self._layer(f"{name}.norm", layer.norm, (value,), {})
        with torch.no_grad():
            constant = layer.background()
        if isinstance(normalized, Features):
            constant = constant.repeat_interleave(normalized.orientations)[:, None, None]
        else:
            constant = constant.view(-1, *(1,) * layer.dimensions)
        background: Any = self._tensor(f"{name}.background", constant)
        return _on_each_map(lambda maps: torch.relu(maps) - background, normalized)

    def _readout(self, name: str, layer: OrientationReadout, value: Any) -> OrientedResponse:
        """The equations of `OrientationReadout`, with the angles as constants if Λ is known."""
        features = restore(value)
        period = 2 * math.pi / layer.symmetry
        if isinstance(value, Features):
            reference = next((p for p in self.model.parameters()), torch.empty(0))
            angles: Any = self._tensor(
                f"{name}.angles", readout_angles(value.orientations, layer.reflections).to(reference)
            )
        else:
            # One full circle of Λ angles, or two with reflections: the second, θ_a + π, starts at π.
            size = features.shape[2]
            count = size // 2 if layer.reflections else size
            angles = (torch.arange(size, dtype=torch.float64) * (2 * math.pi / count)).to(features)
            if layer.reflections:
                angles = angles + math.pi * (torch.arange(size) >= count).to(features)
        if layer.kind == "argmax":
            largest = features.max(2)
            return OrientedResponse(largest[0], torch.remainder(angles[largest[1]], period))
        share = torch.softmax(features / layer.temperature, dim=2)
        turned = (layer.symmetry * angles)[:, None, None]
        phase = torch.atan2((share * turned.sin()).sum(2), (share * turned.cos()).sum(2))
        return OrientedResponse((share * features).sum(2), torch.remainder(phase / layer.symmetry, period))

    def _function(self, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if isinstance(function, type) and issubclass(function, tuple):
            return function(*arguments, **options)
        if function in (getattr, operator.getitem) and isinstance(arguments[0], tuple):
            return function(*arguments)  # a part of a NamedTuple, by name or number
        result = None
        if function in POINTWISE:
            result = self._pointwise("call_function", function, arguments, options)
        elif function in CONCATENATIONS:
            result = self._concatenation(*arguments, **options)
        if result is not None:
            return result
        root = (getattr(function, "__module__", None) or "torch").partition(".")[0]
        if root not in ("torch", "operator", "_operator", "builtins", "math"):
            raise ValueError(f"cannot export a model that calls {function.__module__}.{function.__name__}")
        return self._same("call_function", function, arguments, options)

    def _concatenation(self, tensors: Any = (), dim: Any = 0, **options: Any) -> Features | None:
        """Features concatenated along channels, None for anything else."""
        if options or dim not in (1, -4) or not all(isinstance(part, Features) for part in tensors):
            return None
        if len({part.orientations for part in tensors}) != 1:
            return None
        maps = self.tracer.create_proxy("call_function", torch.cat, ([part.maps for part in tensors], 1), {})
        return Features(maps, sum(part.channels for part in tensors), tensors[0].orientations)

    def _method(self, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        result = self._pointwise("call_method", name, arguments, options) if name in POINTWISE_METHODS else None
        return self._same("call_method", name, arguments, options) if result is None else result

    def _pointwise(
        self, kind: str, target: Any, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Features | None:
        """The function on maps, None unless all features have the same sizes and all other arguments are numbers."""
        first = alike((*arguments, *options.values()))
        if first is None:
            return None
        maps = tuple(value.maps if isinstance(value, Features) else value for value in arguments)
        named = {name: value.maps if isinstance(value, Features) else value for name, value in options.items()}
        return first.like(self.tracer.create_proxy(kind, target, maps, named))


def _group_input(name: str, layer: GroupConv2d, value: Any) -> fx.Proxy:
    """The input maps of a group convolution."""
    if not isinstance(value, Features):
        return value.flatten(1, 2)
    have, want = (value.channels, value.orientations), (layer.in_channels, layer.group_order)
    if have != want:
        raise ValueError(f"{name} expects features with (C, Λ) = {want}, but the layers before it produce {have}")
    return value.maps


def _on_each_map(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function that acts on each map (…, H, W) in the same way."""
    return value.like(function(value.maps)) if isinstance(value, Features) else function(value)


def _crop(margin: int, value: Any) -> Any:
    """The inner part of maps (…, H, W), regardless of the leading axes."""
    if margin == 0:
        return value
    inner = (..., slice(margin, -margin), slice(margin, -margin))
    if isinstance(value, Features):
        maps: Any = value.maps
        return value.like(maps[inner])
    return value[inner]
