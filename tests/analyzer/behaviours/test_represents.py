"""The represents relation is a preorder, and says what the paper's definitions 3.3 to 3.5 say."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from crashcheck.analyzer.behaviours.represents import Signature, group_represented

SETTINGS = settings(max_examples=300, deadline=None, derandomize=True)
Graph = tuple[tuple[int, ...], frozenset[tuple[int, int]]]  # the site of each node; edges between nodes


def closed(many: int, edges: set[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    out = set(edges)
    for through in range(many):
        for before, after in product(range(many), repeat=2):
            if (before, through) in out and (through, after) in out:
                out.add((before, after))
    return frozenset(out)


@st.composite
def graphs(draw: Any, most: int = 6) -> Graph:
    labels = tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=most)))
    pairs = [(a, b) for b in range(len(labels)) for a in range(b)]
    edges = {pair for pair in pairs if draw(st.booleans())}
    return labels, closed(len(labels), edges)


def signature(graph: Graph) -> Signature:
    return Signature.of(*graph)


def by_definition(one: Graph, other: Graph) -> bool:
    """Definition 3.5, word for word."""
    labels, edges = one
    others, other_edges = other
    if not all(any(a == b for b in labels) for a in others):
        return False
    image = {node for node, label in enumerate(labels) if label in others}
    image_edges = {(a, b) for a, b in edges if a in image and b in image}
    return all(any(labels[a] == others[c] and labels[b] == others[d] for c, d in other_edges) for a, b in image_edges)


@SETTINGS
@given(graphs(), graphs())
def test_the_relation_is_the_papers(one: Graph, other: Graph) -> None:
    assert signature(one).represents(signature(other)) == by_definition(one, other)


@SETTINGS
@given(graphs())
def test_every_behaviour_represents_itself(graph: Graph) -> None:
    assert signature(graph).represents(signature(graph))


@SETTINGS
@given(graphs(4), graphs(4), graphs(4))
def test_the_relation_is_transitive(a: Graph, b: Graph, c: Graph) -> None:
    if signature(a).represents(signature(b)) and signature(b).represents(signature(c)):
        assert signature(a).represents(signature(c))


@SETTINGS
@given(graphs(), st.data())
def test_fewer_edges_represent_more(graph: Graph, data: st.DataObject) -> None:
    labels, edges = graph
    fewer = (labels, frozenset(edge for edge in sorted(edges) if data.draw(st.booleans())))
    assert signature(fewer).represents(signature(graph))


@SETTINGS
@given(graphs(), st.sets(st.integers(0, 4)))
def test_a_subset_closed_under_repeated_sites_is_represented(graph: Graph, sites: set[int]) -> None:
    labels, edges = graph
    kept = [node for node, label in enumerate(labels) if label in sites]
    place = {node: at for at, node in enumerate(kept)}
    subset = (
        tuple(labels[node] for node in kept),
        frozenset((place[a], place[b]) for a, b in edges if a in place and b in place),
    )
    assert signature(graph).represents(signature(subset))


@SETTINGS
@given(st.lists(graphs(4), max_size=8))
def test_groups_are_the_maximal_signatures_with_all_that_they_represent(all_: list[Graph]) -> None:
    signatures = list(dict.fromkeys(map(signature, all_)))
    groups = group_represented(signatures)
    heads = [head for head, _ in groups]
    for head, members in groups:
        assert sorted(members) == [at for at, s in enumerate(signatures) if signatures[head].represents(s)]
        assert not any(signatures[other].represents(signatures[head]) for other in heads if other != head)
    assert {member for _, members in groups for member in members} == set(range(len(signatures)))


def test_insert_represents_insert_ordered_and_not_the_other_way_round() -> None:
    """Listing 2 of the paper: key, value and valid unordered; key persisted first."""
    insert = Signature.of([0, 1, 2], [])
    ordered = Signature.of([0, 1, 2], [(0, 1), (0, 2)])
    assert insert.represents(ordered)
    assert not ordered.represents(insert)
    assert group_represented([ordered, insert]) == [(1, [1, 0])]


def test_a_behaviour_of_other_sites_is_not_represented() -> None:
    """Figure 6: write, write and rename represent write and write, but not what has another call."""
    with_rename = Signature.of([0, 1, 2], [(0, 1), (1, 2)])
    assert with_rename.represents(Signature.of([0, 1], [(0, 1)]))
    assert not with_rename.represents(Signature.of([0, 3], []))
