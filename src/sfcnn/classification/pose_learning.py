"""Learn to predict angles with a trained classifier, from images rotated by known angles.

The network is not changed. Its responses z to rotated training images are computed once. The weights w of
`sfcnn.models.pose` minimise the cross-entropy between the targets t_a, whose circular mean is the angle
(`pose_targets`), and the softmax over orientations of the scores of the true class k, plus a ridge penalty:

    L(w) = −(1/N) Σ_n Σ_a t_na log softmax(s_k)_a + λ/2 |w|²,        z_c in units of its standard deviation

L is convex, so L-BFGS finds its minimum from any start, here from zero.

Images are also shifted at random. MNIST digits lie half a pixel to the right of and below the centre: after a rotation
about the centre, this offset reveals the angle, and a read-out would learn it instead of the shapes.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sfcnn.classification.angles import AngleErrors
from sfcnn.classification.augmentation import ground, random_angles, random_shifts, rotate_each
from sfcnn.classification.evaluate import batches, evaluate
from sfcnn.classification.labelled import LabelledImages, Splits, as_fraction
from sfcnn.classification.pose import make_readout, save_pose
from sfcnn.classification.predict import Classifier
from sfcnn.devices import evaluating
from sfcnn.io.provenance import provenance
from sfcnn.models.pose import PoseReadout, pooled_responses, pose_scores, pose_targets
from sfcnn.randomness import check_seed, seeded_generator
from sfcnn.train.config import check_at_least

_MOST_EXAMPLES = 10_000_000
_ITERATIONS = 200  # of L-BFGS, which stops earlier if it converges


@dataclass(frozen=True)
class PoseConfig:
    """How to learn angles.

    Args:
        examples: number of rotated images to learn from; training images are repeated as needed
        shift: also shift images by up to this many pixels in each direction
        penalty: λ of the ridge penalty
        seed: seed of the angles, shifts and order of images
    """

    examples: int = 10_000
    shift: float = 1.0
    penalty: float = 1e-4
    seed: int = 0

    def __post_init__(self) -> None:
        """Check that every number makes sense."""
        check_at_least(self, 1, "examples")
        check_seed(self.seed)
        if self.examples > _MOST_EXAMPLES:
            raise ValueError(f"examples must be at most {_MOST_EXAMPLES:,}, got {self.examples}")
        if not 0 <= self.shift <= 1000:
            raise ValueError(f"shift must be from 0 to 1000 pixels, got {self.shift}")
        if not self.penalty > 0:
            raise ValueError(f"penalty must be positive, got {self.penalty}")


@dataclass(frozen=True)
class LearnedPose:
    """A trained read-out and its errors."""

    readout: PoseReadout
    dataset: str  #: full name of the images
    examples: int  #: number of training examples
    errors: AngleErrors  #: on validation images, rotated and shifted likewise, for the predicted class


@dataclass(frozen=True)
class _Known:
    """Images rotated by known angles."""

    images: Tensor  #: (N, C, H, H)
    labels: Tensor  #: (N,)
    angles: Tensor  #: (N,), float64 radians

    def moved(self, indices: Tensor, angles: Tensor, shifts: Tensor, mode: str) -> "_Known":
        """Some of the images, rotated further and shifted."""
        pixels = as_fraction(self.images[indices])
        behind = ground(pixels)
        turned = rotate_each(pixels - behind, angles, mode, shifts) + behind
        return _Known(turned.clamp(0, 1), self.labels[indices], self.angles[indices] + angles)


def learn_pose(
    classifier: Classifier,
    splits: Splits,
    settings: PoseConfig | None = None,
    *,
    batch_size: int = 100,
    progress: Callable[[float], None] = lambda done: None,
) -> LearnedPose:
    """Learn to predict angles with a classifier, and measure the error on validation images.

    Args:
        classifier: a trained steerable one with at least 3 orientations; it is not changed.
        splits: images with known angles, of the classifier's classes.
        settings: how to learn.
        batch_size: images at a time.
        progress: called with the fraction of the work that is done.
    """
    settings, images = settings or PoseConfig(), classifier.config.images
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    readout = make_readout(classifier.network, len(classifier.classes))
    if splits.classes != classifier.classes:
        raise ValueError(f"{splits.name} has the classes {splits.classes}, expected {classifier.classes}")
    train = _known(splits, "train", images.train_images)
    validation = _known(splits, "validation", images.validation_images)
    total = settings.examples + len(validation.labels)
    responses, labels, angles = _responses(
        classifier, readout, train, settings, batch_size, lambda seen: progress(seen / total)
    )
    fit_readout(readout, responses, labels, angles, settings.penalty)
    turned = _validation(validation, settings, images.resampling)
    evaluation = evaluate(
        classifier.network,
        LabelledImages(turned.images, turned.labels),
        classifier.classes,
        batch_size=batch_size,
        pose=readout.to(classifier.device),
        angles=turned.angles,
        progress=lambda done: progress((settings.examples + done * len(validation.labels)) / total),
    )
    assert evaluation.angle_errors is not None
    return LearnedPose(readout.eval(), splits.name, len(labels), evaluation.angle_errors)


def _known(splits: Splits, split: str, count: int) -> _Known:
    angles = splits.angles_of(split)
    if angles is None:
        raise ValueError(
            f"the images of {splits.name} are rotated by unknown angles: learn angles from another data set, "
            "mnist-rot-regenerated or mnist"
        )
    images, labels, angles = (part[: count or None] for part in (*getattr(splits, split), angles))
    if not len(labels):
        raise ValueError(f"{splits.name} has no {split} images: at least one is needed")
    return _Known(images, labels, angles)


def _validation(known: _Known, settings: PoseConfig, mode: str) -> _Known:
    """Shift every image, and rotate it if all are upright; rotating images twice would only blur them more."""
    generator = seeded_generator(settings.seed, 2)
    count = len(known.labels)
    kind = "none" if known.angles.any() else "continuous"
    angles, shifts = random_angles(kind, count, generator), random_shifts(settings.shift, count, generator)
    return known.moved(torch.arange(count), angles, shifts, mode)


def _responses(
    classifier: Classifier,
    readout: PoseReadout,
    known: _Known,
    settings: PoseConfig,
    batch_size: int,
    progress: Callable[[int], None],
) -> tuple[Tensor, Tensor, Tensor]:
    """Responses (N, C, Λ) to rotated images, their labels (N,) and angles (N,)."""
    net, mode = classifier.network, classifier.config.images.resampling
    generator = seeded_generator(settings.seed, 1)
    count, size = settings.examples, len(known.labels)
    rounds = range(-(-count // size))
    order = torch.cat([torch.randperm(size, generator=generator) for _ in rounds])[:count]
    angles = random_angles("continuous", count, generator)
    shifts = random_shifts(settings.shift, count, generator)
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    seen = 0
    with evaluating(net):
        for part in zip(order.split(batch_size), angles.split(batch_size), shifts.split(batch_size), strict=True):
            turned = known.moved(*part, mode)
            (inputs,) = batches(net, turned.images, batch_size)
            responses = pooled_responses(net.get_submodule("features")(inputs), reflections=readout.reflections)
            found.append((responses.float().cpu(), turned.labels, turned.angles))
            seen += len(turned.labels)
            progress(seen)
    responses, labels, targets = (torch.cat(parts) for parts in zip(*found, strict=True))
    return responses, labels, targets


def fit_readout(readout: PoseReadout, responses: Tensor, labels: Tensor, angles: Tensor, penalty: float = 1e-4) -> None:
    """Fit a read-out: its weights minimise L for responses (N, C, Λ), classes (N,) and angles (N,).

    Classes without examples keep zero weights, so all orientations are equally likely.
    """
    scale = responses.std((0, 2), correction=0).clamp_min(1e-6)[:, None]  # the same for all orientations
    order = labels.argsort(stable=True)
    sizes = labels.bincount(minlength=len(readout.weight)).tolist()
    inputs = (responses / scale)[order].split(sizes)  # by class, since scores of other classes are not needed
    targets = pose_targets(angles, responses.shape[-1]).to(responses)[order].split(sizes)
    weight = torch.zeros_like(readout.weight, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=_ITERATIONS, history_size=20, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        total = penalty / 2 * weight.square().sum()
        for number, (of_class, wanted) in enumerate(zip(inputs, targets, strict=True)):
            if len(of_class):
                scores = pose_scores(of_class, weight[number : number + 1]).squeeze(1)
                total = total + F.cross_entropy(scores, wanted, reduction="sum") / len(labels)
        total.backward()
        return total

    optimizer.step(loss)
    with torch.no_grad():
        readout.weight.copy_(weight / scale)


def save_learned(directory: Path, learned: LearnedPose, settings: PoseConfig) -> None:
    """Write a read-out to the run of its network, with its settings and errors."""
    about: dict[str, Any] = {
        "dataset": learned.dataset,
        "examples": learned.examples,
        "settings": asdict(settings),
        "validation_images": len(learned.errors.labels),
        "angle_error": learned.errors.as_dict(),
        "provenance": provenance(),
    }
    save_pose(directory, learned.readout, about)
