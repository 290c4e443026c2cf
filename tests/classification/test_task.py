"""Batches depend on seed, epoch and step alone; shares of a batch are parts of it; augmentation turns the originals."""

import math
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sfcnn.classification import predict
from sfcnn.classification.augmentation import move_each, rotate_each
from sfcnn.classification.config import ClassificationConfig, ImagesConfig, ModelConfig
from sfcnn.classification.evaluate import evaluate
from sfcnn.classification.labelled import DIGITS, LabelledImages, Splits
from sfcnn.classification.network import build_network
from sfcnn.classification.task import Classification
from sfcnn.train.config import OptimizationConfig
from sfcnn.train.task import Share

ONE = Share()


def numbered(count: int, first: int = 0) -> LabelledImages:
    """Images of noise on a dark ground, no two the same, and labels."""
    noise = torch.rand(count, 1, 24, 24, generator=torch.Generator().manual_seed(first)) * 0.5
    return LabelledImages(F.pad(noise, (2, 2, 2, 2)), torch.arange(first, first + count) % 10)


SPLITS = Splits("noise", numbered(50), numbered(20, 100), numbered(10, 200))


def task_of(batch_size: int = 8, seed: int = 0, splits: Splits = SPLITS, **images: object) -> Classification:
    config = ClassificationConfig(
        images=replace(ImagesConfig("digits"), **images),  # type: ignore[arg-type]
        optimization=OptimizationConfig(batch_size=batch_size),
        seed=seed,
    )
    return Classification(splits, config)


def which(images: Tensor, originals: Tensor) -> list[int]:
    """The number of each image among the originals."""
    same = (images.flatten(1)[:, None] == originals.flatten(1)[None]).all(-1)
    assert same.sum(1).tolist() == [1] * len(images)
    return same.int().argmax(1).tolist()


@pytest.mark.parametrize("batch_size", [2, 8, 25, 50])
def test_an_epoch_shows_no_image_twice(batch_size: int) -> None:
    task = task_of(batch_size)
    assert task.steps == 50 // batch_size
    orders = []
    for epoch in range(3):
        seen: list[int] = []
        for step in range(task.steps):
            images, labels = task.batch(epoch, step, ONE)
            assert images.shape == (batch_size, 1, 28, 28)
            found = which(images, SPLITS.train.images)
            assert labels.tolist() == SPLITS.train.labels[found].tolist()
            seen += found
        assert len(set(seen)) == len(seen) == task.steps * batch_size  # all of them if the batch size divides
        orders.append(seen)
    assert orders[0] != orders[1] != orders[2] != orders[0]


@pytest.mark.parametrize("augmentation", ["none", "continuous"])
def test_a_batch_depends_on_seed_epoch_and_step_alone(augmentation: str) -> None:
    task = task_of(augmentation=augmentation)
    places = [(epoch, step) for epoch in range(3) for step in range(task.steps)]
    batches = {place: task.batch(*place, ONE) for place in places}
    again = task_of(augmentation=augmentation)
    for place in random.Random(0).sample(places, len(places)):
        torch.manual_seed(hash(place))
        torch.testing.assert_close(again.batch(*place, ONE), batches[place], rtol=0, atol=0)
    other = task_of(augmentation=augmentation, seed=1)
    assert not any(torch.equal(other.batch(*place, ONE)[0], batches[place][0]) for place in places)


@pytest.mark.parametrize("augmentation", ["none", "quarter-turns", "continuous"])
@pytest.mark.parametrize("processes", [2, 4])
def test_the_shares_together_are_the_batch(processes: int, augmentation: str) -> None:
    task = task_of(augmentation=augmentation)
    for step in range(task.steps):
        whole = task.batch(1, step, ONE)
        shares = [task.batch(1, step, Share(rank, processes)) for rank in range(processes)]
        for part, parts in zip(whole, zip(*shares, strict=True), strict=True):
            joined = torch.stack(parts, 1).flatten(0, 1)  # image rank, rank + processes, … of the batch
            torch.testing.assert_close(joined, part, rtol=0, atol=0)


