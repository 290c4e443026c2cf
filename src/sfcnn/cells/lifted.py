"""Lifted multicut: a multicut with additional edges between regions that do not touch (Keuper et al. 2015).

E(partition) = Σ_e w_e [e is cut] + Σ_f w'_f [the regions of f are in different parts]        (minimised)

Edges e of the graph join neighbours, and every part is connected by them. Lifted edges f join any two regions: they
change the cost of a partition, but not which partitions are feasible. Here they come from affinities of long pairs,
with A_f the mean over the pairs of pixels between two regions:

w'_f = λ n_f / (n_f + n₀) (log(A_f / (1 − A_f)) + log((1 − β) / β))

n_f is the number of these pairs; few pairs count less than many, and n₀ pairs count half. Neighbours may have a lifted
edge too, which is added to their own.
"""

from dataclasses import dataclass

import numpy as np
from bioimage_cpp.graph import UndirectedGraph
from bioimage_cpp.graph import lifted_multicut as solvers
from numpy.typing import ArrayLike, NDArray

from sfcnn.cells.affinities import Pairs, region_affinities
from sfcnn.cells.graph import Graph
from sfcnn.cells.metrics import Labels
from sfcnn.cells.multicut import Floats, NodeLabels, edge_costs, energy, joined_parts

#: The same as for the multicut, except "exact".
LIFTED_SOLVERS = ("greedy", "kernighan-lin", "fusion-moves")


@dataclass(frozen=True)
class LiftedConfig:
    """How much affinities count in a lifted multicut.

    Args:
        weight: λ of lifted edges; 0 gives the plain multicut
        half: n₀, the number of pairs between two regions that count half
        short: weight of the short affinities in the border probability of neighbours; the remaining weight goes to
            that of the multicut, the mean membrane probability or the prediction of a forest
    """

    weight: float = 3.0
    half: float = 10.0
    short: float = 0.5

    def __post_init__(self) -> None:
        """Check that every number makes sense."""
        for name in ("weight", "half"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        if not 0 <= self.short <= 1:
            raise ValueError(f"short must be in [0, 1], got {self.short}")


def lifted_edges(labels: Labels, nodes: int, pairs: Pairs, beta: float, settings: LiftedConfig) -> tuple[Graph, Floats]:
    """Lifted edges from long pairs between N nodes, the regions 1 … N of an image (H, W), and their costs w' (F,).

    Pixels with label 0 belong to no region.
    """
    edges, means, numbers = region_affinities(labels, pairs.part(short=False))
    trust = numbers / (numbers + settings.half)
    costs: Floats = settings.weight * trust * edge_costs(1 - means, beta)
    return Graph(nodes, edges), costs


def short_borders(labels: Labels, graph: Graph, pairs: Pairs) -> NDArray[np.float64]:
    """(E,) one minus the mean affinity of short pairs across each edge of a graph; NaN where there are none."""
    nodes, means, _ = region_affinities(labels, pairs.part(short=True))
    borders = np.full(len(graph.edges), np.nan)
    edges, found = _find_edges(graph, nodes)
    borders[edges[found]] = 1 - means[found]
    return borders


def lifted_energy(graph: Graph, costs: ArrayLike, lifted: Graph, lifted_costs: ArrayLike, labels: ArrayLike) -> float:
    """E of the partition given by node labels (N,).

    >>> graph, lifted = Graph(3, np.array([[0, 1], [1, 2]])), Graph(3, np.array([[0, 2]]))
    >>> lifted_energy(graph, [2.0, 1.0], lifted, [-4.0], [0, 0, 1])
    -3.0
    """
    return energy(graph, costs, labels) + energy(lifted, lifted_costs, labels)


def lifted_multicut(
    graph: Graph,
    costs: ArrayLike,
    lifted: Graph,
    lifted_costs: ArrayLike,
    solver: str = "kernighan-lin",
    *,
    seed: int = 0,
) -> NodeLabels:
    """Partition the nodes: labels (N,) from 0, in the order of each part's first node; every part is connected.

    Args:
        graph: nodes and edges
        costs: w (E,), attractive where positive
        lifted: the same nodes with the lifted edges
        lifted_costs: w' (F,)
        solver: one of LIFTED_SOLVERS; all are deterministic
        seed: seed of the noise in "fusion-moves"

    >>> graph, lifted = Graph(3, np.array([[0, 1], [1, 2]])), Graph(3, np.array([[0, 2]]))
    >>> lifted_multicut(graph, [2.0, 1.0], lifted, [-4.0])
    array([0, 0, 1])
    """
    if solver not in LIFTED_SOLVERS:
        raise ValueError(f"unknown solver {solver!r}, choose one of {list(LIFTED_SOLVERS)}")
    if lifted.nodes != graph.nodes:
        raise ValueError(f"expected lifted edges on the graph's {graph.nodes} nodes, got {lifted.nodes} nodes")
    alone = np.arange(graph.nodes)
    lifted_energy(graph, costs, lifted, lifted_costs, alone)  # checks the costs
    if not len(graph.edges):
        return alone
    total, more = np.array(costs, dtype=np.float64), np.asarray(lifted_costs, dtype=np.float64)
    edges, both = _find_edges(graph, lifted.edges)
    total[edges[both]] += more[both]  # neighbours joined by both kinds of edges
    objective = solvers.LiftedMulticutObjective(
        UndirectedGraph.from_edges(graph.nodes, graph.edges.astype(np.uint64)),
        total,
        lifted_uvs=lifted.edges[~both].astype(np.uint64),
        lifted_costs=more[~both],
    )
    proposals = solvers.WatershedProposalGenerator(seed=seed)
    moves = solvers.LiftedKernighanLinMulticut()
    steps = {
        "greedy": [solvers.LiftedGreedyAdditiveMulticut()],
        "kernighan-lin": [moves],  # starts from the greedy solution
        "fusion-moves": [moves, solvers.FusionMoveLiftedMulticut(proposal_generator=proposals, sub_solver=moves)],
    }
    labels = solvers.LiftedChainedSolvers(steps[solver]).optimize(objective)
    u, v = graph.edges.T
    return joined_parts(graph, labels[u] == labels[v])


def _find_edges(graph: Graph, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The index of the edge that joins two nodes, (F, 2) → (F,), and whether there is one."""
    keys, wanted = (edges[:, 0] * graph.nodes + edges[:, 1] for edges in (graph.edges, nodes))
    if not len(keys):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    order = np.argsort(keys)
    places = order[np.searchsorted(keys, wanted, sorter=order).clip(max=len(keys) - 1)]
    return places, keys[places] == wanted
