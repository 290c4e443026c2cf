"""A value that is derived from a weight and kept as long as the weight stays the same."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class FrozenKernel:
    """Cache a value built from a tensor, and rebuild it when the tensor's values change.

    The weight is compared by value with a copy: no way of writing to it (an optimiser, `load_state_dict`, `.data`,
    `copy_`) goes unnoticed, and reading the weight once is far cheaper than building a filter bank. The kept value
    is derived, so it is never copied, pickled or saved.
    """

    def __init__(self) -> None:
        self._kept: tuple[object, Tensor, Tensor] | None = None

    def get(self, engine: object, weight: Tensor, build: Callable[[], Tensor]) -> Tensor:
        """The kept value if it was built for this engine and `weight` has not changed, else `build()`."""
        if self._kept is not None:
            kept_engine, kept_weight, kernel = self._kept
            placed_alike = (kept_weight.dtype, kept_weight.device) == (weight.dtype, weight.device)
            if kept_engine is engine and placed_alike and torch.equal(kept_weight, weight):
                return kernel
        with torch.inference_mode(False), torch.no_grad():  # what is kept may be used in a backward pass later
            kernel = build()
            self._kept = engine, weight.clone(), kernel
        return kernel

    def clear(self) -> None:
        """Drop the cached value."""
        self._kept = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "FrozenKernel":
        return FrozenKernel()

    def __reduce__(self) -> tuple[type["FrozenKernel"], tuple[()]]:
        return FrozenKernel, ()
