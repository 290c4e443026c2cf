"""How a model's features are represented in its plain network."""

from dataclasses import dataclass, replace
from typing import Any

from torch import fx


@dataclass(frozen=True)
class Features:
    """Features (B, C, Λ, H, W) of the model, which are maps (B, C·Λ, H, W) in the plain network."""

    maps: fx.Proxy
    channels: int
    orientations: int

    def restored(self) -> fx.Proxy:
        """The features in their full shape, (B, C, Λ, H, W)."""
        return self.maps.unflatten(1, (self.channels, self.orientations))

    def like(self, maps: fx.Proxy) -> "Features":
        """Other maps with the same channels and orientations."""
        return replace(self, maps=maps)

    def matches(self, other: "Features") -> bool:
        """Whether channels and orientations are the same."""
        return (self.channels, self.orientations) == (other.channels, other.orientations)


def restore(value: Any) -> Any:
    """A value with all features in it in their full shape; a NamedTuple becomes a plain tuple."""
    if isinstance(value, Features):
        return value.restored()
    if isinstance(value, tuple | list):
        return (tuple if isinstance(value, tuple) else list)(map(restore, value))
    if isinstance(value, dict):
        return {name: restore(part) for name, part in value.items()}
    return value


def alike(values: tuple[Any, ...]) -> Features | None:
    """The first features among `values` if all features have the same sizes and the rest are numbers, else None."""
    features = [value for value in values if isinstance(value, Features)]
    others = [value for value in values if not isinstance(value, Features)]
    if not features or not all(value is None or isinstance(value, int | float | str) for value in others):
        return None
    return features[0] if all(map(features[0].matches, features)) else None
