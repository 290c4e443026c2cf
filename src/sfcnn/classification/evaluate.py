"""How often a classifier is wrong, on images as they are or turned by any angle (§4.1), and what it confuses."""

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
    """How well one class is recognised, in per cent; NaN where nothing was counted."""

    name: str
    images: int  #: of this class
    error: float  #: part of them that was classified as another class
    precision: float  #: part of the images classified as this class that are of it
    recall: float  #: part of the images of this class that were classified as it


@dataclass(frozen=True)
class Evaluation:
    """Counts of a test at one or more angles."""

    classes: tuple[str, ...]
    degrees: tuple[float, ...]
    counts: Tensor  #: (angles, K, K), int64: images of class i that were classified as j, with all turned by each angle
    angle_errors: AngleErrors | None = None  #: if angles were read and are known

    @property
    def images(self) -> int:
        """How many images were tested, each at every angle."""
        return int(self.counts[0].sum())

    @property
    def errors(self) -> tuple[float, ...]:
        """Per cent of images that were classified wrongly, at each angle."""
        return tuple(100 * (self.images - int(matrix.trace())) / self.images for matrix in self.counts)

    @property
    def confusion(self) -> Tensor:
        """(K, K), int64: images of class i that were classified as j, at all angles together."""
        return self.counts.sum(0)

    def scores(self) -> list[ClassScore]:
        """One for each class, at all angles together."""
        counts = self.confusion.double()
        right, true, found = counts.diag(), counts.sum(1), counts.sum(0)
        return [
            ClassScore(name, int(count) // len(self.degrees), *(100 * part.item() for part in parts))
            for name, count, *parts in zip(
                self.classes, true, (true - right) / true, right / found, right / true, strict=True
            )
        ]


def batches(net: nn.Module, images: Tensor, batch_size: int) -> Iterator[Tensor]:
    """The parts of images (N, …) along their first axis, in [0, 1], of the precision and on the device of a network."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    like = next(net.parameters(), images[:0].float())
    # The precision first: some devices have no float64.
    return (as_fraction(part).to(like.dtype).to(like.device) for part in images.split(batch_size))


def even_degrees(count: int) -> tuple[float, ...]:
    """`count` angles evenly spaced over the circle, in degrees, from 0 on.

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
    """Count which class each image gets, its largest logit, with all images turned by each angle.

    Args:
        net: a classifier, images (N, C, H, W) → logits (N, K).
        labelled: images and the numbers of their classes.
        classes: K names.
        degrees: angles, counter-clockwise.
        batch_size: images at a time.
        mode: how `sfcnn.rotate` resamples the images.
        progress: called with the fraction of the work done.
        pose: a `PoseReadout` of the classifier's features, to read the angle of the class that each image gets.
        angles: by how much each image is turned already, (N,) in radians, to compare with what is read.
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
    """The class that each image gets and the angle that is read for it, each (B,) on the CPU."""
    features, pool, head = net.children()
    responses = features(images)  # (B, C, Λ, H, W)
    found = head(pool(responses)).argmax(1).cpu()
    return found, read_angles(pose, responses, found)


def errors_by_angle(
    net: nn.Module, labelled: LabelledImages, degrees: Sequence[float], batch_size: int = 100, *, mode: str = "bicubic"
) -> tuple[float, ...]:
    """Per cent of images whose largest logit is not their label, with all of them turned by each angle."""
    with evaluating(net):
        size = net(next(batches(net, labelled.images[:1], batch_size))).shape[1]
    return evaluate(net, labelled, tuple(map(str, range(size))), degrees, batch_size, mode=mode).errors


def error_rate(net: nn.Module, labelled: LabelledImages, batch_size: int = 100) -> float:
    """Per cent of images, as they are, whose largest logit is not their label."""
    return errors_by_angle(net, labelled, [0.0], batch_size)[0]
