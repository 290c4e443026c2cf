"""The package imports what it needs when it needs it."""

import subprocess
import sys

import pytest

import sfcnn.cells

WITHOUT_SKLEARN = """
import sys
sys.modules["sklearn"] = None  # as if it were not installed
import sfcnn.cells
assert not {"scipy", "skimage", "bioimage_cpp"} & set(sys.modules)
import numpy as np
from sfcnn.cells import Forest, find_cells, learn_forest, score
walls = np.zeros((40, 60), np.float32)
walls[:, 28:31] = 0.9
assert score(find_cells(walls), walls == 0).v_rand.best > 0.8
"""


def test_only_growing_a_forest_needs_scikit_learn() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", WITHOUT_SKLEARN], check=True)


def test_every_public_name_is_there() -> None:
    assert all(getattr(sfcnn.cells, name) is not None for name in sfcnn.cells.__all__)
    with pytest.raises(AttributeError, match=r"module 'sfcnn\.cells' has no attribute 'multiply'"):
        sfcnn.cells.multiply  # noqa: B018
