"""From membrane probabilities to cells: superpixels, their graph, the cost of each edge, multicut (Beier et al. 2017).

With affinities of pixel pairs there are two more methods: a lifted multicut, and a mutex watershed without superpixels.

Rotating a slice by 90° rotates its cells by 90°, exactly and with the same labels. As with superpixels, everything is
computed in one fixed orientation, and the exceptions are the same: probabilities that are symmetric under 180°.
Stacks whose cells are joined across slices are rotated as a whole. Affinities rotate with the image if their number of
orientations is divisible by 4; otherwise cells are found in the orientation in which the image is given.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfcnn.cells.affinities import Affinities, pixel_pairs
from sfcnn.cells.features import Features, edge_features
from sfcnn.cells.forest import Forest
from sfcnn.cells.graph import RegionGraph, paint, region_graph
from sfcnn.cells.lifted import LIFTED_SOLVERS, LiftedConfig, lifted_edges, lifted_multicut, short_borders
from sfcnn.cells.multicut import SOLVERS, edge_costs, multicut
from sfcnn.cells.mutex import MutexConfig, mutex_watershed
from sfcnn.cells.superpixels import (
    SuperpixelsConfig,
    check_probabilities,
    superpixels,
    turn,
    upright_turns,
)
from sfcnn.cells.thinning import components, fill_borders

#: Components between membranes; superpixels joined by a multicut; by a multicut with long pairs too; pixels joined by
#: short pairs unless long ones forbid it.
METHODS = ("threshold", "multicut", "lifted-multicut", "mutex-watershed")

#: Methods that need affinities, and methods that join superpixels and can use a forest.
BY_AFFINITIES = ("lifted-multicut", "mutex-watershed")
BY_SUPERPIXELS = ("multicut", "lifted-multicut")

_LARGEST = 1e9  # upper limit of settings that have no natural one


@dataclass(frozen=True)
class CellsConfig:
    """How cells are found; the numbers are those of Beier et al. for ISBI 2012.

    Args:
        superpixels: settings of the superpixels that are joined into cells
        beta: β of the edge costs; values above ½ give more and smaller cells
        solver: of the multicut: "greedy", "kernighan-lin", "fusion-moves", or "exact" (not for the lifted multicut)
        time_limit: time limit of "exact" for each multicut, in seconds
        joined: find cells that continue across the slices of a stack, instead of cells in each slice separately
        across_weight: weight of edges across slices: their costs are multiplied by this and by their area, relative to
            the largest one
        method: one of METHODS; "threshold" uses the threshold of the superpixels
        lifted: settings of the method "lifted-multicut"
        mutex: settings of the method "mutex-watershed"
    """

    superpixels: SuperpixelsConfig = field(default_factory=SuperpixelsConfig)
    beta: float = 0.5
    solver: str = "kernighan-lin"
    time_limit: float = 60.0
    joined: bool = False
    across_weight: float = 16.0
    method: str = "multicut"
    lifted: LiftedConfig = field(default_factory=LiftedConfig)
    mutex: MutexConfig = field(default_factory=MutexConfig)

    def __post_init__(self) -> None:
        """Check the choices and that every number makes sense."""
        if self.method not in METHODS:
            raise ValueError(f"unknown method {self.method!r}, choose one of {list(METHODS)}")
        if self.joined and self.method != "multicut":
            raise ValueError(f"joining cells across slices needs the method 'multicut', got {self.method!r}")
        solvers = LIFTED_SOLVERS if self.method == "lifted-multicut" else SOLVERS
        if self.solver not in solvers:
            raise ValueError(f"unknown solver {self.solver!r}, choose one of {list(solvers)}")
        if not 0 < self.beta < 1:
            raise ValueError(f"beta must be in (0, 1), got {self.beta}")
        for name in ("time_limit", "across_weight"):
            if not 0 <= getattr(self, name) <= _LARGEST:
                raise ValueError(f"{name} must be at least 0 and at most {_LARGEST:g}, got {getattr(self, name)}")


def find_cells(
    probabilities: ArrayLike,
    settings: CellsConfig | None = None,
    forest: Forest | None = None,
    raw: ArrayLike | None = None,
    report: Callable[[float], None] = lambda done: None,
    affinities: Affinities | None = None,
) -> NDArray[np.int64]:
    """Label each pixel with its cell, from 1: (H, W) or (Z, H, W) like the membrane probabilities.

    Without a forest, the probability of a border is the mean probability along the edge. Edges across slices always use
    the mean, because forests learn from borders within slices. In a stack, no label occurs in two slices unless cells
    are `joined`.

    Args:
        probabilities: of membrane, in [0, 1]
        settings: if None, the defaults, with the superpixels that the forest was trained on
        forest: classifies edges by their features, see `sfcnn.cells.learn_forest`
        raw: the image that the probabilities were predicted from, for a forest that was trained on raw images
        report: called with the fraction of slices that is done; joined slices are done all at once
        affinities: of pixel pairs, for the methods "lifted-multicut" and "mutex-watershed"

    >>> from sfcnn.cells import find_cells
    >>> wall = np.zeros((40, 60), np.float32)
    >>> wall[:, 28:31] = 0.9
    >>> len(np.unique(find_cells(wall)))
    2
    """
    if settings is None:
        settings = CellsConfig() if forest is None else CellsConfig(forest.superpixels)
    probabilities = check_probabilities(probabilities)
    if raw is not None:
        raw = np.asarray(raw)
        if raw.shape != probabilities.shape:
            raise ValueError(f"raw image {raw.shape} and probabilities {probabilities.shape} must have the same shape")
    if forest is None or not forest.needs_raw:
        raw = None
    elif raw is None:
        raise ValueError("the forest was trained on raw images: pass the raw image that belongs to the probabilities")
    if forest is not None and settings.method not in BY_SUPERPIXELS:
        raise ValueError(f"a forest needs one of the methods {list(BY_SUPERPIXELS)}, got {settings.method!r}")
    affinities = _needed(affinities, settings.method, probabilities.shape)
    if probabilities.ndim == 3 and not settings.joined:
        labels = np.empty(probabilities.shape, dtype=np.int64)
        last = 0
        for index, image in enumerate(probabilities):
            one = None if raw is None else raw[index]
            pairs = None if affinities is None else affinities[index]
            labels[index] = find_cells(image, settings, forest, one, affinities=pairs) + last
            last = labels[index].max()
            report((index + 1) / len(labels))
        return labels
    fixed = affinities is not None and not affinities.turnable
    turns = 0 if fixed else upright_turns(probabilities, settings.superpixels.threshold)
    upright, raw = turn(probabilities, turns), None if raw is None else turn(raw, turns)
    if affinities is not None and not fixed:
        affinities = affinities.turned(turns)
    labels = _upright_cells(upright, settings, forest, raw, affinities)
    report(1.0)
    return turn(labels, -turns)


def describe(
    probabilities: ArrayLike,
    settings: SuperpixelsConfig | None = None,
    raw: ArrayLike | None = None,
    *,
    standardized: bool = True,
) -> tuple[NDArray[np.int64], RegionGraph, Features]:
    """Superpixels, their graph and the features of its edges, the input of forests.

    Like the network, a forest should not depend on brightness and contrast: each slice of `raw` is scaled to mean 0 and
    standard deviation 1, unless `standardized` is False, for forests of version 0.1.
    """
    probabilities = check_probabilities(probabilities)
    labels = superpixels(probabilities, settings)
    graph = region_graph(labels)
    images: dict[str, NDArray[Any]] = {"probability": probabilities}
    if raw is not None:
        images["raw"] = _standardize(np.asarray(raw)) if standardized else np.asarray(raw)
    return labels, graph, edge_features(graph, labels, images)


def _standardize(images: NDArray[Any]) -> NDArray[np.float32]:
    """Standardise each slice of (…, H, W) as for the network."""
    import torch

    from sfcnn.segmentation.crops import standardize  # slow to import, not needed by forests without raw images

    slices = np.ascontiguousarray(images, dtype=np.float64).reshape(-1, *images.shape[-2:])
    return np.stack([standardize(torch.from_numpy(one)).numpy() for one in slices]).reshape(images.shape)


def _needed(affinities: Affinities | None, method: str, shape: tuple[int, ...]) -> Affinities | None:
    """Affinities of this shape if a method needs them, else None."""
    if method not in BY_AFFINITIES:
        return None
    if affinities is None:
        raise ValueError(
            f"the method {method!r} needs affinities: pass those of a network that was trained with affinities, or "
            f"choose one of {[name for name in METHODS if name not in BY_AFFINITIES]}"
        )
    if affinities.shape != shape:
        raise ValueError(
            f"affinities of an image {affinities.shape} and probabilities {shape} must have the same shape"
        )
    return affinities


def _upright_cells(
    probabilities: NDArray[Any],
    settings: CellsConfig,
    forest: Forest | None,
    raw: NDArray[Any] | None,
    affinities: Affinities | None,
) -> NDArray[np.int64]:
    threshold = settings.superpixels.threshold
    if settings.method == "threshold":
        cells = components(probabilities < threshold)
        return fill_borders(cells) if cells.any() else cells + 1
    if settings.method == "mutex-watershed":
        assert affinities is not None
        return mutex_watershed(affinities, settings.mutex, probabilities < settings.mutex.membrane)
    if forest is None:
        regions = superpixels(probabilities, settings.superpixels)
        graph = region_graph(regions)
        borders = graph.edge_means(probabilities)
    else:
        regions, graph, features = describe(probabilities, settings.superpixels, raw, standardized=forest.standardized)
        borders = np.where(graph.across, graph.edge_means(probabilities), forest.predict(features))
    if affinities is not None:
        pairs = pixel_pairs(affinities)
        short = short_borders(regions, graph, pairs)
        borders = np.where(
            np.isnan(short), borders, (1 - settings.lifted.short) * borders + settings.lifted.short * short
        )
        # Pixels on a membrane are in no cell, so their pairs say nothing about the adjacent cells.
        inside = np.where(probabilities < threshold, regions, 0)
        lifted, lifted_costs = lifted_edges(inside, graph.nodes, pairs, settings.beta, settings.lifted)
        costs = edge_costs(borders, settings.beta)
        return paint(regions, lifted_multicut(graph, costs, lifted, lifted_costs, settings.solver))
    costs = edge_costs(borders, settings.beta)
    areas = graph.sizes[graph.across]
    costs[graph.across] *= settings.across_weight * areas / areas.max(initial=1)
    return paint(regions, multicut(graph, costs, settings.solver, time_limit=settings.time_limit))
