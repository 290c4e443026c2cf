from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sfcnn.io.stacks import write_stack
from sfcnn.models import count_parameters, membrane_unet
from sfcnn.models.affinity_head import split_affinities
from sfcnn.segmentation.affinities import affinity_targets
from sfcnn.segmentation.config import SegmentationConfig, SlicesConfig, UNetConfig
from sfcnn.segmentation.crops import CropConfig
from sfcnn.segmentation.data import Slices, load_slices, resolve
from sfcnn.segmentation.labels import cells_of_mask
from sfcnn.segmentation.losses import LOSSES
from sfcnn.segmentation.network import build_network, start_affinities_at_prior
from sfcnn.segmentation.offsets import oriented_offsets
from sfcnn.segmentation.predict import load
from sfcnn.segmentation.synthetic import synthetic_membranes
from sfcnn.segmentation.task import Labelled, PairTask, SegmentationTask, class_frequencies, make_task, train
from sfcnn.train.config import OptimizationConfig
from sfcnn.train.distributed import make_accelerator
from sfcnn.train.loop import EpochRecord, Fit
from sfcnn.train.task import Share
from train.test_distributed import Silent
from train.test_resume import StopAfter, assert_same_run

CROPS = CropConfig(size=32, margin=8, bend=1.0, bend_scale=6.0)


def small_task(loss: str = "cross-entropy", **changes: int) -> SegmentationTask:
    images, membranes = synthetic_membranes(4, 72, seed=0, cell=24)

    def part(which: slice) -> Labelled:
        return images[which, None].unbind(), membranes[which].long().unbind()

    numbers: dict[str, Any] = {"batch_size": 4, "steps": 6, "seed": 0} | changes
    return SegmentationTask(part(slice(3)), part(slice(3, 4)), crops=CROPS, loss=loss, **numbers)


def fit(net: nn.Module, task: SegmentationTask, directory: Path) -> list[EpochRecord]:
    """Three epochs of training."""
    trainer = Fit(
        net,
        task,
        replace(OptimizationConfig(), epochs=3, learning_rate=0.02, schedule="cosine"),
        seed=0,
        directory=directory,
        checkpoint_steps=0,
        select_last=False,
        accelerator=make_accelerator("float32"),
        observer=Silent(),
    )
    return trainer.run().history


def test_a_batch_depends_on_seed_epoch_and_step_only_and_is_shared() -> None:
    whole = small_task().batch(2, 3, Share())
    assert [tuple(part.shape) for part in whole] == [(4, 1, 48, 48), (4, 32, 32)]
    assert torch.equal(small_task().batch(2, 3, Share())[0], whole[0])
    assert not torch.equal(small_task().batch(2, 4, Share())[0], whole[0])
    assert not torch.equal(small_task(seed=1).batch(2, 3, Share())[0], whole[0])
    for part, both in enumerate(whole):
        halves = [small_task().batch(2, 3, Share(rank, 2))[part] for rank in range(2)]
        assert torch.equal(torch.stack(halves, 1).flatten(0, 1), both)
    with pytest.raises(ValueError, match="a batch of 4 crops cannot be split over 3 processes"):
        small_task().batch(0, 0, Share(0, 3))


def test_loss_and_mistakes_are_means_over_pixels_and_sums_over_crops() -> None:
    targets = torch.tensor([[[1, 0]], [[1, 1]]])
    logits = torch.tensor([[[[2.0, 2.0]]], [[[-1.0, 3.0]]]])
    outcome = small_task().outcome(nn.Identity(), logits, targets)
    softplus = nn.functional.softplus
    expected = (softplus(-logits[0, 0, 0, 0]) + softplus(logits[0, 0, 0, 1])) / 2
    expected = expected + (softplus(-logits[1, 0, 0, 0]) + softplus(-logits[1, 0, 0, 1])) / 2
    torch.testing.assert_close(outcome.loss, expected)
    assert (float(outcome.mistakes), outcome.images) == (1.0, 2)


