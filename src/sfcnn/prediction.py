"""What a trained classifier sees in images: the class, how sure it is, and how the object is turned."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sfcnn.evaluation import batches, evaluating
from sfcnn.nn import OrientationPool


class Predictions(NamedTuple):
    """One entry per image, on the CPU."""

    classes: Tensor  #: (N,), int64, the class with the largest logit
    probabilities: Tensor  #: (N,), its softmax
    orientations: Tensor | None  #: (N,), float64 radians in [0, 2π), or None if the network tells none


def predict(net: nn.Module, images: Tensor, batch_size: int = 100) -> Predictions:
    """Classify images (N, C, H, W) with a network in eval mode, and tell their orientations if it can.

    A network of `sfcnn.models.steerable_classifier` computes features ζ_c(x, θ_a), pools them over positions x and
    orientations θ_a, and turns the pooled responses to logits. The evidence r_a for orientation θ_a is the logit of the
    predicted class when the responses of this orientation alone are pooled:

        r_a = head(max_x ζ(x, θ_a))[class]

    The image's orientation is the maximum of r over the circle, found between the θ_a by the parabola through the
    largest value and its two neighbours. Turning the image by φ adds φ: exactly for multiples of 90°, if Λ is a
    multiple of 4, and else as well as the image is sampled.

    Its zero is the network's own: only differences between images of one class mean something. Three samples at least
    make a parabola, so for Λ ≤ 2, as for a plain CNN, there is no orientation.
    """
    if images.dim() != 4 or not len(images):
        raise ValueError(f"predict expects images of shape (N, C, H, W), at least one, got {tuple(images.shape)}")
    one = _classify_and_orient if _has_orientations(net) else _classify
    with evaluating(net):
        parts = [one(net, batch) for batch in batches(net, images, batch_size)]
    classes, probabilities, orientations = zip(*parts, strict=True)
    known = [part for part in orientations if part is not None]
    return Predictions(torch.cat(classes), torch.cat(probabilities), torch.cat(known) if known else None)


def _has_orientations(net: nn.Module) -> bool:
    """Whether a network is built as `steerable_classifier` builds them."""
    children = dict(net.named_children())
    pool = children.get("pool")
    return (
        list(children) == ["features", "pool", "head"]
        and isinstance(pool, nn.Sequential)
        and isinstance(pool[0], OrientationPool)
    )


def _decide(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (B, K) → class and probability, each (B,)."""
    probabilities, classes = logits.softmax(1).max(1)
    return classes.cpu(), probabilities.cpu()


def _classify(net: nn.Module, images: Tensor) -> Predictions:
    return Predictions(*_decide(net(images)), None)


def _classify_and_orient(net: nn.Module, images: Tensor) -> Predictions:
    features, pool, head = net.children()
    responses = features(images)  # (B, C, Λ, H, W)
    classes, probabilities = _decide(head(pool(responses)))
    orientations = responses.shape[2]
    if orientations <= 2:
        return Predictions(classes, probabilities, None)
    alone = responses.movedim(2, 1).flatten(0, 1).unsqueeze(2)  # (BΛ, C, 1, H, W): each orientation as an image
    logits = head(pool(alone)).unflatten(0, (-1, orientations)).cpu()  # (B, Λ, K)
    evidence = logits[torch.arange(len(classes)), :, classes]
    return Predictions(classes, probabilities, peak_angle(evidence))


def peak_angle(evidence: Tensor) -> Tensor:
    """Where a function on the circle, sampled at θ_a = 2πa/Λ, is largest: (…, Λ) → radians in [0, 2π), float64 (…).

    The vertex of the parabola through the largest sample r₀ and its neighbours r₋, r₊ lies

        (r₋ − r₊) / (2 (r₋ − 2r₀ + r₊))

    of a step from the sample, at most half of one.

    >>> peak_angle(torch.tensor([0.0, 3.0, 3.0, 0.0])) / math.pi
    tensor(0.7500, dtype=torch.float64)
    """
    samples = evidence.double()
    count = samples.shape[-1]
    if count < 3:
        raise ValueError(f"a peak needs at least 3 samples on the circle, got {count}")
    top = samples.argmax(-1, keepdim=True)
    before, peak, after = (samples.gather(-1, (top + step) % count) for step in (-1, 0, 1))
    curvature = before - 2 * peak + after  # ≤ 0; zero where all three are the same, and then any of them is the peak
    offset = torch.where(curvature < 0, (before - after) / (2 * curvature), 0.0)
    # Adding a whole circle keeps the remainder of a tiny negative number from being rounded up to the full circle.
    return torch.remainder((top + offset + count).squeeze(-1), count) * (2 * math.pi / count)
