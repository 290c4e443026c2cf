"""The exact solver against all partitions, the others against the exact one, and graphs without much of a graph."""

import functools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import milp

from cells.conftest import make_texture
from sfcnn.cells.graph import Graph, region_graph
from sfcnn.cells.multicut import SOLVERS, NotProvedWarning, edge_costs, energy, multicut, solve_exactly
from sfcnn.cells.superpixels import superpixels

HEURISTICS = SOLVERS[:-1]
NONE = np.empty((0, 2), dtype=np.int64)


@functools.cache
def partitions(nodes: int) -> NDArray[np.int64]:
    """(B, N) all partitions of N nodes: each node has a label of a node before it, or the next new one."""
    rows = [[0]] if nodes else [[]]
    for _ in range(nodes - 1):
        rows = [[*row, label] for row in rows for label in range(max(row) + 2)]
    return np.array(rows, dtype=np.int64)


def least_energy(graph: Graph, costs: NDArray[np.float64]) -> float:
    labels = partitions(graph.nodes)
    u, v = graph.edges.T
    return float(((labels[:, u] != labels[:, v]) @ costs).min())


def random_problem(seed: int) -> tuple[Graph, NDArray[np.float64]]:
    """Up to 9 nodes, sparse or dense, costs of all sizes and signs or only a few values so that solutions tie."""
    generator = np.random.default_rng(seed)
    nodes = int(generator.integers(1, 10))
    pairs = np.stack(np.triu_indices(nodes, 1), axis=1)
    edges = pairs[generator.random(len(pairs)) < generator.uniform(0.2, 1)]
    generator.shuffle(edges)  # graphs need not be in order
    costs = generator.normal(generator.uniform(-0.7, 0.7), 1, len(edges)) * 10.0 ** generator.integers(-6, 7)
    return Graph(nodes, edges), np.sign(costs) if seed % 4 == 0 else costs


def em_problem(seed: int, confidence: float = 1.0) -> tuple[Graph, NDArray[np.float64]]:
    """Superpixels of a membrane texture with noisy costs; the less the confidence, the harder the problem."""
    probabilities = make_texture((160, 160), 80, seed, noise=2).probabilities
    graph = region_graph(superpixels(probabilities))
    noise = np.random.default_rng(seed).normal(0.2, 1, len(graph.edges))
    return graph, confidence * edge_costs(graph.edge_means(probabilities)) + noise


def test_there_are_as_many_partitions_as_bell_counted() -> None:
    assert [len(partitions(nodes)) for nodes in range(10)] == [1, 1, 2, 5, 15, 52, 203, 877, 4140, 21147]


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_the_exact_solver_finds_the_best_of_all_partitions(start: int) -> None:
    for seed in range(start, start + 50):
        graph, costs = random_problem(seed)
        solution = solve_exactly(graph, costs)
        size = np.abs(costs).max(initial=0)
        assert solution.proved
        assert solution.energy == pytest.approx(least_energy(graph, costs), abs=2e-6 * size)
        assert solution.energy == energy(graph, costs, solution.labels)
        assert solution.bound <= solution.energy + 2e-6 * size


def test_no_heuristic_is_better_than_the_best() -> None:
    for seed in range(200):
        graph, costs = random_problem(seed)
        least = least_energy(graph, costs)
        for solver in HEURISTICS:
            assert energy(graph, costs, multicut(graph, costs, solver)) >= least - 1e-9 * np.abs(costs).max(initial=0)


def test_a_wheel_that_no_linear_program_solves(monkeypatch: pytest.MonkeyPatch) -> None:
    # Five repulsive edges around, five attractive spokes: cutting each spoke by half keeps all cycle constraints.
    around = [[node, node % 5 + 1] for node in range(1, 6)]
    graph = Graph(6, np.sort(np.array([*around, *([0, node] for node in range(1, 6))]), axis=1))
    costs = np.array([-1.0] * 5 + [0.9] * 5)
    integer = []

    def spy(*arguments: Any, **options: Any) -> Any:
        integer.append(bool(options["integrality"].any()))
        return milp(*arguments, **options)

    monkeypatch.setattr("sfcnn.cells.multicut.milp", spy)
    solution = solve_exactly(graph, costs)
    assert integer[0] is False
    assert integer[-1] is True
    assert solution.proved
    assert solution.energy == pytest.approx(least_energy(graph, costs)) == pytest.approx(-2.3)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("confidence", [1, 0.2, 0.1])
def test_kernighan_lin_is_within_two_percent_of_the_best_on_membranes(seed: int, confidence: float) -> None:
    graph, costs = em_problem(seed, confidence)
    assert graph.nodes > 100
    best = solve_exactly(graph, costs)
    assert best.proved
    greedy, moved, fused, exact = (energy(graph, costs, multicut(graph, costs, solver)) for solver in SOLVERS)
    assert best.energy == exact < 0
    assert best.energy - 1e-6 <= fused <= moved + 1e-9
    assert moved <= greedy + 1e-9
    assert moved <= 0.98 * best.energy


