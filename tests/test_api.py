"""What the commands do can be called: everything is reached from `import sfcnn`, in three lines each."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sfcnn


def test_packages_need_no_import_of_their_own() -> None:
    script = """
import sys, sfcnn
assert "sfcnn.models" not in sys.modules and "sfcnn.cells" not in sys.modules
assert sfcnn.models.mnist_baseline(orientations=2)
assert sfcnn.export.to_plain
assert sfcnn.classification.train and sfcnn.segmentation.train
assert sfcnn.cells.find_cells
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert set(sfcnn.__all__) <= {*dir(sfcnn), "cells", "classification", "export", "load", "migration"} | set(
        sfcnn._LAZY
    )
    with pytest.raises(AttributeError, match="module 'sfcnn' has no attribute 'nonsense'"):
        sfcnn.nonsense  # noqa: B018


def test_segment_and_score(tmp_path: Path) -> None:
    images, membranes = sfcnn.segmentation.synthetic_membranes(2, 96, cell=40)
    network = sfcnn.load("isbi2012")
    found = sfcnn.cells.segment(network, images.numpy())
    assert found.probabilities.shape == found.labels.shape == (2, 96, 96)
    scores = sfcnn.cells.score(found.labels, ~membranes.numpy())
    assert 0 < scores.v_rand.best <= 1


def test_dimming_an_image_changes_neither_membranes_nor_cells() -> None:
    """The network and the forest both see standardised images."""
    image = sfcnn.segmentation.synthetic_membranes(1, 160, cell=40).images[0].numpy()
    network = sfcnn.load("isbi2012", device="cpu")
    bright, dim = (sfcnn.cells.segment(network, scale * image + shift) for scale, shift in ((1.0, 0.0), (0.5, 0.1)))
    assert bright.labels.max() > 2
    np.testing.assert_allclose(dim.probabilities, bright.probabilities, atol=1e-4)
    np.testing.assert_array_equal(dim.labels, bright.labels)
