"""From settings to a network."""

from dataclasses import replace

from torch import nn

from sfcnn.classification.config import ImagesConfig, ModelConfig
from sfcnn.models import mnist_baseline, mnist_baseline_cnn
from sfcnn.models.classifier import BASELINE, BENCHMARK, ClassifierSizes
from sfcnn.models.twins import scale_channels


def network_sizes(config: ModelConfig) -> ClassifierSizes:
    """The sizes of a table of App. C.1 with all convolutions `width` times as wide."""
    sizes = {"baseline": BASELINE, "benchmark": BENCHMARK}[config.network]
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
    sizes, channels, classes = network_sizes(config), images.channels or 1, len(images.class_names)
    if config.kind == "steerable":
        return mnist_baseline(
            config.orientations,
            sizes,
            in_channels=channels,
            classes=classes,
            basis=config.basis,
            init=config.init,
            engine=config.engine,
            dropout=config.dropout,
            border=config.border,
            pool=config.pool,
        )
    match = config.kind.removeprefix("plain-")
    return mnist_baseline_cnn(
        match,
        config.orientations,
        sizes,
        in_channels=channels,
        classes=classes,
        dropout=config.dropout,
        border=config.border,
        pool=config.pool,
    )
