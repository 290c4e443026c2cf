"""Labelled images and the three parts of a data set."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

#: Names of the classes of every set of digits.
DIGITS = tuple("0123456789")

#: Parts of a data set, by their names in `Splits`.
SPLITS = ("train", "validation", "test")


class LabelledImages(NamedTuple):
    """Images and their labels."""

    images: Tensor  #: (N, C, H, W), float32 in [0, 1], or uint8 in 0 … 255, which takes a quarter of the memory
    labels: Tensor  #: (N,), int64


@dataclass(frozen=True)
class Splits:
    """Images for training, model selection and testing."""

    name: str  #: as printed with results
    train: LabelledImages
    validation: LabelledImages
    test: LabelledImages
    classes: tuple[str, ...] = field(default=DIGITS, kw_only=True)  #: names in the order of labels
    #: Rotation of the images in each of the `SPLITS`, (N,) float64 radians counter-clockwise, if known; 0 if upright.
    angles: tuple[Tensor, Tensor, Tensor] | None = field(default=None, kw_only=True)

    def angles_of(self, split: str) -> Tensor | None:
        """The angles of one of the `SPLITS`, if they are known."""
        return None if self.angles is None else self.angles[SPLITS.index(split)]


def upright(*parts: LabelledImages) -> tuple[Tensor, Tensor, Tensor]:
    """The angles of three splits of upright images: zeros."""
    first, second, third = (torch.zeros(len(part.labels), dtype=torch.float64) for part in parts)
    return first, second, third


def as_fraction(images: Tensor) -> Tensor:
    """Bytes 0 … 255 as float32 in [0, 1]; float images are returned unchanged."""
    return images if images.is_floating_point() else images.float().div_(255)


def first_images(labelled: LabelledImages, count: int, setting: str) -> LabelledImages:
    """The first `count` images of a set, or all for 0; `setting` is the name of the count in error messages."""
    if count > len(labelled.labels):
        raise ValueError(
            f"{setting} must be at most {len(labelled.labels)}, the number of images available, got {count}"
        )
    return LabelledImages(*(part[: count or None] for part in labelled))