def test_some_problems_are_hard_enough_to_tell_solvers_apart() -> None:
    graph, costs = em_problem(1, 0.1)
    greedy, moved, _, exact = (energy(graph, costs, multicut(graph, costs, solver)) for solver in SOLVERS)
    assert greedy > moved + 0.01 > exact + 0.02


@pytest.mark.parametrize("solver", SOLVERS)
class TestEverySolver:
    def test_without_nodes_or_edges(self, solver: str) -> None:
        assert multicut(Graph(0, NONE), [], solver).tolist() == []
        assert multicut(Graph(1, NONE), [], solver).tolist() == [0]
        assert multicut(Graph(3, NONE), [], solver).tolist() == [0, 1, 2]

    def test_joins_a_graph_of_attraction_and_parts_one_of_repulsion(self, solver: str) -> None:
        graph, costs = em_problem(0)
        assert (multicut(graph, np.abs(costs), solver) == 0).all()
        assert np.array_equal(multicut(graph, -np.abs(costs), solver), np.arange(graph.nodes))

    def test_nodes_that_are_not_connected_are_never_in_one_part(self, solver: str) -> None:
        graph = Graph(7, np.array([[0, 4], [1, 2], [2, 5], [1, 5]]))
        assert multicut(graph, [1.0, 2.0, 3.0, -1.0], solver).tolist() == [0, 1, 1, 2, 0, 1, 3]

    def test_labels_are_numbered_by_first_nodes_and_parts_are_connected(self, solver: str) -> None:
        for seed in range(30):
            graph, costs = random_problem(seed)
            labels = multicut(graph, costs, solver)
            _, first = np.unique(labels, return_index=True)
            assert np.array_equal(labels[first], np.arange(len(first)))
            assert (np.diff(first) > 0).all()
            u, v = graph.edges[labels[graph.edges[:, 0]] == labels[graph.edges[:, 1]]].T
            reached = np.arange(graph.nodes)
            for _ in range(graph.nodes):
                np.minimum.at(reached, u, reached[v])
                np.minimum.at(reached, v, reached[u])
            assert np.array_equal(first[labels], reached)

    def test_is_deterministic(self, solver: str) -> None:
        graph, costs = em_problem(7)
        assert np.array_equal(multicut(graph, costs, solver), multicut(graph, costs, solver))

    def test_refuses_costs_that_do_not_fit(self, solver: str) -> None:
        graph = Graph(3, np.array([[0, 1], [1, 2]]))
        with pytest.raises(ValueError, match=r"each of 2 edges, got \(3,\)"):
            multicut(graph, [1.0, 2.0, 3.0], solver)
        with pytest.raises(ValueError, match="cost of edge 1 is not finite"):
            multicut(graph, [1.0, np.nan], solver)


def test_without_time_the_best_partition_so_far_comes_with_a_warning() -> None:
    graph, costs = em_problem(0)
    solution = solve_exactly(graph, costs, time_limit=0)
    assert not solution.proved
    assert np.array_equal(solution.labels, multicut(graph, costs, "kernighan-lin"))
    assert solution.bound <= solve_exactly(graph, costs).energy <= solution.energy
    with pytest.warns(NotProvedWarning, match=r"not proved optimal within 0 s: energy -\d"):
        labels = multicut(graph, costs, "exact", time_limit=0)
    assert np.array_equal(labels, solution.labels)


def test_costs_are_log_odds_of_staying_together() -> None:
    p = np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(edge_costs(p), np.log((1 - p) / p), atol=1e-12)
    assert edge_costs([0.1])[0] > 0 > edge_costs([0.9])[0]  # attractive where a border is unlikely
    np.testing.assert_allclose(edge_costs(p, beta=0.7) - edge_costs(p), np.log(3 / 7))
    assert np.array_equal(edge_costs([0.0, 1.0]), edge_costs([0.001, 0.999]))
    assert edge_costs([]).shape == (0,)


def test_a_larger_beta_makes_more_parts() -> None:
    probabilities = make_texture((110, 110), 45, 1, noise=2).probabilities
    graph = region_graph(superpixels(probabilities))
    means = graph.edge_means(probabilities)
    counts = [multicut(graph, edge_costs(means, beta)).max() + 1 for beta in (0.05, 0.5, 0.95)]
    assert counts[0] < counts[1] < counts[2]


@pytest.mark.parametrize("beta", [0, 1, -0.5, np.nan])
def test_beta_outside_of_its_range_is_refused(beta: float) -> None:
    with pytest.raises(ValueError, match=r"beta must be in \(0, 1\)"):
        edge_costs([0.5], beta)


@pytest.mark.parametrize("p", [-0.1, 1.1, np.nan])
def test_what_is_no_probability_is_refused(p: float) -> None:
    with pytest.raises(ValueError, match=r"probabilities in \[0, 1\]"):
        edge_costs([0.5, p])


def test_wrong_solvers_and_labels_are_refused() -> None:
    graph = Graph(2, np.array([[0, 1]]))
    with pytest.raises(ValueError, match=r"unknown solver 'ilp', choose one of \['greedy', 'kernighan-lin'"):
        multicut(graph, [1.0], "ilp")
    with pytest.raises(ValueError, match=r"expected 2 node labels, got \(3,\)"):
        energy(graph, [1.0], [0, 1, 2])
