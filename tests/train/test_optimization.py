"""The learning rate by its closed form, the elastic net against the formula λ(‖w‖₁ + ‖w‖²)."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from sfcnn.classification.config import ModelConfig
from sfcnn.classification.network import build_network
from sfcnn.nn import GroupConv2d, LiftConv2d
from sfcnn.train.config import OptimizationConfig
from sfcnn.train.optimization import ElasticNet, learning_rate, make_optimizer


@given(rate=st.floats(1e-6, 10), decay=st.floats(0.1, 1), decay_from=st.integers(1, 50), epoch=st.integers(0, 60))
def test_the_rate_is_constant_and_then_falls_from_the_named_epoch_on(
    rate: float, decay: float, decay_from: int, epoch: int
) -> None:
    config = OptimizationConfig(learning_rate=rate, decay=decay, decay_from=decay_from)
    expected = rate
    for number in range(1, epoch + 2):  # the epochs so far, counted from 1
        expected *= decay if number >= decay_from else 1
    assert learning_rate(config, epoch) == pytest.approx(expected, rel=1e-9)


def test_within_an_epoch_the_exponential_rate_stays() -> None:
    assert len({learning_rate(OptimizationConfig(), 20, done / 10) for done in range(10)}) == 1


@given(rate=st.floats(1e-6, 10), epochs=st.integers(1, 50), data=st.data())
def test_the_cosine_falls_to_zero_over_all_epochs(rate: float, epochs: int, data: st.DataObject) -> None:
    config = OptimizationConfig(learning_rate=rate, epochs=epochs, schedule="cosine")
    assert learning_rate(config, 0) == rate
    epoch, done = data.draw(st.integers(0, epochs - 1)), data.draw(st.floats(0, 0.99))
    half = math.pi * (epoch + done) / epochs / 2
    assert learning_rate(config, epoch, done) == pytest.approx(rate * math.cos(half) ** 2, rel=1e-6, abs=1e-12)
    assert learning_rate(config, epochs) == pytest.approx(0, abs=1e-12)
    assert learning_rate(config, epoch, done) > learning_rate(config, epoch, done + 0.01)


def test_the_paper_s_rates() -> None:
    rates = [learning_rate(OptimizationConfig(), epoch) for epoch in range(40)]
    assert rates[:14] == [0.015] * 14  # epochs 1 to 14
    assert rates[14] == pytest.approx(0.015 * 0.8)  # epoch 15
    assert rates[39] == pytest.approx(0.015 * 0.8**26)


class Net(nn.Module):
    """One of every kind of layer, each with all the parameters it can have."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = LiftConv2d(1, 2, 3, 4, bias=True)
        self.group = GroupConv2d(2, 2, 3, 4, bias=True)
        self.plain = nn.Conv2d(2, 3, 3)
        self.norms = nn.ModuleList([nn.BatchNorm1d(4), nn.BatchNorm2d(3), nn.BatchNorm3d(2)])
        self.dense = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn_like(parameter))


@pytest.mark.parametrize(("conv", "dense"), [(0.25, 0.5), (0.0, 0.5), (0.25, 0.0), (1e-7, 1e-8)])
def test_the_penalty_and_its_gradient_are_the_formula_s(conv: float, dense: float) -> None:
    net = Net()
    convolutions: list[Tensor] = [net.lift.weight, net.group.weight, net.plain.weight]
    layers: list[Any] = [net.dense[0].weight, net.dense[2].weight]
    strengths: dict[Tensor, float] = dict.fromkeys(convolutions, conv)
    strengths.update(dict.fromkeys(layers, dense))
    penalty = ElasticNet(net, OptimizationConfig(elastic_conv=conv, elastic_dense=dense))()
    expected = sum(
        strength * (weight.detach().double().abs() + weight.detach().double() ** 2).sum()
        for weight, strength in strengths.items()
    )
    assert float(penalty.detach()) == pytest.approx(float(expected), rel=1e-5)
    penalty.backward()
    for name, parameter in net.named_parameters():
        strength = strengths.get(parameter, 0.0)  # none on biases and on batch norm
        if strength == 0:
            assert parameter.grad is None, name
        else:
            torch.testing.assert_close(parameter.grad, strength * (parameter.sign() + 2 * parameter))


def test_no_strength_is_no_penalty_and_no_gradient() -> None:
    net = Net()
    penalty = ElasticNet(net, OptimizationConfig(elastic_conv=0, elastic_dense=0))()
    assert float(penalty) == 0
    assert not penalty.requires_grad
    loss = net.plain.weight.sum() + penalty  # as it is used
    loss.backward()
    torch.testing.assert_close(net.plain.weight.grad, torch.ones_like(net.plain.weight))


@pytest.mark.parametrize("kind", ["steerable", "plain-channels"])
def test_every_weight_of_the_networks_is_counted(kind: str) -> None:
    """All parameters but those of batch norm: the networks' layers have no biases."""
    net = build_network(ModelConfig(kind=kind, orientations=2, width=0.1))
    ElasticNet(net, OptimizationConfig())().backward()
    norms = [module for module in net.modules() if "BatchNorm" in type(module).__name__]
    left_out = {parameter for parameter in net.parameters() if parameter.grad is None}
    assert left_out == {parameter for norm in norms for parameter in norm.parameters()}


def test_the_penalty_follows_the_weights() -> None:
    net = Net()
    penalty = ElasticNet(net, OptimizationConfig(elastic_conv=1, elastic_dense=1))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        net.plain.weight[0, 0, 0, 0] = -3
    assert penalty().item() == 12


@given(rate=st.floats(1e-6, 10), epochs=st.integers(1, 50), data=st.data())
def test_the_linear_rate_falls_to_zero(rate: float, epochs: int, data: st.DataObject) -> None:
    config = OptimizationConfig(learning_rate=rate, epochs=epochs, schedule="linear")
    epoch, done = data.draw(st.integers(0, epochs - 1)), data.draw(st.floats(0, 0.99))
    assert learning_rate(config, epoch, done) == pytest.approx(rate * (epochs - epoch - done) / epochs, rel=1e-6)
    assert learning_rate(config, 0) == rate
    assert learning_rate(config, epochs) == 0


@pytest.mark.parametrize(("epochs", "steps"), [(10, 20), (7, 13), (1, 50)])
def test_one_cycle_is_torch_s(epochs: int, steps: int) -> None:
    """The oracle counts whole steps: its rise ends at step 0.2 n − 1, its fall at step n − 1."""
    config = OptimizationConfig(learning_rate=0.02, epochs=epochs, schedule="one-cycle")
    count = epochs * steps
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 1)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 0.02, count + 1, pct_start=(0.2 * count + 1) / (count + 1), div_factor=10, final_div_factor=100
    )
    for step in range(count):
        ours = learning_rate(config, step // steps, step % steps / steps)
        assert ours == pytest.approx(theirs.get_last_lr()[0], rel=1e-6)
        optimizer.step()
        theirs.step()


def test_adam_is_torch_s_and_adamw_decays_weights_only() -> None:
    net = Net()
    assert type(make_optimizer(net, OptimizationConfig())) is torch.optim.Adam
    config = OptimizationConfig(optimizer="adamw", weight_decay=0.5, learning_rate=0.1)
    optimizer = make_optimizer(net, config)
    assert type(optimizer) is torch.optim.AdamW
    before = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in net.named_parameters():
        decayed = name.endswith("weight") and "norms" not in name
        torch.testing.assert_close(parameter.detach(), before[name] * (0.95 if decayed else 1), msg=name)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(before)
