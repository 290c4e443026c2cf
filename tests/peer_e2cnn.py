"""e2cnn for the tests that compare with it; they are skipped where it is not installed."""

import warnings
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # e2cnn 0.2.3 uses deprecated names of the libraries that it imports
    e2cnn_nn = pytest.importorskip("e2cnn.nn")
    gspaces = pytest.importorskip("e2cnn.gspaces")
    e2cnn_kernels = pytest.importorskip("e2cnn.kernels.utils")
    e2cnn_solutions = pytest.importorskip("e2cnn.kernels.irreps_basis")


class _Numpy:
    """numpy with the meaning that `copy=False` had before version 2: copy if it must be."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def array(self, value: Any, *arguments: Any, copy: bool = True, **options: Any) -> Any:
        return np.array(value, *arguments, copy=copy or None, **options)


# Without these two e2cnn 0.2.3 cannot solve the constraints of reflections with numpy 2, which has no `tostring`.
e2cnn_kernels.np = _Numpy()
for _name in ("R2FlipsSolution", "R2FlipsContinuousRotationsSolution", "R2FlipsDiscreteRotationsSolution"):
    getattr(e2cnn_solutions, _name).__hash__ = lambda self: hash((self.in_irrep, self.out_irrep))

#: For a module of tests: e2cnn's own warnings are no errors.
WARNINGS = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:e2cnn"),
    pytest.mark.filterwarnings("ignore::UserWarning:e2cnn"),
]

#: e2cnn keeps its sampled basis in float32.
TOLERANCE = 1e-5

#: The paper's band limits, written as e2cnn wants them.
PAPER: dict[str, Any] = {"sigma": 0.6, "frequencies_cutoff": lambda r: 2 * (r + 1) if r else 0}
