"""A run that starts from trained weights has them to the last bit before its first step, and needs them only then."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import sfcnn
from classification.conftest import draw_folder, shared_digits
from sfcnn.classification import ClassificationConfig, ImagesConfig, ModelConfig
from sfcnn.classification.network import build_network
from sfcnn.io.runs import read_best
from sfcnn.io.settings import write_settings
from sfcnn.io.state import read_state, write_state
from sfcnn.segmentation import CropConfig, SegmentationConfig, SlicesConfig, UNetConfig, load_slices
from sfcnn.segmentation.losses import prior_logits
from sfcnn.segmentation.network import build_network as build_unet
from sfcnn.segmentation.task import class_frequencies
from sfcnn.train.config import OptimizationConfig
from sfcnn.train.start import Start, Started, read_start
from train.test_resume import StopAfter, assert_same_run

MODEL = ModelConfig("benchmark", orientations=2, width=0.1, engine="direct")
CONFIG = ClassificationConfig(
    MODEL,
    ImagesConfig("digits-rot", train_images=24, validation_images=8),
    OptimizationConfig(epochs=2, batch_size=8, learning_rate=0.001, averaging=0.9),
    checkpoint_steps=1,
)
UNET = SegmentationConfig(
    UNetConfig(orientations=4, channels=2, levels=2, input_kernel_size=5, kernel_size=3),
    SlicesConfig(validation=1),
    CropConfig(size=16, margin=4),
    OptimizationConfig(epochs=1, batch_size=1, learning_rate=0.001),
    steps=1,
)
AFFINE = replace(UNET, model=replace(UNET.model, affinities=(1.0, 3.0)))


@pytest.fixture(autouse=True)
def _few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digits are read once, and membranes are few."""
    monkeypatch.setattr("sfcnn.classification.digits.load_digits", shared_digits)
    slices = load_slices(SlicesConfig())
    few = replace(slices, images=slices.images[:2], masks=slices.masks[:2])
    monkeypatch.setattr("sfcnn.segmentation.task.load_slices", lambda images, data: few)


def write_run(directory: Path, config: Any, *, seed: int = 5) -> dict[str, Tensor]:
    """A run whose network, with statistics unlike those of a new one, is as training leaves it; its weights."""
    torch.manual_seed(seed)
    if isinstance(config, ClassificationConfig):
        config = replace(config, model=config.model.resolved())
        net: torch.nn.Module = build_network(config.model, config.images)
    else:
        config = replace(config, images=replace(config.images, classes=config.images.classes or ("membranes",)))
        net = build_unet(config)
    for buffer in net.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5)
    write_settings(directory / "config.yaml", config, task=config.task)
    write_state(directory / "best.safetensors", {"model": net.state_dict()})
    return net.state_dict()


def weights_before_the_first_step(config: Any, directory: Path) -> tuple[dict[str, Any], list[str]]:
    """The checkpoint that a run begins with, and what was said."""
    said: list[str] = []
    train = sfcnn.classification.train if isinstance(config, ClassificationConfig) else sfcnn.segmentation.train
    with pytest.raises(RuntimeError, match="stopped"):
        train(config, directory, observers=[StopAfter(1)], warn=said.append)
    return read_state(directory / "checkpoints" / "000000000.safetensors"), said


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_before_the_first_step_the_network_and_its_average_are_the_start_network(tmp_path: Path) -> None:
    trained = write_run(tmp_path / "trained", CONFIG)
    config = replace(CONFIG, start=str(tmp_path / "trained"))
    state, said = weights_before_the_first_step(config, tmp_path / "run")
    assert_same(state["model"], trained)
    averaged = {name.removeprefix("module."): value for name, value in state["averaged"].items()}
    assert averaged.pop("n_averaged") == 0
    assert_same(averaged, trained)
    assert said == [f"started from {tmp_path / 'trained'}: all {sum('_extra' not in name for name in trained)} tensors"]


@pytest.mark.parametrize("name", ["mnist-rot", "mnist-rot-plain"])
def test_outputs_are_those_of_a_pretrained_network_in_single_precision(name: str) -> None:
    loaded = sfcnn.load(name, device="cpu")
    net = build_network(loaded.config.model)
    start = read_start(replace(loaded.config, start=name))
    assert any(tensor.dtype == torch.float16 for tensor in start.weights.values())
    start.load(net)
    assert {tensor.dtype for tensor in net.parameters()} == {torch.float32}
    images = shared_digits().images[:4]
    assert torch.equal(net.eval()(images), loaded.network(images))


