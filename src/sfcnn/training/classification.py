"""The task of the paper's §4.1: tell digits apart, whatever their orientation."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sfcnn.data.augmentation import random_angles, rotate_each
from sfcnn.data.datasets import Splits
from sfcnn.data.digits import Digits, first_images
from sfcnn.training.config import TrainConfig
from sfcnn.training.task import Outcome, Share, seeded_generator


class Classification:
    """Cross-entropy on the training images of a data set, in an order that only seed, epoch and step determine."""

    def __init__(self, splits: Splits, config: TrainConfig) -> None:
        self.train = first_images(splits.train, config.images.train_images, "images.train_images")
        self.held_out = first_images(splits.validation, config.images.validation_images, "images.validation_images")
        if config.images.join_validation:
            both = zip(self.train, self.held_out, strict=True)
            self.train = Digits(*(torch.cat(parts) for parts in both))
        self.train_images, self.validation_images = len(self.train.labels), len(self.held_out.labels)
        self.config = config
        # A last batch of few images would give batch norm a poor estimate, so only whole batches are taken.
        self.batch_size = min(config.optimization.batch_size, len(self.train.labels))
        if self.batch_size < 2:
            raise ValueError(f"a batch needs at least 2 images, which batch norm compares, got {self.batch_size}")
        self.steps = len(self.train.labels) // self.batch_size
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))

    def order(self, epoch: int) -> Tensor:
        """Indices (steps, batch_size) of an epoch's batches."""
        if self._order[0] != epoch:
            count = self.steps * self.batch_size
            shuffled = torch.randperm(len(self.train.labels), generator=seeded_generator(self.config.seed, 0, epoch))
            self._order = epoch, shuffled[:count].view(self.steps, self.batch_size)
        return self._order[1]

    def batch(self, epoch: int, step: int, share: Share) -> tuple[Tensor, Tensor]:
        """Images (B, 1, 28, 28), turned at random, and labels (B,)."""
        if self.batch_size % share.processes:
            raise ValueError(f"a batch of {self.batch_size} images cannot be shared by {share.processes} processes")
        mine = slice(share.rank, None, share.processes)
        chosen = self.order(epoch)[step]
        images = self.config.images
        angles = random_angles(images.augmentation, len(chosen), seeded_generator(self.config.seed, 1, epoch, step))[
            mine
        ]
        pixels = self.train.images[chosen[mine]]
        if images.augmentation != "none":
            pixels = rotate_each(pixels, angles, images.resampling)
        return pixels, self.train.labels[chosen[mine]]

    def outcome(self, net: nn.Module, inputs: Tensor, targets: Tensor) -> Outcome:
        """Cross-entropy and the number of images whose largest logit is not their label."""
        logits = net(inputs)
        mistakes = (logits.detach().argmax(1) != targets).sum()
        return Outcome(F.cross_entropy(logits.float(), targets, reduction="sum"), mistakes, len(targets))

    def validation(self, share: Share) -> list[tuple[Tensor, Tensor]]:
        """This process's part of the validation images, in batches."""
        mine = slice(share.rank, None, share.processes)
        parts = (part[mine].split(max(self.batch_size, 100)) for part in self.held_out)
        return list(zip(*parts, strict=True))
