"""Where a network computes, and how it is put into evaluation for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

#: What `--device` takes: "auto" is the accelerator that is there, else the processor.
DEVICES = ("auto", "cpu", "cuda", "mps")


def choose_device(name: str = "auto") -> torch.device:
    """The device that a name stands for.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    if name not in DEVICES:
        raise ValueError(f"unknown device {name!r}, choose one of {list(DEVICES)}")
    if name == "cpu":
        return torch.device("cpu")
    there = torch.accelerator.current_accelerator(check_available=True)
    if name == "auto":
        return there or torch.device("cpu")
    if there is None or there.type != name:
        raise ValueError(f"device {name} is not available here: choose auto or cpu")
    return there


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Eval mode and no gradients inside; every module's own mode afterwards."""
    modes = {module: module.training for module in net.modules()}
    net.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        net.train(modes[net])
        for module, mode in modes.items():
            module.training = mode
