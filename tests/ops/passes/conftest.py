"""What the tests of the passes share: the kernel is on, and saved tensors are counted."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor


@pytest.fixture(autouse=True)
def _kernel_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Also restores the number of threads, which some tests change."""
    monkeypatch.setenv("SFCNN_KERNEL", "1")
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def kept_bytes() -> Callable[[Callable[[Tensor], Tensor], tuple[int, ...]], int]:
    """Counts the bytes that a layer keeps for the backward pass, for features of a shape."""

    def count(layer: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> int:
        sizes: list[int] = []

        def keep(tensor: Tensor) -> Tensor:
            sizes.append(tensor.nbytes)
            return tensor

        features = torch.randn(shape, requires_grad=True).clone()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            layer(features)
        return sum(sizes)

    return count
