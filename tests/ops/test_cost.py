from dataclasses import replace

import pytest
import torch

from sfcnn import GroupConv2d, LiftConv2d
from sfcnn.ops import ENGINES, Geometry
from sfcnn.ops.cost import PRICES, Problem, fastest_engine, predict, work


def problem(orientations: int, channels: int, size: int, batch: int) -> Problem:
    return Problem(batch, channels, channels, orientations, 18, size, size, Geometry(7, padding="same"))


@pytest.mark.parametrize("mode", ["training", "evaluation"])
def test_every_engine_has_a_price_for_each_kind_of_work(mode: str) -> None:
    amounts = work(problem(8, 16, 14, 4))
    assert set(PRICES[mode]) == {*ENGINES, "compiled"} == set(amounts)
    for engine, prices in PRICES[mode].items():
        assert len(prices) == len(amounts[engine])
        assert all(price > 0 for price in prices)  # work without a price would never be too much


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("orientations", [1, 4, 16])
@pytest.mark.parametrize("channels", [1, 16, 512])
@pytest.mark.parametrize("size", [7, 40])
def test_more_work_takes_longer(training: bool, orientations: int, channels: int, size: int) -> None:
    before = problem(orientations, channels, size, 4)
    times = predict(before, training)
    for name in ("batch", "in_channels", "out_channels", "orientations", "atoms", "height", "width"):
        larger = predict(replace(before, **{name: 2 * getattr(before, name)}), training)
        for engine, time in times.items():
            if (engine, name) != ("direct", "atoms"):  # its filters have as many pixels whatever they are made of
                assert larger[engine] > time, (engine, name)


@pytest.mark.parametrize("training", [True, False])
def test_many_channels_cost_their_products(training: bool) -> None:
    """With many channels only the products between them count: twice as many in and out take four times as long."""
    few, many = (predict(problem(8, channels, 14, 4), training) for channels in (4096, 8192))
    for engine in ENGINES:
        assert 3.5 < many[engine] / few[engine] < 4.1


@pytest.mark.parametrize("training", [True, False])
def test_the_choice_follows_the_shapes(training: bool) -> None:
    assert fastest_engine(problem(16, 32, 28, 64), training) == "spectral"
    assert fastest_engine(problem(1, 2, 7, 1), training) != "spectral"
    assert fastest_engine(problem(8, 16, 28, 16), training, compiled=True) == "spectral"


@pytest.mark.parametrize("training", [True, False])
def test_auto_gives_what_the_engines_give(training: bool) -> None:
    for orientations, batch in ((1, 1), (16, 8)):
        layer = GroupConv2d(3, 4, 5, orientations, padding="same", engine="auto").train(training)
        features = torch.randn(batch, 3, orientations, 9, 9)
        result = layer(features)
        layer.engine = "direct"
        torch.testing.assert_close(result, layer(features), atol=1e-4, rtol=1e-4)
    assert LiftConv2d(1, 2, 3, 4, engine="auto")(torch.rand(1, 1, 8, 8)).shape == (1, 2, 4, 6, 6)


def test_auto_compiles_in_one_graph() -> None:
    torch.compiler.reset()
    layer = GroupConv2d(2, 3, 3, 8, engine="auto")
    features = torch.randn(2, 2, 8, 9, 9)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(features), layer(features))