def test_the_shares_of_the_validation_images_are_all_of_them() -> None:
    task = task_of(validation_images=13)
    for processes in (1, 2, 5):
        found: list[int] = []
        for rank in range(processes):
            for images, labels in task.validation(Share(rank, processes)):
                found += which(images, SPLITS.validation.images)
                assert torch.equal(labels, SPLITS.validation.labels[found[-len(labels) :]])
        assert sorted(found) == list(range(13))


def turns(images: Tensor, originals: Tensor) -> list[int]:
    """By how many quarter turns each image was turned, exactly; −1 if by none."""
    found = []
    for image in images:
        exact = [int((originals.rot90(turn, (-2, -1)) == image).flatten(1).all(1).any()) for turn in range(4)]
        assert sum(exact) <= 1
        found.append(exact.index(1) if any(exact) else -1)
    return found


def test_quarter_turns_are_exact_and_of_all_four_kinds() -> None:
    task = task_of(augmentation="quarter-turns")
    seen = [turn for step in range(task.steps) for turn in turns(task.batch(0, step, ONE)[0], SPLITS.train.images)]
    assert set(seen) == {0, 1, 2, 3}
    again = [turn for step in range(task.steps) for turn in turns(task.batch(1, step, ONE)[0], SPLITS.train.images)]
    assert seen != again  # each epoch turns anew


def test_eighth_turns_are_half_exact_and_continuous_ones_never() -> None:
    eighth, continuous = task_of(augmentation="eighth-turns"), task_of(augmentation="continuous")
    found = [turn for step in range(eighth.steps) for turn in turns(eighth.batch(0, step, ONE)[0], SPLITS.train.images)]
    assert 0.2 < found.count(-1) / len(found) < 0.8
    assert set(found) == {-1, 0, 1, 2, 3}
    assert set(turns(continuous.batch(0, 0, ONE)[0], SPLITS.train.images)) == {-1}
    bicubic = task_of(augmentation="continuous", resampling="bicubic")
    assert not torch.equal(bicubic.batch(0, 0, ONE)[0], continuous.batch(0, 0, ONE)[0])


def test_what_comes_in_from_outside_is_the_ground() -> None:
    colour = torch.tensor([0.1, 0.4, 0.2]).view(3, 1, 1)
    splits = replace(SPLITS, train=LabelledImages(SPLITS.train.images + colour, SPLITS.train.labels))
    turned, _ = task_of(splits=splits, augmentation="continuous").batch(0, 0, ONE)
    dark, _ = task_of(augmentation="continuous").batch(0, 0, ONE)
    torch.testing.assert_close(turned - colour, dark.expand(-1, 3, -1, -1))


def test_augmentation_leaves_the_set_the_labels_and_validation_alone() -> None:
    originals = SPLITS.train.images.clone()
    task, plain = task_of(augmentation="continuous"), task_of()
    for step in range(task.steps):
        assert torch.equal(task.batch(0, step, ONE)[1], plain.batch(0, step, ONE)[1])
    assert torch.equal(SPLITS.train.images, originals)
    torch.testing.assert_close(task.validation(ONE), plain.validation(ONE), rtol=0, atol=0)


def test_validation_images_can_be_learned_from_too() -> None:
    task = task_of(batch_size=10, train_images=25, validation_images=15, join_validation=True)
    both = torch.cat([SPLITS.train.images[:25], SPLITS.validation.images[:15]])
    seen = [found for step in range(task.steps) for found in which(task.batch(0, step, ONE)[0], both)]
    assert sorted(seen) == list(range(40))
    assert len(task.held_out.labels) == 15  # and they are still watched


def test_the_first_images_are_taken_all_of_them_for_zero() -> None:
    some, everything = task_of(train_images=20, validation_images=5), task_of()
    assert torch.equal(some.train.images, SPLITS.train.images[:20])
    assert torch.equal(some.held_out.labels, SPLITS.validation.labels[:5])
    assert (len(everything.train.labels), len(everything.held_out.labels)) == (50, 20)


def test_more_images_than_there_are_is_a_mistake() -> None:
    with pytest.raises(ValueError, match=r"^images.train_images must be at most 50, .*, got 51$"):
        task_of(train_images=51)
    with pytest.raises(ValueError, match=r"^images.validation_images must be at most 20, .*, got 21$"):
        task_of(validation_images=21)


