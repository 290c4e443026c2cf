"""The segmentation task (§4.2): predict the class of every pixel."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sfcnn.models.affinity_head import split_affinities
from sfcnn.models.padding import margins, pad_by_reflection
from sfcnn.randomness import seeded_generator
from sfcnn.segmentation.affinities import Offsets, affinity_targets, same_shares
from sfcnn.segmentation.config import SegmentationConfig
from sfcnn.segmentation.crops import CropConfig, random_crops, standardize
from sfcnn.segmentation.data import Slices, load_slices, resolve
from sfcnn.segmentation.losses import affinity_loss, class_weights, pixel_loss, prior_logits
from sfcnn.segmentation.neighbours import with_neighbours
from sfcnn.segmentation.network import build_network, start_affinities_at_prior, start_at_prior
from sfcnn.segmentation.offsets import oriented_offsets
from sfcnn.train.run import Job, RunResult, train_run
from sfcnn.train.start import Started, read_start
from sfcnn.train.task import Outcome, Share

#: Images (C, H, W) and their masks (H, W).
Labelled = tuple[Sequence[Tensor], Sequence[Tensor]]


@dataclass(frozen=True)
class PairTask:
    """Affinities, learned along with the pixel classes."""

    offsets: Offsets  #: (D, Λ, 2), of the network's affinities
    train: Sequence[Tensor]  #: label images (H, W) of the training images
    held_out: Sequence[Tensor]  #: label images (H, W) of the validation images
    weight: float = 1.0  #: weight of the affinities in the loss


class SegmentationTask:
    """A pixel loss on random crops of the training images, validated on held-out images.

    Args:
        train, held_out: images and masks for training, and for selecting the epoch.
        classes: number of classes in the masks.
        crops: how crops are drawn.
        loss: one of `LOSSES`.
        batch_size: crops per step, over all processes together.
        steps: steps per epoch.
        seed: seed of the crops.
        label_smoothing: of the training loss, see `OptimizationConfig`.
        pairs: targets for networks that predict affinities; targets are then masks and label images (B, 2, S, S).
        neighbours: number of neighbouring slices on each side among the channels of the images.
    """

    def __init__(
        self,
        train: Labelled,
        held_out: Labelled,
        *,
        classes: int = 2,
        crops: CropConfig,
        loss: str = "cross-entropy",
        batch_size: int,
        steps: int,
        seed: int,
        label_smoothing: float = 0.0,
        pairs: PairTask | None = None,
        neighbours: int = 0,
    ) -> None:
        self.train, self.held_out = _large_enough(train, crops.window), _large_enough(held_out, crops.size)
        self.train_images, self.validation_images = len(train[0]), len(held_out[0])
        self.classes, self.crops, self.loss = classes, crops, loss
        self.batch_size, self.steps, self.seed = batch_size, steps, seed
        self.label_smoothing = label_smoothing
        self.frequencies = class_frequencies(train[1], classes)
        self.weights = class_weights(loss, self.frequencies)
        self.pairs, self.neighbours = pairs, neighbours
        self.labels, self.held_out_labels = None, None
        if pairs:
            self.labels = _labels_like(pairs.train, train[1], crops.window)
            self.held_out_labels = _labels_like(pairs.held_out, held_out[1], crops.size)

    def batch(self, epoch: int, step: int, share: Share) -> tuple[Tensor, Tensor]:
        """Crops (B, C, S + 2M, S + 2M) and their masks (B, S, S), or masks and label images (B, 2, S, S)."""
        if self.batch_size % share.processes:
            raise ValueError(f"a batch of {self.batch_size} crops cannot be split over {share.processes} processes")
        generator = seeded_generator(self.seed, epoch, step)
        images, masks = self.train
        inputs, targets = random_crops(
            images, masks, self.classes, self.batch_size, self.crops, generator, self.labels, self.neighbours
        )
        mine = slice(share.rank, None, share.processes)
        return inputs[mine], targets[mine]

    def outcome(self, net: nn.Module, inputs: Tensor, targets: Tensor) -> Outcome:
        """Loss and error rate, each summed over crops."""
        smoothing = self.label_smoothing if net.training else 0.0
        if not self.pairs:
            losses, mistakes = pixel_loss(self.loss, net(inputs), targets, self.weights, smoothing)
            return Outcome(losses.sum(), mistakes.sum(), len(inputs))
        offsets = self.pairs.offsets
        logits, affinities = split_affinities(net(inputs, affinities=True), *offsets.shape[:2])
        losses, mistakes = pixel_loss(self.loss, logits, targets[:, 0], self.weights, smoothing)
        losses = losses + self.pairs.weight * affinity_loss(affinities, *affinity_targets(targets[:, 1], offsets))
        return Outcome(losses.sum(), mistakes.sum(), len(inputs))

    def validation(self, share: Share) -> list[tuple[Tensor, Tensor]]:
        """The held-out images, divided into as many whole adjacent crops as fit, with margins as in training."""
        size, margin = self.crops.size, self.crops.margin
        pieces = []
        images, targets = self.held_out
        if self.held_out_labels:
            targets = [torch.stack(both) for both in zip(targets, self.held_out_labels, strict=True)]
        for image, target in zip(images, targets, strict=True):
            padded = pad_by_reflection(image, margin, 1)
            for row in range(0, target.shape[-2] - size + 1, size):
                for column in range(0, target.shape[-1] - size + 1, size):
                    window = padded[:, row : row + size + 2 * margin, column : column + size + 2 * margin]
                    pieces.append((window[None], target[None, ..., row : row + size, column : column + size]))
        return pieces[share.rank :: share.processes]


def _large_enough(labelled: Labelled, size: int) -> Labelled:
    """Images and masks, padded by reflection where they are smaller than a crop."""
    images, masks = labelled
    if not len(images) or len(images) != len(masks):
        raise ValueError(f"expected as many masks as images, at least one, got {len(masks)} and {len(images)}")
    for image, mask in zip(images, masks, strict=True):
        if image.dim() != 3 or image.shape[1:] != mask.shape:
            raise ValueError(
                f"expected an image (C, H, W) and a mask (H, W), got {tuple(image.shape)} and {tuple(mask.shape)}"
            )
    return [_continued(image, size) for image in images], [_continued(mask, size) for mask in masks]


def _continued(maps: Tensor, size: int, unknown: int | None = None) -> Tensor:
    """Maps, padded up to `size` by reflection, or by the value `unknown`."""
    height, width = maps.shape[-2:]
    if min(height, width) >= size:
        return maps
    margin = (max(size - min(height, width), 0) + 1) // 2
    if unknown is None:
        whole = pad_by_reflection(maps, margin, 1)
    else:
        whole = F.pad(maps, (*margins(width, margin, 1), *margins(height, margin, 1)), value=unknown)
    return whole[..., : max(size, height), : max(size, width)]


def _labels_like(labels: Sequence[Tensor], masks: Sequence[Tensor], size: int) -> list[Tensor]:
    """Label images, padded like masks in `_large_enough`, but with −1: a reflected cell is not the same cell."""
    if [image.shape for image in labels] != [mask.shape for mask in masks]:
        raise ValueError("expected one label image for each mask, of the same shape")
    return [_continued(image, size, unknown=-1) for image in labels]


def class_frequencies(masks: Sequence[Tensor], classes: int) -> Tensor:
    """The fraction of all pixels in each class, (K,)."""
    counts = sum((torch.bincount(mask.flatten(), minlength=classes) for mask in masks), torch.zeros(classes))
    return (counts / counts.sum()).float()


def make_task(config: SegmentationConfig, slices: Slices) -> SegmentationTask:
    """Build the task for resolved settings."""
    train, held_out, _ = config.images.split(len(slices.images))
    images = [standardize(image) if config.images.standardize else image for image in slices.images]
    images = with_neighbours(images, config.images.neighbours)

    def part(indices: list[int]) -> Labelled:
        return [images[index] for index in indices], [slices.masks[index] for index in indices]

    if not any(slices.masks[index].any() for index in train):
        raise ValueError(f"no training mask of {slices.name} has any foreground: all of their pixels are 0")
    pairs = None
    if config.model.affinities:
        offsets = oriented_offsets(config.model.affinities, config.model.orientations)
        known, chosen_by = ([slices.cells(index) for index in indices] for indices in (train, held_out))
        pairs = PairTask(offsets, known, chosen_by, config.affinity_weight)
    return SegmentationTask(
        part(train),
        part(held_out),
        classes=max(2, len(slices.classes)),
        crops=config.crops,
        loss=config.loss,
        batch_size=config.optimization.batch_size,
        steps=config.steps,
        seed=config.seed,
        label_smoothing=config.optimization.label_smoothing,
        pairs=pairs,
        neighbours=config.images.neighbours,
    )


#: Settings of the model that a network need not share with the one it starts from.
_FREE = ("init", "engine", "dropout", "affinities")


def _start(net: nn.Module, config: SegmentationConfig) -> Started:
    """Load the weights of the network in `config.start`, without its affinities if their distances are others."""
    start = read_start(config)
    start.check_settings(config, _FREE, images=("neighbours",))
    same = start.config.model.affinities == config.model.affinities
    return start.load(net, replaced=() if same else ("affinity_head",))


def train(config: SegmentationConfig, directory: Path | str, *, data: Path | None = None, **options: Any) -> RunResult:
    """Train a U-Net with the settings in `config` and write the run to `directory`.

    With `config.start`, the model is that of the start network, `sfcnn.load(start).config.model`.
    `data` is the data directory, by default the one in SFCNN_DATA; `options` are passed to
    `sfcnn.train.run.train_run`.
    """
    slices = load_slices(config.images, data)
    config = resolve(config, slices)
    task = make_task(config, slices)

    def build() -> nn.Module:
        net = start_at_prior(build_network(config), prior_logits(config.loss, task.frequencies))
        return start_affinities_at_prior(net, same_shares(task.pairs.train, task.pairs.offsets)) if task.pairs else net

    job = Job(
        config,
        build=build,
        make_task=lambda: task,
        dataset=slices.name,
        start=(lambda net: _start(net, config)) if config.start else None,
        more_steps="more steps",
    )
    return train_run(job, Path(directory), **options)
