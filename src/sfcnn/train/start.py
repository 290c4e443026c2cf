"""Start training from trained weights: those of a pretrained network or of another run.

Tensors are copied by name. A network for other classes has a last layer of another shape, which keeps its initial
weights; everything else must fit: the settings of the model, the channels of the images and all shapes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from torch import Tensor, nn

from sfcnn.io.names import find_run
from sfcnn.io.runs import read_best, read_task
from sfcnn.io.settings import make_settings

_HEAD = "head"  # the part of every network whose last layer depends on the classes
_BASIS = "_extra_state"  # of a steerable layer, not one of its weights


class Started(NamedTuple):
    """What a network has from the one that it started from."""

    name: str  #: of that network
    loaded: int  #: number of tensors
    tensors: int  #: number of all tensors of the network
    new: tuple[str, ...]  #: its layers or parts that keep their initial weights
    dropped: tuple[str, ...]  #: parts of the other network that this one does not have

    def __str__(self) -> str:
        """One line for the user.

        >>> print(Started("mnist-rot", 48, 54, ("head.8", "head.9"), ()))
        started from mnist-rot: 48 of 54 tensors; new: head.8, head.9
        """
        count = f"{self.loaded} of {self.tensors}" if self.new else f"all {self.tensors}"
        parts = [f"started from {self.name}: {count} tensors"]
        parts += [f"new: {', '.join(self.new)}"] if self.new else []
        parts += [f"dropped: {', '.join(self.dropped)}"] if self.dropped else []
        return "; ".join(parts)


@dataclass(frozen=True)
class Start:
    """A trained network to start from."""

    name: str  #: as given in the settings
    config: Any  #: the settings it was trained with
    weights: Mapping[str, Tensor]  #: its state dict, of any precision

    def check_settings(self, config: Any, free: Collection[str], images: Collection[str] = ()) -> None:
        """Raise unless the start network fits the settings of a run.

        The model must be the same, except for the settings in `free`, and of the images those in `images` and the
        channels.
        """
        for setting in fields(config.model):
            ours, theirs = getattr(config.model, setting.name), getattr(self.config.model, setting.name)
            if setting.name not in free and ours != theirs:
                raise ValueError(
                    f"cannot start from {self.name}: model.{setting.name} is {ours}, but {theirs} there; leave it out, "
                    f"or in Python use model=sfcnn.load({self.name!r}).config.model"
                )
        for name in images:
            ours, theirs = getattr(config.images, name), getattr(self.config.images, name)
            if ours != theirs:
                raise ValueError(f"cannot start from {self.name}: images.{name} is {ours}, set it to {theirs} as there")
        found, expected = (settings.images.channels or 1 for settings in (config, self.config))
        if found != expected:
            raise ValueError(
                f"cannot start from {self.name}: it takes images with {_channels(expected)}, got {_channels(found)}; "
                f"convert them with images.channels {expected}"
            )

    def load(self, net: nn.Module, replaced: Collection[str] = ()) -> Started:
        """Copy the weights into a network, in place.

        Layers of its head keep their initial weights if they have another shape, and so do the parts named in
        `replaced`, which either network may lack.
        """
        own: dict[str, Tensor] = {name: tensor for name, tensor in net.state_dict().items() if not _is_basis(name)}
        given = {name: tensor for name, tensor in self.weights.items() if not _is_basis(name)}
        resized = {
            _layer(name)
            for name, tensor in own.items()
            if _part(name) == _HEAD and name in given and given[name].shape != tensor.shape
        }
        kept = [name for name in own if _layer(name) in resized or _part(name) in replaced]
        loaded = [name for name in own if name not in kept]
        dropped = [name for name in given if name not in own]
        for name in [*loaded, *(name for name in dropped if _part(name) not in replaced)]:
            ours, theirs = _shape(own, name), _shape(given, name)
            if ours != theirs:
                raise ValueError(
                    f"cannot start from {self.name}: its {name} is {theirs}, this network's is {ours}; use the model "
                    "settings and the size of images that it was trained with"
                )
        try:
            net.load_state_dict({**net.state_dict(), **self._state(loaded)})
        except (RuntimeError, TypeError, AttributeError) as error:
            reason = " ".join(str(error).split())[:300]
            raise ValueError(f"cannot start from {self.name}, whose weights do not fit: {reason}") from error
        new = (_part(name) if _part(name) in replaced else _layer(name) for name in kept)
        return Started(self.name, len(loaded), len(own), _unique(new), _unique(map(_part, dropped)))

    def _state(self, loaded: Collection[str]) -> dict[str, Tensor]:
        """The tensors to load, and the bases that they belong to, which are compared with the network's."""
        layers = {_layer(name) for name in loaded}
        bases = {name for name in self.weights if _is_basis(name) and _layer(name) in layers}
        return {name: self.weights[name] for name in (*loaded, *bases)}


def read_start(config: Any) -> Start:
    """Read the network that the settings of a run name in `start`; it must have been trained for the same task."""
    directory = find_run(config.start)
    settings = make_settings(type(config), read_task(directory, config.task))
    weights = read_best(directory)
    if not all(isinstance(tensor, Tensor) for tensor in weights.values()):
        raise ValueError(f"{directory / 'best.safetensors'} does not hold the weights of a network")
    return Start(config.start, settings, weights)


def _part(name: str) -> str:
    return name.partition(".")[0]


def _layer(name: str) -> str:
    return name.rpartition(".")[0]


def _is_basis(name: str) -> bool:
    return name.endswith(_BASIS)


def _shape(tensors: Mapping[str, Tensor], name: str) -> str:
    return str(tuple(tensors[name].shape)) if name in tensors else "missing"


def _channels(count: int) -> str:
    return "1 channel (grey)" if count == 1 else f"{count} channels (RGB)"


def _unique(names: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
