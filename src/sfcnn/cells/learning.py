"""Learn from labelled slices which edges between superpixels are cell borders (Beier et al. 2017)."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from sfcnn.cells.forest import Forest, ForestConfig, grow_forest
from sfcnn.cells.graph import RegionGraph
from sfcnn.cells.metrics import Labels
from sfcnn.cells.pipeline import describe
from sfcnn.cells.superpixels import SuperpixelsConfig, check_probabilities


@dataclass(frozen=True)
class LearnedForest:
    """A forest, and statistics of the edges it was trained on."""

    forest: Forest
    borders: int  #: edges between two cells …
    within: int  #: … and within a cell
    ignored: int  #: edges excluded from training, where the truth is mixed or missing
    mean_error: float  #: fraction misclassified by the mean probability along an edge
    error: float  #: fraction misclassified by the forest out of bag, see `sfcnn.cells.forest.grow_forest`


def learn_forest(
    probabilities: ArrayLike,
    truth: Labels,
    raw: ArrayLike | None = None,
    superpixels: SuperpixelsConfig | None = None,
    settings: ForestConfig | None = None,
    report: Callable[[str, float], None] = lambda work, done: None,
) -> LearnedForest:
    """Learn from slices (Z, H, W) or (H, W) with known cells which edges between superpixels are cell borders.

    Use slices that the network was not trained on; on its training slices, the probabilities are unrealistically good.

    Args:
        probabilities: of membrane, in [0, 1]
        truth: cells of these slices, 0 on membranes and where unknown
        raw: the images that the probabilities were predicted from, for additional features
        superpixels: superpixel settings, both here and where the forest is used
        settings: settings of the forest
        report: called with "slices" or "trees" and the fraction of them that is done

    >>> from sfcnn.cells import find_cells, learn_forest, truth_cells
    >>> from sfcnn.segmentation.synthetic import synthetic_membranes
    >>> images, membranes = (part.numpy() for part in synthetic_membranes(3, 64, cell=20))
    >>> faint, cells = 0.4 * membranes, truth_cells(~membranes)
    >>> learned = learn_forest(faint[:2], cells[:2], images[:2], settings=ForestConfig(trees=10))
    >>> find_cells(faint[2], forest=learned.forest, raw=images[2]).max() > find_cells(faint[2]).max()
    np.True_
    """
    probabilities, truth = check_probabilities(probabilities), np.asarray(truth)
    raw = None if raw is None else np.asarray(raw)
    for name, other in (("truth", truth), ("raw image", raw)):
        if other is not None and other.shape != probabilities.shape:
            raise ValueError(f"{name} {other.shape} and probabilities {probabilities.shape} must have the same shape")
    if probabilities.ndim == 2:
        probabilities, truth, raw = probabilities[None], truth[None], None if raw is None else raw[None]
    made = superpixels or SuperpixelsConfig()
    examples = []
    for index, image in enumerate(probabilities):
        labels, graph, features = describe(image, made, None if raw is None else raw[index])
        examples.append((features, edge_targets(graph, labels, truth[index])))
        report("slices", (index + 1) / len(probabilities))
    forest, error = grow_forest(examples, settings, lambda done: report("trees", done))
    targets = np.concatenate([targets for _, targets in examples])
    column = forest.names.index("probability value edge mean")
    means = np.concatenate([features.values[:, column] for features, _ in examples])
    mean_error = float(((means > 0.5) != targets)[targets >= 0].mean())
    borders, within, ignored = (int((targets == kind).sum()) for kind in (1, 0, -1))
    forest = replace(forest, superpixels=made)
    return LearnedForest(forest, borders, within, ignored, mean_error, error)


def edge_targets(
    graph: RegionGraph, labels: Labels, truth: Labels, *, positive: float = 0.6, negative: float = 0.4
) -> NDArray[np.int8]:
    """(E,) target of each edge from the true cells (0 = unknown): 1 for a border, 0 inside a cell, −1 to ignore it.

    An edge's overlap is the probability that a pixel of one region and a pixel of the other, drawn at random among
    those with truth > 0, belong to different cells. The edge is a border if this is above `positive`, and within a cell
    if it is below `negative`. Edges in between, of regions without truth, and across slices (cells are annotated slice
    by slice) are ignored.
    """
    labels, truth = np.asarray(labels), np.asarray(truth)
    if not labels.shape == truth.shape == graph.shape:
        raise ValueError(f"labels {labels.shape} and truth {truth.shape} must have the shape {graph.shape}")
    if not 0 <= negative <= positive <= 1:
        raise ValueError(f"expected 0 <= negative <= positive <= 1, got {negative} and {positive}")
    known = (labels > 0) & (truth > 0)
    cells, numbers = np.unique(truth[known], return_inverse=True)
    nodes = labels[known].astype(np.int64) - 1
    shape = (graph.nodes, max(len(cells), 1))
    table = csr_array((np.ones(len(nodes)), (nodes, numbers)), shape=shape)  # pixels of each region in each cell
    totals = table.sum(axis=1)
    u, v = graph.edges.T
    unknown = (totals[u] == 0) | (totals[v] == 0)
    pairs = np.where(unknown, 1, totals[u] * totals[v])
    overlap = 1 - (table[u] * table[v]).sum(axis=1) / pairs
    targets = np.full(len(graph.edges), -1, dtype=np.int8)
    targets[overlap > positive] = 1
    targets[overlap < negative] = 0
    targets[graph.across | unknown] = -1
    return targets
