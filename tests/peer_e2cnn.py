"""e2cnn for the tests that compare with it; they are skipped where it is not installed."""

import warnings
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # e2cnn 0.2.3 uses deprecated names of the libraries that it imports
    e2cnn_nn = pytest.importorskip("e2cnn.nn")
    gspaces = pytest.importorskip("e2cnn.gspaces")

#: For a module of tests: e2cnn's own warnings are no errors.
WARNINGS = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:e2cnn"),
    pytest.mark.filterwarnings("ignore::UserWarning:e2cnn"),
]

#: e2cnn keeps its sampled basis in float32.
TOLERANCE = 1e-5

#: The paper's band limits, written as e2cnn wants them.
PAPER: dict[str, Any] = {"sigma": 0.6, "frequencies_cutoff": lambda r: 2 * (r + 1) if r else 0}
