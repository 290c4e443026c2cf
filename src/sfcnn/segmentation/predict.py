"""A trained U-Net with what it needs around it: images as they come in, probabilities of their size out."""

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

_SAME_SIZE = 0.02  # pixels whose sizes differ by less than this part are taken as they are
_MOST_SCALE = 16.0  # by which an image is made larger or smaller; more is a wrong unit


class AffinityPrediction(NamedTuple):
    """What `Segmenter.predict_affinities` returns."""

    probabilities: NDArray[np.float32]  #: (H, W), or (K, H, W) for several classes
    affinities: NDArray[np.float32]  #: (D, Λ, H, W), probabilities that a pixel and the one a step away are in one cell


@dataclass(frozen=True)
class Segmenter:
    """A network that tells the class of every pixel, in eval mode on its device."""

    network: UNet
    config: SegmentationConfig  #: of its training
    directory: Path  #: of its run

    @property
    def classes(self) -> tuple[str, ...]:
        """One name for what is looked for, or a name for each of several classes."""
        return self.config.images.classes

    @property
    def channels(self) -> int:
        """1 for grey images, 3 for RGB."""
        return self.config.images.channels or 1

    @property
    def device(self) -> torch.device:
        """Where the network computes."""
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
        """Probabilities of an image (H, W), of slices (Z, H, W), or of RGB images with a last axis of 3.

        Several classes stand on an axis before the height: (H, W) → (K, H, W) and (Z, H, W) → (Z, K, H, W).

        Args:
            images: brightness from black, 0, to white, 1.
            invert: exchange black and white, for images of the other contrast than those of the training.
            pixel_size: in micrometres; images of other pixels than the training's are rescaled for the network.
            average, tile, halo: see `sfcnn.segmentation.tiles.predict_image`.
            progress: called with the part that is done.
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
        """The steps (D, Λ, 2) of the network's affinities, in rows and columns."""
        if not self.config.model.affinities:
            raise ValueError(
                f"{self.directory} has no affinities: train a network with --model.affinities '[1,3,9,27]'"
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

        Both ends of a pair have the same affinity, the mean of what they say, if Λ is even. Steps count pixels of the
        training's size, so that images are not rescaled here. Pairs that leave the image have values without meaning.

        Args are those of `predict`.
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
        """The factor on an image's sides that gives its pixels the size of the training's; 1 if one is not known."""
        if pixel_size < 0:
            raise ValueError(f"pixel_size must be at least 0, got {pixel_size}")
        trained = self.config.images.pixel_size
        scale = pixel_size / trained if pixel_size and trained else 1.0
        if not 1 / _MOST_SCALE <= scale <= _MOST_SCALE:
            raise ValueError(
                f"pixels of {pixel_size:g} µm are too far from those of the training, {trained:g} µm: "
                "check the unit, or pass a pixel size of 0 to leave images as they are"
            )
        return 1.0 if abs(scale - 1) < _SAME_SIZE else scale

    def example_images(self) -> Tensor:
        """Two images (2, C, S, S) of noise on which the network can be tried: a few pixels on its coarsest level."""
        unit = coarsest_pixel(self.network)
        side = unit * max(4, 2 * self.config.crops.margin // unit + 2)
        return torch.rand(2, self.channels, side, side, generator=torch.Generator().manual_seed(0))

    def _prepare(self, image: Tensor) -> Tensor:
        return standardize(image) if self.config.images.standardize else image


def resize(maps: Tensor, sides: Sequence[int]) -> Tensor:
    """Maps (C, H, W) resampled to sides (H', W'), without aliasing if those are smaller."""
    if tuple(sides) == tuple(maps.shape[-2:]):
        return maps
    smaller = sides[0] < maps.shape[-2] or sides[1] < maps.shape[-1]
    return F.interpolate(maps[None], tuple(sides), mode="bilinear", align_corners=False, antialias=smaller)[0]


def load(directory: Path | str, device: str = "auto") -> Segmenter:
    """The best network so far of a run that `train` made.

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
