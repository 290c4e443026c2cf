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
from sfcnn.segmentation.config import SegmentationConfig
from sfcnn.segmentation.crops import standardize
from sfcnn.segmentation.data import as_channels
from sfcnn.segmentation.neighbours import window
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
    def neighbours(self) -> int:
        """The number of slices above and below each slice that the network also sees, 0 if it sees only the slice."""
        return self.config.images.neighbours

    @property
    def device(self) -> torch.device:
        """The device that the network runs on."""
        return next(self.network.parameters()).device

    def predict(
        self,
        images: ArrayLike,
        *,
        only: Sequence[int] | None = None,
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
            only: indices of the slices to predict, by default all; a network trained with neighbouring slices also sees
                those next to them. A single image is its own neighbour.
            invert: swap black and white, for images whose contrast is opposite to the training images.
            pixel_size: in micrometres; images whose pixel size differs from the training images are rescaled.
            average, tile, halo: see `sfcnn.segmentation.tiles.predict_image`.
            progress: called with the fraction that is done.
        """
        slices, single = self._slices(images)
        if single and only is not None:
            raise ValueError(f"only chooses slices of a stack (Z, H, W), got one image of shape {slices.shape[1:]}")
        chosen = range(len(slices)) if only is None else only
        scale = self.scale(pixel_size)
        found = []
        for number, z in enumerate(chosen):
            maps = self._maps(slices, z, scale, invert=invert)
            answer = predict_image(
                self.network,
                maps,
                average=average,
                tile=tile,
                margin=self.config.crops.margin,
                halo=halo,
                progress=lambda done, number=number: progress((number + done) / len(chosen)),  # type: ignore[misc]
            )
            answer = resize(answer, slices.shape[1:3])
            found.append(answer[0].numpy() if len(answer) == 1 else answer.numpy())
        return found[0] if single else np.stack(found)

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
        images: ArrayLike,
        *,
        z: int | None = None,
        invert: bool = False,
        average: str = "none",
        tile: int | None = None,
        halo: int | None = None,
        progress: Callable[[float], None] = lambda done: None,
    ) -> AffinityPrediction:
        """Probabilities and affinities of an image (H, W), or of slice z of a stack (Z, H, W); RGB as in `predict`.

        If Λ is even, both ends of a pair get the mean of their two predictions. Offsets are in pixels of the training
        images, so images are not rescaled here. The values of pairs that leave the image are meaningless.

        The arguments are those of `predict`.
        """
        offsets = self.offsets
        slices, single = self._slices(images)
        if single != (z is None):
            expected = "an image (H, W), or slices (Z, H, W) and the number z of one of them"
            raise ValueError(f"expected {expected}, got shape {np.shape(images)} and z = {z}")
        maps = predict_image(
            self.network,
            self._maps(slices, z or 0, 1.0, invert=invert),
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
        channels = self.channels * (2 * self.neighbours + 1)
        return torch.rand(2, channels, side, side, generator=torch.Generator().manual_seed(0))

    def _slices(self, images: ArrayLike) -> tuple[NDArray[np.float32], bool]:
        """Images as slices (Z, H, W) or (Z, H, W, 3), and whether it was a single image."""
        array = np.asarray(images, dtype=np.float32)
        colours = array.ndim > 2 and array.shape[-1] == 3 and self.channels == 3
        if array.ndim - colours not in (2, 3) or not array.size:
            expected = "(H, W) or (Z, H, W)" + (", with a last axis of 3 for colours" if self.channels == 3 else "")
            raise ValueError(f"expected an image or slices {expected}, got shape {array.shape}")
        single = array.ndim - colours == 2
        return (array[None] if single else array), single

    def _maps(self, slices: NDArray[np.float32], z: int, scale: float, *, invert: bool) -> Tensor:
        """What the network sees of slice z: the slice and its neighbours, rescaled and standardised."""
        parts = []
        for index in window(z, len(slices), self.neighbours):
            image = 1 - slices[index] if invert else slices[index]
            maps = torch.from_numpy(as_channels(image, self.channels))
            maps = resize(maps, [max(1, round(scale * side)) for side in maps.shape[-2:]])
            parts.append(standardize(maps) if self.config.images.standardize else maps)
        return torch.cat(parts)


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
    config = make_settings(SegmentationConfig, read_task(directory, "segmentation"))
    network = load_best(directory, build_network(config))
    return Segmenter(network.to(choose_device(device)), config, directory)
