"""Prediction with a trained U-Net: takes images as they are, returns probabilities of the same size."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from sfcnn.devices import choose_device
from sfcnn.io.runs import load_best, read_task
from sfcnn.io.settings import make_settings
from sfcnn.models.affinity_head import split_affinities
from sfcnn.models.unet import UNet
from sfcnn.segmentation.affinities import Offsets, average_pairs
from sfcnn.segmentation.config import SegmentationConfig, from_version_1
from sfcnn.segmentation.crops import standardize
from sfcnn.segmentation.data import as_channels
from sfcnn.segmentation.network import build_network
from sfcnn.segmentation.offsets import oriented_offsets
from sfcnn.segmentation.tiles import coarsest_pixel, predict_image

_SAME_SIZE = 0.02  # images whose pixel size differs by less than this fraction are not rescaled
_MOST_SCALE = 16.0  # largest factor by which an image is enlarged or shrunk; more suggests a wrong unit


class AffinityPrediction(NamedTuple):
    """What `Segmenter.predict_affinities` returns."""

    probabilities: NDArray[np.float32]  #: (H, W), or (K, H, W) for several classes
    affinities: NDArray[np.float32]  #: (D, Λ, H, W), probabilities that the two pixels of a pair are in the same cell


@dataclass(frozen=True)
class Segmenter:
    """A network that predicts the class of every pixel, in eval mode on its device."""

    network: UNet
    config: SegmentationConfig  #: the settings it was trained with
    directory: Path  #: the directory of its run

    @property
    def classes(self) -> tuple[str, ...]:
        """One name for the foreground, or a name for each of several classes."""
        return self.config.images.classes

    @property
    def channels(self) -> int:
        """1 for grey images, 3 for RGB."""
        return self.config.images.channels or 1

    @property
    def device(self) -> torch.device:
        """The device that the network runs on."""
        return next(self.network.parameters()).device

    def predict(
        self,
        images: ArrayLike,
        *,
        invert: bool = False,
        pixel_size: float = 0.0,
        average: str = "none",
        tile: int | None = None,
        halo: int | None = None,
        progress: Callable[[float], None] = lambda done: None,
    ) -> NDArray[np.float32]:
        """Probabilities for an image (H, W), for slices (Z, H, W), or for RGB images with a last axis of 3.

        Several classes add an axis before the height: (H, W) → (K, H, W) and (Z, H, W) → (Z, K, H, W).

        Args:
            images: brightness from 0 (black) to 1 (white).
            invert: swap black and white, for images whose contrast is opposite to the training images.
            pixel_size: in micrometres; images whose pixel size differs from the training images are rescaled.
            average, tile, halo: see `sfcnn.segmentation.tiles.predict_image`.
            progress: called with the fraction that is done.
        """
        array = np.asarray(images, dtype=np.float32)
        colours = array.ndim > 2 and array.shape[-1] == 3 and self.channels == 3
        if array.ndim - colours not in (2, 3) or not array.size:
            expected = "(H, W) or (Z, H, W)" + (", with a last axis of 3 for colours" if self.channels == 3 else "")
            raise ValueError(f"expected an image or slices {expected}, got shape {array.shape}")
        slices = array if array.ndim - colours == 3 else array[None]
        scale = self.scale(pixel_size)
        found = []
        for number, image in enumerate(slices):
            maps = torch.from_numpy(as_channels(1 - image if invert else image, self.channels))
            sides = [max(1, round(scale * side)) for side in maps.shape[-2:]]
            answer = predict_image(
                self.network,
                self._prepare(resize(maps, sides)),
                average=average,
                tile=tile,
                margin=self.config.crops.margin,
                halo=halo,
                progress=lambda done, number=number: progress((number + done) / len(slices)),  # type: ignore[misc]
            )
            answer = resize(answer, maps.shape[-2:])
            found.append(answer[0].numpy() if len(answer) == 1 else answer.numpy())
        return np.stack(found) if array.ndim - colours == 3 else found[0]

    @property
    def offsets(self) -> Offsets:
        """The offsets (D, Λ, 2) of the network's affinities, in rows and columns."""
        if not self.config.model.affinities:
            raise ValueError(
                f"{self.directory} does not predict affinities: train a network with --model.affinities '[1,3,9,27]'"
            )
        return oriented_offsets(self.config.model.affinities, self.config.model.orientations)

    def predict_affinities(
        self,
        image: ArrayLike,
        *,
        invert: bool = False,
        average: str = "none",
        tile: int | None = None,
        halo: int | None = None,
        progress: Callable[[float], None] = lambda done: None,
    ) -> AffinityPrediction:
        """Probabilities and affinities of one image (H, W), or of an RGB image (H, W, 3).

        If Λ is even, both ends of a pair get the mean of their two predictions. Offsets are in pixels of the training
        images, so images are not rescaled here. The values of pairs that leave the image are meaningless.

        The arguments are those of `predict`.
        """
        offsets = self.offsets
        array = np.asarray(image, dtype=np.float32)
        colours = self.channels == 3 and array.shape[2:] == (3,)
        if array.ndim - colours != 2 or not array.size:
            expected = "(H, W)" + (" or (H, W, 3)" if self.channels == 3 else "")
            raise ValueError(f"expected an image {expected}, got shape {array.shape}")
        maps = predict_image(
            self.network,
            self._prepare(torch.from_numpy(as_channels(1 - array if invert else array, self.channels))),
            average=average,
            tile=tile,
            margin=self.config.crops.margin,
            halo=halo,
            affinities=True,
            progress=progress,
        )
        classes, affinities = split_affinities(maps, *offsets.shape[:2])
        found = classes[0] if len(classes) == 1 else classes
        return AffinityPrediction(found.numpy(), average_pairs(affinities, offsets).numpy())

    def scale(self, pixel_size: float) -> float:
        """The factor that rescales an image to the pixel size of the training images; 1 if either is unknown."""
        if pixel_size < 0:
            raise ValueError(f"pixel_size must be at least 0, got {pixel_size}")
        trained = self.config.images.pixel_size
        scale = pixel_size / trained if pixel_size and trained else 1.0
        if not 1 / _MOST_SCALE <= scale <= _MOST_SCALE:
            raise ValueError(
                f"a pixel size of {pixel_size:g} µm is too far from that of the training images, {trained:g} µm: "
                "check the unit, or pass a pixel size of 0 to use images as they are"
            )
        return 1.0 if abs(scale - 1) < _SAME_SIZE else scale

    def example_images(self) -> Tensor:
        """Two noise images (2, C, S, S) to try the network on, a few pixels wide at its coarsest level."""
        unit = coarsest_pixel(self.network)
        side = unit * max(4, 2 * self.config.crops.margin // unit + 2)
        return torch.rand(2, self.channels, side, side, generator=torch.Generator().manual_seed(0))

    def _prepare(self, image: Tensor) -> Tensor:
        return standardize(image) if self.config.images.standardize else image


def resize(maps: Tensor, sides: Sequence[int]) -> Tensor:
    """Resample maps (C, H, W) to sides (H', W'), with antialiasing if those are smaller."""
    if tuple(sides) == tuple(maps.shape[-2:]):
        return maps
    smaller = sides[0] < maps.shape[-2] or sides[1] < maps.shape[-1]
    return F.interpolate(maps[None], tuple(sides), mode="bilinear", align_corners=False, antialias=smaller)[0]


def load(directory: Path | str, device: str = "auto") -> Segmenter:
    """Load the best network so far from a run created by `train`.

    >>> from sfcnn.pretrained import find_run
    >>> segmenter = load(find_run("isbi2012"), device="cpu")
    >>> segmenter.classes, segmenter.predict(np.zeros((40, 50))).shape
    (('membranes',), (40, 50))
    """
    directory = Path(directory)
    values = from_version_1(read_task(directory, "segmentation"))
    config = make_settings(SegmentationConfig, values)
    network = load_best(directory, build_network(config))
    return Segmenter(network.to(choose_device(device)), config, directory)
