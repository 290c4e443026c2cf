from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from sfcnn.data.crops import CropConfig
from sfcnn.data.membranes import synthetic_membranes
from sfcnn.models import membrane_unet
from sfcnn.training.config import OptimizationConfig
from sfcnn.training.distributed import make_accelerator
from sfcnn.training.loop import Fit
from sfcnn.training.membranes import MembraneTask
from sfcnn.training.task import Share
from training.test_distributed import Silent

CROPS = CropConfig(size=32, margin=8, bend=1.0, bend_scale=6.0)


def make_task(**changes: int) -> MembraneTask:
    images, membranes = synthetic_membranes(4, 72, seed=0, cell=24)
    held_out = images[3:].unbind(), membranes[3:].unbind()
    numbers = {"batch_size": 4, "steps": 6, "seed": 0} | changes
    return MembraneTask(images[:3].unbind(), membranes[:3].unbind(), held_out, crops=CROPS, **numbers)


def test_a_batch_depends_on_seed_epoch_and_step_only_and_is_shared() -> None:
    whole = make_task().batch(2, 3, Share())
    assert [tuple(part.shape) for part in whole] == [(4, 1, 48, 48), (4, 1, 32, 32)]
    assert torch.equal(make_task().batch(2, 3, Share())[0], whole[0])
    assert not torch.equal(make_task().batch(2, 4, Share())[0], whole[0])
    assert not torch.equal(make_task(seed=1).batch(2, 3, Share())[0], whole[0])
    for part, both in enumerate(whole):
        halves = [make_task().batch(2, 3, Share(rank, 2))[part] for rank in range(2)]
        assert torch.equal(torch.stack(halves, 1).flatten(0, 1), both)
    with pytest.raises(ValueError, match="a batch of 4 crops cannot be shared by 3 processes"):
        make_task().batch(0, 0, Share(0, 3))


def test_loss_and_mistakes_are_means_over_pixels_and_sums_over_crops() -> None:
    targets = torch.tensor([[[[1.0, 0.0]]], [[[1.0, 1.0]]]])
    logits = torch.tensor([[[[2.0, 2.0]]], [[[-1.0, 3.0]]]])
    outcome = make_task().outcome(nn.Identity(), logits, targets)
    softplus = nn.functional.softplus
    expected = (softplus(-logits[0, 0, 0, 0]) + softplus(logits[0, 0, 0, 1])) / 2
    expected = expected + (softplus(-logits[1, 0, 0, 0]) + softplus(-logits[1, 0, 0, 1])) / 2
    torch.testing.assert_close(outcome.loss, expected)
    assert (float(outcome.mistakes), outcome.images) == (1.0, 2)


def test_slices_held_out_are_cut_side_by_side() -> None:
    task = make_task()
    pieces = task.validation(Share())
    assert len(pieces) == 4  # 72 pixels hold two crops of 32 each way
    image, membranes = task.held_out
    inputs, targets = pieces[3]
    assert torch.equal(targets[0, 0], membranes[0][32:64, 32:64].float())
    assert torch.equal(inputs[0, 0, 8:-8, 8:-8], image[0][32:64, 32:64])
    shared = [piece for rank in range(2) for piece in task.validation(Share(rank, 2))]
    assert len(shared) == 4


def test_a_small_network_learns_membranes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = membrane_unet(4, channels=4, levels=2, input_kernel_size=5, kernel_size=3, crop=8, dropout=0.0)
    fit = Fit(
        net,
        make_task(steps=12),
        replace(OptimizationConfig(), epochs=3, learning_rate=0.02, schedule="cosine"),
        seed=0,
        directory=tmp_path,
        checkpoint_steps=0,
        select_last=False,
        accelerator=make_accelerator("float32"),
        observer=Silent(),
    )
    history = fit.run().history
    part = float(make_task().held_out[1][0].float().mean())
    assert history[-1].validation_error < 0.6 * 100 * part  # calling nothing a membrane would err on all of them
    assert history[-1].validation_loss < history[0].validation_loss
