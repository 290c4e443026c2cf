"""A device has a name; evaluation leaves a network as it was."""

import pytest
import torch
from torch import nn

from sfcnn.devices import DEVICES, choose_device, evaluating


def test_every_device_is_there_or_refused_in_one_line() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device().type in DEVICES
    for name in set(DEVICES) - {"auto", "cpu", choose_device().type}:
        with pytest.raises(ValueError, match=f"^device {name} is not available here: choose auto or cpu$"):
            choose_device(name)
    with pytest.raises(ValueError, match=r"^unknown device 'tpu', choose one of \['auto', 'cpu', 'cuda', 'mps'\]$"):
        choose_device("tpu")


def test_every_module_gets_its_mode_and_gradients_back() -> None:
    net = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    net[1].eval()  # as for a part that is not to learn
    modes = [module.training for module in net.modules()]
    with evaluating(net):
        assert not any(module.training for module in net.modules())
        assert not torch.is_grad_enabled()
    assert [module.training for module in net.modules()] == modes
    assert torch.is_grad_enabled()
    with pytest.raises(RuntimeError), evaluating(net):
        net(torch.ones(3))  # of the wrong shape
    assert [module.training for module in net.modules()] == modes
