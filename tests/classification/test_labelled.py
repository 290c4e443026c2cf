"""Bytes are fractions of 255, and the first images of a set can be taken."""

import pytest
import torch

from sfcnn.classification.labelled import LabelledImages, as_fraction, first_images


def test_bytes_become_fractions_and_floats_stay() -> None:
    pixels = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(as_fraction(pixels), torch.arange(256) / 255)
    assert pixels[255] == 255  # not in place
    for dtype in (torch.float32, torch.float64):
        floats = torch.rand(3, dtype=dtype)
        assert as_fraction(floats) is floats


def test_first_images() -> None:
    labelled = LabelledImages(torch.rand(5, 1, 2, 2), torch.arange(5))
    assert first_images(labelled, 3, "count").labels.tolist() == [0, 1, 2]
    assert len(first_images(labelled, 0, "count").images) == 5
    with pytest.raises(ValueError, match="count must be at most 5, the number of images available, got 6"):
        first_images(labelled, 6, "count")
