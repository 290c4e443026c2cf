"""The optimiser, the learning rate schedule and the elastic net (App. C.1)."""

import math

import torch
from torch import Tensor, nn

from sfcnn.nn import GroupConv2d, LiftConv2d
from sfcnn.train.config import OptimizationConfig

_CONVOLUTIONS = (LiftConv2d, GroupConv2d, nn.Conv2d)

# "one-cycle": the fraction of steps in which the rate rises, and where it starts and ends, relative to its peak.
_RISE, _START, _END = 0.2, 0.1, 0.001


def learning_rate(config: OptimizationConfig, epoch: int, done: float = 0.0) -> float:
    """η in an epoch counted from 0, of which the fraction `done` in [0, 1) is over.

    - exponential: η₀, multiplied by `decay` per epoch from epoch `decay_from` (counted from 1) on;
    - cosine: η₀ (1 + cos πt) / 2 where t is the fraction of all epochs that is over;
    - linear: η₀ (1 − t);
    - one-cycle: from η₀/10 up to η₀ at t = 1/5 and down to η₀/1000, each along half a cosine wave.

    >>> [round(learning_rate(OptimizationConfig(), epoch), 4) for epoch in (0, 13, 14, 15, 39)]
    [0.015, 0.015, 0.012, 0.0096, 0.0]
    >>> round(learning_rate(OptimizationConfig(schedule="cosine"), 20), 4)
    0.0075
    >>> one_cycle = OptimizationConfig(schedule="one-cycle", epochs=10, learning_rate=1)
    >>> [round(learning_rate(one_cycle, epoch), 3) for epoch in (0, 1, 2, 10)]
    [0.1, 0.55, 1.0, 0.001]
    """
    over = (epoch + done) / config.epochs
    if config.schedule == "cosine":
        return config.learning_rate * _half_wave(1, 0, over)
    if config.schedule == "linear":
        return config.learning_rate * (1 - over)
    if config.schedule == "one-cycle":
        rising = over < _RISE
        factor = _half_wave(_START, 1, over / _RISE) if rising else _half_wave(1, _END, (over - _RISE) / (1 - _RISE))
        return config.learning_rate * factor
    return config.learning_rate * config.decay ** max(0, epoch + 2 - config.decay_from)


def _half_wave(start: float, end: float, t: float) -> float:
    """From `start` at t = 0 to `end` at t = 1, flat at both."""
    return end + (start - end) * (1 + math.cos(math.pi * t)) / 2


def _weights(net: nn.Module, kinds: tuple[type[nn.Module], ...]) -> list[nn.Parameter]:
    return [module.weight for module in net.modules() if isinstance(module, kinds)]  # type: ignore[misc]


def make_optimizer(net: nn.Module, config: OptimizationConfig) -> torch.optim.Optimizer:
    """Adam on all parameters, or AdamW, which decays the weights of convolutions and fully connected layers only."""
    fused = all(parameter.device.type in ("cpu", "cuda") for parameter in net.parameters())  # one pass over all of them
    if config.optimizer == "adam":
        return torch.optim.Adam(net.parameters(), config.learning_rate, fused=fused)
    decayed = _weights(net, (*_CONVOLUTIONS, nn.Linear))
    known = set(decayed)
    others = [parameter for parameter in net.parameters() if parameter not in known]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW([group for group in groups if group["params"]], config.learning_rate, fused=fused)


class ElasticNet:
    """Σ λ(‖w‖₁ + ‖w‖²) over the weights of convolutions and of fully connected layers, each kind with its own λ."""

    def __init__(self, net: nn.Module, config: OptimizationConfig) -> None:
        self._terms: list[tuple[float, list[nn.Parameter]]] = []
        for strength, kinds in ((config.elastic_conv, _CONVOLUTIONS), (config.elastic_dense, (nn.Linear,))):
            weights = _weights(net, kinds)
            if strength > 0 and weights:
                self._terms.append((strength, weights))

    def __call__(self) -> Tensor:
        """The penalty, to be added to the loss."""
        total = torch.zeros(())
        for strength, weights in self._terms:
            for weight in weights:
                total = total + strength * (weight.abs().sum() + weight.square().sum())
        return total
