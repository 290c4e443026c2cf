"""How often a classifier is wrong, on images as they are and turned by any angle (§4.1)."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from sfcnn.data.digits import Digits
from sfcnn.group import rotate

_MOST_ANGLES = 36_000  # a hundredth of a degree apart


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Eval mode and no gradients inside; every module's own mode afterwards."""
    modes = {module: module.training for module in net.modules()}
    net.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        net.train(modes[net])
        for module, mode in modes.items():
            module.training = mode


def batches(net: nn.Module, tensor: Tensor, batch_size: int) -> Iterator[Tensor]:
    """The parts of a tensor (N, …) along its first axis, each of the precision and on the device of the network."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    like = next(net.parameters(), tensor)
    return (part.to(like) for part in tensor.split(batch_size))


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


def errors_by_angle(
    net: nn.Module,
    digits: Digits,
    degrees: Sequence[float],
    batch_size: int = 100,
    *,
    mode: str = "bicubic",
    progress: Callable[[float], None] = lambda done: None,
) -> tuple[float, ...]:
    """Per cent of images whose largest logit is not their label, with all of them turned by each angle.

    Args:
        net: a classifier, images (N, C, H, W) → logits (N, classes).
        digits: images and their labels.
        degrees: angles, counter-clockwise.
        batch_size: images at a time.
        mode: how `sfcnn.rotate` resamples the images.
        progress: called with the fraction of the work done.
    """
    count = len(digits.labels)
    if not count:
        raise ValueError("no images to test on: at least one is needed")
    wrong = [0] * len(degrees)
    seen = 0
    with evaluating(net):
        for index, angle in enumerate(degrees):
            parts = zip(batches(net, digits.images, batch_size), digits.labels.split(batch_size), strict=True)
            for images, labels in parts:
                found = net(rotate(images, math.radians(angle), mode)).argmax(1)
                wrong[index] += int((found.to(labels.device) != labels).sum())
                seen += len(labels)
                progress(seen / (count * len(degrees)))
    return tuple(100 * mistakes / count for mistakes in wrong)


def error_rate(net: nn.Module, digits: Digits, batch_size: int = 100) -> float:
    """Per cent of images, as they are, whose largest logit is not their label."""
    return errors_by_angle(net, digits, [0.0], batch_size)[0]
