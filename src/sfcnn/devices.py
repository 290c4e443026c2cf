"""Choose a device, and switch a network temporarily to evaluation."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

#: Values of `--device`: "auto" is the available accelerator, or else the CPU.
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
    """Eval mode without gradients inside the context; every module's previous mode is restored afterwards."""
    modes = {module: module.training for module in net.modules()}
    net.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        net.train(modes[net])
        for module, mode in modes.items():
            module.training = mode
