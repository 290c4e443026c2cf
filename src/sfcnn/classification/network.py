"""From settings to a network."""

from collections import OrderedDict
from dataclasses import replace

from torch import nn

from sfcnn.classification.config import ImagesConfig, ModelConfig
from sfcnn.models.classifier import BASELINE, BENCHMARK, ClassifierSizes, plain_twin, steerable_classifier
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
    """A classifier of images (B, C, H, W) → logits (B, classes), its weights from torch's generator.

    Channels and classes are those of `images`, whose classes must be known; by default those of grey digits.

    >>> from sfcnn.models import count_parameters
    >>> count_parameters(build_network(ModelConfig(network="benchmark")))
    2692220
    """
    images = images or ImagesConfig()
    if not images.class_names:
        raise ValueError("images.classes must name the classes of the folder: training writes them to config.yaml")
    sizes = network_sizes(config, images.side)
    ends = {"in_channels": images.channels or 1, "classes": len(images.class_names), "dropout": config.dropout}
    if config.kind == "steerable":
        layers = {"basis": config.basis, "init": config.init, "engine": config.engine}
        if isinstance(sizes, ResNetSizes):
            return steerable_resnet(sizes, config.orientations, **ends, **layers)  # type: ignore[arg-type]
        return steerable_classifier(sizes, config.orientations, **ends, **layers)  # type: ignore[arg-type]
    match = config.kind.removeprefix("plain-")
    if isinstance(sizes, ResNetSizes):
        net = resnet_twin(sizes, config.orientations, match, **ends)  # type: ignore[arg-type]
    else:
        net = plain_twin(sizes, config.orientations, match, **ends)  # type: ignore[arg-type]
    return _on_views(net, config) if config.views > 1 or config.mirrored_views else net


def _on_views(net: nn.Sequential, config: ModelConfig) -> nn.Sequential:
    """A plain classifier whose pooled features are those of several views of the image."""
    features, pool, head = net.children()
    pooled = ViewPool(
        nn.Sequential(features, pool), config.views, mirrored=config.mirrored_views, pool=config.view_pool
    )
    return nn.Sequential(OrderedDict({"features": pooled, "head": head}))
