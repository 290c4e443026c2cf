"""Settings that make no sense are refused when they are made, and the defaults are the paper's but where they say."""

import math
from dataclasses import FrozenInstanceError, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sfcnn.classification.augmentation import AUGMENTATIONS, RESAMPLINGS
from sfcnn.classification.config import (
    DATASETS,
    NETWORKS,
    ClassificationConfig,
    ImagesConfig,
    ModelConfig,
)
from sfcnn.io.settings import make_settings, read_settings, write_settings
from sfcnn.models.classifier import PADDINGS
from sfcnn.models.twins import KINDS
from sfcnn.train.config import OPTIMIZERS, PRECISIONS, RECIPES, SCHEDULES, OptimizationConfig, recipe

#: Settings that are for folders only.
Folder: Any = partial(ImagesConfig, "folder")


def test_the_defaults_are_the_paper_s_but_for_the_basis_and_the_images() -> None:
    """App. C.1: Adam at 0.015, times 0.8 per epoch from epoch 15, 40 epochs, elastic net, dropout 0.3."""
    config = ClassificationConfig()
    optimization = config.optimization
    assert (optimization.epochs, optimization.learning_rate) == (40, 0.015)
    assert (optimization.schedule, optimization.decay, optimization.decay_from) == ("exponential", 0.8, 15)
    assert (optimization.elastic_conv, optimization.elastic_dense) == (1e-7, 1e-8)
    assert (config.model.dropout, config.model.orientations, config.model.init) == (0.3, 16, "coeff")
    assert (config.model.kind, config.model.width, config.images.augmentation) == ("steerable", 1.0, "none")
    assert config.model.basis != "paper"
    assert (config.images.dataset, config.images.join_validation) == ("mnist-rot-regenerated", False)


@pytest.mark.parametrize(
    ("config", "name", "choices"),
    [
        (ModelConfig, "network", NETWORKS),
        (ModelConfig, "kind", KINDS),
        (ModelConfig, "padding", ("auto", *PADDINGS)),
        (OptimizationConfig, "optimizer", OPTIMIZERS),
        (ImagesConfig, "dataset", DATASETS),
        (ImagesConfig, "augmentation", AUGMENTATIONS),
        (ImagesConfig, "resampling", RESAMPLINGS),
        (OptimizationConfig, "precision", PRECISIONS),
        (OptimizationConfig, "schedule", SCHEDULES),
    ],
)
def test_a_wrong_choice_names_the_choices(config: type, name: str, choices: tuple[str, ...]) -> None:
    for choice in choices:
        assert getattr(config(**{name: choice}), name) == choice
    with pytest.raises(ValueError, match=f"unknown {name} 'mine', choose one of ") as caught:
        config(**{name: "mine"})
    assert all(repr(choice) in str(caught.value) for choice in choices)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "name", "wrong", "right"),
    [
        (ModelConfig, "orientations", (0, -4), (1, 17)),
        (ModelConfig, "width", (0.0, -1.0, 65.0, math.nan, math.inf), (0.01, 64.0)),
        (ModelConfig, "dropout", (-0.1, 1.0, math.nan), (0.0, 0.99)),
        (ImagesConfig, "train_images", (-1,), (0, 1)),
        (ImagesConfig, "validation_images", (-1,), (0, 1)),
        (ImagesConfig, "seed", (-1,), (0,)),
        (Folder, "size", (-1, 7, 4096), (0, 8, 2048)),
        (OptimizationConfig, "epochs", (0, -1), (1,)),
        (OptimizationConfig, "batch_size", (0, -64), (1,)),
        (OptimizationConfig, "decay_from", (0,), (1,)),
        (OptimizationConfig, "learning_rate", (0.0, -0.1, math.nan), (1e-9, 10.0)),
        (OptimizationConfig, "decay", (0.0, 1.1, math.nan), (0.1, 1.0)),
        (OptimizationConfig, "elastic_conv", (-1e-9, math.nan), (0.0, 1.0)),
        (OptimizationConfig, "elastic_dense", (-1e-9, math.nan), (0.0, 1.0)),
        (OptimizationConfig, "averaging", (-0.1, 1.0, math.nan), (0.0, 0.999)),
        (OptimizationConfig, "label_smoothing", (-0.1, 1.0, math.nan), (0.0, 0.9)),
        (partial(OptimizationConfig, optimizer="adamw"), "weight_decay", (-1e-9, math.nan), (0.0, 0.1)),
        (ClassificationConfig, "seed", (-1,), (0,)),
        (ClassificationConfig, "checkpoint_steps", (-1,), (0,)),
    ],
)
def test_numbers_keep_to_their_range(config: Any, name: str, wrong: tuple[Any, ...], right: tuple[Any, ...]) -> None:
    for value in right:
        assert getattr(config(**{name: value}), name) == value
    for value in wrong:
        with pytest.raises(ValueError, match=rf"^{name} must be .*, got {value}$"):
            config(**{name: value})


