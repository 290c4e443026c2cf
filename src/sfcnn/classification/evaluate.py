"""Test error and confusion matrix of a classifier, on images as they are or rotated by any angle (§4.1)."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sfcnn.classification.angles import AngleErrors, angle_errors
from sfcnn.classification.augmentation import ground
from sfcnn.classification.labelled import LabelledImages, as_fraction
from sfcnn.classification.pose import read_angles
from sfcnn.devices import evaluating
from sfcnn.group import rotate

_MOST_ANGLES = 36_000  # a hundredth of a degree apart


@dataclass(frozen=True)
class ClassScore:
    """Scores of one class, in per cent; NaN where undefined."""

    name: str
    images: int  #: of this class
    error: float  #: fraction of them that was classified as another class
    precision: float  #: fraction of the images classified as this class that belong to it
    recall: float  #: fraction of the images of this class that were classified as it


@dataclass(frozen=True)
class Evaluation:
    """Predicted classes of test images at one or more angles."""

    classes: tuple[str, ...]
    degrees: tuple[float, ...]
    counts: Tensor  #: (angles, K, K), int64: images of class i classified as j, rotated by each angle
    angle_errors: AngleErrors | None = None  #: if angles were predicted and the true ones are known

    @property
    def images(self) -> int:
        """Number of images, each tested at every angle."""
        return int(self.counts[0].sum())

    @property
    def errors(self) -> tuple[float, ...]:
        """Percentage of misclassified images at each angle."""
        return tuple(100 * (self.images - int(matrix.trace())) / self.images for matrix in self.counts)

    @property
    def confusion(self) -> Tensor:
        """(K, K), int64: images of class i classified as j, summed over all angles."""
        return self.counts.sum(0)

    def scores(self) -> list[ClassScore]:
        """One for each class, over all angles."""
        counts = self.confusion.double()
        right, true, found = counts.diag(), counts.sum(1), counts.sum(0)
        return [
            ClassScore(name, int(count) // len(self.degrees), *(100 * part.item() for part in parts))
            for name, count, *parts in zip(
                self.classes, true, (true - right) / true, right / found, right / true, strict=True
            )
        ]


def batches(net: nn.Module, images: Tensor, batch_size: int) -> Iterator[Tensor]:
    """Batches of images (N, …) in [0, 1], in the precision and on the device of a network."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    like = next(net.parameters(), images[:0].float())
    # The precision first: some devices do not support float64.
    return (as_fraction(part).to(like.dtype).to(like.device) for part in images.split(batch_size))


def even_degrees(count: int) -> tuple[float, ...]:
    """`count` angles evenly spaced over the circle, in degrees, starting at 0.

    >>> even_degrees(4)
    (0.0, 90.0, 180.0, 270.0)
    """
    if count < 1:
        raise ValueError(f"the number of angles must be at least 1, got {count}")
    if count > _MOST_ANGLES:
        raise ValueError(f"the number of angles must be at most {_MOST_ANGLES}, got {count}")
    return tuple(360 * index / count for index in range(count))


def evaluate(
    net: nn.Module,
    labelled: LabelledImages,
    classes: Sequence[str],
    degrees: Sequence[float] = (0.0,),
    batch_size: int = 100,
    *,
    mode: str = "bicubic",
    progress: Callable[[float], None] = lambda done: None,
    pose: nn.Module | None = None,
    angles: Tensor | None = None,
) -> Evaluation:
    """Classify all images, rotated by each angle, and count the predicted classes.

    Args:
        net: a classifier, images (N, C, H, W) → logits (N, K).
        labelled: images and labels.
        classes: K class names.
        degrees: angles, counter-clockwise.
        batch_size: images at a time.
        mode: how `sfcnn.rotate` resamples the images.
        progress: called with the fraction of the work done.
        pose: a `PoseReadout` of the classifier's features, to predict the angle for the predicted class.
        angles: the rotation that each image already has, (N,) in radians, to compare predicted angles with.
    """
    total, size = len(labelled.labels), len(classes)
    if not total:
        raise ValueError("no images to test on: at least one is needed")
    if not 0 <= int(labelled.labels.min()) <= int(labelled.labels.max()) < size:
        raise ValueError(f"labels must be from 0 to {size - 1}, got {sorted(set(labelled.labels.tolist()))}")
    counts = torch.zeros(len(degrees), size * size, dtype=torch.int64)
    pose = None if angles is None else pose
    read: list[Tensor] = []
    seen = 0
    with evaluating(net):
        for row, angle in zip(counts, degrees, strict=True):
            parts = zip(batches(net, labelled.images, batch_size), labelled.labels.split(batch_size), strict=True)
            for images, labels in parts:
                behind = ground(images)
                turned = rotate(images - behind, math.radians(angle), mode) + behind
                if pose is None:
                    found = net(turned).argmax(1).cpu()
                else:
                    found, found_angles = _classes_and_angles(net, pose, turned)
                    read.append(found_angles)
                row += torch.bincount(labels * size + found, minlength=size * size)
                seen += len(labels)
                progress(seen / (total * len(degrees)))
    errors = None
    if angles is not None and pose is not None:
        truth = angles + torch.tensor(degrees, dtype=torch.float64).deg2rad()[:, None]
        errors = angle_errors(torch.cat(read).view(truth.shape), truth, labelled.labels, classes)
    return Evaluation(tuple(classes), tuple(degrees), counts.view(-1, size, size), errors)


def _classes_and_angles(net: nn.Module, pose: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """The predicted class and angle of each image, each (B,) on the CPU."""
    features, pool, head = net.children()
    responses = features(images)  # (B, C, Λ, H, W)
    found = head(pool(responses)).argmax(1).cpu()
    return found, read_angles(pose, responses, found)


def errors_by_angle(
    net: nn.Module, labelled: LabelledImages, degrees: Sequence[float], batch_size: int = 100, *, mode: str = "bicubic"
) -> tuple[float, ...]:
    """Percentage of misclassified images, with all images rotated by each angle."""
    with evaluating(net):
        size = net(next(batches(net, labelled.images[:1], batch_size))).shape[1]
    return evaluate(net, labelled, tuple(map(str, range(size))), degrees, batch_size, mode=mode).errors


def error_rate(net: nn.Module, labelled: LabelledImages, batch_size: int = 100) -> float:
    """Percentage of misclassified images, without rotation."""
    return errors_by_angle(net, labelled, [0.0], batch_size)[0]
