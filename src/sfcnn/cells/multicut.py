"""Multicut: the partition of a graph's nodes with the lowest cost, where cutting an edge e costs w_e.

E(partition) = Σ w_e over edges between different parts        (minimised; the number of parts is free)

Edges with w > 0 are attractive: cutting them raises E. Edges with w < 0 are repulsive: cutting them lowers E. With p
the probability that an edge is a border between two cells, w = log((1 − p) / p) + log((1 − β) / β). For β = ½ the
partition is the most likely one if edges are independent; a larger β gives more and smaller cells.
"""

import time
import warnings
from dataclasses import dataclass

import numpy as np
from bioimage_cpp.graph import UndirectedGraph
from bioimage_cpp.graph import multicut as solvers
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components, dijkstra

from sfcnn.cells.graph import Graph

#: Greedy contraction of the most attractive edge; then moves of nodes; then fusion with noisy proposals; the optimum.
#: Each is at least as good as the one before it.
SOLVERS = ("greedy", "kernighan-lin", "fusion-moves", "exact")

_CLIP = 0.001
_TOLERANCE = 1e-6  # of HiGHS, for costs of at most 1

Floats = NDArray[np.float64]
NodeLabels = NDArray[np.int64]


class NotProvedWarning(UserWarning):
    """A solution may not be optimal."""


@dataclass(frozen=True, eq=False)
class Solution:
    """Result of the exact solver."""

    labels: NodeLabels  #: (N,)
    energy: float
    bound: float  #: lower bound on the energy of any partition, up to rounding
    proved: bool  #: whether this partition is proved optimal


def edge_costs(probabilities: ArrayLike, beta: float = 0.5) -> Floats:
    """w (E,) from the probabilities (E,) that edges are borders, clipped to [0.001, 0.999] so that no edge is certain.

    >>> edge_costs([0.5, 0.25]).round(3) + 0
    array([0.   , 1.099])
    """
    if not 0 < beta < 1:
        raise ValueError(f"beta must be in (0, 1), got {beta}")
    p = np.asarray(probabilities, dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"expected edge probabilities in [0, 1], got values from {p.min():g} to {p.max():g}")
    p = np.clip(p, _CLIP, 1 - _CLIP)
    return np.log((1 - p) / p) + np.log((1 - beta) / beta)


def energy(graph: Graph, costs: ArrayLike, labels: ArrayLike) -> float:
    """E of the partition given by node labels (N,).

    >>> energy(Graph(3, np.array([[0, 1], [1, 2]])), [2.0, -1.5], [0, 0, 1])
    -1.5
    """
    costs, labels = _check(graph, costs), np.asarray(labels)
    if labels.shape != (graph.nodes,):
        raise ValueError(f"expected {graph.nodes} node labels, got {labels.shape}")
    u, v = graph.edges.T
    return float(costs[labels[u] != labels[v]].sum())


def multicut(
    graph: Graph, costs: ArrayLike, solver: str = "kernighan-lin", *, time_limit: float = 60.0, seed: int = 0
) -> NodeLabels:
    """Partition the nodes: labels (N,) from 0, in the order of each part's first node; every part is connected.

    Args:
        graph: nodes and edges
        costs: w (E,), attractive where positive
        solver: one of SOLVERS; all are deterministic
        time_limit: seconds after which "exact" returns the best partition so far, with a NotProvedWarning
        seed: seed of the noise in "fusion-moves"

    >>> multicut(Graph(4, np.array([[0, 1], [1, 2], [2, 3]])), [1.0, -1.0, 1.0])
    array([0, 0, 1, 1])
    """
    costs = _check(graph, costs)
    if solver not in SOLVERS:
        raise ValueError(f"unknown solver {solver!r}, choose one of {list(SOLVERS)}")
    if solver == "exact":
        solution = solve_exactly(graph, costs, time_limit=time_limit)
        if not solution.proved:
            warnings.warn(
                f"multicut not proved optimal within {time_limit:g} s: energy {solution.energy:g}, "
                f"the optimum is at least {solution.bound:g}",
                NotProvedWarning,
                stacklevel=2,
            )
        return solution.labels
    if not len(costs):
        return np.arange(graph.nodes)
    objective = solvers.MulticutObjective(UndirectedGraph.from_edges(graph.nodes, graph.edges.astype(np.uint64)), costs)
    proposals = solvers.WatershedProposalGenerator(seed=seed)
    moves = solvers.KernighanLinMulticut()
    steps = {
        "greedy": [solvers.GreedyAdditiveMulticut()],
        "kernighan-lin": [moves],  # starts from the greedy solution
        "fusion-moves": [moves, solvers.FusionMoveMulticut(proposal_generator=proposals, sub_solver=moves)],
    }
    labels = solvers.ChainedMulticutSolvers(steps[solver]).optimize(objective)
    u, v = graph.edges.T
    return joined_parts(graph, labels[u] == labels[v])


