"""Which behaviours are gathered under which representative."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashcheck.analyzer.behaviours import BehaviourGroup, find_groups
from crashcheck.analyzer.behaviours.groups import _patterns, shape_of
from crashcheck.runtime.trace_format import Kind, StoreFlag
from support.random_runs import SETTINGS, Step, found_in, runs
from support.scripts import Script, site

KEY = site("entry.key", ("entry", "key", 0, 8), line=1)
VALUE = site("entry.value", ("entry", "value", 8, 8), line=2)
VALID = site("entry.valid", ("entry", "valid", 64, 8), line=3)


def insert(script: Script, at: int, ordered: bool = False, persists: bool = True, operation: int = 0) -> None:
    """Listing 2 of the paper."""
    if operation:
        script.trace.begin(operation)
    script.at(1, at, delta=0)
    if ordered:
        script.persist(at)
    script.at(2, at + 8, delta=8)
    script.at(3, at + 64, delta=64)
    if persists:
        script.persist(at, 72)
    if operation:
        script.trace.end(operation)


def sites_of(group: BehaviourGroup) -> tuple[int, ...]:
    return tuple(found.site for found in group.sites)


def test_insert_represents_insert_ordered(tmp_path: Path) -> None:
    script = Script(tmp_path, KEY, VALUE, VALID)
    insert(script, 1024, ordered=True)
    insert(script, 2048)
    (group,) = find_groups(script.found())
    assert (group.representative.start, group.members, group.patterns) == (2048, 2, 2)
    assert sites_of(group) == (1, 2, 3)


def test_many_instances_of_one_behaviour_are_one_group_and_the_earliest_represents_it(tmp_path: Path) -> None:
    script = Script(tmp_path, KEY, VALUE, VALID)
    for number in range(1, 20):
        insert(script, 1024 * number, operation=number)
    (group,) = find_groups(script.found())
    assert (group.members, group.patterns) == (19, 1)
    assert (group.representative.start, group.representative.operation) == (1024, 1)


def test_the_number_of_groups_does_not_grow_with_the_operations(tmp_path: Path) -> None:
    """Entries at every place that a line leaves for them, inserted by the two ways of listing 2 in turn."""
    counts = []
    for operations in (50, 500, 5000):
        script = Script(tmp_path, KEY, VALUE, VALID, size=1 << 24)
        for number in range(1, operations + 1):
            insert(script, 256 * number + 8 * (number % 8), ordered=number % 2 == 0, operation=number)
        made = find_groups(script.found())
        assert sum(group.members for group in made) >= operations
        counts.append([(group.size, group.patterns, group.representative) for group in made])
    assert counts[0] == counts[1] == counts[2]


def test_what_its_operation_leaves_unpersisted_is_represented_by_nothing_that_persists(
    tmp_path: Path,
) -> None:
    script = Script(tmp_path, KEY, VALUE, VALID)
    insert(script, 1024, operation=1)
    insert(script, 2048, operation=2, persists=False)
    (group,) = find_groups(script.found())
    assert group.representative.start == 2048
    assert (group.members, group.patterns) == (2, 2)


def test_of_equal_signatures_the_one_in_most_lines_represents(tmp_path: Path) -> None:
    copy = site("entry", kind="copy", line=4)
    script = Script(tmp_path, copy)
    for at in (1024, 2048 + 56, 4096):
        script.at(1, at, size=16, delta=0)
        script.persist(at, 16)
    (group,) = find_groups(script.found())
    assert (group.representative.start, group.size, group.members) == (2104, 2, 3)


def test_of_equal_orders_of_updates_the_one_in_most_lines_represents(tmp_path: Path) -> None:
    script = Script(tmp_path, KEY, VALUE, VALID)
    for at in (1024, 2048 + 56, 4096):
        for number, delta in ((1, 0), (2, 8)):
            script.at(number, at + delta, delta=delta)
            script.persist(at + delta)
    (group,) = find_groups(script.found())
    assert (group.representative.start, group.members, group.patterns) == (2104, 3, 2)


def test_groups_are_tested_from_the_smallest_to_the_largest(tmp_path: Path) -> None:
    script = Script(tmp_path, KEY, VALUE, VALID, site("other.x", ("other", "x", 0, 8), line=4))
    insert(script, 1024)
    script.at(4, 4096, delta=0)
    script.persist(4096)
    assert [(group.number, group.size, group.types) for group in find_groups(script.found())] == [
        (1, 1, ("other",)),
        (2, 3, ("entry",)),
    ]


def test_the_types_of_a_group_are_those_of_its_members_in_order(tmp_path: Path) -> None:
    names = ("hull", "bolt", "deck", "anchor", "crane", "engine")
    script = Script(tmp_path, site("x", *((name, "x", 0, 8) for name in names), line=1))
    script.at(1, 1024, delta=0)
    (group,) = find_groups(script.found())
    assert group.types == (group.types[0], *sorted({*names} - {group.types[0]}))


def test_a_non_temporal_store_has_no_order_with_stores_to_other_lines(tmp_path: Path) -> None:
    script = Script(tmp_path, KEY, VALID)
    store = {"file": 1, "offset": 1024, "site": 1, "flags": int(StoreFlag.NT), "instance_delta": 0}
    script.trace.event(Kind.STORE, data=bytes(8), **store)
    script.at(2, 1024 + 64, delta=64)
    found = script.found()
    orders = [shape_of(found, behaviour).precedes(np.arange(2)) for behaviour in range(len(found))]
    assert orders
    assert not np.concatenate(orders).any()


def test_a_run_without_updates_has_no_groups(tmp_path: Path) -> None:
    assert find_groups(Script(tmp_path, KEY).found()) == ()


@pytest.mark.parametrize("model", ["px86", "page-cache"])
@SETTINGS
@given(steps=runs())
def test_a_shape_says_what_the_graph_says_of_the_pieces(model: str, steps: list[Step]) -> None:
    loose = any(step[0] == "nt" for step in steps)  # their order by words a shape leaves out
    found = found_in(steps, model)
    graph = found.graph
    order = nx.transitive_closure_dag(graph.to_networkx())
    for behaviour in range(len(found)):
        shape = shape_of(found, behaviour)
        pieces = [found.nodes.pieces(node) for node in found.nodes_of(behaviour).tolist()]
        precedes = shape.precedes(np.arange(len(shape)))
        for a, b in product(range(len(pieces)), repeat=2):
            ordered = all(order.has_edge(u, v) for u in pieces[a] for v in pieces[b])
            assert precedes[a, b] == ordered or (loose and ordered)
        for a, node in enumerate(found.nodes_of(behaviour).tolist()):
            durable = max(int(graph.durable_from[piece]) for piece in pieces[a])
            assert shape.kept[a] == (durable <= int(found.acknowledged[node]))


@SETTINGS
@given(steps=runs(14))
def test_behaviours_with_equal_patterns_represent_each_other(steps: list[Step]) -> None:
    found = found_in(steps, "px86")
    if len(found):
        patterns = _patterns(found)
        for behaviour, pattern in enumerate(patterns.of.tolist()):
            one, other = shape_of(found, behaviour), shape_of(found, int(patterns.best[pattern]))
            assert one.represents(other)
            assert other.represents(one)


def test_a_correct_short_run_of_a_loop_does_not_hide_a_longer_one_that_forgets_a_flush(tmp_path: Path) -> None:
    """The largest behaviour, update by update, represents; the one that flushes less, of two as large."""
    item = site("log.item[]", ("log", "item", 0, 256), line=1)
    valid = site("log.valid", ("log", "valid", 256, 8), line=2)
    script = Script(tmp_path, item, valid)
    for operation, (items, flushed) in enumerate([(1, 1), (3, 2), (3, 3)], 1):
        log = 1024 * operation
        script.trace.begin(operation)
        for at in range(items):
            script.at(1, log + 64 * at, delta=64 * at)
        for at in range(flushed):
            script.trace.clwb("f", log + 64 * at)
        script.trace.sfence()
        script.at(2, log + 256, delta=256)
        script.persist(log + 256)
        script.trace.end(operation)
    (group,) = find_groups(script.found())
    assert (group.representative.operation, group.size, group.members, group.patterns) == (2, 4, 3, 3)


@SETTINGS
@given(steps=runs(14), model=st.sampled_from(["px86", "eadr", "page-cache"]))
def test_every_update_belongs_to_a_behaviour_and_every_behaviour_to_a_group_that_represents_it(
    steps: list[Step], model: str
) -> None:
    found = found_in(steps, model)
    assert set(found.row_node.tolist()) == set(range(len(found.nodes)))
    made = find_groups(found)
    heads = [shape_of(found, group.representative.id) for group in made]
    for behaviour in range(len(found)):
        assert any(head.represents(shape_of(found, behaviour)) for head in heads)
    for group, head in zip(made, heads, strict=True):
        represented = [b for b in range(len(found)) if head.represents(shape_of(found, b))]
        listed = np.concatenate(group.members_by_pattern).tolist()
        assert (sorted(listed), group.members) == (represented, len(represented))
        assert (listed[0], len(group.members_by_pattern)) == (group.representative.id, group.patterns)
        assert group.types == (group.representative.type, *sorted(group.types[1:]))
