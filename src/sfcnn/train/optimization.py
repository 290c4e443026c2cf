"""How weights are updated: the learning rate of each epoch and the elastic net (App. C.1)."""

import math

import torch
from torch import Tensor, nn

from sfcnn.nn import GroupConv2d, LiftConv2d
from sfcnn.train.config import OptimizationConfig

_CONVOLUTIONS = (LiftConv2d, GroupConv2d, nn.Conv2d)


def learning_rate(config: OptimizationConfig, epoch: int, done: float = 0.0) -> float:
    """η in an epoch counted from 0, of which the part `done` in [0, 1) is over.

    - exponential: η₀, then falling by `decay` per epoch from epoch `decay_from` (counted from 1) on;
    - cosine: η₀ (1 + cos πt) / 2 with t the part of all epochs that is over.

    >>> [round(learning_rate(OptimizationConfig(), epoch), 4) for epoch in (0, 13, 14, 15, 39)]
    [0.015, 0.015, 0.012, 0.0096, 0.0]
    >>> round(learning_rate(OptimizationConfig(schedule="cosine"), 20), 4)
    0.0075
    """
    if config.schedule == "cosine":
        return config.learning_rate * (1 + math.cos(math.pi * (epoch + done) / config.epochs)) / 2
    return config.learning_rate * config.decay ** max(0, epoch + 2 - config.decay_from)


class ElasticNet:
    """Σ λ(‖w‖₁ + ‖w‖²) over the weights of convolutions and of fully connected layers, each kind with its own λ."""

    def __init__(self, net: nn.Module, config: OptimizationConfig) -> None:
        self._terms: list[tuple[float, list[Tensor]]] = []
        for strength, kinds in ((config.elastic_conv, _CONVOLUTIONS), (config.elastic_dense, (nn.Linear,))):
            weights = [module.weight for module in net.modules() if isinstance(module, kinds)]
            if strength > 0 and weights:
                self._terms.append((strength, weights))

    def __call__(self) -> Tensor:
        """The penalty, to be added to the loss."""
        total = torch.zeros(())
        for strength, weights in self._terms:
            for weight in weights:
                total = total + strength * (weight.abs().sum() + weight.square().sum())
        return total
