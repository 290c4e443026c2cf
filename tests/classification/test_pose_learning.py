"""Angles of drawings are learned from turned ones, whatever they were turned by before, and nothing else is changed."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sfcnn.classification.augmentation import rotate_each
from sfcnn.classification.config import ClassificationConfig, ImagesConfig, ModelConfig
from sfcnn.classification.labelled import LabelledImages, Splits, upright
from sfcnn.classification.pose_learning import LearnedPose, PoseConfig, fit_readout, learn_pose
from sfcnn.classification.predict import Classifier
from sfcnn.models import ClassifierSizes, PoseReadout, plain_classifier, steerable_classifier
from sfcnn.models.pose import pose_scores, pose_targets

CLASSES = ("arrow", "flag")
SIDE = 20


def drawings(count: int, seed: int) -> LabelledImages:
    """Arrows to the right, and flags on poles, of different sizes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    images = torch.zeros(count, 1, SIDE, SIDE)
    for image, label in zip(images[:, 0], labels, strict=True):
        size = int(torch.randint(5, 8, (1,), generator=generator))
        if label == 0:
            image[9:11, 10 - size : 8 + size] = 1
            for step in range(5):
                image[9 - step : 11 + step, 9 + size - step] = 1
        else:
            image[10 - size : 10 + size, 8:10] = 1
            image[10 - size : 14 - size, 10:16] = 1
    return LabelledImages(images, labels)


def drawn_splits() -> Splits:
    parts = [drawings(count, seed) for seed, count in enumerate((40, 30, 30))]
    return Splits("drawings", *parts, classes=CLASSES, angles=upright(*parts))


def turned_splits(splits: Splits) -> Splits:
    """The same drawings, turned by angles that are known."""
    assert splits.angles is not None
    generator = torch.Generator().manual_seed(3)
    angles = tuple(torch.rand(len(part), generator=generator, dtype=torch.float64) * 6 for part in splits.angles)
    parts = (splits.train, splits.validation, splits.test)
    turned = [LabelledImages(rotate_each(p.images, a), p.labels) for p, a in zip(parts, angles, strict=True)]
    return Splits("turned drawings", *turned, classes=CLASSES, angles=angles)  # type: ignore[arg-type]


def classifier_of(net: nn.Sequential) -> Classifier:
    images = ImagesConfig("folder", size=SIDE, channels=1, classes=CLASSES)
    config = ClassificationConfig(ModelConfig(orientations=8), images)
    return Classifier(net.eval(), config, torch.device("cpu"))


@pytest.fixture(scope="module", name="classifier")
def _classifier() -> Classifier:
    """A small network that has learned to tell the two apart."""
    torch.manual_seed(0)
    net = steerable_classifier(ClassifierSizes((7, 7), (8, 12), (8,)), 8, classes=2, dropout=0.0, border="disk")
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    images, labels = drawings(24, 9)
    for _ in range(20):
        optimizer.zero_grad()
        F.cross_entropy(net(rotate_each(images, 7 * torch.rand(24))), labels).backward()
        optimizer.step()
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm3d):
            layer.reset_running_stats()
            layer.momentum = None  # keep the mean of all that the last weights see
    for _ in range(3):
        net(rotate_each(images, 7 * torch.rand(24)))
    return classifier_of(net)


@pytest.fixture(scope="module", name="learned")
def _learned(classifier: Classifier) -> LearnedPose:
    return learn_pose(classifier, drawn_splits(), PoseConfig(examples=300))


def test_angles_of_drawings_that_were_not_seen_are_read(classifier: Classifier, learned: LearnedPose) -> None:
    assert learned.examples == 300
    assert learned.errors.mean < 5
    assert [score.images for score in learned.errors.scores()] == [15, 15]
    able = replace(classifier, pose=learned.readout)
    test = drawn_splits().test
    for degrees in (0, 30, 90, 200):  # counter-clockwise
        evaluation = able.evaluate(test, [degrees], angles=torch.zeros(30), batch_size=7)
        assert evaluation.angle_errors is not None
        assert evaluation.angle_errors.mean < 5
        found = able.predict(rotate_each(test.images, torch.full((30,), math.radians(degrees))))
        assert found.angles is not None
        right = found.numbers == test.labels
        mean = torch.polar(torch.ones(30).double(), found.angles)[right].mean().angle()
        assert abs(math.remainder(float(mean) - math.radians(degrees), 2 * math.pi)) < 0.07


