"""The task of the paper's §4.2: tell membrane from the inside of cells, pixel by pixel."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from sfcnn.data.crops import CropConfig, check_slices, random_crops
from sfcnn.segmentation.tiles import pad_by_reflection
from sfcnn.training.task import Outcome, Share, seeded_generator


class MembraneTask:
    """Pixel-wise binary cross-entropy on random crops of slices; other slices are held out.

    Args:
        images, membranes: slices (H, W) to train on, and which of their pixels are membrane.
        held_out: the same for validation.
        crops: how crops are drawn.
        batch_size: crops of a step, over all processes together.
        steps: of an epoch.
        seed: of the crops.
    """

    def __init__(
        self,
        images: Sequence[Tensor],
        membranes: Sequence[Tensor],
        held_out: tuple[Sequence[Tensor], Sequence[Tensor]],
        *,
        crops: CropConfig,
        batch_size: int,
        steps: int,
        seed: int,
    ) -> None:
        for slices in ((images, membranes), held_out):
            check_slices(*slices, crops.size)
        self.images, self.membranes, self.held_out = images, membranes, held_out
        self.train_images, self.validation_images = len(images), len(held_out[0])
        self.crops, self.batch_size, self.steps, self.seed = crops, batch_size, steps, seed

    def batch(self, epoch: int, step: int, share: Share) -> tuple[Tensor, Tensor]:
        """Crops (B, 1, S + 2M, S + 2M) and their membranes (B, 1, S, S)."""
        if self.batch_size % share.processes:
            raise ValueError(f"a batch of {self.batch_size} crops cannot be shared by {share.processes} processes")
        generator = seeded_generator(self.seed, epoch, step)
        inputs, targets = random_crops(self.images, self.membranes, self.batch_size, self.crops, generator)
        mine = slice(share.rank, None, share.processes)
        return inputs[mine], targets[mine]

    def outcome(self, net: nn.Module, inputs: Tensor, targets: Tensor) -> Outcome:
        """Cross-entropy and part of wrong pixels, each the mean over pixels and the sum over crops."""
        logits = net(inputs).float()
        loss = F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean((1, 2, 3)).sum()
        mistakes = ((logits.detach() > 0) != (targets > 0.5)).double().mean((1, 2, 3)).sum()
        return Outcome(loss, mistakes, len(inputs))

    def validation(self, share: Share) -> list[tuple[Tensor, Tensor]]:
        """The slices held out, cut into crops side by side as far as whole ones fit, with the training's margins."""
        size, margin = self.crops.size, self.crops.margin
        pieces = []
        for image, membrane in zip(*self.held_out, strict=True):
            padded = pad_by_reflection(image.float(), margin, 1)
            for row in range(0, image.shape[0] - size + 1, size):
                for column in range(0, image.shape[1] - size + 1, size):
                    window = padded[row : row + size + 2 * margin, column : column + size + 2 * margin]
                    target = membrane[row : row + size, column : column + size].float()
                    pieces.append((window[None, None], target[None, None]))
        return pieces[share.rank :: share.processes]
