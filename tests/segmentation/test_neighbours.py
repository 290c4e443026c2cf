"""Neighbouring slices are channels, in training as in prediction."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sfcnn.segmentation import CropConfig, SegmentationConfig, SlicesConfig, UNetConfig, load, load_slices, train
from sfcnn.segmentation.crops import random_crops, vary_brightness
from sfcnn.segmentation.data import resolve
from sfcnn.segmentation.neighbours import window, with_neighbours, without_neighbours
from sfcnn.segmentation.task import make_task
from sfcnn.train.config import OptimizationConfig
from sfcnn.train.task import Share

CONFIG = SegmentationConfig(
    model=UNetConfig(orientations=4, channels=2, levels=2, input_kernel_size=5, kernel_size=3, dropout=0),
    images=SlicesConfig(validation=2, neighbours=1),
    crops=CropConfig(size=24, margin=4, contrast=0.2, noise=0.2, alone=0.2),
    optimization=OptimizationConfig(epochs=1, batch_size=2),
    steps=2,
)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("depth", [1, 2, 3, 7])
@pytest.mark.parametrize("neighbours", [0, 1, 3])
def test_windows_stay_inside_the_stack(depth: int, neighbours: int) -> None:
    for z in range(depth):
        found = window(z, depth, neighbours)
        assert len(found) == 2 * neighbours + 1
        assert found[neighbours] == z
        expected = [min(max(index, 0), depth - 1) for index in range(z - neighbours, z + neighbours + 1)]
        assert found == expected
    for outside in (-1, depth):
        with pytest.raises(ValueError, match="is not in a stack"):
            window(outside, depth, neighbours)


def test_colours_stay_together() -> None:
    stack = list(torch.arange(4 * 3).view(4, 3, 1, 1).expand(4, 3, 2, 2))
    found = with_neighbours(stack, 1)[1]
    assert found[:, 0, 0].tolist() == list(range(9))
    with pytest.raises(ValueError, match=r"same size, got \[\(1, 2, 2\), \(1, 3, 3\)\]"):
        with_neighbours([torch.zeros(1, 2, 2), torch.zeros(1, 3, 3)], 1)


def test_chosen_crops_are_their_own_neighbours() -> None:
    crops = torch.rand(3, 6, 4, 4)
    found = without_neighbours(crops, 1, torch.tensor([True, False, True]))
    assert torch.equal(found[1], crops[1])
    for index in (0, 2):
        assert torch.equal(found[index], crops[index, 2:4].repeat(3, 1, 1))
    with pytest.raises(ValueError, match="6 channels are not 5 slices"):
        without_neighbours(crops, 2, torch.zeros(3, dtype=torch.bool))


def test_crops_of_all_slices_are_moved_alike() -> None:
    image = torch.rand(1, 60, 60)
    config = replace(CONFIG.crops, contrast=0, noise=0, alone=0, any_angle=True)
    same = with_neighbours([image] * 3, 1)
    crops, _ = random_crops(same, [torch.zeros(60, 60, dtype=torch.int64)] * 3, 2, 4, config, generator())
    assert torch.allclose(crops[:, 0], crops[:, 1])
    assert torch.allclose(crops[:, 2], crops[:, 1])
    alone = replace(config, alone=1.0)
    stack = with_neighbours(list(torch.rand(3, 1, 60, 60)), 1)
    masks = [torch.zeros(60, 60, dtype=torch.int64)] * 3
    crops, _ = random_crops(stack, masks, 2, 4, alone, generator(), neighbours=1)
    assert torch.equal(crops[:, 0], crops[:, 1])
    assert torch.equal(crops[:, 2], crops[:, 1])


def test_brightness_varies_as_much_as_asked() -> None:
    crops = torch.randn(400, 3, 8, 8, generator=generator())
    assert torch.equal(vary_brightness(crops, 0, 0, generator()), crops)
    varied = vary_brightness(crops, 0.3, 0, generator())
    centred, before = (maps - maps.mean((2, 3), keepdim=True) for maps in (varied, crops))
    factors = (centred * before).sum((2, 3)) / before.square().sum((2, 3))
    torch.testing.assert_close(centred, factors[..., None, None] * before)
    logs = factors.log()
    assert logs.abs().max() <= 0.3
    assert abs(logs.std().item() - 0.3 / 3**0.5) < 0.01
    shifts = varied.mean((2, 3)) - factors * crops.mean((2, 3))
    assert shifts.abs().max() <= 0.3 + 1e-5
    noisy = vary_brightness(crops, 0, 0.5, generator()) - crops
    strengths = noisy.std((1, 2, 3))
    assert 0.4 < strengths.max() < 0.6
    assert strengths.min() < 0.05


def test_a_task_sees_held_out_neighbours_but_no_held_out_masks() -> None:
    slices = load_slices(CONFIG.images)
    task = make_task(resolve(CONFIG, slices), slices)
    assert task.train[0][0].shape == (3, 256, 256)
    assert len(task.train[0]) == len(task.train[1]) == 10
    inputs, targets = task.batch(0, 0, Share())
    assert inputs.shape == (2, 3, 32, 32)
    assert targets.shape == (2, 24, 24)
    again, _ = make_task(resolve(CONFIG, slices), slices).batch(0, 0, Share())
    assert torch.equal(inputs, again)


def test_train_and_predict_with_neighbours(tmp_path: Path) -> None:
    result = train(CONFIG, tmp_path / "run")
    assert result.epochs == 1
    network = load(tmp_path / "run", device="cpu")
    assert network.neighbours == 1
    assert network.example_images().shape[1] == 3
    assert network.predict(np.random.default_rng(0).random((3, 40, 40))).shape == (3, 40, 40)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SlicesConfig(neighbours=-1), "neighbours must be at least 0, got -1"),
        (lambda: SlicesConfig(neighbours=17), "neighbours must be at most 16, got 17"),
        (lambda: SlicesConfig(source="pairs", path="x", neighbours=1), "the images of source 'pairs' are unrelated"),
        (lambda: CropConfig(alone=1.5), "alone must be at least 0 and at most 1, got 1.5"),
        (lambda: CropConfig(noise=-0.1), "noise must be at least 0"),
        (lambda: CropConfig(contrast=float("nan")), "contrast must be at least 0"),
    ],
)
def test_impossible_settings(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
