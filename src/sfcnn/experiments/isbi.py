"""Cells in electron microscope images: SFCNN against plain U-Nets, before and after multicut (§4.2, table 2).

The challenge scores hidden labels. Here groups of the labelled slices are held out in turn (k-fold), and the networks
and the forest of the multicut learn from the others. A cell's directory has images.tif, truth.tif, membranes.tif and
cells.tif of the slices that were held out.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from sfcnn.data.stacks import as_fraction, read_labels, read_stack, write_labels, write_stack
from sfcnn.experiments.sweep import Cell, Experiment, Result, Table, check_settings, mean_and_deviation, mean_text
from sfcnn.models.unet import UNet
from sfcnn.segmentation.cells import CellsConfig, describe
from sfcnn.segmentation.cells import cells as find_cells
from sfcnn.segmentation.forest import Forest, ForestConfig, edge_targets, grow_forest
from sfcnn.segmentation.scoring import StackScores, score_labels, score_probabilities, truth_cells
from sfcnn.segmentation.tiles import predict_image
from sfcnn.segmentation.tuning import choose_beta
from sfcnn.training.loop import Observer
from sfcnn.training.membrane_runs import (
    MembraneConfig,
    SlicesConfig,
    load_membrane_run,
    load_slices,
    prepare,
    train_membranes,
)
from sfcnn.training.runs import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMES = {
    "steerable": "SFCNN",
    "plain-channels": "U-Net, same channels",
    "plain-effective-channels": "U-Net, same effective channels",
    "plain-parameters": "U-Net, same parameters",
}

#: How cells are found from probabilities, and how it is called in the table.
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
        kinds: of networks, see model.kind
        folds: which groups of `images.validation` slices in a row to hold out in turn: 1 for the first, and so on
        seeds: of the runs
        epochs: of single kinds of networks, if not train.optimization.epochs
        trees: of the forest
        train: everything else about the runs
    """

    kinds: tuple[str, ...] = ("steerable", "plain-effective-channels", "plain-parameters")
    folds: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    seeds: tuple[int, ...] = (0,)
    epochs: dict[str, int] = field(default_factory=dict)
    trees: int = 200
    train: MembraneConfig = field(
        default_factory=lambda: MembraneConfig(images=SlicesConfig(source="isbi", validation=5))
    )

    def __post_init__(self) -> None:
        """Check that every list and number makes sense."""
        check_settings(self)
        for kind in self.epochs:
            if kind not in self.kinds:
                raise ValueError(f"epochs are for {kind!r}, expected one of the kinds {list(self.kinds)}")
        if min(self.folds) < 1:
            raise ValueError(f"folds are counted from 1, got {list(self.folds)}")
        ForestConfig(trees=self.trees)


def cells(settings: IsbiConfig) -> list[Cell]:
    """One run for each seed, group of slices and network."""
    found = []
    train = settings.train
    for seed in settings.seeds:
        for fold in settings.folds:
            count = train.images.validation
            first = (fold - 1) * count + 1
            for kind in settings.kinds:
                config = replace(
                    train,
                    model=replace(train.model, kind=kind),
                    images=replace(train.images, validation_from=first),
                    optimization=replace(
                        train.optimization, epochs=settings.epochs.get(kind, train.optimization.epochs)
                    ),
                    seed=seed,
                )
                name = f"{kind}-slices{first}-{first + count - 1}-s{seed}"
                place = {"kind": kind, "fold": fold, "seed": seed}
                found.append(Cell(name, place, config, {"trees": settings.trees}))
    return found


def train(cell: Cell, directory: Path, data: Path | None, observers: Sequence[Observer]) -> RunResult:
    """Train the network of a cell, or go on with it."""
    return train_membranes(
        cell.train, load_slices(cell.train.images, data), directory, resume=True, observers=observers
    )


