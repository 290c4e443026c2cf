import math

import pytest
import torch
from torch import Tensor, nn

from sfcnn.classification.evaluate import Evaluation, batches, error_rate, errors_by_angle, evaluate, even_degrees
from sfcnn.classification.labelled import LabelledImages


class Brightest(nn.Module):
    """Says which quarter of the image is the brightest: 0 1 above, 2 3 below."""

    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.adaptive_avg_pool2d(images, 2).flatten(1)


@pytest.fixture
def quarters() -> LabelledImages:
    """One image with a bright patch in each quarter, far from its borders, and 16 more of the first."""
    images = torch.zeros(20, 1, 16, 16)
    labels = torch.tensor([0, 1, 2, 3] + [0] * 16)
    for image, label in zip(images, labels, strict=True):
        row, column = divmod(int(label), 2)
        image[0, 3 + 7 * row : 6 + 7 * row, 3 + 7 * column : 6 + 7 * column] = 1
    return LabelledImages(images, labels)


@pytest.mark.parametrize("batch_size", [1, 3, 20, 100])
def test_the_error_is_the_share_of_wrong_labels(quarters: LabelledImages, batch_size: int) -> None:
    labels = quarters.labels.clone()
    labels[[1, 3, 19]] = 2
    assert error_rate(Brightest(), quarters, batch_size) == 0
    assert error_rate(Brightest(), LabelledImages(quarters.images, labels), batch_size) == 15


def test_images_are_turned_counter_clockwise(quarters: LabelledImages) -> None:
    done: list[float] = []
    angles = [0, 30, 60, 90, 360]
    assert errors_by_angle(Brightest(), quarters, angles) == (0, 0, 100, 100, 0)
    evaluation = evaluate(Brightest(), quarters, "abcd", angles, batch_size=10, progress=done.append)
    assert evaluation.errors == (0, 0, 100, 100, 0)
    bright = LabelledImages(0.4 + 0.6 * quarters.images, quarters.labels)  # corners must not become dark
    assert errors_by_angle(Brightest(), bright, angles) == (0, 0, 100, 100, 0)
    assert done == [part / 10 for part in range(1, 11)]
    above_left_goes_to_below_left = LabelledImages(quarters.images[:1], torch.tensor([2]))
    assert errors_by_angle(Brightest(), above_left_goes_to_below_left, [90]) == (0,)


def test_the_network_s_precision_is_used(quarters: LabelledImages) -> None:
    net = nn.Sequential(nn.Conv2d(1, 1, 1).double(), Brightest())
    assert 0 <= error_rate(net, quarters) <= 100


def test_bytes_are_tested_as_fractions(quarters: LabelledImages) -> None:
    pixels = LabelledImages((quarters.images * 255).byte(), quarters.labels)
    assert error_rate(Brightest(), pixels) == 0
    (batch,) = batches(Brightest(), pixels.images, 100)
    assert (batch.dtype, float(batch.max())) == (torch.float32, 1.0)
    (batch,) = batches(nn.Linear(1, 1), torch.zeros(2, 1, dtype=torch.float64), 100)
    assert batch.dtype == torch.float32


def test_what_is_taken_for_what_is_counted(quarters: LabelledImages) -> None:
    labels = quarters.labels.clone()
    labels[4:8] = 1  # four images that look like class 0
    evaluation = evaluate(Brightest(), LabelledImages(quarters.images, labels), ["a", "b", "c", "d"], [0, 90], 7)
    assert evaluation.counts[0].tolist() == [[13, 0, 0, 0], [4, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    assert evaluation.counts[1].tolist() == [[0, 0, 13, 0], [1, 0, 4, 0], [0, 0, 0, 1], [0, 1, 0, 0]]
    assert evaluation.images == 20
    assert evaluation.errors == (20, 100)
    assert torch.equal(evaluation.confusion, evaluation.counts.sum(0))
    first = evaluate(Brightest(), LabelledImages(quarters.images, labels), ["a", "b", "c", "d"]).scores()
    assert [score.name for score in first] == ["a", "b", "c", "d"]
    assert [score.images for score in first] == [13, 5, 1, 1]
    assert [score.error for score in first] == pytest.approx([0, 80, 0, 0])
    assert [score.recall for score in first] == pytest.approx([100, 20, 100, 100])
    assert [score.precision for score in first] == pytest.approx([100 * 13 / 17, 100, 100, 100])
    assert [score.images for score in evaluation.scores()] == [13, 5, 1, 1]  # at each angle


def test_what_was_not_counted_is_no_number() -> None:
    empty, never = Evaluation(("a", "b", "c"), (0.0,), torch.tensor([[[2, 0, 0], [1, 0, 0], [0, 0, 0]]])).scores()[1:][
        ::-1
    ]
    assert math.isnan(empty.recall)
    assert math.isnan(empty.precision)
    assert (never.images, never.error, never.recall) == (1, 100, 0)
    assert math.isnan(never.precision)


def test_angles_start_at_zero_and_close_the_circle() -> None:
    assert even_degrees(24) == tuple(range(0, 360, 15))


def test_mistakes_are_named(quarters: LabelledImages) -> None:
    with pytest.raises(ValueError, match="number of angles must be at least 1, got 0"):
        even_degrees(0)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        error_rate(Brightest(), quarters, 0)
    with pytest.raises(ValueError, match="no images to test on"):
        error_rate(Brightest(), LabelledImages(quarters.images[:0], quarters.labels[:0]))
    with pytest.raises(ValueError, match=r"labels must be from 0 to 2, got \[0, 1, 2, 3\]"):
        evaluate(Brightest(), quarters, ["a", "b", "c"])
