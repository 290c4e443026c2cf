"""Cells in electron microscope images: SFCNN against plain U-Nets, by several methods to find cells (§4.2, figure 5).

The challenge scores hidden labels. Here groups of the labelled slices are held out in turn (k-fold) and scored. Some of
the other slices are not trained on either: they select the epoch whose weights are kept and the settings of each
method, and the forest of the multicut learns from them, since it needs predictions for slices that the network does not
know. The directory of a run contains images.tif, truth.tif, membranes.tif and the cells by each method,
cells-METHOD.tif, of the scored slices, and the settings of the best method in cells.yaml, for prediction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from sfcnn.cells import ForestConfig, compare_methods
from sfcnn.cells.apply import SETTINGS_FILE
from sfcnn.cells.comparison import MethodScore, Prediction, predict_slices
from sfcnn.cells.scoring import score_probabilities, truth_cells
from sfcnn.experiments.isbi_rows import METHODS, best_method, draw_cells, draw_slices, make_table
from sfcnn.experiments.sweep import Experiment, Result, SweepRun, Table, check_settings
from sfcnn.io.settings import write_settings
from sfcnn.io.stacks import write_labels, write_stack
from sfcnn.segmentation import SegmentationConfig, SlicesConfig, load, load_slices
from sfcnn.segmentation import train as train_segmentation
from sfcnn.segmentation.tiles import AVERAGES
from sfcnn.train.loop import Observer
from sfcnn.train.run import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class IsbiConfig:
    """The sweep over networks, groups of slices and numbers of training slices.

    Args:
        kinds: kinds of networks, see train.model.kind
        folds: groups of train.images.test consecutive slices to score in turn, counted from 1; the
            train.images.validation slices before a group select the epoch, or those after it if there are too few
        train_slices: numbers of slices to train on, 0 for all that are not held out
        seeds: seeds of the runs
        epochs: epochs by kind of network, for those that differ from train.optimization.epochs
        averages: views of an image over which predictions are averaged: "none", "rotations" or "all"
        trees: number of trees in the forest
        train: all other settings of the runs
    """

    kinds: tuple[str, ...] = ("steerable", "plain-effective-channels", "plain-parameters")
    folds: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    train_slices: tuple[int, ...] = (0,)
    seeds: tuple[int, ...] = (0,)
    epochs: dict[str, int] = field(default_factory=dict)
    averages: tuple[str, ...] = ("none", "all")
    trees: int = 200
    train: SegmentationConfig = field(
        default_factory=lambda: SegmentationConfig(images=SlicesConfig(source="isbi", validation=3, test=5))
    )

    def __post_init__(self) -> None:
        """Check that every list and number makes sense."""
        check_settings(self)
        for kind in self.epochs:
            if kind not in self.kinds:
                raise ValueError(f"epochs are set for {kind!r}, expected one of the kinds {list(self.kinds)}")
        if min(self.folds) < 1:
            raise ValueError(f"folds are counted from 1, got {list(self.folds)}")
        if min(self.train_slices) < 0:
            raise ValueError(f"train_slices must be at least 0, got {list(self.train_slices)}")
        for average in self.averages:
            if average not in AVERAGES:
                raise ValueError(f"unknown average {average!r}, choose one of {list(AVERAGES)}")
        if self.train.images.test < 1:
            raise ValueError(
                f"train.images.test, the slices of a fold, must be at least 1, got {self.train.images.test}"
            )
        ForestConfig(trees=self.trees)


def runs(settings: IsbiConfig) -> list[SweepRun]:
    """One run for each seed, group of slices, number of training slices and network."""
    found = []
    train = settings.train
    for seed in settings.seeds:
        for fold in settings.folds:
            for count in settings.train_slices:
                images = replace(held_out(train.images, fold), train=count)
                last = images.test_from + images.test - 1
                for kind in settings.kinds:
                    epochs = settings.epochs.get(kind, train.optimization.epochs)
                    config = replace(
                        train,
                        model=replace(train.model, kind=kind),
                        images=images,
                        optimization=replace(train.optimization, epochs=epochs),
                        seed=seed,
                    )
                    few = f"-of{count}" if count else ""
                    name = f"{kind}{few}-slices{images.test_from}-{last}-s{seed}"
                    place = {"kind": kind, "fold": fold, "train_slices": count, "seed": seed}
                    test = {"trees": settings.trees, "averages": list(settings.averages)}
                    found.append(SweepRun(name, place, config, test))
    return found


def held_out(images: SlicesConfig, fold: int) -> SlicesConfig:
    """The slices of a fold: its group is scored, and other slices select the epoch."""
    first = (fold - 1) * images.test + 1
    before = first - images.validation
    return replace(images, test_from=first, validation_from=before if before > 0 else first + images.test)


def train(run: SweepRun, directory: Path, data: Path | None, observers: Sequence[Observer]) -> RunResult:
    """Train the network of a run, or resume it."""
    return train_segmentation(run.train, directory, data=data, resume=True, observers=observers)


def measure(run: SweepRun, directory: Path, data: Path | None) -> Result:
    """V_rand and V_info of the held-out slices by each of the `METHODS`, and pixel scores, for each of the averages."""
    slices = load_slices(run.train.images, data)
    learned, chosen, scored = run.train.images.split(len(slices.images))
    images = np.stack([image[0].numpy() for image in slices.images])  # (C, H, W) each, with C = 1
    truth = truth_cells(np.stack([mask.numpy() == 0 for mask in slices.masks]))
    network = load(directory)
    tests = []
    for average in run.test["averages"]:
        chosen_on, scored_on = (predict_slices(network, images, truth, average, only=part) for part in (chosen, scored))
        compared = compare_methods(chosen_on, scored_on, forest=ForestConfig(trees=run.test["trees"]))
        pixels = score_probabilities(1 - scored_on.probabilities, scored_on.truth)
        assert pixels.pixel_error is not None  # only label images lack it
        scores = {method: _numbers(compared[method]) for method in METHODS if method in compared}
        tests.append({"average": average, "scores": scores, "pixel_error": pixels.pixel_error.best})
        if average == run.test["averages"][0]:
            _write(directory, scored_on, compared)
            best = compared[best_method([tests[-1]])]
            write_settings(directory / SETTINGS_FILE, best.config, overwrite=True)
    parts = {"train": learned, "validation": chosen, "test": scored}
    return {
        "slices": {name: [index + 1 for index in part] for name, part in parts.items()},
        "steps": run.train.optimization.epochs * run.train.steps,
        "threads": torch.get_num_threads(),
        "tests": tests,
    }


def _numbers(found: MethodScore) -> Result:
    return {
        "settings": found.settings,
        "v_rand": found.scores.v_rand.best,
        "v_info": found.scores.v_info.best,
        "slices": {"v_rand": list(found.scores.v_rand.slices), "v_info": list(found.scores.v_info.slices)},
        "chosen_v_rand": found.chosen_v_rand,
        "seconds": found.seconds,
    }


def _write(directory: Path, slices: Prediction, compared: Mapping[str, MethodScore]) -> None:
    """The scored slices, their true cells, membranes, and the cells by each method."""
    for name, stack in (("images", slices.images), ("membranes", slices.probabilities)):
        write_stack(directory / f"{name}.tif", np.asarray(stack, np.float32), overwrite=True)
    labels = {"truth": slices.truth, **{f"cells-{method}": found.cells for method, found in compared.items()}}
    for name, cells in labels.items():
        write_labels(directory / f"{name}.tif", np.asarray(cells), overwrite=True)


def table(settings: IsbiConfig, results: list[Result]) -> Table:
    """One row per network, number of training slices and average."""
    return make_table(results)


def draw(settings: IsbiConfig, results: list[Result], directory: Path) -> "Figure":
    """The cells of a slice, or the scores against the number of training slices if there are several numbers."""
    return draw_slices(results) if len(settings.train_slices) > 1 else draw_cells(results, directory)


EXPERIMENT = Experiment("isbi", IsbiConfig, runs, train, measure, table, draw)
