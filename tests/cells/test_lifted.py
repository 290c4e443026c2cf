"""Lifted multicuts against all partitions, their costs, and what long pairs know that short ones do not."""

import numpy as np
import pytest
from numpy.typing import NDArray

from cells.drawings import gap_affinities, gap_probabilities, true_affinities, two_rooms
from cells.test_multicut import partitions, random_problem
from sfcnn.cells.affinities import pixel_pairs, region_affinities
from sfcnn.cells.graph import Graph, region_graph
from sfcnn.cells.lifted import (
    LIFTED_SOLVERS,
    LiftedConfig,
    lifted_edges,
    lifted_energy,
    lifted_multicut,
    short_borders,
)
from sfcnn.cells.multicut import edge_costs, energy, joined_parts, multicut
from sfcnn.cells.superpixels import superpixels

Problem = tuple[Graph, NDArray[np.float64], Graph, NDArray[np.float64]]


def lifted_problem(seed: int) -> Problem:
    """A random graph of up to 7 nodes, with lifted edges that may be edges too, in any order."""
    graph, costs = random_problem(seed)
    if graph.nodes > 7:
        kept = (graph.edges < 7).all(axis=1)
        graph, costs = Graph(7, graph.edges[kept]), costs[kept]
    generator = np.random.default_rng(seed)
    pairs = np.stack(np.triu_indices(graph.nodes, 1), axis=1)
    edges = pairs[generator.random(len(pairs)) < generator.uniform(0.1, 0.9)]
    generator.shuffle(edges)
    size = np.abs(costs).max(initial=0) or 1.0
    return graph, costs, Graph(graph.nodes, edges), generator.normal(0, size, len(edges))


def least_energy(graph: Graph, costs: NDArray[np.float64], lifted: Graph, lifted_costs: NDArray[np.float64]) -> float:
    """Over all partitions whose parts are connected by edges of the graph: spread from their first nodes."""
    labels = partitions(graph.nodes)  # (B, N)
    nodes = np.broadcast_to(np.arange(graph.nodes), labels.shape)
    first = np.where(labels[:, :, None] == labels[:, None, :], nodes[:, None, :], graph.nodes).min(
        -1, initial=graph.nodes
    )
    reached = nodes.copy()
    for _ in range(graph.nodes):
        for u, v in graph.edges:
            least = np.where(labels[:, u] == labels[:, v], np.minimum(reached[:, u], reached[:, v]), graph.nodes)
            reached[:, u], reached[:, v] = np.minimum(reached[:, u], least), np.minimum(reached[:, v], least)
    connected = labels[(reached == first).all(axis=1)]
    energies = np.zeros(len(connected))
    for edges, weights in ((graph.edges, costs), (lifted.edges, lifted_costs)):
        energies += (connected[:, edges[:, 0]] != connected[:, edges[:, 1]]) @ weights
    return float(energies.min())


def test_solvers_come_close_to_the_best_of_all_partitions() -> None:
    reached = dict.fromkeys(LIFTED_SOLVERS, 0)
    problems = [lifted_problem(seed) for seed in range(60)]
    for problem in problems:
        _, costs, _, lifted_costs = problem
        least = least_energy(*problem)
        size = max(np.abs(costs).max(initial=0), np.abs(lifted_costs).max(initial=0))
        energies = [lifted_energy(*problem, lifted_multicut(*problem, solver)) for solver in LIFTED_SOLVERS]
        assert min(energies) >= least - 1e-9 * size  # nothing is better than the best
        assert energies[2] <= energies[1] + 1e-9 * size
        for solver, found in zip(LIFTED_SOLVERS, energies, strict=True):
            reached[solver] += found <= least + 1e-9 * size
    assert reached["greedy"] >= 0.6 * len(problems)
    assert reached["greedy"] <= reached["kernighan-lin"] <= reached["fusion-moves"]
    assert reached["kernighan-lin"] >= 0.9 * len(problems)


@pytest.mark.parametrize("solver", LIFTED_SOLVERS)
def test_parts_are_connected_numbered_by_first_nodes_and_the_same_every_time(solver: str) -> None:
    for seed in range(40):
        problem = lifted_problem(seed)
        labels = lifted_multicut(*problem, solver)
        u, v = problem[0].edges.T
        assert np.array_equal(labels, joined_parts(problem[0], labels[u] == labels[v]))
        assert np.array_equal(labels, lifted_multicut(*problem, solver))