def solve_exactly(graph: Graph, costs: ArrayLike, *, time_limit: float = 60.0) -> Solution:
    """The optimal partition, by integer linear programming with cycle constraints added as needed.

    With y_e = 1 where edge e is cut, minimise Σ w_e y_e such that no cycle has exactly one cut edge: y_e ≤ Σ y_f over
    the other edges f of each cycle. Violated constraints are found by shortest paths. The relaxation without integer y
    is solved first; it is fast and often enough to prove that the Kernighan-Lin partition is optimal.
    """
    deadline = time.monotonic() + time_limit
    costs = _check(graph, costs)
    scale = float(np.abs(costs).max(initial=0)) or 1.0
    w = costs / scale
    best = multicut(graph, costs)
    bound = float(np.minimum(w, 0).sum())
    rows: list[tuple[int, list[int]]] = []
    integer = proved = False
    while not (proved := proved or bound >= energy(graph, w, best) - _TOLERANCE):
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            break
        result = milp(
            w,
            integrality=np.full(len(w), int(integer)),
            bounds=Bounds(0, 1),
            constraints=_constraints(rows, len(w)),
            options={"time_limit": remaining, "mip_rel_gap": 0},
        )
        if result.status != 0:
            break
        bound = max(bound, float(result.fun))
        y = result.x.round() if integer else result.x
        best = min(best, joined_parts(graph, y < 0.5), key=lambda labels: energy(graph, w, labels))
        broken = _broken_cycles(graph, y)
        rows += broken
        proved = integer and not broken  # then y is a partition
        integer = integer or not broken
    return Solution(best, energy(graph, costs, best), bound * scale, proved)


def _check(graph: Graph, costs: ArrayLike) -> Floats:
    costs = np.asarray(costs, dtype=np.float64)
    if costs.shape != (len(graph.edges),):
        raise ValueError(f"expected a cost for each of {len(graph.edges)} edges, got {costs.shape}")
    if not np.isfinite(costs).all():
        raise ValueError(f"the cost of edge {np.flatnonzero(~np.isfinite(costs))[0]} is not finite")
    return costs


def joined_parts(graph: Graph, joined: NDArray[np.bool_]) -> NodeLabels:
    """Connected components (N,) of the joined edges (E,), which SciPy numbers by their first nodes."""
    u, v = graph.edges[joined].T
    links = coo_array((np.ones(len(u)), (u, v)), shape=(graph.nodes, graph.nodes))
    return connected_components(links, directed=False)[1].astype(np.int64)


def _constraints(rows: list[tuple[int, list[int]]], edges: int) -> LinearConstraint | None:
    if not rows:
        return None
    sizes = [1 + len(path) for _, path in rows]
    columns = np.concatenate([[edge, *path] for edge, path in rows])
    values = np.concatenate([[1.0] + [-1.0] * len(path) for _, path in rows])
    matrix = csr_array((values, columns, np.cumsum([0, *sizes])), shape=(len(rows), edges))
    return LinearConstraint(matrix, ub=0)


def _broken_cycles(graph: Graph, y: Floats) -> list[tuple[int, list[int]]]:
    """Edges with a shorter path around them, y_e > Σ y_f, each with the edges f of the shortest path."""
    u, v = graph.edges.T
    lengths = np.maximum(y, 0) + 1e-9  # not 0, which would mean no edge; also prefers paths with fewer edges
    network = csr_array((lengths, (u, v)), shape=(graph.nodes, graph.nodes))
    candidates = np.flatnonzero(y > _TOLERANCE)
    sources, rows = np.unique(u[candidates], return_inverse=True)
    if not len(sources):
        return []
    distances, previous = dijkstra(network, directed=False, indices=sources, return_predecessors=True, limit=1.0)
    number = {(int(a), int(b)): edge for edge, (a, b) in enumerate(graph.edges)}
    broken = []
    for edge, row in zip(candidates, rows, strict=True):
        if distances[row, v[edge]] >= y[edge] - _TOLERANCE:
            continue
        path, node = [], int(v[edge])
        while node != u[edge]:
            before = int(previous[row, node])
            path.append(number[min(before, node), max(before, node)])
            node = before
        broken.append((int(edge), path))
    return broken
