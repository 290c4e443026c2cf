"""The fastest engine is found by trying, once for each problem, and computes what all others compute."""

import time
from collections.abc import Callable

import pytest
import torch

from sfcnn import GroupConv2d, LiftConv2d
from sfcnn.ops import ENGINES, measured


@pytest.fixture(autouse=True)
def _no_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "_choices", {})


def test_the_quickest_is_chosen_and_not_timed_again() -> None:
    calls: list[str] = []

    def work(name: str, seconds: float) -> Callable[[], None]:
        def call() -> None:
            calls.append(name)
            time.sleep(seconds)

        return call

    candidates = {"slow": work("slow", 0.02), "quick": work("quick", 0.0), "medium": work("medium", 0.01)}
    assert measured.measured_engine("a problem", candidates) == "quick"
    assert {name: calls.count(name) for name in candidates} == {"slow": 4, "quick": 4, "medium": 4}
    assert measured.measured_engine("a problem", {}) == "quick"
    assert measured.choices() == {"a problem": "quick"}
    measured.restore({"a problem": "slow", "another": "medium"})
    assert measured.measured_engine("a problem", candidates) == "slow"


@pytest.mark.parametrize("learning", [True, False])
def test_a_measured_layer_gives_what_the_engines_give(learning: bool, dtype: torch.dtype) -> None:
    layer = GroupConv2d(3, 4, 5, 8, padding="same", engine="measured", dtype=dtype).train(learning)
    features = torch.randn(2, 3, 8, 9, 9, dtype=dtype, requires_grad=learning)
    with torch.set_grad_enabled(learning):
        result = layer(features)
    assert layer.weight.grad is None  # trying leaves nothing behind
    assert features.grad is None
    (name,) = measured.choices().values()
    assert name in ENGINES
    layer.engine = "direct"
    with torch.no_grad():
        expected = layer(features)
    torch.testing.assert_close(result.detach(), expected, atol=1e-4, rtol=1e-4)


def test_each_problem_has_a_choice_of_its_own() -> None:
    layer = GroupConv2d(2, 2, 3, 4, engine="measured")
    with torch.no_grad():
        for size in (7, 9, 7):
            layer(torch.rand(1, 2, 4, size, size))
        layer.eval()(torch.rand(1, 2, 4, 7, 7))
    assert len(measured.choices()) == 3


def test_lifting_needs_no_choice() -> None:
    assert LiftConv2d(1, 2, 3, 4, engine="measured")(torch.rand(1, 1, 8, 8)).shape == (1, 2, 4, 6, 6)
    assert measured.choices() == {}


def test_it_compiles_in_one_graph() -> None:
    torch.compiler.reset()
    layer = GroupConv2d(2, 3, 3, 8, engine="measured")
    features = torch.randn(2, 2, 8, 9, 9)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(features), layer(features), atol=1e-5, rtol=1e-4)
