"""Cells in electron microscope images: SFCNN against plain U-Nets, before and after multicut (§4.2, figure 5).

The challenge scores hidden labels. Here groups of the labelled slices are held out in turn (k-fold) and scored. Some of
the other slices select the epoch whose weights are kept; the networks, β and the forest of the multicut are trained on
the rest. The directory of a run contains images.tif, truth.tif, membranes.tif and cells.tif of the scored slices.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from sfcnn.cells import CellsConfig, Forest, ForestConfig, StackScores, choose_beta, find_cells, learn_forest
from sfcnn.cells.forest import OneKindOfEdgeError
from sfcnn.cells.scoring import score_labels, score_probabilities, truth_cells
from sfcnn.experiments.sweep import Experiment, Result, SweepRun, Table, check_settings, mean_and_deviation, mean_text
from sfcnn.io.stacks import as_fraction, read_labels, read_stack, write_labels, write_stack
from sfcnn.segmentation import SegmentationConfig, SlicesConfig, load, load_slices
from sfcnn.segmentation import train as train_segmentation
from sfcnn.train.loop import Observer
from sfcnn.train.run import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMES = {
    "steerable": "SFCNN",
    "plain-channels": "U-Net, same channels",
    "plain-effective-channels": "U-Net, same effective channels",
    "plain-parameters": "U-Net, same parameters",
}

#: Methods to find cells from probabilities, and their names in the table.
METHODS = {
    "threshold": "threshold",
    "multicut": "multicut",
    "beta": "multicut, β of training slices",
    "forest": "multicut, forest",
}


@dataclass(frozen=True)
class IsbiConfig:
    """The sweep over networks and groups of slices.

    Args:
        kinds: kinds of networks, see train.model.kind
        folds: groups of train.images.test consecutive slices to score in turn, counted from 1; the
            train.images.validation slices before a group select the epoch, or those after it if there are too few
        seeds: seeds of the runs
        epochs: epochs by kind of network, for those that differ from train.optimization.epochs
        trees: number of trees in the forest
        train: all other settings of the runs
    """

    kinds: tuple[str, ...] = ("steerable", "plain-effective-channels", "plain-parameters")
    folds: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    seeds: tuple[int, ...] = (0,)
    epochs: dict[str, int] = field(default_factory=dict)
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
        if self.train.images.test < 1:
            raise ValueError(
                f"train.images.test, the slices of a fold, must be at least 1, got {self.train.images.test}"
            )
        ForestConfig(trees=self.trees)


def runs(settings: IsbiConfig) -> list[SweepRun]:
    """One run for each seed, group of slices and network."""
    found = []
    train = settings.train
    for seed in settings.seeds:
        for fold in settings.folds:
            images = held_out(train.images, fold)
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
                name = f"{kind}-slices{images.test_from}-{last}-s{seed}"
                place = {"kind": kind, "fold": fold, "seed": seed}
                found.append(SweepRun(name, place, config, {"trees": settings.trees}))
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
    """V_rand and V_info of the held-out slices, by each of the `METHODS`, and pixel scores."""
    slices = load_slices(run.train.images, data)
    learned, chosen, scored = run.train.images.split(len(slices.images))
    images = np.stack([image[0].numpy() for image in slices.images])  # (C, H, W) each, with C = 1
    truth = truth_cells(np.stack([mask.numpy() == 0 for mask in slices.masks]))
    membranes = load(directory).predict(images)
    forest = _learn_forest(membranes[learned], truth[learned], images[learned], run.test["trees"])
    beta = choose_beta(membranes[learned], truth[learned])
    found = find_cells(membranes[scored], None, forest, images[scored])
    scores = {
        "threshold": score_probabilities(1 - membranes[scored], truth[scored]),
        "multicut": score_labels(find_cells(membranes[scored]), truth[scored]),
        "beta": score_labels(find_cells(membranes[scored], CellsConfig(beta=beta)), truth[scored]),
        "forest": score_labels(found, truth[scored]),
    }
    for name, stack in (("images", images), ("membranes", membranes)):
        write_stack(directory / f"{name}.tif", stack[scored].astype(np.float32), overwrite=True)
    for name, labels in (("truth", truth[scored]), ("cells", found)):
        write_labels(directory / f"{name}.tif", labels, overwrite=True)
    if forest is not None:
        forest.save(directory / "edges.safetensors")
    parts = {"train": learned, "validation": chosen, "test": scored}
    return {
        "slices": {name: [index + 1 for index in part] for name, part in parts.items()},
        "steps": run.train.optimization.epochs * run.train.steps,
        "threads": torch.get_num_threads(),
        "beta": beta,
        **_shown(scores),
    }


def _learn_forest(
    membranes: NDArray[np.float32], truth: NDArray[np.int64], images: NDArray[np.float32], trees: int
) -> Forest | None:
    """Train a forest; None if there is only one kind of edge, which can happen with a barely trained network."""
    try:
        return learn_forest(membranes, truth, images, settings=ForestConfig(trees=trees)).forest
    except OneKindOfEdgeError:
        return None


def _shown(scores: dict[str, StackScores]) -> Result:
    pixels = scores["threshold"]
    assert pixels.pixel_error is not None  # only label images lack it
    assert pixels.f1 is not None
    return {
        "scores": {
            method: {
                name: {"best": score.best, "threshold": score.threshold, "slices": list(score.slices)}
                for name, score in (("v_rand", found.v_rand), ("v_info", found.v_info))
            }
            for method, found in scores.items()
        },
        "pixel_error": pixels.pixel_error.best,
        "f1": pixels.f1.best,
    }


def _by_kind(results: list[Result]) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = defaultdict(list)
    for result in sorted(results, key=lambda result: list(_NAMES).index(result["kind"])):
        found[result["kind"]].append(result)
    return found


def table(settings: IsbiConfig, results: list[Result]) -> Table:
    """One row per network and method to find cells; mean and deviation over groups of slices and seeds."""
    rows = []
    for kind, runs in _by_kind(results).items():
        for method, name in METHODS.items():
            scores = [[run["scores"][method][score]["best"] for run in runs] for score in ("v_rand", "v_info")]
            minutes = mean_and_deviation([run["run"]["seconds"] / 60 for run in runs])[0]
            threads = ", ".join(sorted({f"{run['threads']}" for run in runs}))
            trained = [f"{runs[0]['run']['parameters']:,}", f"{runs[0]['steps']:,}", threads, _minutes(minutes)]
            rows.append([_NAMES[kind], name, *(mean_text(values, 4) for values in scores), *trained])
    columns = ["network", "cells by", "V_rand", "V_info", "parameters", "steps", "threads", "minutes"]
    slices = sorted({number for result in results for number in result["slices"]["test"]})
    return Table(f"{results[0]['run']['dataset']}, scored on slices {_ranges(slices)}", columns, rows)


def _minutes(minutes: float) -> str:
    """Whole minutes, or two digits for a run of less than ten.

    >>> _minutes(54.4), _minutes(3.21), _minutes(0.052)
    ('54', '3.2', '0.052')
    """
    return f"{minutes:.0f}" if minutes >= 10 else f"{minutes:.2g}"


def _ranges(numbers: Sequence[int]) -> str:
    """Consecutive numbers as first–last.

    >>> _ranges([1, 2, 3, 7])
    '1–3, 7'
    """
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{part[0]}–{part[-1]}" if len(part) > 1 else f"{part[0]}" for part in parts)


def draw(settings: IsbiConfig, results: list[Result], directory: Path) -> "Figure":
    """The last slice of the first group: image and true cells, then membranes, cells and mistakes of each network."""
    from sfcnn.experiments.figures import segmentation_rows

    first = _by_kind(results)[settings.kinds[0]][0]
    files = directory / "runs" / first["name"]
    image = as_fraction(read_stack(files / "images.tif"), "images.tif")[-1]
    truth = read_labels(files / "truth.tif")[-1]
    rows: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}
    for kind, runs in _by_kind(results).items():
        files = directory / "runs" / runs[0]["name"]
        rows[_NAMES[kind]] = read_stack(files / "membranes.tif")[-1], read_labels(files / "cells.tif")[-1]
    title = f"{first['run']['dataset']}, slice {first['slices']['test'][-1]}, not seen in training"
    return segmentation_rows(image, truth, rows, title)


EXPERIMENT = Experiment("isbi", IsbiConfig, runs, train, measure, table, draw)