def measure(cell: Cell, directory: Path, data: Path | None) -> Result:
    """V_rand and V_info of the slices held out, by each of the `METHODS`, and of their pixels."""
    config, net = load_membrane_run(directory)
    slices = load_slices(config.images, data)
    train, held_out = config.images.split(len(slices.images))
    images = np.stack([image.numpy() for image in slices.images])
    truth = truth_cells(~np.stack([membrane.numpy() for membrane in slices.membranes]))
    membranes = predict_slices(config, net, images)
    forest = learn_edges(membranes[train], images[train], truth[train], cell.test["trees"])
    beta = choose_beta(membranes[train], truth[train])
    learned = find_cells(membranes[held_out], None, forest, images[held_out])
    scores = {
        "threshold": score_probabilities(1 - membranes[held_out], truth[held_out]),
        "multicut": score_labels(find_cells(membranes[held_out]), truth[held_out]),
        "beta": score_labels(find_cells(membranes[held_out], CellsConfig(beta=beta)), truth[held_out]),
        "forest": score_labels(learned, truth[held_out]),
    }
    for name, stack in (("images", images), ("membranes", membranes)):
        write_stack(directory / f"{name}.tif", stack[held_out].astype(np.float32), overwrite=True)
    for name, labels in (("truth", truth[held_out]), ("cells", learned)):
        write_labels(directory / f"{name}.tif", labels, overwrite=True)
    if forest is not None:
        forest.save(directory / "edges.safetensors")
    return {"slices": [index + 1 for index in held_out], "beta": beta, **_shown(scores)}


def predict_slices(config: MembraneConfig, net: UNet, images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Probabilities of membrane (Z, H, W) of slices (Z, H, W)."""
    prepared = (prepare(config.images, torch.from_numpy(image)) for image in images)
    return np.stack([predict_image(net, image[None], margin=config.crops.margin)[0].numpy() for image in prepared])


def learn_edges(
    membranes: NDArray[np.float32], images: NDArray[np.float32], truth: NDArray[np.int64], trees: int
) -> Forest | None:
    """A forest that tells borders between superpixels, from slices whose cells are known.

    None if all superpixels touch others of the same kind only, as those of a network that has hardly learned may.
    """
    examples = []
    for probabilities, image, labels in zip(membranes, images, truth, strict=True):
        regions, graph, features = describe(probabilities, raw=image)
        examples.append((features, edge_targets(graph, regions, labels)))
    kinds = {int(target) for _, targets in examples for target in np.unique(targets)}
    return grow_forest(examples, ForestConfig(trees=trees)) if kinds >= {0, 1} else None


def _shown(scores: dict[str, StackScores]) -> Result:
    pixels = scores["threshold"]
    assert pixels.pixel_error is not None  # which only label images lack
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
    """One row per network and way to find cells; mean and deviation over groups of slices and seeds."""
    rows = []
    for kind, runs in _by_kind(results).items():
        for method, name in METHODS.items():
            scores = [[run["scores"][method][score]["best"] for run in runs] for score in ("v_rand", "v_info")]
            minutes = mean_and_deviation([run["run"]["seconds"] / 60 for run in runs])[0]
            trained = [f"{runs[0]['run']['parameters']:,}", f"{runs[0]['run']['epochs']}", f"{minutes:.0f}"]
            rows.append([_NAMES[kind], name, *(mean_text(values, 4) for values in scores), *trained])
    columns = ["network", "cells by", "V_rand", "V_info", "parameters", "epochs", "minutes"]
    slices = sorted({number for result in results for number in result["slices"]})
    return Table(f"{results[0]['run']['dataset']}, held out: slices {_ranges(slices)}", columns, rows)


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers in a row as first–last.

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
    """The last slice held out first: image, true cells, membranes, cells and mistakes, one row per network."""
    from sfcnn.pictures import segmentation_rows
    from sfcnn.segmentation.overlay import overlay

    rows: dict[str, dict[str, NDArray[Any]]] = {}
    for kind, runs in _by_kind(results).items():
        files = directory / "cells" / runs[0]["cell"]
        image = as_fraction(read_stack(files / "images.tif"), "images.tif")[-1]
        truth, found = (read_labels(files / f"{name}.tif")[-1] for name in ("truth", "cells"))
        membranes = read_stack(files / "membranes.tif")[-1]
        rows[_NAMES[kind]] = {
            "image": image,
            "true cells": truth,
            "membrane": membranes,
            "cells": found,
            "mistakes": overlay(image, found, truth),
        }
    number = _by_kind(results)[settings.kinds[0]][0]["slices"][-1]
    return segmentation_rows(rows, f"{results[0]['run']['dataset']}, slice {number}, not seen in training")


EXPERIMENT = Experiment(
    "isbi",
    IsbiConfig,
    cells,
    train,
    measure,
    table,
    draw,
)