def test_slices_held_out_are_cut_side_by_side() -> None:
    task = small_task()
    pieces = task.validation(Share())
    assert len(pieces) == 4  # 72 pixels hold two crops of 32 each way
    image, masks = task.held_out
    inputs, targets = pieces[3]
    assert torch.equal(targets[0], masks[0][32:64, 32:64])
    assert torch.equal(inputs[0, 0, 8:-8, 8:-8], image[0][0, 32:64, 32:64])
    shared = [piece for rank in range(2) for piece in task.validation(Share(rank, 2))]
    assert len(shared) == 4


def test_images_smaller_than_a_crop_are_continued_by_reflection() -> None:
    sizes = ((20, 50), (40, 20), (7, 9))
    labelled = [torch.rand(1, *size) for size in sizes], [torch.ones(size, dtype=torch.int64) for size in sizes]
    task = SegmentationTask(labelled, labelled, crops=CROPS, batch_size=4, steps=1, seed=0)
    assert all(min(mask.shape) >= 32 for mask in task.train[1])
    assert len(task.validation(Share())) == 3
    inputs, targets = task.batch(0, 0, Share())
    assert inputs.shape == (4, 1, 48, 48)
    assert (targets == 1).all()
    with pytest.raises(ValueError, match="as many masks as images, at least one, got 2 and 3"):
        SegmentationTask((labelled[0], labelled[1][:2]), labelled, crops=CROPS, batch_size=1, steps=1, seed=0)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_small_network_learns_membranes(loss: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = membrane_unet(4, channels=4, levels=2, input_kernel_size=5, kernel_size=3, crop=8, dropout=0.0)
    history = fit(net, small_task(loss, steps=12), tmp_path)
    part = float(small_task().held_out[1][0].float().mean())
    nothing = {"cross-entropy": 100 * part, "balanced": 50.0, "dice": 100.0}[loss]  # error of calling nothing membrane
    assert history[-1].validation_error < 0.6 * nothing
    assert history[-1].validation_loss < history[0].validation_loss


class NoFloat64(TorchDispatchMode):
    """Fails on any number of double precision, which some accelerators do not have."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves((args, kwargs, result)):
            assert not (isinstance(value, torch.Tensor) and value.dtype == torch.float64), func
        return result


@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_on_the_device_is_float64(loss: str) -> None:
    task = small_task(loss)
    net = membrane_unet(4, channels=2, levels=2, input_kernel_size=5, kernel_size=3, crop=8, engine="direct")
    inputs, targets = task.batch(0, 0, Share())
    with NoFloat64():
        task.outcome(net, inputs, targets).loss.backward()


CONFIG = SegmentationConfig(
    model=UNetConfig(orientations=4, channels=2, levels=2, input_kernel_size=5, kernel_size=3),
    images=SlicesConfig("stack", "em.tif", "masks.tif", validation=1, classes=("membranes",), invert_masks=True),
    crops=CropConfig(size=16, margin=4, bend=1.0, bend_scale=4.0),
    optimization=OptimizationConfig(epochs=2, batch_size=2, learning_rate=0.02),
    steps=4,
    checkpoint_steps=1,
)


@pytest.fixture
def _stacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    images, membranes = synthetic_membranes(3, 40, cell=12)
    write_stack(Path("em.tif"), (255 * images).byte().numpy())
    write_stack(Path("masks.tif"), np.where(membranes.numpy(), 0, 255).astype(np.uint8))


@pytest.mark.usefixtures("_stacks")
def test_a_run_can_be_stopped_and_loaded(tmp_path: Path) -> None:
    result = train(CONFIG, tmp_path / "whole")
    assert (result.dataset, result.train_images, result.validation_images) == ("em.tif", 2, 1)
    with pytest.raises(RuntimeError, match="stopped"):
        train(CONFIG, tmp_path / "run", observers=[StopAfter(5)])
    torch.manual_seed(7)
    train(CONFIG, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    segmenter = load(tmp_path / "run", device="cpu")
    assert segmenter.config == replace(CONFIG, images=replace(CONFIG.images, channels=1))
    assert segmenter.network(torch.rand(1, 1, 24, 32)).shape == (1, 1, 16, 24)


@pytest.mark.usefixtures("_stacks")
def test_nothing_is_made_if_no_slice_is_left_to_train_on(tmp_path: Path) -> None:
    config = replace(CONFIG, images=replace(CONFIG.images, validation=3))
    with pytest.raises(ValueError, match="must leave slices to train on, got 3 and 0 out of 3"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_masks_without_foreground_are_refused(tmp_path: Path) -> None:
    slices = load_slices(SlicesConfig())
    empty = replace(slices, masks=[torch.zeros_like(mask) for mask in slices.masks])
    with pytest.raises(ValueError, match=r"no training mask of synthetic membranes .* has any foreground"):
        make_task(SegmentationConfig(), empty)
    # One mask with foreground is enough.
    make_task(SegmentationConfig(), replace(slices, masks=[slices.masks[0], *empty.masks[1:]]))


@pytest.mark.usefixtures("_stacks")
def test_slices_left_out_are_never_seen(tmp_path: Path) -> None:
    slices = load_slices(CONFIG.images)
    config = resolve(replace(CONFIG, images=replace(CONFIG.images, test=1)), slices)
    task = make_task(config, slices)
    assert (task.train_images, task.validation_images) == (1, 1)
    slices.images[2].fill_(torch.nan)
    for epoch in range(3):
        assert make_task(config, slices).batch(epoch, 0, Share())[0].isfinite().all()


def test_a_network_begins_at_the_prior(tmp_path: Path) -> None:
    """Rare things begin as rare, so that the first steps need not be spent on saying no."""
    rare = np.zeros((60, 60), np.uint8)
    rare[:3] = 255
    for kind, image in (("images", rare), ("masks", rare)):
        (tmp_path / "pairs" / kind).mkdir(parents=True)
        for name in "ab":
            Image.fromarray(image).save(tmp_path / "pairs" / kind / f"{name}.png")
    assert class_frequencies([torch.from_numpy(rare > 0).long()], 2).tolist() == pytest.approx([0.95, 0.05])
    images = SlicesConfig("pairs", str(tmp_path / "pairs"), validation=1)
    optimization = OptimizationConfig(epochs=1, batch_size=1, learning_rate=1e-12)
    config = replace(CONFIG, images=images, optimization=optimization, steps=1)
    train(config, tmp_path / "run")
    head = load(tmp_path / "run", device="cpu").network.head
    bias = head[-1].bias  # type: ignore[index]
    assert float(bias.sigmoid().detach()) == pytest.approx(0.05, abs=1e-4)


def test_plain_twins_match() -> None:
    model = UNetConfig(orientations=8, channels=4, levels=2, input_kernel_size=5, kernel_size=5)
    steerable = count_parameters(build_network(SegmentationConfig(model=model)))
    plain = SegmentationConfig(model=replace(model, kind="plain-parameters"))
    assert abs(count_parameters(build_network(plain)) / steerable - 1) < 0.1


OFFSETS = oriented_offsets((1, 3, 9), 4)


def pair_task(**changes: int) -> SegmentationTask:
    """One image to learn, always the same way up, and the same one held out."""
    images, membranes = synthetic_membranes(1, 40, seed=0, cell=14)
    labelled = [images[:1].clone()], [membranes[0].long()]
    cells = [cells_of_mask(membranes[0])]
    numbers: dict[str, Any] = {"batch_size": 1, "steps": 20, "seed": 0} | changes
    still = replace(CROPS, size=40, margin=4, rotate=False, reflect=False, bend=0.0)
    return SegmentationTask(labelled, labelled, crops=still, pairs=PairTask(OFFSETS, cells, cells), **numbers)


def test_a_small_network_learns_affinities_by_heart(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = membrane_unet(4, channels=3, levels=2, input_kernel_size=5, kernel_size=3, crop=4, dropout=0.0, affinities=3)
    history = fit(net, pair_task(), tmp_path)
    assert history[-1].loss < 0.5 * history[0].loss
    inputs, targets = pair_task().validation(Share())[0]
    assert targets.shape == (1, 2, 40, 40)
    _, affinities = split_affinities(net.eval()(inputs, affinities=True), 3, 4)
    same, valid = affinity_targets(targets[:, 1], OFFSETS)
    for radius in range(3):
        known = valid[:, radius]
        wrong = ((affinities[:, radius] > 0) != same[:, radius])[known].float().mean()
        share = same[:, radius][known].float().mean()
        assert wrong < 0.5 * min(share, 1 - share)  # than of the better of "always" and "never"


def test_the_loss_of_affinities_is_added_with_its_weight() -> None:
    task = pair_task()
    net = membrane_unet(4, channels=2, levels=2, input_kernel_size=5, kernel_size=3, crop=4, dropout=0.0, affinities=3)
    inputs, targets = task.batch(0, 0, Share())
    assert task.pairs is not None
    losses = []
    for weight in (0.0, 1.0, 3.0):
        task.pairs = replace(task.pairs, weight=weight)
        losses.append(float(task.outcome(net, inputs, targets).loss.detach()))
    assert losses[0] < losses[1]
    assert losses[2] - losses[0] == pytest.approx(3 * (losses[1] - losses[0]), rel=1e-4)


def test_cells_of_small_images_end_with_the_image() -> None:
    """Images are continued by reflection, but whether a reflected cell is another is not known."""
    mask = torch.zeros(20, 24, dtype=torch.int64)
    mask[:, 10] = 1
    labelled = [torch.rand(1, 20, 24)], [mask]
    cells = [cells_of_mask(mask)]
    task = SegmentationTask(
        labelled, labelled, crops=CROPS, batch_size=1, steps=1, seed=0, pairs=PairTask(OFFSETS, cells, cells)
    )
    assert task.labels is not None
    known = task.labels[0] >= 0
    assert task.labels[0].shape == task.train[1][0].shape
    assert int(known.sum()) == 20 * 24
    assert torch.equal(task.train[1][0][known], (task.labels[0][known] == 0).long())
    with pytest.raises(ValueError, match="expected one label image for each mask"):
        SegmentationTask(
            labelled, labelled, crops=CROPS, batch_size=1, steps=1, seed=0, pairs=PairTask(OFFSETS, [], cells)
        )


@pytest.mark.usefixtures("_stacks")
@pytest.mark.parametrize("kind", ["steerable", "plain-parameters"])
def test_a_run_with_affinities_can_be_stopped_and_loaded(kind: str, tmp_path: Path) -> None:
    model = replace(CONFIG.model, kind=kind, affinities=(1.0, 3.0))
    config = replace(CONFIG, model=model, steps=2)
    train(config, tmp_path / "whole")
    with pytest.raises(RuntimeError, match="stopped"):
        train(config, tmp_path / "run", observers=[StopAfter(3)])
    torch.manual_seed(7)
    train(config, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    segmenter = load(tmp_path / "run", device="cpu")
    found = segmenter.predict_affinities(np.random.default_rng(0).random((24, 33)))
    assert (found.probabilities.shape, found.affinities.shape) == ((24, 33), (2, 4, 24, 33))


@pytest.mark.parametrize("kind", ["steerable", "plain-channels"])
def test_affinities_begin_at_the_share_of_each_radius(kind: str) -> None:
    config = replace(CONFIG, model=replace(CONFIG.model, kind=kind, affinities=(1.0, 9.0)))
    net = start_affinities_at_prior(build_network(config), torch.tensor([0.8, 0.3]))
    assert net.affinity_head is not None
    for weight in net.affinity_head.layers[-1].parameters():
        if weight.dim() > 1:
            nn.init.zeros_(weight)
    _, affinities = split_affinities(net(torch.rand(1, 1, 16, 16), affinities=True).sigmoid(), 2, 4)
    torch.testing.assert_close(affinities[:, 0], torch.full_like(affinities[:, 0], 0.8))
    torch.testing.assert_close(affinities[:, 1], torch.full_like(affinities[:, 1], 0.3))


def test_several_classes_have_no_cells() -> None:
    slices = Slices("ours", [torch.rand(1, 8, 8)], [torch.zeros(8, 8).long()], ("ground", "cell", "nucleus"))
    with pytest.raises(ValueError, match="affinities need masks of a single class, cell membranes, got"):
        slices.cells(0)