def test_other_classes_have_a_new_last_layer(tmp_path: Path) -> None:
    trained = write_run(tmp_path / "trained", CONFIG)
    folder = draw_folder(tmp_path / "shapes", 8, mode="L", shapes=("cross", "square"))
    images = ImagesConfig("folder", path=str(folder), size=32)
    config = replace(CONFIG, images=images, start=str(tmp_path / "trained"))
    state, said = weights_before_the_first_step(config, tmp_path / "run")
    new = {name for name, value in state["model"].items() if not torch.equal(value, trained[name])}
    assert new == {f"head.9.{part}" for part in ("weight", "bias", "running_mean", "running_var")} | {"head.8.weight"}
    assert said[0].endswith("tensors; new: head.8, head.9")
    assert state["model"]["head.8.weight"].shape[0] == 2


def test_a_stopped_run_is_resumed_without_the_start_network(tmp_path: Path) -> None:
    """After any step, the first included, and even before it."""
    write_run(tmp_path / "trained", CONFIG)
    config = replace(CONFIG, start=str(tmp_path / "trained"))
    sfcnn.classification.train(config, tmp_path / "whole", warn=lambda text: None)
    stopped = [tmp_path / f"stopped-{steps}" for steps in (1, 4)]
    for run, steps in zip(stopped, (1, 4), strict=True):
        with pytest.raises(RuntimeError, match="stopped"):
            sfcnn.classification.train(config, run, observers=[StopAfter(steps)], warn=lambda text: None)
    for path in (stopped[0] / "checkpoints").iterdir():  # as if it had been stopped before its first step
        if path.name != "000000000.safetensors":
            path.unlink()
    shutil.rmtree(tmp_path / "trained")
    for run in stopped:
        torch.manual_seed(9)
        sfcnn.classification.train(config, run, resume=True, warn=pytest.fail)
        assert_same_run(run, tmp_path / "whole")


def test_a_finished_run_is_continued_with_another_schedule(tmp_path: Path) -> None:
    sfcnn.classification.train(CONFIG, tmp_path / "first")
    schedule = replace(CONFIG.optimization, schedule="cosine", epochs=1)
    model = sfcnn.load(tmp_path / "first").config.model
    config = replace(CONFIG, model=model, optimization=schedule, start=str(tmp_path / "first"))
    state, _ = weights_before_the_first_step(config, tmp_path / "second")
    assert_same(state["model"], read_best(tmp_path / "first"))


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (UNET, UNET, ": all 44 tensors"),
        (AFFINE, AFFINE, ": all 52 tensors"),
        (AFFINE, UNET, ": 44 of 52 tensors; new: affinity_head"),
        (UNET, AFFINE, ": all 44 tensors; dropped: affinity_head"),
        (
            replace(AFFINE, model=replace(AFFINE.model, affinities=(1.0, 5.0))),
            AFFINE,
            ": 44 of 52 tensors; new: affinity_head",
        ),
    ],
    ids=["none", "both", "new", "dropped", "other distances"],
)
def test_affinities_are_loaded_if_their_distances_are_the_same(
    ours: SegmentationConfig, theirs: SegmentationConfig, said: str, tmp_path: Path
) -> None:
    trained = write_run(tmp_path / "trained", theirs)
    config = replace(ours, start=str(tmp_path / "trained"))
    state, lines = weights_before_the_first_step(config, tmp_path / "run")
    for name, value in state["model"].items():
        if not name.startswith("affinity_head.") or "new" not in said:
            assert torch.equal(value, trained[name]), name
        elif name == "affinity_head.layers.0.0.weight" and name in trained:
            assert not torch.equal(value, trained[name])
    assert lines == [f"started from {tmp_path / 'trained'}{said}"]


def test_a_new_last_layer_of_a_unet_starts_at_the_prior(tmp_path: Path) -> None:
    three = replace(UNET, images=replace(UNET.images, classes=("a", "b", "c")))
    trained = write_run(tmp_path / "trained", three)
    state, said = weights_before_the_first_step(replace(UNET, start=str(tmp_path / "trained")), tmp_path / "run")
    assert said[0].endswith(": 42 of 44 tensors; new: head.3")
    masks = load_slices(UNET.images).masks[:1]  # the second one is held out
    prior = prior_logits("cross-entropy", class_frequencies(masks, 2))
    torch.testing.assert_close(state["model"]["head.3.bias"], prior, rtol=0, atol=0)
    assert torch.equal(state["model"]["head.0.0.weight"], trained["head.0.0.weight"])


