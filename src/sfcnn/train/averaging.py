"""Averages of the weights over the steps of a run, which do better than the weights of any one step early on."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel


def averaged_network(net: nn.Module, decay: float) -> AveragedModel:
    """A copy of a network whose state is the exponential moving average of the other's.

    The first update copies it. The n-th one after that sets, with d_n = min(d, (1 + n) / (10 + n)),

        w̄ ← d_n w̄ + (1 − d_n) w

    so that the first steps, which are far from where the weights will be, are soon forgotten. Running statistics of
    batch norm are averaged likewise, counters are copied.

    `update_parameters(net)` takes the next step in, `module` is the averaged network, and the state dict holds it with
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
