"""Classes, probabilities and orientations of a network, and a classifier that is loaded from its run."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from classification.conftest import SHAPES, draw_folder
from sfcnn.classification.config import ClassificationConfig, ImagesConfig, ModelConfig
from sfcnn.classification.folders import load_folder
from sfcnn.classification.labelled import DIGITS
from sfcnn.classification.network import build_network
from sfcnn.classification.predict import load, peak_angle, predict
from sfcnn.io.images import read_images
from sfcnn.io.settings import write_settings
from sfcnn.io.state import write_state
from sfcnn.models import ClassifierSizes, plain_classifier, steerable_classifier

SIZES = ClassifierSizes((5, 3, 3), (6, 8, 8), (8,))


def seasoned(orientations: int | None, dtype: torch.dtype = torch.float64, **options: Any) -> nn.Module:
    """A network, or a plain one for None, whose batch norms have seen images."""
    net = plain_classifier(SIZES) if orientations is None else steerable_classifier(SIZES, orientations, **options)
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
            layer.momentum = None  # keep the mean of all that is seen
    for _ in range(2):
        net(torch.rand(16, 1, 28, 28))
    return net.to(dtype)


def apart(angles: Tensor, others: Tensor) -> Tensor:
    """Distances on the circle."""
    return (torch.remainder(angles - others + math.pi, 2 * math.pi) - math.pi).abs()


@pytest.mark.parametrize("orientations", [4, 8, 16])
def test_quarter_turns_add_to_the_orientation_and_to_nothing_else(orientations: int) -> None:
    net, images = seasoned(orientations), torch.rand(5, 1, 28, 28, dtype=torch.float64)
    before = predict(net, images)
    assert before.orientations is not None
    for turns in (1, 2, 3):
        after = predict(net, images.rot90(turns, (-2, -1)))
        assert torch.equal(before.numbers, after.numbers)
        torch.testing.assert_close(before.probabilities, after.probabilities)
        assert after.orientations is not None
        assert apart(after.orientations, before.orientations + turns * math.pi / 2).max() < 1e-3


@pytest.mark.parametrize("orientations", [4, 8])
def test_a_mirror_image_has_the_mirrored_orientation(orientations: int) -> None:
    net = seasoned(orientations, reflections=True)
    images = torch.rand(5, 1, 28, 28, dtype=torch.float64)
    before, turned, mirrored = (predict(net, x) for x in (images, images.rot90(1, (-2, -1)), images.flip(-1)))
    assert torch.equal(before.numbers, mirrored.numbers)
    for found in (before, turned, mirrored):
        assert found.orientations is not None
    assert apart(turned.orientations, before.orientations + math.pi / 2).max() < 1e-3  # type: ignore[operator, arg-type]
    assert apart(mirrored.orientations, math.pi - before.orientations).max() < 1e-3  # type: ignore[operator, arg-type]


def test_two_mirrored_orientations_are_no_circle() -> None:
    images = torch.rand(2, 1, 28, 28, dtype=torch.float64)
    assert predict(seasoned(2, reflections=True), images).orientations is None
    assert predict(seasoned(4, reflections=True, restrict_after=1), images).orientations is not None


def test_the_orientation_is_that_of_the_evidence(dtype: torch.dtype) -> None:
    net, images = seasoned(8, dtype), torch.rand(3, 1, 28, 28, dtype=dtype)
    predictions = predict(net, images)
    net.eval()
    features = net.get_submodule("features")(images)
    evidence = torch.stack([net.get_submodule("head")(features[:, :, a].amax((-2, -1))) for a in range(8)], 1)
    chosen = torch.stack([row[:, c] for row, c in zip(evidence, predictions.numbers, strict=True)])
    assert predictions.orientations is not None
    step = 2 * math.pi / 8
    assert apart(predictions.orientations, chosen.argmax(1) * step).max() <= step / 2 + 1e-6


@pytest.mark.parametrize("orientations", [None, 1, 2, 8])
def test_class_and_probability_are_those_of_the_network(orientations: int | None) -> None:
    net, images = seasoned(orientations), torch.rand(7, 1, 28, 28)
    predictions = predict(net, images, batch_size=3)
    assert net.training
    expected = net.eval()(images.double()).softmax(1)
    assert torch.equal(predictions.numbers, expected.argmax(1))
    assert predictions.names == tuple(map(str, expected.argmax(1).tolist()))
    assert predict(net, images, "abcdefghij").names == tuple("abcdefghij"[number] for number in predictions.numbers)
    torch.testing.assert_close(predictions.probabilities, expected.amax(1).detach())
    assert not predictions.probabilities.requires_grad


@pytest.mark.parametrize("orientations", [None, 1, 2])
def test_some_networks_know_no_orientation(orientations: int | None) -> None:
    assert predict(seasoned(orientations), torch.rand(2, 1, 28, 28)).orientations is None


@given(st.integers(3, 24), st.floats(0, 2 * math.pi), st.floats(-100, 100))
def test_the_peak_of_a_wave_is_found_between_samples(count: int, angle: float, level: float) -> None:
    step = 2 * math.pi / count
    wave = torch.cos(torch.arange(count) * step - angle) + level
    assert apart(peak_angle(wave), torch.tensor(angle, dtype=torch.float64)) < step / 8


def test_the_peak_of_a_parabola_is_exact_and_equal_samples_have_one() -> None:
    places = torch.arange(9, dtype=torch.float64)
    torch.testing.assert_close(peak_angle(-((places - 4.3) ** 2)), torch.tensor(4.3 * 2 * math.pi / 9).double())
    assert peak_angle(torch.ones(2, 5)).tolist() == [0, 0]
    assert 0 <= peak_angle(torch.tensor([1.0, 0.0, 0.0, 1.0])) < 2 * math.pi


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match=r"images of shape \(N, C, H, W\), at least one, got \(1, 28, 28\)"):
        predict(seasoned(4), torch.rand(1, 28, 28))
    with pytest.raises(ValueError, match=r"at least one, got \(0, 1, 28, 28\)"):
        predict(seasoned(4), torch.rand(0, 1, 28, 28))
    with pytest.raises(ValueError, match="at least 3 samples on the circle, got 2"):
        peak_angle(torch.ones(2))


#: The settings of a run of version 0.1, which had fewer.
OLD = """\
model:
  network: baseline
  kind: steerable
  orientations: 4
  width: 0.1
  basis: bandlimited
  init: coeff
  engine: auto
  dropout: 0.3
