"""Losses equal their closed forms."""

import pytest
import torch
from torch.nn import functional as F

from sfcnn.segmentation.losses import LOSSES, affinity_loss, class_weights, dice, pixel_loss, prior_logits


def draw(classes: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    logits = torch.randn(3, classes if classes > 2 else 1, 5, 6, dtype=dtype)
    return logits, torch.randint(classes, (3, 5, 6))


def test_cross_entropy_is_that_of_torch(dtype: torch.dtype) -> None:
    for classes in (2, 4):
        logits, targets = draw(classes, dtype)
        ours, wrong = pixel_loss("cross-entropy", logits, targets, torch.ones(classes))
        if classes == 2:
            theirs = F.binary_cross_entropy_with_logits(logits[:, 0], targets.to(dtype), reduction="none")
            found = (logits[:, 0] > 0).long()
        else:
            theirs, found = F.cross_entropy(logits, targets, reduction="none"), logits.argmax(1)
        torch.testing.assert_close(ours, theirs.mean((1, 2)).float())
        torch.testing.assert_close(wrong, (found != targets).float().mean((1, 2)))


def test_balanced_weighs_each_class_alike() -> None:
    frequencies = torch.tensor([0.9, 0.06, 0.04])
    weights = class_weights("balanced", frequencies)
    torch.testing.assert_close(weights * frequencies, torch.full((3,), 1 / 3))
    logits, targets = draw(3, torch.float32)
    ours, _ = pixel_loss("balanced", logits, targets, weights)
    theirs = F.cross_entropy(logits, targets, weights, reduction="none").mean((1, 2))
    torch.testing.assert_close(ours, theirs)


def test_dice_of_the_truth_is_one_and_of_its_opposite_nearly_zero() -> None:
    targets = torch.zeros(1, 20, 20, dtype=torch.int64)
    targets[:, :10] = 1
    sure = 50.0 * (2 * targets[:, None].float() - 1)
    right, no_mistakes = pixel_loss("dice", sure, targets, torch.ones(2))
    assert float(right) < 1e-3
    assert float(no_mistakes) == 0
    _, mistakes = pixel_loss("dice", -sure, targets, torch.ones(2))
    assert float(mistakes) > 0.99
    nothing = torch.zeros(1, 2, 4, 4)
    nothing[:, 0] = 1
    assert float(dice(nothing, nothing)) == 1  # nothing was looked for, and nothing found


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("classes", [2, 3])
def test_gradients_are_finite_also_where_a_class_is_missing(loss: str, classes: int) -> None:
    logits, targets = draw(classes, torch.float32)
    logits.requires_grad_()
    weights = class_weights(loss, torch.tensor([1.0] + [0.0] * (classes - 1)))
    pixel_loss(loss, 100 * logits, torch.zeros_like(targets), weights)[0].sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_a_network_that_knows_nothing_starts_at_the_prior() -> None:
    torch.testing.assert_close(
        prior_logits("cross-entropy", torch.tensor([0.7, 0.2, 0.1])).softmax(0), torch.tensor([0.7, 0.2, 0.1])
    )
    assert prior_logits("balanced", torch.tensor([0.95, 0.05])).abs().max() < 1e-5
    assert prior_logits("cross-entropy", torch.tensor([1.0, 0.0])).isfinite().all()


def test_the_loss_of_affinities_is_dice_of_different_pairs_and_half_the_cross_entropy(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 4, 5, 6, generator=generator).to(dtype)
    same, valid = (torch.rand(2, 3, 4, 5, 6, generator=generator) < share for share in (0.6, 0.7))
    valid[1, 2] = False  # a radius that leaves the image
    for crop in range(2):
        entropy, dice = [], []
        for radius in range(3):
            known = valid[crop, radius]
            different = (-logits[crop, radius][known].float()).sigmoid()
            truth = (~same[crop, radius][known]).float()
            entropy.append(-(truth * different.log() + (1 - truth) * (1 - different).log()))
            dice.append((2 * (different * truth).sum() + 1) / ((different + truth).sum() + 1))
        expected = 1 - torch.stack(dice).mean() + torch.cat(entropy).mean() / 2
        torch.testing.assert_close(affinity_loss(logits, same, valid)[crop], expected)


def test_affinities_without_valid_pairs_have_no_loss_and_no_gradient() -> None:
    logits = torch.randn(1, 2, 4, 3, 3, requires_grad=True)
    nothing = torch.zeros(1, 2, 4, 3, 3, dtype=torch.bool)
    loss = affinity_loss(logits, nothing, nothing)
    loss.sum().backward()
    assert loss.tolist() == [0]
    assert logits.grad is not None
    assert (logits.grad == 0).all()
