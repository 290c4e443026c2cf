from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sfcnn.data.crops import CropConfig
from sfcnn.data.membranes import synthetic_membranes
from sfcnn.data.stacks import write_stack
from sfcnn.models import count_parameters
from sfcnn.training.config import OptimizationConfig
from sfcnn.training.membrane_runs import (
    MembraneConfig,
    Slices,
    SlicesConfig,
    UNetConfig,
    build_unet,
    load_membrane_run,
    load_slices,
    train_membranes,
)
from sfcnn.training.runs import load_run
from training.test_resume import StopAfter, assert_same_run

CONFIG = MembraneConfig(
    model=UNetConfig(orientations=4, channels=2, levels=2, input_kernel_size=5, kernel_size=3),
    images=SlicesConfig(validation=1),
    crops=CropConfig(size=16, margin=4, bend=1.0, bend_scale=4.0),
    optimization=OptimizationConfig(epochs=2, batch_size=2, learning_rate=0.02),
    steps=4,
    checkpoint_steps=1,
)


def slices() -> Slices:
    images, membranes = synthetic_membranes(3, 40, cell=12)
    return Slices("synthetic", images.unbind(), membranes.unbind())


def test_the_defaults_are_the_paper_s() -> None:
    config = MembraneConfig()
    assert (config.model.orientations, config.model.dropout) == (17, 0.4)
    assert (config.crops.size, config.crops.size + 2 * config.crops.margin) == (256, 320)
    assert (config.optimization.learning_rate, config.optimization.decay) == (0.05, 0.85)
    assert (config.optimization.elastic_conv, config.optimization.elastic_dense) == (1e-7, 1e-8)


def test_a_run_can_be_stopped_and_loaded(tmp_path: Path) -> None:
    result = train_membranes(CONFIG, slices(), tmp_path / "whole")
    assert (result.dataset, result.train_images, result.validation_images) == ("synthetic", 2, 1)
    with pytest.raises(RuntimeError, match="stopped"):
        train_membranes(CONFIG, slices(), tmp_path / "run", observers=[StopAfter(5)])
    torch.manual_seed(7)
    train_membranes(CONFIG, slices(), tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    config, net = load_membrane_run(tmp_path / "run")
    assert config == CONFIG
    assert net(torch.rand(1, 1, 24, 32)).shape == (1, 1, 16, 24)
    with pytest.raises(ValueError, match=r"config\.yaml: unknown setting"):
        load_run(tmp_path / "run")  # it is no classifier


def test_plain_twins_match() -> None:
    model = UNetConfig(orientations=8, channels=4, levels=2, input_kernel_size=5, kernel_size=5)
    steerable = count_parameters(build_unet(model, 0))
    twin = count_parameters(build_unet(replace(model, kind="plain-parameters"), 0))
    assert abs(twin / steerable - 1) < 0.1


def test_slices_come_from_stacks_folders_and_isbi(tmp_path: Path) -> None:
    images, membranes = synthetic_membranes(2, 24, cell=8)
    volume, labels = tmp_path / "isbi2012" / "train-volume.tif", tmp_path / "isbi2012" / "train-labels.tif"
    write_stack(volume, (255 * images).byte().numpy())
    write_stack(labels, np.where(membranes.numpy(), 0, 255).astype(np.uint8))
    for config in (SlicesConfig("isbi"), SlicesConfig("stack", str(volume), str(labels))):
        found = load_slices(config, tmp_path)
        assert torch.equal(torch.stack(list(found.membranes)), membranes)
        torch.testing.assert_close(torch.stack(list(found.images)), images, rtol=0, atol=1 / 255)
    for number, kind in enumerate(("images", "masks")):
        stack = (255 * images).byte().numpy() if not number else np.where(membranes.numpy(), 0, 255).astype(np.uint8)
        for name, image in zip("ab", stack, strict=True):
            write_stack(tmp_path / "pairs" / kind / f"{name}.tif", image)
    pairs = load_slices(SlicesConfig("pairs", str(tmp_path / "pairs")))
    assert torch.equal(torch.stack(list(pairs.membranes)), membranes)
    assert load_slices(SlicesConfig()).name.startswith("synthetic")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SlicesConfig("tape"), "unknown source 'tape', choose one of"),
        (lambda: SlicesConfig("stack", "a.tif"), r"source 'stack' needs images\.masks"),
        (lambda: SlicesConfig("pairs"), r"source 'pairs' needs images\.path"),
        (lambda: SlicesConfig(validation=0), "validation must be at least 1, got 0"),
        (lambda: UNetConfig(kind="round"), "unknown kind 'round', choose one of"),
        (lambda: MembraneConfig(steps=0), "steps must be at least 1, got 0"),
    ],
)
def test_wrong_settings_are_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_nothing_is_made_if_no_slice_is_left_to_train_on(tmp_path: Path) -> None:
    config = replace(CONFIG, images=SlicesConfig(validation=3))
    with pytest.raises(ValueError, match=r"images\.validation must be below 3, the number of slices, got 3"):
        train_membranes(config, slices(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("levels", [0, 17, 10**20, -(10**20)])
def test_absurd_levels_are_refused_at_once(levels: int) -> None:
    with pytest.raises(ValueError, match=f"levels must be at least 1 and at most 16, got {levels}"):
        UNetConfig(levels=levels)
