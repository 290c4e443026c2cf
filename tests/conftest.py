"""Shared settings: one thread, fixed seeds, and one profile for property-based tests."""

import hypothesis
import pytest
import torch

torch.set_num_threads(1)  # the tensors are small, and several threads only wait for each other on a busy machine
hypothesis.settings.register_profile("sfcnn", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("sfcnn")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def without_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let PyTorch compute what the compiled kernel would."""
    monkeypatch.setenv("SFCNN_KERNEL", "0")


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """Run a test in both precisions."""
    value: torch.dtype = request.param
    return value
