"""Classify images in any orientation, as in §4.1 of the paper."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sfcnn.classification.augmentation import angles_between, ground, move_each, random_angles, rotate_each
from sfcnn.classification.config import ClassificationConfig
from sfcnn.classification.data import load_splits, resolve_images
from sfcnn.classification.deformation import centre_bends, deform_each, random_bends, random_stretches
from sfcnn.classification.labelled import LabelledImages, Splits, as_fraction, first_images
from sfcnn.classification.network import build_network
from sfcnn.classification.preview import darkness
from sfcnn.randomness import seeded_generator
from sfcnn.train.run import Job, RunResult, check_directory, train_run
from sfcnn.train.start import Started, read_start
from sfcnn.train.task import Outcome, Share


class Classification:
    """Cross-entropy on the training images of a data set, in an order that depends only on seed, epoch and step."""

    def __init__(self, splits: Splits, config: ClassificationConfig) -> None:
        self.train = first_images(splits.train, config.images.train_images, "images.train_images")
        self.held_out = first_images(splits.validation, config.images.validation_images, "images.validation_images")
        if config.images.join_validation:
            both = zip(self.train, self.held_out, strict=True)
            self.train = LabelledImages(*(torch.cat(parts) for parts in both))
        self.train_images, self.validation_images = len(self.train.labels), len(self.held_out.labels)
        self.config = config
        # A small last batch would give batch norm poor estimates, so only full batches are used.
        self.batch_size = min(config.optimization.batch_size, len(self.train.labels))
        if self.batch_size < 2:
            raise ValueError(f"a batch needs at least 2 images for batch norm, got {self.batch_size}")
        self.steps = len(self.train.labels) // self.batch_size
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))
        # Offset of each image's angles, if they are spread over the epochs.
        generator = seeded_generator(config.seed, 2)
        self._offsets = torch.rand(self.train_images, dtype=torch.float64, generator=generator)

    def order(self, epoch: int) -> Tensor:
        """Indices (steps, batch_size) of an epoch's batches."""
        if self._order[0] != epoch:
            count = self.steps * self.batch_size
            shuffled = torch.randperm(len(self.train.labels), generator=seeded_generator(self.config.seed, 0, epoch))
            self._order = epoch, shuffled[:count].view(self.steps, self.batch_size)
        return self._order[1]

    def batch(self, epoch: int, step: int, share: Share) -> tuple[Tensor, Tensor]:
        """Images (B, C, H, H), rotated, deformed and shifted at random, in [0, 1] or as bytes, and labels (B,)."""
        if self.batch_size % share.processes:
            raise ValueError(f"a batch of {self.batch_size} images cannot be split over {share.processes} processes")
        mine = slice(share.rank, None, share.processes)
        chosen = self.order(epoch)[step]
        pixels = self.train.images[chosen[mine]]
        images = self.config.images
        if images.augmentation != "none" or images.moves or images.stretch or images.bend:
            pixels = as_fraction(pixels)
            behind = ground(pixels)
            pixels = pixels - behind
            if images.stretch or images.bend:
                angles, stretches, bends = (part[mine] for part in self._deformations(epoch, step))
                bends = centre_bends(pixels, angles, stretches, bends)
                pixels = deform_each(pixels, angles, stretches, bends, images.resampling)
            elif images.augmentation != "none":
                pixels = rotate_each(pixels, self._angles(epoch, step)[mine], images.resampling)
            if images.moves:
                pixels = move_each(pixels, self._offsets_of_moves(epoch, step)[mine])
            pixels = pixels + behind
        return pixels, self.train.labels[chosen[mine]]

    def _angles(self, epoch: int, step: int) -> Tensor:
        """The rotation of each image of a batch, (B,)."""
        kind, chosen = self.config.images.augmentation, self.order(epoch)[step]
        if kind == "between-orientations":
            return angles_between(self.config.model.equivariance, epoch, self._offsets[chosen])
        return random_angles(kind, len(chosen), seeded_generator(self.config.seed, 1, epoch, step))

    def _deformations(self, epoch: int, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Angles (B,), stretches (B, 2, 2) and bends (B, H, H, 2) of a batch."""
        images, generator = self.config.images, seeded_generator(self.config.seed, 4, epoch, step)
        stretches = random_stretches(images.stretch, self.batch_size, generator)
        bends = random_bends(images.bend, self.train.images.shape[-1], self.batch_size, generator)
        return self._angles(epoch, step), stretches, bends

    def _offsets_of_moves(self, epoch: int, step: int) -> Tensor:
        """The shift of each image of a batch, down and to the right in pixels, (B, 2)."""
        farthest, generator = self.config.images.moves, seeded_generator(self.config.seed, 3, epoch, step)
        return torch.randint(-farthest, farthest + 1, (self.batch_size, 2), generator=generator)

    def outcome(self, net: nn.Module, inputs: Tensor, targets: Tensor) -> Outcome:
        """Cross-entropy, with smoothed labels in training, and the number of misclassified images."""
        logits = net(as_fraction(inputs))  # here, so that data sets and batches can stay bytes until now
        mistakes = (logits.detach().argmax(1) != targets).sum()
        smoothing = self.config.optimization.label_smoothing if net.training else 0.0
        loss = F.cross_entropy(logits.float(), targets, reduction="sum", label_smoothing=smoothing)
        return Outcome(loss, mistakes, len(targets))

    def validation(self, share: Share) -> list[tuple[Tensor, Tensor]]:
        """This process's part of the validation images, in batches."""
        mine = slice(share.rank, None, share.processes)
        parts = (part[mine].split(max(self.batch_size, 100)) for part in self.held_out)
        return list(zip(*parts, strict=True))


#: Settings of the model that a network need not share with the one it starts from.
_FREE = ("init", "engine", "dropout", "padding", "view_pool", "border", "pool")


def _start(net: nn.Module, config: ClassificationConfig) -> Started:
    """Load the weights of the network in `config.start`."""
    start = read_start(config)
    start.check_settings(config, _FREE)
    return start.load(net)


def train(
    config: ClassificationConfig, directory: Path | str, data: Path | str | None = None, **options: Any
) -> RunResult:
    """Train a classifier with the settings `config` in a directory of its own, and return the result.

        config = ClassificationConfig(images=ImagesConfig("folder", path="shapes", augmentation="continuous"))
        result = train(config, "runs/shapes")
        print(result.validation_error, load("runs/shapes").predict(["unknown.png"]).names)

    Args:
        config: all settings; those that are left open for a folder are taken from its images. With `start`, the model
            is that of the start network, `sfcnn.load(start).config.model`.
        directory: of the run; see `sfcnn.io.runs` for its contents.
        data: directory of the data sets of digits, by default SFCNN_DATA.
        options: of `sfcnn.train.run.train_run`: `resume`, `device`, `observers`, `warn`.
    """
    directory = Path(directory)
    check_directory(directory, resume=options.get("resume", False))  # before reading images, which may take long
    splits = load_splits(config.images, None if data is None else Path(data))
    config = replace(config, model=config.model.resolved(), images=resolve_images(config.images, splits))
    job = Job(
        config,
        build=lambda: build_network(config.model, config.images),
        make_task=lambda: Classification(splits, config),
        dataset=splits.name,
        select_last=config.images.join_validation,
        notice=darkness(splits.train.images),
        start=(lambda net: _start(net, config)) if config.start else None,
    )
    return train_run(job, directory, **options)
