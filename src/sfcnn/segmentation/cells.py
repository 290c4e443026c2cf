"""From membrane probabilities to cells: superpixels, their graph, the cost of each edge, multicut (Beier et al. 2017).

A slice turned by 90° gives cells turned by 90°, to the last pixel and with the same labels, as it is for superpixels
and by the same means: everything happens in one fixed orientation. The exceptions are the same too, probabilities that
equal themselves turned by 180°. Stacks whose cells go through slices are turned as a whole.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfcnn.segmentation.features import Features, edge_features
from sfcnn.segmentation.forest import Forest
from sfcnn.segmentation.graph import RegionGraph, paint, region_graph
from sfcnn.segmentation.multicut import SOLVERS, edge_costs, multicut
from sfcnn.segmentation.superpixels import (
    SuperpixelsConfig,
    check_probabilities,
    superpixels,
    turn,
    upright_turns,
)

_LARGEST = 1e9  # of the settings that have no limit by their meaning


@dataclass(frozen=True)
class CellsConfig:
    """How cells are found; the numbers are those of Beier et al. for ISBI 2012.

    Args:
        superpixels: what is joined to cells
        beta: β of the edge costs; above ½ there are more and smaller cells
        solver: of the multicut: "greedy", "kernighan-lin", "fusion-moves", "exact"
        time_limit: seconds for "exact", for each multicut
        joined: find cells that go through the slices of a stack, instead of cells in each slice by itself
        across_weight: of edges across slices: their costs are multiplied by this and by their area, relative to the
            largest one
    """

    superpixels: SuperpixelsConfig = field(default_factory=SuperpixelsConfig)
    beta: float = 0.5
    solver: str = "kernighan-lin"
    time_limit: float = 60.0
    joined: bool = False
    across_weight: float = 16.0

    def __post_init__(self) -> None:
        """Check the choices and that every number makes sense."""
        if self.solver not in SOLVERS:
            raise ValueError(f"unknown solver {self.solver!r}, choose one of {list(SOLVERS)}")
        if not 0 < self.beta < 1:
            raise ValueError(f"beta must be in (0, 1), got {self.beta}")
        for name in ("time_limit", "across_weight"):
            if not 0 <= getattr(self, name) <= _LARGEST:
                raise ValueError(f"{name} must be at least 0 and at most {_LARGEST:g}, got {getattr(self, name)}")


def cells(
    probabilities: ArrayLike,
    settings: CellsConfig | None = None,
    forest: Forest | None = None,
    raw: ArrayLike | None = None,
    report: Callable[[float], None] = lambda done: None,
) -> NDArray[np.int64]:
    """Label each pixel with its cell, from 1 on: (H, W) or (Z, H, W) as the membrane probabilities.

    Without a forest an edge is a border with the mean probability along it. Edges across slices always are, since
    forests learn from borders within slices. In a stack no label is in two slices unless cells are `joined`.

    Args:
        probabilities: of membrane, in [0, 1]
        settings: the defaults if None
        forest: tells borders by features of edges; if it was grown with the raw image, that is needed too
        raw: the image that the probabilities were predicted from
        report: called with the part of the slices that is done; slices that are joined are done all at once
    """
    settings = settings or CellsConfig()
    probabilities = check_probabilities(probabilities)
    if raw is not None:
        raw = np.asarray(raw)
        if raw.shape != probabilities.shape:
            raise ValueError(f"raw image {raw.shape} and probabilities {probabilities.shape} must have the same shape")
    if probabilities.ndim == 3 and not settings.joined:
        labels = np.empty(probabilities.shape, dtype=np.int64)
        last = 0
        for index, image in enumerate(probabilities):
            labels[index] = cells(image, settings, forest, None if raw is None else raw[index]) + last
            last = labels[index].max()
            report((index + 1) / len(labels))
        return labels
    turns = upright_turns(probabilities, settings.superpixels.threshold)
    upright = turn(probabilities, turns)
    labels = _upright_cells(upright, settings, forest, None if raw is None else turn(raw, turns))
    report(1.0)
    return turn(labels, -turns)


def describe(
    probabilities: ArrayLike, settings: CellsConfig | None = None, raw: ArrayLike | None = None
) -> tuple[NDArray[np.int64], RegionGraph, Features]:
    """Superpixels, their graph and its features as `cells` uses them, to grow a forest from."""
    settings = settings or CellsConfig()
    probabilities = check_probabilities(probabilities)
    labels = superpixels(probabilities, settings.superpixels)
    graph = region_graph(labels)
    return labels, graph, edge_features(graph, labels, _images(probabilities, raw))


def _images(probabilities: NDArray[Any], raw: ArrayLike | None) -> dict[str, NDArray[Any]]:
    return {"probability": probabilities} | ({} if raw is None else {"raw": np.asarray(raw)})


def _upright_cells(
    probabilities: NDArray[Any], settings: CellsConfig, forest: Forest | None, raw: NDArray[Any] | None
) -> NDArray[np.int64]:
    if forest is None:
        regions = superpixels(probabilities, settings.superpixels)
        graph = region_graph(regions)
        borders = graph.edge_means(probabilities)
    else:
        regions, graph, features = describe(probabilities, settings, raw)
        borders = np.where(graph.across, graph.edge_means(probabilities), forest.predict(features))
    costs = edge_costs(borders, settings.beta)
    areas = graph.sizes[graph.across]
    costs[graph.across] *= settings.across_weight * areas / areas.max(initial=1)
    return paint(regions, multicut(graph, costs, settings.solver, time_limit=settings.time_limit))
