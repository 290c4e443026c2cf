"""Build a network from settings."""

from collections import OrderedDict
from dataclasses import replace
from typing import Any

from torch import nn

from sfcnn.classification.config import ImagesConfig, ModelConfig
from sfcnn.models.classifier import (
    BASELINE,
    BENCHMARK,
    ClassifierSizes,
    plain_twin,
    smallest_side,
    steerable_classifier,
)
from sfcnn.models.resnet import RESNET18, RESNET34, SMALL, ResNetSizes, resnet_twin, steerable_resnet
from sfcnn.models.twins import scale_channels
from sfcnn.models.views import ViewPool

_SIZES: dict[str, ClassifierSizes | ResNetSizes] = {
    "baseline": BASELINE,
    "benchmark": BENCHMARK,
    "resnet18": RESNET18,
    "resnet34": RESNET34,
    "small-resnet": SMALL,
}


def network_sizes(config: ModelConfig, side: int = 28) -> ClassifierSizes | ResNetSizes:
    """The sizes of a network for images of `side` pixels, with all convolutions `width` times as wide."""
    sizes = _SIZES[config.network]
    if isinstance(sizes, ResNetSizes):
        return sizes.wider(config.width).for_side(side)
    return replace(sizes, channels=tuple(scale_channels(channels, config.width) for channels in sizes.channels))


def build_network(config: ModelConfig, images: ImagesConfig | None = None) -> nn.Sequential:
    """A classifier of images (B, C, H, W) → logits (B, classes), initialised with torch's generator.

    Channels and classes are those of `images`, whose classes must be known; by default those of grey digits.

    >>> from sfcnn.models import count_parameters
    >>> count_parameters(build_network(ModelConfig(network="benchmark")))
    2692220
    """
    images = images or ImagesConfig()
    if not images.class_names:
        raise ValueError("images.classes must name the classes of the folder: training writes them to config.yaml")
    sizes = network_sizes(config, images.side)
    ends: dict[str, Any] = {
        "in_channels": images.channels or 1,
        "classes": len(images.class_names),
        "dropout": config.dropout,
        "reflections": config.reflections,
    }
    layers: dict[str, Any] = {"basis": config.basis, "init": config.init, "engine": config.engine}
    match = config.kind.removeprefix("plain-")
    if isinstance(sizes, ResNetSizes):
        if config.kind == "steerable":
            return steerable_resnet(sizes, config.orientations, **ends, **layers)
        return _on_views(resnet_twin(sizes, config.orientations, match, **ends), config)
    padding = config.resolved().padding
    ends |= {"padding": padding, "border": config.border, "pool": config.pool}
    if images.side < smallest_side(sizes, padding):
        raise ValueError(
            f"images of {images.side} pixels are too small: the network {config.network!r} with padding {padding!r} "
            f"needs {smallest_side(sizes, padding)}. Set model.padding to 'same' or enlarge images.size"
        )
    if config.kind == "steerable":
        return steerable_classifier(sizes, config.orientations, restrict_after=config.restrict_after, **ends, **layers)
    return _on_views(plain_twin(sizes, config.orientations, match, **ends), config)


def _on_views(net: nn.Sequential, config: ModelConfig) -> nn.Sequential:
    """Pool the features of a plain classifier over several views of the image, if there are several."""
    if config.views == 1 and not config.mirrored_views:
        return net
    features, pool, head = net.children()
    pooled = ViewPool(
        nn.Sequential(features, pool), config.views, mirrored=config.mirrored_views, pool=config.view_pool
    )
    return nn.Sequential(OrderedDict({"features": pooled, "head": head}))