images:
  dataset: mnist-rot-regenerated
  train_images: 0
  validation_images: 2000
  join_validation: false
  augmentation: none
  resampling: bicubic
  seed: 0
optimization:
  epochs: 40
  batch_size: 64
  learning_rate: 0.015
  schedule: exponential
  decay: 0.8
  decay_from: 15
  elastic_conv: 1.0e-07
  elastic_dense: 1.0e-08
  precision: float32
seed: 3
checkpoint_steps: 100
tensorboard: false
"""


def make_run(directory: Path, config: ClassificationConfig) -> Path:
    """A run of a network that has learned nothing."""
    write_settings(directory / "config.yaml", config, task="classification")
    net = build_network(config.model, config.images)
    write_state(directory / "best.safetensors", {"model": net.state_dict()})
    return directory


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    """A run on drawings of five shapes in colour."""
    images = ImagesConfig("folder", path="gone", size=24, channels=3, classes=SHAPES, fit="stretch", invert=True)
    return make_run(tmp_path / "run", ClassificationConfig(ModelConfig(width=0.1, orientations=4), images))


def test_a_run_of_version_0_1_is_loaded(tmp_path: Path) -> None:
    net = build_network(ModelConfig(orientations=4, width=0.1, border="none", pool="max"))
    (tmp_path / "config.yaml").write_text(OLD, encoding="utf-8")
    write_state(tmp_path / "best.safetensors", {"model": net.state_dict()})
    classifier = load(str(tmp_path), device="cpu")
    assert (classifier.classes, classifier.device) == (DIGITS, torch.device("cpu"))
    assert (classifier.config.seed, classifier.config.images.resampling) == (3, "bicubic")
    example = classifier.example_images()
    assert example.shape == (2, 1, 28, 28)
    assert torch.equal(classifier.network(example), net.eval()(example))
    assert set(classifier.predict(example).names) <= set("0123456789")


def test_a_classifier_of_a_folder_knows_its_classes_and_its_images(shapes: Path) -> None:
    classifier = load(shapes)
    assert classifier.classes == SHAPES
    assert not classifier.network.training
    example = classifier.example_images()
    assert (example.shape, example.dtype) == ((2, 3, 24, 24), torch.float32)
    assert 0 <= float(example.min()) < float(example.max()) <= 1
    assert classifier.network(example).shape == (2, 5)
    assert next(classifier.network.parameters()).device == example.device == classifier.device


def test_files_are_prepared_as_in_training(shapes: Path, tmp_path: Path) -> None:
    classifier, folder = load(shapes), draw_folder(tmp_path / "more", 2, seed=3)
    files = sorted(folder.rglob("*.png"))
    expected = classifier.predict(read_images(files, (24, 24), channels=3, fit="stretch", invert=True))
    for images in (files, [str(file) for file in files], sorted(folder.iterdir())):
        found = classifier.predict(images, batch_size=3)
        assert found.names == expected.names
        torch.testing.assert_close(found.probabilities, expected.probabilities)
    upright = classifier.predict(files, invert=True)
    torch.testing.assert_close(
        upright.probabilities, classifier.predict(read_images(files, (24, 24), channels=3, fit="stretch")).probabilities
    )


def test_an_evaluation_counts_what_is_predicted(shapes: Path, tmp_path: Path) -> None:
    classifier, folder = load(shapes), draw_folder(tmp_path / "more", 3)
    labelled = load_folder(folder, classifier.config.images)
    evaluation = classifier.evaluate(labelled, [0, 90, 45], batch_size=4)
    assert evaluation.classes == SHAPES
    numbers = classifier.predict(labelled.images).numbers
    for label, number in zip(labelled.labels, numbers, strict=True):
        evaluation.counts[0, label, number] -= 1
    assert not evaluation.counts[0].any()


def test_images_of_other_channels_are_refused(shapes: Path) -> None:
    with pytest.raises(ValueError, match=r"takes images with 3 channels, got shape \(2, 1, 24, 24\)"):
        load(shapes).predict(torch.rand(2, 1, 24, 24))


def test_what_is_not_a_classifier_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is not a run, since it has no config\.yaml"):
        load(tmp_path)
    (tmp_path / "config.yaml").write_text("task: segmentation", encoding="utf-8")
    with pytest.raises(ValueError, match="is a segmentation network, expected a classification network, such as"):
        load(tmp_path)


def test_loading_and_predicting_need_no_trainer(shapes: Path, tmp_path: Path) -> None:
    draw_folder(tmp_path / "more", 1)
    code = f"""
import sys
from sfcnn.classification import Classifier, load, load_folder
classifier = load({str(shapes)!r}, device="cpu")
classifier.predict([{str(tmp_path / "more" / "ring")!r}])
classifier.evaluate(load_folder(__import__("pathlib").Path({str(tmp_path / "more")!r}), classifier.config.images))
print([name for name in sys.modules if name.startswith(("sfcnn.train.", "accelerate"))])
from sfcnn.classification import train
print("sfcnn.train.loop" in sys.modules, train.__name__)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("['sfcnn.train.config']\nTrue train\n", "")
