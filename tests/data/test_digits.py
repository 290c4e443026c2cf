import pytest
import torch

from sfcnn.data.digits import Digits, first_images, load_digits


def test_all_digits_are_there_and_shuffled_by_the_seed() -> None:
    images, labels = load_digits(seed=1)
    assert images.shape == (5000, 1, 28, 28)
    assert images.dtype == torch.float32
    assert (float(images.min()), float(images.max())) == (0.0, 1.0)
    assert labels.bincount().tolist() == [500] * 10
    assert labels[:500].bincount(minlength=10).min() > 20
    again, other = load_digits(seed=1), load_digits(seed=2)
    assert torch.equal(images, again.images)
    assert not torch.equal(labels, other.labels)


def test_first_images() -> None:
    digits = Digits(torch.rand(5, 1, 2, 2), torch.arange(5))
    assert first_images(digits, 3, "count").labels.tolist() == [0, 1, 2]
    assert len(first_images(digits, 0, "count").images) == 5
    with pytest.raises(ValueError, match="count must be at most 5, the number of such images, got 6"):
        first_images(digits, 6, "count")
