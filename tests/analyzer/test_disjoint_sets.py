"""What is joined is one set, in whatever order, as networkx has it."""

from __future__ import annotations

import random

import networkx as nx

from crashcheck.analyzer.disjoint_sets import DisjointSets


def test_things_are_together_if_pairs_lead_from_one_to_the_other() -> None:
    chosen = random.Random(1)
    for _ in range(100):
        pairs = [(chosen.randrange(30), chosen.randrange(30)) for _ in range(chosen.randrange(40))]
        graph: nx.Graph[int] = nx.Graph()
        graph.add_nodes_from(range(20))
        graph.add_edges_from(pairs)
        known = DisjointSets(range(20))
        for pair in pairs:
            known.join(*pair)
        assert sorted(map(sorted, known.sets())) == sorted(map(sorted, nx.connected_components(graph)))


def test_several_are_joined_at_once_and_none_changes_nothing() -> None:
    known: DisjointSets[str] = DisjointSets("abcd")
    known.join("d", "b", "e")
    known.join()
    assert known.sets() == [{"a"}, {"b", "d", "e"}, {"c"}]
