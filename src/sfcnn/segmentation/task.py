"""The task of the paper's §4.2: tell the class of every pixel."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sfcnn.models.padding import pad_by_reflection
from sfcnn.randomness import seeded_generator
from sfcnn.segmentation.config import SegmentationConfig
from sfcnn.segmentation.crops import CropConfig, random_crops, standardize
from sfcnn.segmentation.data import Slices, load_slices, resolve
from sfcnn.segmentation.losses import class_weights, pixel_loss, prior_logits
from sfcnn.segmentation.network import build_network, start_at_prior
from sfcnn.train.run import Job, RunResult, train_run
from sfcnn.train.task import Outcome, Share

#: Images (C, H, W) and their masks (H, W).
Labelled = tuple[Sequence[Tensor], Sequence[Tensor]]


class SegmentationTask:
    """A loss of pixels on random crops of images; other images are held out.

    Args:
        train, held_out: images and masks to train on, and to choose the epoch by.
        classes: how many numbers the masks hold.
        crops: how crops are drawn.
        loss: one of `LOSSES`.
        batch_size: crops of a step, over all processes together.
        steps: of an epoch.
        seed: of the crops.
        label_smoothing: of the loss in training, see `OptimizationConfig`.
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
    ) -> None:
        self.train, self.held_out = (_large_enough(part, crops.size) for part in (train, held_out))
        self.train_images, self.validation_images = len(train[0]), len(held_out[0])
        self.classes, self.crops, self.loss = classes, crops, loss
        self.batch_size, self.steps, self.seed = batch_size, steps, seed
        self.label_smoothing = label_smoothing
        self.frequencies = class_frequencies(train[1], classes)
        self.weights = class_weights(loss, self.frequencies)

    def batch(self, epoch: int, step: int, share: Share) -> tuple[Tensor, Tensor]:
        """Crops (B, C, S + 2M, S + 2M) and their masks (B, S, S)."""
        if self.batch_size % share.processes:
            raise ValueError(f"a batch of {self.batch_size} crops cannot be shared by {share.processes} processes")
        generator = seeded_generator(self.seed, epoch, step)
        inputs, targets = random_crops(*self.train, self.classes, self.batch_size, self.crops, generator)
        mine = slice(share.rank, None, share.processes)
        return inputs[mine], targets[mine]

    def outcome(self, net: nn.Module, inputs: Tensor, targets: Tensor) -> Outcome:
        """Loss and part of wrong pixels, each the sum over crops."""
        smoothing = self.label_smoothing if net.training else 0.0
        losses, mistakes = pixel_loss(self.loss, net(inputs), targets, self.weights, smoothing)
        return Outcome(losses.sum(), mistakes.sum(), len(inputs))

    def validation(self, share: Share) -> list[tuple[Tensor, Tensor]]:
        """The images held out, cut into crops side by side as far as whole ones fit, with the training's margins."""
        size, margin = self.crops.size, self.crops.margin
        pieces = []
        for image, mask in zip(*self.held_out, strict=True):
            padded = pad_by_reflection(image, margin, 1)
            for row in range(0, mask.shape[0] - size + 1, size):
                for column in range(0, mask.shape[1] - size + 1, size):
                    window = padded[:, row : row + size + 2 * margin, column : column + size + 2 * margin]
                    pieces.append((window[None], mask[None, row : row + size, column : column + size]))
        return pieces[share.rank :: share.processes]


def _large_enough(labelled: Labelled, size: int) -> Labelled:
    """Images and masks, continued by reflection where they are smaller than a crop."""
    images, masks = labelled
    if not len(images) or len(images) != len(masks):
        raise ValueError(f"expected as many masks as images, and at least one, got {len(masks)} and {len(images)}")
    for image, mask in zip(images, masks, strict=True):
        if image.dim() != 3 or image.shape[1:] != mask.shape:
            raise ValueError(f"expected (C, H, W) and (H, W) alike, got {tuple(image.shape)}, {tuple(mask.shape)}")
    return [_continued(image, size) for image in images], [_continued(mask, size) for mask in masks]


def _continued(maps: Tensor, size: int) -> Tensor:
    height, width = maps.shape[-2:]
    if min(height, width) >= size:
        return maps
    whole = pad_by_reflection(maps, (max(size - min(height, width), 0) + 1) // 2, 1)
    return whole[..., : max(size, height), : max(size, width)]


def class_frequencies(masks: Sequence[Tensor], classes: int) -> Tensor:
    """The share of all pixels that each class has, (K,)."""
    counts = sum((torch.bincount(mask.flatten(), minlength=classes) for mask in masks), torch.zeros(classes))
    return (counts / counts.sum()).float()


def make_task(config: SegmentationConfig, slices: Slices) -> SegmentationTask:
    """The task of resolved settings."""
    train, held_out, _ = config.images.split(len(slices.images))

    def part(indices: list[int]) -> Labelled:
        images = (slices.images[index] for index in indices)
        prepared = [standardize(image) if config.images.standardize else image for image in images]
        return prepared, [slices.masks[index] for index in indices]

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
    )


def train(config: SegmentationConfig, directory: Path | str, *, data: Path | None = None, **options: Any) -> RunResult:
    """Train a U-Net as `config` says, in a directory of its own.

    `data` is the directory of data sets, by default that of SFCNN_DATA; `options` are those of
    `sfcnn.train.run.train_run`.
    """
    slices = load_slices(config.images, data)
    config = resolve(config, slices)
    task = make_task(config, slices)
    job = Job(
        config,
        build=lambda: start_at_prior(build_network(config), prior_logits(config.loss, task.frequencies)),
        make_task=lambda: task,
        dataset=slices.name,
    )
    return train_run(job, Path(directory), **options)
