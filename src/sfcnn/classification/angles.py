"""Errors of predicted angles."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


def angular_distance(angles: Tensor, others: Tensor) -> Tensor:
    """The distance between angles on the circle, in radians in [0, π].

    >>> angular_distance(torch.tensor([0.1, math.pi]), torch.tensor([2 * math.pi - 0.1, 0.0]))
    tensor([0.2000, 3.1416])
    """
    return (torch.remainder(angles - others + math.pi, 2 * math.pi) - math.pi).abs()


@dataclass(frozen=True)
class AngleScore:
    """Angle errors of one class, in degrees; NaN if there are no images."""

    name: str
    images: int  #: of this class
    mean: float
    median: float


@dataclass(frozen=True)
class AngleErrors:
    """Errors of predicted angles. Random angles have a mean and a median error of 90°."""

    classes: tuple[str, ...]
    labels: Tensor  #: (N,), true classes
    errors: Tensor  #: (A, N), radians in [0, π], of all images rotated by each of A angles

    @property
    def mean(self) -> float:
        """Over all images and angles, in degrees."""
        return _degrees(self.errors.mean())

    @property
    def median(self) -> float:
        """Over all images and angles, in degrees."""
        return _degrees(self.errors.median())

    def scores(self) -> list[AngleScore]:
        """One for each class."""
        found = []
        for number, name in enumerate(self.classes):
            chosen = self.errors[:, self.labels == number]
            scores = (chosen.mean(), chosen.median()) if chosen.numel() else (torch.tensor(math.nan),) * 2
            found.append(AngleScore(name, chosen.shape[1], *map(_degrees, scores)))
        return found

    def as_dict(self) -> dict[str, object]:
        """Mean and median in total and by class, for JSON: in degrees, None where nothing was measured."""
        return {"mean": self.mean, "median": self.median, "classes": [_plain(score) for score in self.scores()]}


def _degrees(radians: Tensor) -> float:
    return math.degrees(radians.item())


def _plain(score: AngleScore) -> dict[str, object]:
    mean, median = (None if math.isnan(value) else value for value in (score.mean, score.median))
    return {"name": score.name, "images": score.images, "mean": mean, "median": median}


def angle_errors(found: Tensor, truth: Tensor, labels: Tensor, classes: Sequence[str]) -> AngleErrors:
    """Compare angles (A, N) in radians with the true ones."""
    return AngleErrors(tuple(classes), labels, angular_distance(found, truth))