def test_a_batch_larger_than_the_set_is_the_set() -> None:
    task = task_of(batch_size=64)
    assert (task.steps, task.batch_size) == (1, 50)
    assert sorted(which(task.batch(0, 0, ONE)[0], SPLITS.train.images)) == list(range(50))


def test_a_batch_that_cannot_be_shared_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="a batch of 8 images cannot be split over 3 processes"):
        task_of().batch(0, 0, Share(0, 3))


def test_sets_of_bytes_are_learned_from_as_fractions() -> None:
    pixels = [LabelledImages((part.images * 255).byte(), part.labels) for part in (SPLITS.train, SPLITS.validation)]
    floats = [LabelledImages(part.images.float() / 255, part.labels) for part in pixels]
    for augmentation in ("none", "continuous"):
        ours, theirs = (
            task_of(splits=Splits("bytes", train, validation, SPLITS.test), augmentation=augmentation)
            for train, validation in (pixels, floats)
        )
        batches = [(task.batch(0, 0, ONE), task.validation(ONE)[0]) for task in (ours, theirs)]
        for mine, expected in zip(*batches, strict=True):
            losses = [ours.outcome(nn.Flatten(), *batch).loss for batch in (mine, expected)]
            torch.testing.assert_close(losses[0], losses[1], rtol=0, atol=0)


class NoFloat64(TorchDispatchMode):
    """Fails where a number of 64 bits is computed, which Apple's graphics processors cannot."""

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        result = function(*arguments, **(named or {}))
        assert not any(getattr(part, "dtype", None) == torch.float64 for part in tree_leaves(result)), function
        return result


