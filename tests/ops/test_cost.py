import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from sfcnn import GroupConv2d, LiftConv2d
from sfcnn.ops import ENGINES, Geometry
from sfcnn.ops.cost import PRICES, Prices, Problem, _cut, _taps, fastest_engine, predict, work

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def problem(orientations: int, channels: int, size: int, batch: int) -> Problem:
    return Problem(batch, channels, channels, orientations, 18, size, size, Geometry(7, padding="same"))


@pytest.mark.parametrize("mode", ["training", "evaluation"])
def test_every_engine_has_a_price_for_each_kind_of_work(mode: str) -> None:
    amounts = work(problem(8, 16, 14, 4), mode == "training")
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
            if training or (engine, name) != ("direct", "atoms"):  # filters are as large whatever they are made of
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


@pytest.mark.parametrize(
    "options", [{}, {"padding": "same"}, {"stride": 2, "padding": 3}, {"dilation": 3, "padding": 2}]
)
@pytest.mark.parametrize("height", [14, 20])
def test_taps_outside_the_map_are_not_counted(options: dict[str, Any], height: int) -> None:
    geometry = Geometry(5, **options)
    inside = F.conv1d(
        torch.ones(1, 1, height), torch.ones(1, 1, 5), None, geometry.stride, geometry.margin, geometry.dilation
    )
    assert _taps(Problem(1, 1, 1, 4, 11, height, 30, geometry)) == pytest.approx(5 * float(inside.mean()))


def test_threads_share_what_can_be_cut_into_jobs() -> None:
    def cut(batch: int, size: int, kernel_size: int, backward: bool = False) -> tuple[float, int]:
        places, _, jobs = _cut(Problem(batch, 4, 4, 8, 18, size, size, Geometry(kernel_size, padding="same")), backward)
        return places, jobs

    assert cut(64, 14, 7) == (64 * 14**2 / 2, 4)  # a block of images for each job of two threads
    assert cut(16, 14, 7) == (16 * 14**2 / 2, 4)  # images in pieces, so that fewer fill the lanes
    assert cut(48, 14, 7, backward=True) == (48 * 14**2 / 2, 12)
    assert cut(1, 3, 5, backward=True)[1] == 1  # nothing to share
    assert cut(2, 5, 5)[0] > 5**2  # pieces that do not fill the lanes


@pytest.fixture(scope="module")
def engines() -> ModuleType:
    """The script that measures and fits."""
    found = importlib.util.spec_from_file_location("benchmarks_engines", BENCHMARKS / "engines.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def records(pattern: str) -> list[dict[str, Any]]:
    files = sorted((BENCHMARKS / "results").glob(pattern))
    return [record for file in files for record in json.loads(file.read_text(encoding="utf-8"))["records"]]


def test_prices_are_those_of_the_recorded_times(engines: ModuleType) -> None:
    """If this fails: python benchmarks/engines.py fit benchmarks/results/engines-fit.json."""
    measured = records("engines-fit.json")
    prices = engines.fit(measured)
    for shape in (engines.to_problem(record["shape"]) for record in measured[::10]):
        for training in (True, False):
            assert predict(shape, training, prices) == pytest.approx(predict(shape, training), rel=0.03)


def test_choices_are_compared_with_the_best(engines: ModuleType) -> None:
    shape = {"batch": 2, "in_channels": 2, "out_channels": 2, "orientations": 4, "kernel_size": 3, "size": 8}
    times = {"compiled": 1.0, "spectral": 4.0, "direct": 2.0, "atomic": 3.0}
    record = {"shape": {**shape, "basis": "bandlimited"}, "seconds": {"training": times, "evaluation": times}}
    amounts = work(engines.to_problem(record["shape"]), True)
    cheap = {engine: tuple(0.0 if engine == "atomic" else 1.0 for _ in amounts[engine]) for engine in amounts}
    ratios = engines.compare([record], {"training": cheap, "evaluation": PRICES["evaluation"]})
    assert ratios["training, with the kernel"] == [3.0]
    assert ratios["training, without the kernel"] == [1.5]


def test_shapes_of_a_fold_are_not_fitted_to(engines: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    measured, fitted = records("engines-fit.json")[:20], []

    def fit(some: list[dict[str, Any]]) -> Prices:
        fitted.append(len(some))
        return PRICES

    monkeypatch.setattr(engines, "fit", fit)
    summary = engines.validate(measured, folds=5, repeats=1)
    assert fitted == [16] * 5
    assert {result["shapes"] for result in summary.values()} == {20}


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
