import pytest

from sfcnn.io.runs import from_older
from sfcnn.io.settings import make_settings
from sfcnn.segmentation.config import SegmentationConfig, SlicesConfig, UNetConfig


def test_sizes_and_schedule_are_the_paper_s() -> None:
    config = SegmentationConfig()
    assert (config.model.orientations, config.model.dropout) == (17, 0.4)
    assert (config.crops.size, config.crops.size + 2 * config.crops.margin) == (256, 320)
    assert (config.optimization.learning_rate, config.optimization.decay) == (0.05, 0.85)
    assert (config.optimization.elastic_conv, config.optimization.elastic_dense) == (1e-7, 1e-8)


def test_slices_are_held_out_for_two_purposes() -> None:
    images = SlicesConfig(validation=2, test=3)
    train, validation, test = images.split(10)
    assert (train, validation, test) == ([0, 1, 2, 3, 4], [5, 6], [7, 8, 9])
    numbered = SlicesConfig(validation=2, validation_from=1, test=2, test_from=4)
    assert numbered.split(6) == ([2, 5], [0, 1], [3, 4])
    after = SlicesConfig(validation=2, test=2, test_from=1)  # the last ones of those that are left
    assert after.split(6) == ([2, 3], [4, 5], [0, 1])
    few = SlicesConfig(train=2, validation=2, test=3)
    assert few.split(10) == ([0, 1], validation, test)  # the others are held out as before


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (SlicesConfig(validation=3), "must leave slices to train on, got 3 and 0 out of 3"),
        (SlicesConfig(train=3, validation=1), "images.train must be at most 2, the slices not held out, got 3"),
        (SlicesConfig(validation=1, validation_from=9), "images.validation cannot hold out 1 slices, 9 to 9, of 3"),
        (SlicesConfig(validation=1, test=4), "images.test cannot hold out 4 slices, the last ones, of 3"),
        (SlicesConfig(validation=1, validation_from=2, test=1, test_from=2), "images.validation cannot hold out"),
    ],
)
def test_splits_that_make_no_sense_are_refused(images: SlicesConfig, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        images.split(3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SlicesConfig("tape"), "unknown source 'tape', choose one of"),
        (lambda: SlicesConfig("stack", "a.tif"), r"source 'stack' needs images\.masks"),
        (lambda: SlicesConfig("pairs"), r"source 'pairs' needs images\.path"),
        (lambda: SlicesConfig(validation=0), "validation must be at least 1, got 0"),
        (lambda: SlicesConfig(channels=2), r"unknown channels 2, choose one of \[0, 1, 3\]"),
        (lambda: SlicesConfig(classes=("a", "a")), "class names must be distinct"),
        (lambda: UNetConfig(kind="round"), "unknown kind 'round', choose one of"),
        (lambda: UNetConfig(readout="late"), "unknown readout 'late', choose one of"),
        (lambda: UNetConfig(affinities=(0.5, 3)), r"radii must be at least 1 pixel, got 0\.5"),
        (lambda: UNetConfig(affinities=(3, 1)), r"radii must increase, got \[3, 1\]"),
        (lambda: UNetConfig(orientations=1, affinities=(1,)), "orientations must be at least 2, got 1"),
        (lambda: UNetConfig(affinities=(1,), reflections=True), "need an even number of orientations, got 17"),
        (lambda: SlicesConfig("isbi", label_masks=True), "images.label_masks needs the source 'stack' or 'pairs'"),
        (lambda: SlicesConfig("pairs", "a", label_masks=True, invert_masks=True), "label images are 0 on membranes"),
        (lambda: SegmentationConfig(affinity_weight=-1), "affinity_weight must be at least 0, got -1"),
        (lambda: SegmentationConfig(steps=0), "steps must be at least 1, got 0"),
        (lambda: SegmentationConfig(loss="hinge"), "unknown loss 'hinge', choose one of"),
    ],
)
def test_wrong_settings_are_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("levels", [0, 17, 10**20, -(10**20)])
def test_absurd_levels_are_refused_at_once(levels: int) -> None:
    with pytest.raises(ValueError, match=f"levels must be at least 1 and at most 16, got {levels}"):
        UNetConfig(levels=levels)


def test_runs_of_version_0_1_looked_for_membranes() -> None:
    old = {"model": {"channels": 6}, "images": {"source": "isbi", "validation": 4}, "crops": {"size": 144}}
    config = make_settings(SegmentationConfig, from_older("segmentation", old))
    assert config.model.readout == "paper"
    assert config.images.classes == ("membranes",)
    assert config.images.invert_masks
    new = {"images": {"classes": ["vessels"]}}
    assert from_older("segmentation", new) == new


def test_settings_from_before_affinities_have_none() -> None:
    old = {"model": {"channels": 6, "reflections": False}, "images": {"classes": ["membranes"]}, "loss": "dice"}
    config = make_settings(SegmentationConfig, old)
    assert config.model.affinities == ()
    new = make_settings(SegmentationConfig, {"model": {"affinities": [1, 3]}, "affinity_weight": 2})
    assert (new.model.affinities, new.affinity_weight) == ((1.0, 3.0), 2.0)
