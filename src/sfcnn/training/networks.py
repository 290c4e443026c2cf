"""From settings to a network."""

from dataclasses import replace

from torch import nn

from sfcnn.models import mnist_baseline, mnist_baseline_cnn
from sfcnn.models.classifier import BASELINE, BENCHMARK, ClassifierSizes
from sfcnn.models.plain import scale_channels
from sfcnn.training.config import ModelConfig


def network_sizes(config: ModelConfig) -> ClassifierSizes:
    """The sizes of a table of App. C.1 with all convolutions `width` times as wide."""
    sizes = {"baseline": BASELINE, "benchmark": BENCHMARK}[config.network]
    return replace(sizes, channels=tuple(scale_channels(channels, config.width) for channels in sizes.channels))


def build_network(config: ModelConfig) -> nn.Sequential:
    """A classifier of 28×28 digits: (B, 1, 28, 28) → logits (B, 10), its weights from torch's generator.

    >>> from sfcnn.models import count_parameters
    >>> count_parameters(build_network(ModelConfig(network="benchmark")))
    2692220
    """
    sizes = network_sizes(config)
    if config.kind == "steerable":
        return mnist_baseline(
            config.orientations,
            sizes,
            basis=config.basis,
            init=config.init,
            engine=config.engine,
            dropout=config.dropout,
        )
    return mnist_baseline_cnn(config.kind.removeprefix("plain-"), config.orientations, sizes, dropout=config.dropout)
