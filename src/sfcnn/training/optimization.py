"""How weights are updated: the learning rate of each epoch and the elastic net (App. C.1)."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from sfcnn.nn import GroupConv2d, LiftConv2d
from sfcnn.training.config import OptimizationConfig

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


def check_adam(kept: dict[str, Any], optimizer: torch.optim.Optimizer) -> None:
    """Raise unless a kept state is one of an Adam with the same weights: it is used only at the next step."""
    groups, ours = kept["param_groups"], optimizer.state_dict()["param_groups"]
    if [group.keys() for group in groups] != [group.keys() for group in ours]:
        raise ValueError("its optimiser has other settings")
    for group, own in zip(groups, ours, strict=True):
        for name, value in own.items():
            same = group[name] == value if name == "params" else type(group[name]) is type(value)
            if not (same or isinstance(value, tuple)):  # which comes back as a list
                raise ValueError(f"its optimiser has {name} = {group[name]!r}")
        if not all(isinstance(beta, float) and 0 <= beta < 1 for beta in group["betas"]) or len(group["betas"]) != 2:
            raise ValueError(f"its optimiser has betas = {group['betas']!r}")
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    for index, moments in kept["state"].items():
        shapes = {name: tuple(moment.shape) for name, moment in moments.items()}
        if shapes != {"step": (), "exp_avg": tuple(weights[index].shape), "exp_avg_sq": tuple(weights[index].shape)}:
            raise ValueError("its optimiser belongs to other weights")


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
