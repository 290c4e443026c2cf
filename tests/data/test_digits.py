import torch

from sfcnn.data.digits import load_digits


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