def assert_refused(config: Any, message: str, directory: Path) -> None:
    train = sfcnn.classification.train if isinstance(config, ClassificationConfig) else sfcnn.segmentation.train
    with pytest.raises(ValueError, match=message) as error:
        train(config, directory)
    assert "\n" not in str(error.value)
    assert not directory.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 0.2}, r"model.width is 0.2, but 0.1 there; leave it out, or in Python use model=sfcnn.load\("),
        ({"orientations": 4}, "model.orientations is 4, but 2 there"),
        ({"basis": "paper"}, "model.basis is paper, but bandlimited there"),
        ({"reflections": True}, "model.reflections is True, but False there"),
        ({"border": "background"}, r"its features.0.1.norm.weight is missing, this network's is \(2,\); use the model"),
    ],
)
def test_another_model_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_run(tmp_path / "trained", CONFIG)
    config = replace(CONFIG, model=replace(MODEL, **change), start=str(tmp_path / "trained"))
    assert_refused(config, f"^cannot start from .*trained: {message}", tmp_path / "run")


def test_what_has_no_weights_may_be_changed(tmp_path: Path) -> None:
    trained = write_run(tmp_path / "trained", CONFIG)
    model = replace(MODEL, dropout=0.5, padding="same", pool="max", engine="auto")
    config = replace(CONFIG, model=model, start=str(tmp_path / "trained"))
    assert_same(weights_before_the_first_step(config, tmp_path / "run")[0]["model"], trained)


def test_images_of_other_channels_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "trained", CONFIG)
    folder = draw_folder(tmp_path / "shapes", 8, shapes=("cross", "square"))
    config = replace(CONFIG, images=ImagesConfig("folder", path=str(folder)), start=str(tmp_path / "trained"))
    message = r"it takes images with 1 channel \(grey\), got 3 channels \(RGB\); convert them with images.channels 1"
    assert_refused(config, message, tmp_path / "run")
    grey = replace(config, images=replace(config.images, channels=1, size=32))
    weights_before_the_first_step(grey, tmp_path / "run")
    colour = replace(UNET, images=replace(UNET.images, channels=3))
    write_run(tmp_path / "colour", colour)
    message = r"it takes images with 3 channels \(RGB\), got 1 channel \(grey\); convert them with images.channels 3"
    assert_refused(replace(UNET, start=str(tmp_path / "colour")), message, tmp_path / "other")


def test_other_neighbours_are_refused(tmp_path: Path) -> None:
    """Also where they are as many channels as RGB has."""
    write_run(tmp_path / "trained", replace(UNET, images=replace(UNET.images, neighbours=1)))
    message = "cannot start from .*: images.neighbours is 0, set it to 1 as there"
    assert_refused(replace(UNET, start=str(tmp_path / "trained")), message, tmp_path / "run")


def test_what_is_not_a_network_of_this_task_is_refused(tmp_path: Path) -> None:
    assert_refused(
        replace(CONFIG, start="mnist"), "no run mnist: expected a directory .* one of .*, mnist-rot,", tmp_path / "run"
    )
    assert_refused(replace(CONFIG, start="isbi2012"), "isbi2012 is a segmentation network, expected", tmp_path / "run")
    assert_refused(replace(UNET, start="mnist-rot"), "mnist-rot is a classification network", tmp_path / "run")
    write_run(tmp_path / "trained", CONFIG)
    config = replace(CONFIG, start=str(tmp_path / "trained"))
    write_state(tmp_path / "trained" / "best.safetensors", {"model": {"head.8.weight": 3}})
    assert_refused(config, "best.safetensors does not hold the weights of a network", tmp_path / "run")
    (tmp_path / "trained" / "best.safetensors").unlink()
    assert_refused(config, "has no best.safetensors yet", tmp_path / "run")


def test_weights_of_another_basis_are_refused() -> None:
    """Also where all shapes are the same."""
    net = build_network(MODEL)
    weights = net.state_dict()
    widths = weights["features.0.0._extra_state"].clone()
    widths[1] *= 1.5  # σ of its rings
    start = Start("other", CONFIG, {**weights, "features.0.0._extra_state": widths})
    with pytest.raises(ValueError, match=r"^cannot start from other, whose .* do not fit: .*features\.0\.0\.weight"):
        start.load(net)


def test_weights_that_the_network_lacks_are_refused() -> None:
    net = build_network(MODEL)
    start = Start("other", CONFIG, {**net.state_dict(), "features.9.weight": torch.zeros(3)})
    with pytest.raises(ValueError, match=r"its features.9.weight is \(3,\), this network's is missing"):
        start.load(net)


def test_the_line_names_what_is_new_and_what_is_dropped() -> None:
    started = Started("isbi2012", 40, 50, ("head.3",), ("affinity_head",))
    assert str(started) == "started from isbi2012: 40 of 50 tensors; new: head.3; dropped: affinity_head"
