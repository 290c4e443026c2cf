"""The averaged network against the formula, and what a run keeps of it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from sfcnn.classification.config import ClassificationConfig, ImagesConfig, ModelConfig
from sfcnn.io.state import read_state
from sfcnn.train.averaging import averaged_network
from sfcnn.train.config import OptimizationConfig
from sfcnn.train.run import flushing_denormals
from train.conftest import splits, train


@pytest.mark.parametrize("decay", [0.3, 0.9])
def test_parameters_and_statistics_are_averaged_and_counters_copied(decay: float, dtype: torch.dtype) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(dtype)
    averaged = averaged_network(net, decay)
    assert not any(parameter.requires_grad for parameter in averaged.parameters())
    expected: dict[str, torch.Tensor] = {}
    for n in range(20):
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.add_(torch.randn_like(parameter))
        net(torch.randn(5, 3, dtype=dtype))
        part = min(decay, (1 + n) / (10 + n))  # the first values are taken as they are
        for name, value in net.state_dict().items():
            floating = value.is_floating_point() and n > 0
            expected[name] = part * expected[name] + (1 - part) * value if floating else value.clone()
        averaged.update_parameters(net)
    torch.testing.assert_close(dict(averaged.module.state_dict()), expected)
    assert not averaged.training
    assert net.training


CONFIG = ClassificationConfig(
    model=ModelConfig("benchmark", orientations=2, width=0.1),
    images=ImagesConfig("digits", join_validation=True),
    optimization=OptimizationConfig(epochs=2, batch_size=8, averaging=0.9),
)


def test_the_averaged_weights_are_validated_and_kept(tmp_path: Path) -> None:
    plain = replace(CONFIG, optimization=replace(CONFIG.optimization, averaging=0.0))
    results = [train(config, splits(), tmp_path / name) for config, name in ((CONFIG, "with"), (plain, "without"))]
    states = [read_state(max((tmp_path / name / "checkpoints").iterdir())) for name in ("with", "without")]
    torch.testing.assert_close(states[0]["model"], states[1]["model"], rtol=0, atol=0)  # it does not change training
    assert states[1]["averaged"] is None
    best = [read_state(tmp_path / name / "best.safetensors")["model"] for name in ("with", "without")]
    for name, value in best[0].items():
        assert torch.equal(value, states[0]["averaged"][f"module.{name}"])
    torch.testing.assert_close(best[1], states[1]["model"], rtol=0, atol=0)
    assert not torch.equal(best[0]["head.0.weight"], best[1]["head.0.weight"])
    losses = [state["progress"]["history"][-1]["validation_loss"] for state in states]
    assert losses[0] != losses[1]
    assert results[0].parameters == results[1].parameters


def test_denormal_numbers_are_zero_within_and_numbers_after() -> None:
    tiny = torch.full((4,), 2.0**-140)
    assert bool((tiny * 1.0 > 0).all())
    with flushing_denormals():
        assert bool((tiny * 1.0 == 0).all())
        with flushing_denormals():
            pass
        assert bool((tiny * 1.0 == 0).all())
    assert bool((tiny * 1.0 > 0).all())
