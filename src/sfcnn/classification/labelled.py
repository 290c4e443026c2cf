"""Labelled images and the three parts of a data set."""

from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

#: Names of the classes of every set of digits.
DIGITS = tuple("0123456789")

#: Parts of a data set, by their names in `Splits`.
SPLITS = ("train", "validation", "test")


class LabelledImages(NamedTuple):
    """Images and the numbers of their classes."""

    images: Tensor  #: (N, C, H, W), float32 in [0, 1], or uint8 in 0 … 255, which takes a quarter of the memory
    labels: Tensor  #: (N,), int64


@dataclass(frozen=True)
class Splits:
    """Images to train on, to select a model by, and to test it on."""

    name: str  #: as printed beside numbers
    train: LabelledImages
    validation: LabelledImages
    test: LabelledImages
    classes: tuple[str, ...] = field(default=DIGITS, kw_only=True)  #: names, by number


def as_fraction(images: Tensor) -> Tensor:
    """Bytes 0 … 255 as float32 in [0, 1]; images that are float already stay as they are."""
    return images if images.is_floating_point() else images.float().div_(255)


def first_images(labelled: LabelledImages, count: int, setting: str) -> LabelledImages:
    """The first `count` images of a set, all of them for 0; `setting` is the count's name in an error."""
    if count > len(labelled.labels):
        raise ValueError(f"{setting} must be at most {len(labelled.labels)}, the number of such images, got {count}")
    return LabelledImages(*(part[: count or None] for part in labelled))