def test_settings_cannot_be_changed_in_place() -> None:
    parts = [getattr(ClassificationConfig(), field.name) for field in fields(ClassificationConfig)]
    for part in [ClassificationConfig(), *filter(is_dataclass, parts)]:
        name = fields(part)[-1].name
        with pytest.raises(FrozenInstanceError):
            setattr(part, name, getattr(part, name))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"channels": 2}, r"unknown channels 2, choose one of \[0, 1, 3\]"),
        ({"fit": "crop"}, "unknown fit 'crop', choose one of "),
        ({"validation_share": 0.0}, "validation_share must be above 0"),
        ({"test_share": -0.1}, "test_share at least 0"),
        ({"validation_share": 0.5, "test_share": 0.5}, "their sum below 1, got 0.5 and 0.5"),
        ({"validation_share": math.nan}, "got nan and 0.15"),
        ({"classes": ("one",)}, r"classes must be at least 2 different names, got \['one'\]"),
        ({"classes": ("one", "two", "one")}, "classes must be at least 2 different names"),
    ],
)
def test_settings_of_folders_keep_to_what_they_mean(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Folder(**settings)


@pytest.mark.parametrize("setting", [{"path": "mine"}, {"size": 32}, {"channels": 3}, {"classes": ("a", "b")}])
def test_digits_refuse_the_settings_of_folders(setting: dict[str, Any]) -> None:
    (name,) = setting
    assert getattr(Folder(**setting), name) == setting[name]
    with pytest.raises(ValueError, match=rf"^{name} is for your own images: set dataset to 'folder', got 'digits'$"):
        ImagesConfig("digits", **setting)


def test_sides_and_classes_are_those_of_the_data_set() -> None:
    assert (ImagesConfig("digits").side, ImagesConfig("digits").class_names) == (28, tuple("0123456789"))
    assert (Folder().side, Folder().class_names) == (64, ())
    assert (Folder(size=40).side, Folder(classes=("b", "a")).class_names) == (40, ("b", "a"))


def test_names_of_classes_come_back_whatever_they_look_like(tmp_path: Path) -> None:
    names = ("0", "1e3", "null", "true", "2001-01-01", "über", "a: b", "- c", "[d]", "~", "", " e")
    config = ClassificationConfig(images=Folder(classes=names))
    write_settings(tmp_path / "config.yaml", config)
    assert read_settings(ClassificationConfig, tmp_path / "config.yaml") == config
    assert make_settings(ClassificationConfig, {"images": {"dataset": "folder", "classes": list(names)}}) == config


def test_weight_decay_is_adamw_s() -> None:
    with pytest.raises(ValueError, match=r"weight_decay must be 0 with the optimizer 'adam', which has none, got 0\.1"):
        OptimizationConfig(weight_decay=0.1)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_written_out_and_what_is_named_overrides_it(name: str, tmp_path: Path) -> None:
    config = make_settings(ClassificationConfig, {"optimization": {"recipe": name, "epochs": 3}})
    assert config.optimization == recipe(name, epochs=3)
    write_settings(tmp_path / "config.yaml", config)
    assert "recipe" not in (tmp_path / "config.yaml").read_text()  # nothing depends on what the name means later
    assert read_settings(ClassificationConfig, tmp_path / "config.yaml") == config


def test_the_recipes() -> None:
    assert recipe("paper") == OptimizationConfig()
    fast = recipe("fast")
    assert (fast.schedule, fast.optimizer, fast.elastic_conv, fast.elastic_dense) == ("one-cycle", "adamw", 0, 0)
    assert min(fast.weight_decay, fast.averaging, fast.label_smoothing) > 0
    message = r"unknown (optimization\.)?recipe 'slow', choose one of \['paper', 'fast'\]"
    for make in (recipe, lambda name: make_settings(ClassificationConfig, {"optimization": {"recipe": name}})):
        with pytest.raises(ValueError, match=message):
            make("slow")


def test_the_padding_of_a_network_is_resolved() -> None:
    assert ModelConfig("benchmark").resolved() == ModelConfig("benchmark", padding="inner")
    assert ModelConfig("baseline").resolved() == ModelConfig("baseline", padding="same")
    for padding in PADDINGS:
        named = ModelConfig("benchmark", padding=padding)
        assert named.resolved() == named


@pytest.mark.parametrize("shift", [-0.1, 14.5, math.nan])
def test_a_shift_stays_within_half_an_image(shift: float) -> None:
    assert ImagesConfig(shift=14.0).shift == 14
    assert Folder(shift=32.0).shift == 32
    with pytest.raises(ValueError, match="shift must be from 0 to 14 pixels, half of an image, got"):
        ImagesConfig(shift=shift)
