"""Averages of the weights over the steps of a run, which early on do better than the weights of any single step."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel


def averaged_network(net: nn.Module, decay: float) -> AveragedModel:
    """A copy of a network whose state is the exponential moving average of the original's.

    The first update copies the state. The n-th one after that sets, with d_n = min(d, (1 + n) / (10 + n)),

        w̄ ← d_n w̄ + (1 − d_n) w

    so that the first steps, when the weights are far from their final values, are soon forgotten. The running
    statistics of batch norm are averaged likewise; counters are copied.

    `update_parameters(net)` adds the next step, `module` is the averaged network, and the state dict contains it with
    the number of updates.
    """

    def update(averages: Any, values: Any, updates: Tensor | int) -> None:
        n = int(updates)
        part = 1 - min(decay, (1 + n) / (10 + n))
        if averages[0].is_floating_point() or averages[0].is_complex():
            torch._foreach_lerp_(averages, values, part)
        else:
            torch._foreach_copy_(averages, values)

    averaged = AveragedModel(net, multi_avg_fn=update, use_buffers=True)
    averaged.requires_grad_(False)
    averaged.eval()
    return averaged
