"""Settings that make no sense are refused when they are made, and the defaults are the paper's."""

import math
from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any

import pytest

from sfcnn.data.augmentation import AUGMENTATIONS, RESAMPLINGS
from sfcnn.data.datasets import DATASETS
from sfcnn.training.config import (
    KINDS,
    NETWORKS,
    PRECISIONS,
    SCHEDULES,
    ImagesConfig,
    ModelConfig,
    OptimizationConfig,
    TrainConfig,
)


def test_the_defaults_are_the_paper_s() -> None:
    """App. C.1: Adam at 0.015, times 0.8 per epoch from epoch 15, 40 epochs, elastic net, dropout 0.3."""
    config = TrainConfig()
    optimization = config.optimization
    assert (optimization.epochs, optimization.learning_rate) == (40, 0.015)
    assert (optimization.schedule, optimization.decay, optimization.decay_from) == ("exponential", 0.8, 15)
    assert (optimization.elastic_conv, optimization.elastic_dense) == (1e-7, 1e-8)
    assert (config.model.dropout, config.model.orientations, config.model.init) == (0.3, 16, "coeff")
    assert (config.model.kind, config.model.width, config.images.augmentation) == ("steerable", 1.0, "none")


@pytest.mark.parametrize(
    ("config", "name", "choices"),
    [
        (ModelConfig, "network", NETWORKS),
        (ModelConfig, "kind", KINDS),
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
        (OptimizationConfig, "epochs", (0, -1), (1,)),
        (OptimizationConfig, "batch_size", (0, -64), (1,)),
        (OptimizationConfig, "decay_from", (0,), (1,)),
        (OptimizationConfig, "learning_rate", (0.0, -0.1, math.nan), (1e-9, 10.0)),
        (OptimizationConfig, "decay", (0.0, 1.1, math.nan), (0.1, 1.0)),
        (OptimizationConfig, "elastic_conv", (-1e-9, math.nan), (0.0, 1.0)),
        (OptimizationConfig, "elastic_dense", (-1e-9, math.nan), (0.0, 1.0)),
        (TrainConfig, "seed", (-1,), (0,)),
        (TrainConfig, "checkpoint_steps", (-1,), (0,)),
    ],
)
def test_numbers_keep_to_their_range(config: type, name: str, wrong: tuple[Any, ...], right: tuple[Any, ...]) -> None:
    for value in right:
        assert getattr(config(**{name: value}), name) == value
    for value in wrong:
        with pytest.raises(ValueError, match=rf"^{name} must be .*, got {value}$"):
            config(**{name: value})


def test_settings_cannot_be_changed_in_place() -> None:
    parts = [getattr(TrainConfig(), field.name) for field in fields(TrainConfig)]
    for part in [TrainConfig(), *filter(is_dataclass, parts)]:
        name = fields(part)[-1].name
        with pytest.raises(FrozenInstanceError):
            setattr(part, name, getattr(part, name))