@pytest.mark.parametrize(
    ("kind", "engine"),
    [*(("steerable", engine) for engine in ("direct", "atomic", "spectral")), ("plain-channels", "auto")],
)
def test_nothing_on_the_device_is_float64(kind: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ModelConfig(kind=kind, orientations=8, width=0.125, engine=engine)
    net, task = build_network(config), task_of()
    inputs, targets = task.batch(0, 0, ONE)
    # Angles are found on the processor, from numbers that were copied there.
    monkeypatch.setattr(predict, "peak_angle", lambda evidence: evidence.amax(-1))
    with NoFloat64():
        task.outcome(net, inputs, targets).loss.backward()
        with torch.no_grad():
            task.outcome(net.eval(), *task.validation(ONE)[0])
        predict.predict(net, SPLITS.test.images)
        evaluate(net, SPLITS.test, DIGITS, [0, 30])
    with pytest.raises(AssertionError), NoFloat64():
        torch.ones(2).double()


def test_the_outcome_is_the_sum_of_cross_entropies_and_of_mistakes() -> None:
    logits = torch.randn(6, 10, requires_grad=True)
    labels = logits.argmax(1)
    labels[2:] = (labels[2:] + 3) % 10  # four mistakes
    outcome = task_of().outcome(nn.Identity(), logits, labels)
    expected = -F.log_softmax(logits, 1)[torch.arange(6), labels].sum()
    torch.testing.assert_close(outcome.loss, expected)
    assert (outcome.mistakes.item(), outcome.images) == (4, 6)
    outcome.loss.backward()
    assert logits.grad is not None
    half = task_of().outcome(nn.Identity(), logits.bfloat16(), labels)  # the loss is float32 whatever the network is
    assert half.loss.dtype == torch.float32


@pytest.mark.parametrize(("kind", "orientations"), [("steerable", 8), ("steerable", 16), ("plain-channels", 1)])
def test_images_are_turned_between_two_orientations(kind: str, orientations: int) -> None:
    """By angles that each image has in an epoch wherever it stands there, and that a share of a batch has too."""
    model = ModelConfig(kind=kind, orientations=max(orientations, 8))
    images = ImagesConfig("digits", augmentation="between-orientations")
    optimization = OptimizationConfig(batch_size=8, epochs=4)
    task, again = (Classification(SPLITS, ClassificationConfig(model, images, optimization, seed=3)) for _ in range(2))
    step = 2 * math.pi / orientations
    for epoch in (0, 3):
        angles = torch.cat([task._angles(epoch, number) for number in range(task.steps)])
        assert 0 <= float(angles.min()) < 0.2 * step
        assert 0.8 * step < float(angles.max()) < step
        turned, _ = again.batch(epoch, 1, ONE)
        chosen = SPLITS.train.images[task.order(epoch)[1]]
        torch.testing.assert_close(turned, rotate_each(chosen, task._angles(epoch, 1)))
        parts = [task.batch(epoch, 1, Share(rank, 2))[0] for rank in range(2)]
        assert torch.equal(torch.stack(parts, 1).flatten(0, 1), turned)


def test_labels_are_smoothed_in_training_only() -> None:
    config = ClassificationConfig(
        images=ImagesConfig("digits"), optimization=OptimizationConfig(batch_size=8, label_smoothing=0.2)
    )
    task = Classification(SPLITS, config)
    logits, labels = torch.randn(6, 10, dtype=torch.float64).float(), torch.arange(6)
    truth = 0.8 * F.one_hot(labels, 10) + 0.2 / 10
    smooth = -(truth * logits.log_softmax(1)).sum()
    plain = -logits.log_softmax(1)[labels, labels].sum()
    torch.testing.assert_close(task.outcome(nn.Identity(), logits, labels).loss, smooth)
    torch.testing.assert_close(task.outcome(nn.Identity().eval(), logits, labels).loss, plain)


@pytest.mark.parametrize("grey", [0.0, 0.25])
def test_images_are_moved_over_their_ground_by_all_offsets_alike(grey: float) -> None:
    """Every batch is that of a task without moves, image by image moved by up to `moves` pixels."""
    still = numbered(50)
    splits = replace(SPLITS, train=LabelledImages((still.images - grey).abs(), still.labels))
    offsets = [(down, right) for down in range(-2, 3) for right in range(-2, 3)]
    seen: list[tuple[int, int]] = []
    task, unmoved = task_of(splits=splits, moves=2), task_of(splits=splits)
    for epoch in range(8):
        for step in range(task.steps):
            (images, labels), (originals, same) = task.batch(epoch, step, ONE), unmoved.batch(epoch, step, ONE)
            assert torch.equal(labels, same)
            shares = [task.batch(epoch, step, Share(rank, 2))[0] for rank in range(2)]
            assert torch.equal(torch.stack(shares, 1).flatten(0, 1), images)
            candidates = torch.stack(
                [move_each(originals - grey, torch.tensor([offset] * len(originals))) + grey for offset in offsets]
            )
            near = (candidates - images).abs().flatten(2).amax(-1)  # (offsets, B)
            assert near.amin(0).max() < 1e-6
            seen += [offsets[number] for number in near.argmin(0).tolist()]
    assert set(seen) == set(offsets)
    assert max(seen.count(offset) for offset in offsets) < 40  # of 384, 15 on average


def test_moves_after_rotations_depend_on_seed_epoch_and_step_alone() -> None:
    task, again = (task_of(augmentation="continuous", moves=3) for _ in range(2))
    unmoved = task_of(augmentation="continuous")
    batches = [task.batch(epoch, 2, ONE)[0] for epoch in range(3)]
    for epoch in (2, 0, 1):
        assert torch.equal(again.batch(epoch, 2, ONE)[0], batches[epoch])
        assert not torch.equal(unmoved.batch(epoch, 2, ONE)[0], batches[epoch])


def test_deformations_depend_on_seed_epoch_and_step_alone() -> None:
    settings = {"augmentation": "continuous", "stretch": 0.2, "bend": 1.0}
    task, again = (task_of(**settings) for _ in range(2))  # type: ignore[arg-type]
    whole, _ = task.batch(1, 2, ONE)
    halves = [again.batch(1, 2, Share(rank, 2))[0] for rank in (1, 0)]
    assert torch.equal(whole[1::2], halves[0])
    assert torch.equal(whole[0::2], halves[1])
    turned, _ = task_of(augmentation="continuous").batch(1, 2, ONE)
    assert 0.01 < float((whole - turned).abs().mean()) < 0.3
    assert not torch.equal(whole, task.batch(2, 2, ONE)[0])
