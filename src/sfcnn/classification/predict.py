"""A trained classifier: predict class, probability and orientation of images."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sfcnn.classification.config import ClassificationConfig
from sfcnn.classification.evaluate import Evaluation, batches, evaluate
from sfcnn.classification.labelled import DIGITS, LabelledImages
from sfcnn.classification.network import build_network
from sfcnn.classification.pose import has_orientations, last_convolution, load_pose, read_angles
from sfcnn.devices import choose_device, evaluating
from sfcnn.io.images import FITS, read_images
from sfcnn.io.ink import read_digits
from sfcnn.io.runs import load_best, read_task
from sfcnn.io.settings import make_settings
from sfcnn.models.pose import PoseReadout
from sfcnn.models.views import MeanProbability


class Predictions(NamedTuple):
    """One entry per image, on the CPU."""

    numbers: Tensor  #: (N,), int64, labels of the classes with the largest logit
    names: tuple[str, ...]  #: names of these classes
    probabilities: Tensor  #: (N,), their softmax
    orientations: Tensor | None  #: (N,), float64 radians in [0, 2π), or None if the network has none
    #: (N,), float64 radians in [0, 2π), counter-clockwise rotation of objects relative to the training images; None if
    #: the run has not learned angles (`sfcnn classify pose`)
    angles: Tensor | None = None


@dataclass(frozen=True)
class Classifier:
    """A trained network and its settings; use `load` to create one."""

    network: nn.Sequential  #: images (N, C, H, W) in [0, 1] → logits (N, classes), in eval mode
    config: ClassificationConfig  #: the settings it was trained with
    device: torch.device  #: where the network is
    pose: PoseReadout | None = None  #: predicts angles from the network's features, if the run has learned it

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the logits."""
        return self.config.images.class_names

    @property
    def _channels(self) -> int:
        return self.config.images.channels or 1

    def predict(
        self,
        images: Tensor | Sequence[Path | str],
        *,
        invert: bool = False,
        fit: str | None = None,
        batch_size: int = 100,
        views: int = 1,
    ) -> Predictions:
        """Classify images.

        Args:
            images: (N, C, H, W), float in [0, 1] or uint8; or image files, and directories for all image files in
                them.
            invert: swap black and white in files that are inverted relative to the training images; not for tensors.
            fit: how files are resized for the network: "ink" as in MNIST (`sfcnn.io.ink`), which detects the colour of
                the ink, "pad" or "stretch" (`sfcnn.io.images.fit_pixels`). By default "ink" for networks trained on
                digits, else as in training.
            batch_size: images at a time.
            views: average probabilities over this many rotations of each image, between two orientations.
        """
        if not isinstance(images, Tensor):
            images = self._read([Path(path) for path in images], invert, fit)
        if images.dim() == 4 and images.shape[1] != self._channels:
            raise ValueError(
                f"the network takes images with {self._channels} channels, got shape {tuple(images.shape)}"
            )
        return predict(self.network, images, self.classes, batch_size, decide=self._views(views), pose=self.pose)

    def _read(self, paths: Sequence[Path], invert: bool, fit: str | None) -> Tensor:
        """Read image files as inputs of the network, (N, C, side, side)."""
        settings = self.config.images
        of_digits = settings.dataset != "folder"
        fit = fit or ("ink" if of_digits else settings.fit)
        if fit == "ink":
            if not of_digits:
                raise ValueError(
                    f"fit 'ink' is for networks trained on digits, choose one of {list(FITS)} for this one"
                )
            return read_digits(paths, settings.side, invert=invert)
        size = settings.side, settings.side
        return read_images(paths, size, channels=self._channels, invert=settings.invert != invert, fit=fit)

    def _views(self, count: int) -> nn.Module:
        """The network, or its mean probability over several views."""
        if count == 1:
            return self.network
        model, mode = self.config.model, self.config.images.resampling
        return MeanProbability(self.network, count, orientations=model.equivariance, mode=mode).eval()

    def evaluate(
        self, labelled: LabelledImages, degrees: Sequence[float] = (0.0,), *, views: int = 1, **options: Any
    ) -> Evaluation:
        """Test on labelled images, all rotated by each of the angles, with `views` of each image as in `predict`.

        `options` are `batch_size`, `progress` and `angles` of `sfcnn.classification.evaluate.evaluate`. Angles are
        compared if they are given, the classifier predicts angles, and `views` is 1.
        """
        net, mode = self._views(views), self.config.images.resampling
        pose = self.pose if net is self.network else None
        return evaluate(net, labelled, self.classes, degrees, mode=mode, pose=pose, **options)

    def example_images(self) -> Tensor:
        """Two random input images (2, C, H, W) on the network's device."""
        side = self.config.images.side
        generator = torch.Generator().manual_seed(0)
        return torch.rand(2, self._channels, side, side, generator=generator).to(self.device)


def load(directory: Path | str, device: str = "auto", *, pose: bool = True) -> Classifier:
    """Load the best classifier so far of a run of `train`.

    Args:
        directory: of the run.
        device: one of `sfcnn.devices.DEVICES`.
        pose: whether to load the angle read-out as well, if the run has one.
    """
    directory, place = Path(directory), choose_device(device)
    config = make_settings(ClassificationConfig, read_task(directory, "classification"))
    network = load_best(directory, build_network(config.model, config.images))
    readout = load_pose(directory, network, len(config.images.class_names)) if pose else None
    return Classifier(network.to(place), config, place, None if readout is None else readout.to(place))


