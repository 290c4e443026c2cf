"""A trained network takes images as they come."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import sfcnn
from sfcnn.io.settings import write_settings
from sfcnn.io.state import write_state
from sfcnn.segmentation.affinities import turn_affinities
from sfcnn.segmentation.config import SegmentationConfig, SlicesConfig, UNetConfig
from sfcnn.segmentation.crops import CropConfig, standardize
from sfcnn.segmentation.network import build_network
from sfcnn.segmentation.predict import Segmenter, load
from sfcnn.segmentation.tiles import predict_image

RANDOM = np.random.default_rng(0)
MODEL = UNetConfig(orientations=4, channels=2, levels=2, input_kernel_size=5, kernel_size=3, dropout=0.0)


def make_run(directory: Path, model: UNetConfig = MODEL, **images: object) -> Segmenter:
    """A run as training leaves it, of a network that has learned nothing."""
    torch.manual_seed(0)
    slices = SlicesConfig(**{"classes": ("membranes",), "channels": 1, **images})  # type: ignore[arg-type]
    config = SegmentationConfig(model=model, images=slices, crops=CropConfig(size=16, margin=4))
    write_settings(directory / "config.yaml", config, task="segmentation")
    write_state(directory / "best.safetensors", {"model": build_network(config).state_dict()})
    return load(directory, device="cpu")


def test_shapes_of_what_comes_in_are_those_of_what_comes_out(tmp_path: Path) -> None:
    network = make_run(tmp_path / "grey")
    assert network.predict(RANDOM.random((21, 34))).shape == (21, 34)
    assert network.predict(RANDOM.random((3, 21, 34))).shape == (3, 21, 34)
    assert network.predict(RANDOM.random((21, 34, 3))).shape == (21, 34, 3)  # 21 narrow slices, not colours
    colours = make_run(tmp_path / "rgb", channels=3, classes=("ground", "cell", "nucleus"))
    assert colours.predict(RANDOM.random((21, 34, 3))).shape == (3, 21, 34)
    assert colours.predict(RANDOM.random((5, 21, 34, 3))).shape == (5, 3, 21, 34)
    np.testing.assert_allclose(colours.predict(RANDOM.random((21, 34, 3))).sum(0), 1, atol=1e-5)
    for wrong in (np.zeros(5), np.zeros((2, 3, 4, 5)), np.zeros((0, 4))):
        with pytest.raises(ValueError, match="expected an image or slices"):
            network.predict(wrong)


def test_it_is_the_network_on_a_standardized_image(tmp_path: Path) -> None:
    network = make_run(tmp_path)
    image = torch.rand(30, 40)
    expected = predict_image(network.network, standardize(image)[None], margin=4)[0]
    np.testing.assert_allclose(network.predict(image.numpy()), expected, atol=1e-6)
    np.testing.assert_allclose(network.predict(0.4 * image.numpy() + 0.2), expected, atol=1e-4)
    inverted = network.predict(1 - image.numpy(), invert=True)
    np.testing.assert_allclose(inverted, expected, atol=1e-4)
    as_is = make_run(tmp_path / "raw", standardize=False)
    assert not np.allclose(as_is.predict(image.numpy()), as_is.predict(0.4 * image.numpy()), atol=1e-4)


def test_pixels_of_another_size_are_rescaled_for_the_network(tmp_path: Path) -> None:
    network = make_run(tmp_path, pixel_size=0.004)
    coarse = torch.nn.functional.interpolate(torch.rand(1, 1, 10, 12), (40, 48), mode="bicubic")[0, 0].numpy()
    fine = np.kron(coarse, np.ones((2, 2)))  # the same picture with pixels half as large
    expected = network.predict(coarse)
    assert network.scale(0.002) == 0.5
    found = network.predict(fine, pixel_size=0.002)
    assert found.shape == (80, 96)
    difference, without = (np.abs(maps[::2, ::2] - expected).mean() for maps in (found, network.predict(fine)))
    assert difference < 0.04
    assert without > 2 * difference
    for same in (0.0, 0.004, 0.00401):
        np.testing.assert_array_equal(network.predict(coarse, pixel_size=same), expected)
    with pytest.raises(ValueError, match=r"pixel size of 4 µm is too far from that of the training images, 0\.004 µm"):
        network.predict(coarse, pixel_size=4.0)
    with pytest.raises(ValueError, match="pixel_size must be at least 0, got -1"):
        network.predict(coarse, pixel_size=-1)
    unknown = replace(network, config=replace(network.config, images=replace(network.config.images, pixel_size=0.0)))
    assert unknown.scale(123.0) == 1


def test_prediction_does_not_import_the_trainer() -> None:
    script = "import sys, numpy, sfcnn; sfcnn.load('isbi2012', 'cpu').predict(numpy.zeros((32, 32)))\n"
    script += "print([name for name in sys.modules if name.startswith(('sfcnn.train.', 'accelerate'))])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['sfcnn.train.config']"


def test_a_run_of_version_0_1_loads(tmp_path: Path) -> None:
    make_run(tmp_path / "new", pixel_size=0.0)
    lines = (tmp_path / "new/config.yaml").read_text().splitlines()
    new = ("task:", "  readout:", "  invert_masks:", "  classes:", "  - ", "  channels: 1", "  pixel_size:", "  test")
    kept = [line for line in lines if not line.startswith((*new, "loss:"))]
    assert len(kept) == len(lines) - 10
    old = tmp_path / "old"
    old.mkdir()
    (old / "config.yaml").write_text("\n".join(kept) + "\n")
    config = SegmentationConfig(
        model=replace(MODEL, readout="paper"),
        images=SlicesConfig(classes=("membranes",), channels=1, invert_masks=True),
        crops=CropConfig(size=16, margin=4),
    )
    write_state(old / "best.safetensors", {"model": build_network(config).state_dict()})
    network = sfcnn.load(old, device="cpu")
    assert isinstance(network, Segmenter)
    assert network.config == config
    assert network.predict(RANDOM.random((20, 20))).shape == (20, 20)


def test_a_run_of_the_other_kind_is_named(tmp_path: Path) -> None:
    make_run(tmp_path)
    text = (tmp_path / "config.yaml").read_text()
    (tmp_path / "config.yaml").write_text(text.replace("task: segmentation", "task: classification"))
    with pytest.raises(ValueError, match="is a classification network, expected a segmentation network, such as"):
        load(tmp_path)
    (tmp_path / "config.yaml").write_text(text.replace("task: segmentation", "task: gardening"))
    with pytest.raises(ValueError, match="unknown task 'gardening', choose one of"):
        load(tmp_path)


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown device 'tpu', choose one of"):
        sfcnn.load("isbi2012", device="tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="device cuda is not available here"):
            sfcnn.load("isbi2012", device="cuda")


def test_images_to_try_a_network_on_fit_it(tmp_path: Path) -> None:
    network = make_run(tmp_path, channels=3, classes=("a", "b"))
    example = network.example_images()
    assert example.shape[:2] == (2, 3)
    assert network.network(example).shape[:2] == (2, 2)


def test_affinities_in_tiles_are_those_of_the_whole_image_at_both_ends(tmp_path: Path) -> None:
    network = make_run(tmp_path / "run", replace(MODEL, affinities=(1.0, 3.0, 9.0)))
    image = RANDOM.random((70, 84))
    whole = network.predict_affinities(image, tile=100)
    assert (whole.probabilities.shape, whole.affinities.shape) == ((70, 84), (3, 4, 70, 84))
    assert whole.affinities.dtype == np.float32
    np.testing.assert_allclose(whole.probabilities, network.predict(image), atol=1e-5)
    for part, expected in zip(network.predict_affinities(image, tile=24), whole, strict=True):
        np.testing.assert_allclose(part, expected, atol=1e-5)
    assert network.offsets.shape == (3, 4, 2)
    np.testing.assert_array_equal(network.offsets[2, 1], [-9, 0])  # upwards
    np.testing.assert_array_equal(whole.affinities[2, 1, 9:], whole.affinities[2, 3, :-9])


def test_affinities_averaged_over_views_turn_with_the_image(tmp_path: Path) -> None:
    """Without reflections a mirror image is another view: its affinities must be mirrored back to be averaged."""
    network = make_run(tmp_path / "run", replace(MODEL, affinities=(1.0, 3.0)))
    image = RANDOM.random((24, 32))
    once, averaged = (network.predict_affinities(image, average=kind).affinities for kind in ("none", "rotations"))
    np.testing.assert_allclose(averaged, once, atol=1e-5)  # four views of an equivariant network are one
    everything = network.predict_affinities(image, average="all").affinities
    assert not np.allclose(everything, once, atol=1e-4)
    mirror = network.predict_affinities(image[:, ::-1].copy(), average="all").affinities
    expected = turn_affinities(torch.from_numpy(everything), 0, mirrored=True)
    np.testing.assert_allclose(mirror, expected, atol=1e-5)
    odd = make_run(tmp_path / "odd", replace(MODEL, orientations=5, affinities=(1.0,)))
    with pytest.raises(ValueError, match="affinities in 5 directions cannot be rotated"):
        odd.predict_affinities(image, average="rotations")


def test_networks_without_affinities_say_so(tmp_path: Path) -> None:
    network = make_run(tmp_path / "run")
    with pytest.raises(ValueError, match="does not predict affinities: train a network with"):
        network.predict_affinities(RANDOM.random((20, 20)))
    pairs = make_run(tmp_path / "pairs", replace(MODEL, affinities=(1.0,)))
    with pytest.raises(ValueError, match=r"or slices .*, got shape \(2, 20, 20\) and z = None"):
        pairs.predict_affinities(RANDOM.random((2, 20, 20)))


def test_networks_see_neighbouring_slices(tmp_path: Path) -> None:
    model = replace(MODEL, affinities=(1.0,))
    network = make_run(tmp_path, model, neighbours=1)
    stack = RANDOM.random((4, 24, 20)).astype(np.float32)
    found = network.predict(stack)
    for z, near in enumerate(([0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 3])):
        seen = torch.cat([standardize(torch.from_numpy(stack[index]))[None] for index in near])
        np.testing.assert_allclose(found[z], predict_image(network.network, seen, margin=4)[0], atol=1e-6)
        pairs = network.predict_affinities(stack, z=z)
        np.testing.assert_allclose(pairs.probabilities, found[z], atol=1e-6)
    np.testing.assert_array_equal(network.predict(stack, only=[2]), found[2:3])
    np.testing.assert_array_equal(network.predict(stack[0]), network.predict(stack[[0, 0, 0]], only=[1])[0])
    changed = stack.copy()
    changed[3] = RANDOM.random((24, 20))
    different = np.abs(network.predict(changed) - found).max((1, 2)) > 1e-6
    assert different.tolist() == [False, False, True, True]
    for wrong, message in (
        (lambda: network.predict(stack[0], only=[0]), "only chooses slices of a stack"),
        (lambda: network.predict(stack, only=[4]), r"slice 4 is not in a stack of 4 slices, expected 0 … 3"),
        (lambda: network.predict_affinities(stack[0], z=0), "expected an image"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()


def test_turned_stacks_give_turned_predictions(tmp_path: Path) -> None:
    network = make_run(tmp_path, replace(MODEL, affinities=(1.0, 3.0)), neighbours=2)
    stack = RANDOM.random((3, 24, 24)).astype(np.float32)
    turned = np.rot90(stack, axes=(1, 2)).copy()
    np.testing.assert_allclose(network.predict(turned), np.rot90(network.predict(stack), axes=(1, 2)), atol=1e-5)
    found, expected = (network.predict_affinities(images, z=1).affinities for images in (turned, stack))
    np.testing.assert_allclose(found, turn_affinities(torch.from_numpy(expected), 1), atol=1e-5)