@pytest.mark.parametrize("solver", LIFTED_SOLVERS)
def test_without_lifted_edges_it_is_a_multicut(solver: str) -> None:
    none = np.empty((0, 2), dtype=np.int64)
    for seed in range(40):
        graph, costs = random_problem(seed)
        labels = lifted_multicut(graph, costs, Graph(graph.nodes, none), [], solver)
        found, size = energy(graph, costs, labels), np.abs(costs).max(initial=0)
        plain = "greedy" if solver == "greedy" else "kernighan-lin"  # fusion is with other proposals
        expected = energy(graph, costs, multicut(graph, costs, plain))
        assert found <= expected + 1e-9 * size
        assert solver == "fusion-moves" or found >= expected - 1e-9 * size
    assert lifted_multicut(Graph(0, none), [], Graph(0, none), []).tolist() == []
    both = np.array([[0, 1], [1, 2]])
    assert lifted_multicut(Graph(3, none), [], Graph(3, both), [1.0, 1.0], solver).tolist() == [0, 1, 2]


def test_lifted_edges_cannot_join_what_does_not_touch_but_can_part_what_does() -> None:
    chain, ends = Graph(4, np.array([[0, 1], [1, 2], [2, 3]])), Graph(4, np.array([[0, 3]]))
    assert lifted_multicut(chain, [1.0, 1.0, -0.5], ends, [0.0]).tolist() == [0, 0, 0, 1]
    assert lifted_multicut(chain, [1.0, 1.0, -0.5], ends, [2.0]).tolist() == [0, 0, 0, 0]
    assert lifted_multicut(chain, [1.0, 0.5, 1.0], ends, [-2.0]).tolist() == [0, 0, 1, 1]


def test_costs_are_log_odds_that_a_few_pairs_lower() -> None:
    labels = np.array([[1] * 3 + [2] * 3 + [3] * 3] * 9)
    affinities = true_affinities(labels)
    pairs = pixel_pairs(affinities)
    settings = LiftedConfig(weight=2, half=5)
    edges, means, numbers = region_affinities(labels, pairs.part(short=False))
    lifted, costs = lifted_edges(labels, 4, pairs, 0.6, settings)
    assert lifted.nodes == 4
    assert np.array_equal(lifted.edges, edges)
    assert [0, 2] in edges.tolist()  # which do not touch
    p = means.clip(0.001, 0.999)
    odds = np.log(p / (1 - p)) + np.log(0.4 / 0.6)
    np.testing.assert_allclose(costs, 2 * odds * numbers / (numbers + 5))
    assert not lifted_edges(labels, 3, pairs, 0.6, LiftedConfig(weight=0))[1].any()


def test_short_borders_are_those_of_the_edges_of_the_graph() -> None:
    labels = np.array([[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 3, 3]])
    graph = region_graph(labels)
    pairs = pixel_pairs(true_affinities(np.array([[1, 1, 2, 2], [1, 1, 2, 2], [1, 1, 1, 1]])))
    np.testing.assert_allclose(short_borders(labels, graph, pairs), [1, 0, 1])
    diagonal = Graph(3, np.array([[1, 2], [0, 2]]))
    np.testing.assert_allclose(short_borders(labels, diagonal, pairs), [1, 0])


def test_a_gap_that_only_long_pairs_see() -> None:
    truth = two_rooms(gap=True)
    probabilities, affinities = gap_probabilities(truth), gap_affinities(truth)
    regions = superpixels(probabilities)
    graph = region_graph(regions)
    costs = edge_costs(graph.edge_means(probabilities))
    assert multicut(graph, costs).max() == 0
    inside = np.where(probabilities < 0.3, regions, 0)
    lifted, lifted_costs = lifted_edges(inside, graph.nodes, pixel_pairs(affinities), 0.5, LiftedConfig())
    assert lifted_multicut(graph, costs, lifted, lifted_costs).max() == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"weight": -1}, "weight must be at least 0, got -1"),
        ({"half": np.nan}, "half must be at least 0, got nan"),
        ({"short": 2}, r"short must be in \[0, 1\], got 2"),
    ],
)
def test_settings_without_sense_are_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LiftedConfig(**values)


def test_what_does_not_fit_is_refused() -> None:
    graph = Graph(3, np.array([[0, 1], [1, 2]]))
    with pytest.raises(ValueError, match="unknown solver 'exact', choose one of"):
        lifted_multicut(graph, [1.0, 1.0], graph, [1.0, 1.0], "exact")
    with pytest.raises(ValueError, match="on the graph's 3 nodes, got 4 nodes"):
        lifted_multicut(graph, [1.0, 1.0], Graph(4, graph.edges), [1.0, 1.0])
    with pytest.raises(ValueError, match=r"each of 2 edges, got \(1,\)"):
        lifted_multicut(graph, [1.0, 1.0], graph, [1.0])
    with pytest.raises(ValueError, match="cost of edge 1 is not finite"):
        lifted_multicut(graph, [1.0, np.inf], graph, [1.0, 1.0])