def predict(
    net: nn.Module,
    images: Tensor,
    classes: Sequence[str] = DIGITS,
    batch_size: int = 100,
    *,
    decide: nn.Module | None = None,
    pose: nn.Module | None = None,
) -> Predictions:
    """Classify images (N, C, H, W) with a network in eval mode, and estimate their orientations if it has any.

    A network of `sfcnn.models.steerable_classifier` computes features ζ_c(x, θ_a), pools them over positions x and
    orientations θ_a, and maps the pooled responses to logits. The evidence r_a for orientation θ_a is the logit of the
    predicted class when only the responses of this orientation are pooled:

        r_a = head(max_x ζ(x, θ_a))[class]

    The orientation of the image is where r is largest on the circle, interpolated between the θ_a by the parabola
    through the largest value and its two neighbours. Rotating the image by φ adds φ: exactly for multiples of 90° if Λ
    is a multiple of 4, otherwise up to sampling errors.

    With reflections, the half of the orientations, plain or mirrored, with the largest r is used, and a mirrored
    orientation θ_a counts as θ_a + π, as in `OrientationReadout`: mirroring the image maps its orientation θ to π − θ.

    The zero is arbitrary: only differences between images of the same class are meaningful. A parabola needs three
    samples, so for Λ ≤ 2, as for a plain CNN, there is no orientation.

    Another network may `decide` the class, such as `MeanProbability` of this one. A `PoseReadout` of the features ζ,
    `pose`, predicts the angle for that class, relative to the images it was trained on (`sfcnn.models.pose`).
    """
    if images.dim() != 4 or not len(images):
        raise ValueError(f"predict expects images of shape (N, C, H, W), at least one, got {tuple(images.shape)}")
    with evaluating(net):
        parts = [_answer(net, decide or net, pose, batch) for batch in batches(net, images, batch_size)]
    numbers, probabilities, orientations, angles = zip(*parts, strict=True)
    chosen = torch.cat(numbers)
    names = tuple(classes[number] for number in chosen.tolist())
    return Predictions(chosen, names, torch.cat(probabilities), _joined(orientations), _joined(angles))


#: Classes, probabilities, orientations and angles of a batch.
_Batch = tuple[Tensor, Tensor, Tensor | None, Tensor | None]


def _joined(parts: tuple[Tensor | None, ...]) -> Tensor | None:
    """Concatenate batches; None if there are none."""
    known = [part for part in parts if part is not None]
    return torch.cat(known) if known else None


def _decide(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (B, K) → class and probability, each (B,)."""
    probabilities, classes = logits.softmax(1).max(1)
    return classes.cpu(), probabilities.cpu()


def _answer(net: nn.Module, decide: nn.Module, pose: nn.Module | None, images: Tensor) -> _Batch:
    if not has_orientations(net):
        return *_decide(decide(images)), None, None
    features, pool, head = net.children()
    responses = features(images)  # (B, C, Λ, H, W)
    classes, probabilities = _decide(head(pool(responses)) if decide is net else decide(images))
    angles = None if pose is None else read_angles(pose, responses, classes)
    return classes, probabilities, _orientations(net, responses, classes), angles


def _orientations(net: nn.Module, responses: Tensor, classes: Tensor) -> Tensor | None:
    """Where the evidence for a class is largest, (B,); None if there are too few orientations."""
    features, pool, head = net.children()
    size, mirrored = responses.shape[2], last_convolution(features).reflections
    if size <= (4 if mirrored else 2):
        return None
    alone = responses.movedim(2, 1).flatten(0, 1).unsqueeze(2)  # (BΛ, C, 1, H, W): each orientation as an image
    logits = head(pool(alone)).unflatten(0, (-1, size)).cpu()  # (B, Λ, K)
    evidence = logits[torch.arange(len(classes)), :, classes]
    if not mirrored:
        return peak_angle(evidence)
    halves = evidence.unflatten(1, (2, -1))  # (B, 2, Λ)
    half = halves.amax(2).argmax(1)
    angle = peak_angle(halves[torch.arange(len(half)), half]) + math.pi * half.double()
    return torch.remainder(angle, 2 * math.pi)


def peak_angle(evidence: Tensor) -> Tensor:
    """Where a function on the circle, sampled at θ_a = 2πa/Λ, is largest: (…, Λ) → radians in [0, 2π), float64 (…).

    The vertex of the parabola through the largest sample r₀ and its neighbours r₋, r₊ lies

        (r₋ − r₊) / (2 (r₋ − 2r₀ + r₊))

    steps from the largest sample, at most half a step.

    >>> peak_angle(torch.tensor([0.0, 3.0, 3.0, 0.0])) / math.pi
    tensor(0.7500, dtype=torch.float64)
    """
    samples = evidence.double()
    count = samples.shape[-1]
    if count < 3:
        raise ValueError(f"a peak needs at least 3 samples on the circle, got {count}")
    top = samples.argmax(-1, keepdim=True)
    before, peak, after = (samples.gather(-1, (top + step) % count) for step in (-1, 0, 1))
    curvature = before - 2 * peak + after  # ≤ 0; zero where all three are equal, so that any of them is the peak
    offset = torch.where(curvature < 0, (before - after) / (2 * curvature), 0.0)
    # Adding a whole circle keeps the remainder of a tiny negative number from being rounded up to the full circle.
    return torch.remainder((top + offset + count).squeeze(-1), count) * (2 * math.pi / count)
