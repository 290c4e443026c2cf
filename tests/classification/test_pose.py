"""The read-out of a run: for every steerable classifier, kept with its network and refused with another one."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from classification.test_predict import SIZES, make_run, seasoned
from sfcnn.classification.config import ClassificationConfig, ImagesConfig, ModelConfig
from sfcnn.classification.pose import load_pose, make_readout, read_angles, save_pose
from sfcnn.classification.predict import load, predict
from sfcnn.io.state import read_state, write_state
from sfcnn.models import SMALL, PoseReadout, plain_classifier, steerable_classifier, steerable_resnet
from sfcnn.models.pose import pose_angles

CONFIG = ClassificationConfig(ModelConfig(orientations=4, width=0.1), ImagesConfig("digits"))


def filled(readout: PoseReadout) -> PoseReadout:
    nn.init.normal_(readout.weight, generator=torch.Generator().manual_seed(1))
    return readout.requires_grad_(False)


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> Path:
    """A run with a read-out."""
    directory = make_run(tmp_path / "run", CONFIG)
    readout = filled(make_readout(load(directory, "cpu").network, 10))
    save_pose(directory, readout, {"angle_error": {"mean": 1.5}})
    return directory


@pytest.mark.parametrize(
    ("net", "shape"),
    [
        (steerable_classifier(SIZES, 8), (10, 8, 8)),
        (steerable_classifier(SIZES, 4, reflections=True), (10, 16, 4)),
        (steerable_classifier(SIZES, 4, reflections=True, restrict_after=1), (10, 8, 4)),
        (steerable_resnet(SMALL.wider(0.25), 4), None),
    ],
    ids=["rotations", "reflections", "restricted", "residual"],
)
def test_every_steerable_classifier_can_have_one(net: nn.Module, shape: tuple[int, ...] | None) -> None:
    readout = filled(make_readout(net, 10))
    assert shape is None or readout.weight.shape == shape
    features = net.eval().get_submodule("features")(torch.rand(2, 1, 28, 28))
    classes = torch.tensor([3, 7])
    angles = read_angles(readout, features, classes)
    scores = readout(features)
    assert torch.equal(angles, torch.stack([pose_angles(scores)[0, 3], pose_angles(scores)[1, 7]]))


def test_others_cannot() -> None:
    with pytest.raises(ValueError, match="a plain CNN cannot predict angles, since it has no orientations"):
        make_readout(plain_classifier(SIZES), 10)
    with pytest.raises(ValueError, match="a plain CNN cannot predict angles, since it has no orientations"):
        make_readout(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)), 10)


def test_a_run_gives_its_readout_back(run: Path) -> None:
    classifier = load(run, "cpu")
    assert isinstance(classifier.pose, PoseReadout)
    assert not classifier.pose.training
    assert torch.equal(classifier.pose.weight, filled(make_readout(classifier.network, 10)).weight)
    assert json.loads((run / "pose.json").read_text(encoding="utf-8")) == {"angle_error": {"mean": 1.5}}
    assert load(run, "cpu", pose=False).pose is None


def test_predictions_have_angles_with_it_and_are_the_same_without(run: Path) -> None:
    images = torch.rand(5, 1, 28, 28)
    able, plain = load(run, "cpu"), load(run, "cpu", pose=False)
    found, before = able.predict(images, batch_size=2), plain.predict(images)
    assert before.angles is None
    assert found.angles is not None
    assert (found.angles.shape, found.angles.dtype) == ((5,), torch.float64)
    assert found.names == before.names
    torch.testing.assert_close(found.probabilities, before.probabilities)
    torch.testing.assert_close(found.orientations, before.orientations)
    assert able.pose is not None
    with torch.no_grad():
        features = able.network.get_submodule("features")(images)
    torch.testing.assert_close(found.angles, read_angles(able.pose, features, found.numbers), rtol=0, atol=1e-4)
    averaged = able.predict(images, views=2)
    assert averaged.angles is not None
    with torch.no_grad():
        expected = read_angles(able.pose, features, averaged.numbers)
    torch.testing.assert_close(averaged.angles, expected, rtol=0, atol=1e-4)


def test_a_network_without_orientations_has_no_angles() -> None:
    assert predict(seasoned(None), torch.rand(2, 1, 28, 28)).angles is None


def test_a_readout_of_other_weights_is_refused(run: Path) -> None:
    state = read_state(run / "best.safetensors")
    state["model"]["head.0.weight"] += 1
    write_state(run / "best.safetensors", state)
    with pytest.raises(ValueError, match=r"belongs to other weights than .* train it again with `sfcnn classify pose"):
        load(run)
    assert load(run, pose=False).pose is None


def weights(run: Path, **changes: Any) -> None:
    write_state(run / "pose.safetensors", read_state(run / "pose.safetensors") | changes)


def test_a_readout_that_does_not_fit_is_refused(run: Path) -> None:
    for other in ({"weight": torch.zeros(10, 3, 4)}, {}, {"weight": 3}, None, [1]):
        weights(run, readout=other)
        with pytest.raises(ValueError, match=r"pose\.safetensors does not fit the network of .*config\.yaml"):
            load(run)
    (run / "pose.safetensors").write_bytes(b"cut short")
    with pytest.raises(ValueError, match=r"pose\.safetensors is not a complete state"):
        load(run)


def test_a_run_without_it_has_none(run: Path) -> None:
    (run / "pose.safetensors").unlink()
    assert load_pose(run, load(run).network, 10) is None