def test_images_that_are_turned_already_have_the_same_zero(classifier: Classifier) -> None:
    splits = turned_splits(drawn_splits())
    learned = learn_pose(classifier, splits, PoseConfig(examples=300), batch_size=64)
    assert learned.errors.mean < 5
    able = replace(classifier, pose=learned.readout)
    evaluation = able.evaluate(drawn_splits().test, [0.0], angles=torch.zeros(30))
    assert evaluation.angle_errors is not None
    assert evaluation.angle_errors.mean < 5


def test_the_network_stays_as_it_is_and_a_seed_gives_the_same_weights(
    classifier: Classifier, learned: LearnedPose
) -> None:
    before = {name: value.clone() for name, value in classifier.network.state_dict().items()}
    done: list[float] = []
    again = learn_pose(classifier, drawn_splits(), PoseConfig(examples=300), progress=done.append)
    other = learn_pose(classifier, drawn_splits(), PoseConfig(examples=300, seed=1))
    assert done == sorted(done)
    assert done[-1] == 1
    after = classifier.network.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert not classifier.network.training
    assert torch.equal(again.readout.weight, learned.readout.weight)
    assert not torch.equal(other.readout.weight, learned.readout.weight)


def loss(weight: Tensor, responses: Tensor, labels: Tensor, angles: Tensor, penalty: float) -> Tensor:
    """L of the docstring, written down once more."""
    scale = responses.std((0, 2), correction=0)[:, None]
    scores = pose_scores(responses / scale, weight)[torch.arange(len(labels)), labels]
    cross_entropy = -(pose_targets(angles, responses.shape[-1]) * scores.log_softmax(-1)).sum(-1).mean()
    return cross_entropy + penalty / 2 * weight.square().sum()


def test_the_weights_minimise_the_loss() -> None:
    generator = torch.Generator().manual_seed(0)
    responses = torch.rand(200, 3, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(2, (200,), generator=generator)
    angles = torch.rand(200, generator=generator, dtype=torch.float64) * 7
    readout = PoseReadout(3, 4, 5).double()  # two of the classes have no examples
    fit_readout(readout, responses, labels, angles, penalty=1e-2)
    assert not readout.weight[2:].any()
    scale = responses.std((0, 2), correction=0)[:, None]
    weight = (readout.weight.detach() * scale).requires_grad_()
    value = loss(weight, responses, labels, angles, 1e-2)
    (gradient,) = torch.autograd.grad(value, weight)
    assert float(gradient.abs().max()) < 1e-4
    assert value < loss(torch.zeros_like(weight), responses, labels, angles, 1e-2) == pytest.approx(math.log(5))


def test_mistakes_are_named(classifier: Classifier) -> None:
    splits = drawn_splits()
    with pytest.raises(ValueError, match="rotated by unknown angles: learn angles from another data set"):
        learn_pose(classifier, replace(splits, angles=None))
    with pytest.raises(ValueError, match=r"drawings has the classes \('a', 'b'\), expected \('arrow', 'flag'\)"):
        learn_pose(classifier, replace(splits, classes=("a", "b")))
    empty = LabelledImages(*(part[:0] for part in splits.validation))
    with pytest.raises(ValueError, match="drawings has no validation images"):
        learn_pose(classifier, replace(splits, validation=empty))
    sizes = ClassifierSizes((5,), (4,), (4,))
    with pytest.raises(ValueError, match="a plain CNN cannot predict angles, since it has no orientations"):
        learn_pose(classifier_of(plain_classifier(sizes, classes=2)), splits)
    for few in (1, 2):
        with pytest.raises(ValueError, match=rf"a network with {few} orientations \(Λ\) cannot predict angles"):
            learn_pose(classifier_of(steerable_classifier(sizes, few, classes=2)), splits)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"examples": 0}, "examples must be at least 1, got 0"),
        ({"examples": 10**12}, "examples must be at most"),
        ({"shift": -1.0}, "shift must be from 0 to 1000 pixels, got -1"),
        ({"shift": math.nan}, "shift must be from 0 to 1000 pixels, got nan"),
        ({"penalty": 0.0}, "penalty must be positive, got 0"),
        ({"seed": -1}, "seed"),
    ],
)
def test_settings_are_checked(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PoseConfig(**settings)  # type: ignore[arg-type]
