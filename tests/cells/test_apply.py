"""A network and the cells of its slices: found one by one, while the network goes on."""

import threading
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import sfcnn
from sfcnn.cells import CellsConfig, find_cells
from sfcnn.cells.apply import run_forest, segment
from sfcnn.segmentation import Segmenter, synthetic_membranes


@pytest.fixture(scope="module")
def network() -> Segmenter:
    found = sfcnn.load("isbi2012", device="cpu")
    assert isinstance(found, Segmenter)
    return found


@pytest.fixture(scope="module")
def stack() -> NDArray[np.float32]:
    slices: NDArray[np.float32] = synthetic_membranes(3, 64).images.numpy()
    return slices


def test_cells_are_those_of_all_probabilities_at_once(network: Segmenter, stack: NDArray[np.float32]) -> None:
    told: list[float] = []
    found = segment(network, stack, progress=told.append)
    np.testing.assert_array_equal(found.probabilities, network.predict(stack))
    np.testing.assert_array_equal(found.labels, find_cells(found.probabilities, None, run_forest(network), stack))
    assert told == sorted(told)
    assert told[-1] == 1
    some = segment(network, stack, only=[2, 0])
    np.testing.assert_array_equal(some.probabilities, found.probabilities[[2, 0]])
    one = segment(network, stack[2])
    np.testing.assert_array_equal(some.labels[0], one.labels)
    assert some.labels[1].min() > some.labels[0].max()


def test_joined_slices_are_found_together(network: Segmenter, stack: NDArray[np.float32]) -> None:
    settings = CellsConfig(joined=True)
    found = segment(network, stack, forest=None, settings=settings)
    np.testing.assert_array_equal(found.labels, find_cells(network.predict(stack), settings))


def test_the_network_goes_on_while_cells_are_found(
    network: Segmenter, stack: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cells of the first slice wait until the network has begun with the second."""
    begun = threading.Event()
    calls: list[int] = []

    def watched(module: torch.nn.Module, inputs: Any) -> None:
        calls.append(len(calls))
        if len(calls) == 2:
            begun.set()

    def patient(*arguments: Any, **options: Any) -> Any:
        assert begun.wait(60), "the network waits for the cells"
        return find_cells(*arguments, **options)

    monkeypatch.setattr("sfcnn.cells.apply.find_cells", patient)
    with network.network.register_forward_pre_hook(watched):
        found = segment(network, stack)
    assert len(calls) == 3
    assert found.labels.shape == stack.shape


def test_an_error_in_finding_cells_is_raised(
    network: Segmenter, stack: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise ValueError("no cells today")

    monkeypatch.setattr("sfcnn.cells.apply.find_cells", fail)
    with pytest.raises(ValueError, match="no cells today"):
        segment(network, stack)
