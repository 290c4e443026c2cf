import pytest
import torch

from sfcnn import GroupConv2d, LiftConv2d
from sfcnn.ops import ENGINE_CHOICES, ENGINES, Geometry, check_engine, choose_group_engine
from sfcnn.ops.cost import PRICES, Problem, fastest_engine, work


def problem(orientations: int, channels: int, size: int, batch: int) -> Problem:
    return Problem(batch, channels, channels, orientations, 18, size, size, Geometry(7, padding="same"))


@pytest.mark.parametrize("mode", ["training", "evaluation"])
def test_every_engine_has_a_price_for_each_kind_of_work(mode: str) -> None:
    amounts = work(problem(8, 16, 14, 4))
    assert set(PRICES[mode]) == set(ENGINES) == set(amounts)
    for engine, prices in PRICES[mode].items():
        assert len(prices) == len(amounts[engine])
        assert all(price >= 0 for price in prices)
        assert any(price > 0 for price in prices)


@pytest.mark.parametrize("training", [True, False])
def test_the_choice_follows_the_shapes(training: bool) -> None:
    assert fastest_engine(problem(16, 32, 28, 64), training) == "spectral"
    assert fastest_engine(problem(1, 2, 7, 1), training) != "spectral"


@pytest.mark.parametrize("training", [True, False])
def test_auto_gives_what_the_engines_give(training: bool) -> None:
    for orientations, batch in ((1, 1), (16, 8)):
        layer = GroupConv2d(3, 4, 5, orientations, padding="same", engine="auto").train(training)
        features = torch.randn(batch, 3, orientations, 9, 9)
        result = layer(features)
        choice = choose_group_engine(features, layer.weight, layer.geometry, training=training)
        assert choice in ENGINES
        layer.engine = "direct"
        torch.testing.assert_close(result, layer(features), atol=1e-4, rtol=1e-4)
    assert LiftConv2d(1, 2, 3, 4, engine="auto")(torch.rand(1, 1, 8, 8)).shape == (1, 2, 4, 6, 6)


def test_auto_compiles_in_one_graph() -> None:
    torch.compiler.reset()
    layer = GroupConv2d(2, 3, 3, 8, engine="auto")
    features = torch.randn(2, 2, 8, 9, 9)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(features), layer(features))


def test_an_unknown_engine_is_named() -> None:
    for name in ENGINE_CHOICES:
        check_engine(name)
    with pytest.raises(
        ValueError, match=r"unknown engine 'fast', choose one of \['atomic', 'auto', 'direct', 'spectral'\]"
    ):
        GroupConv2d(1, 1, 3, 4, engine="fast")
