"""What persists just before an update: against the definition, and in words."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crashcheck.analyzer.behaviours import Behaviours
from crashcheck.analyzer.concurrency.predecessors import immediate_predecessors, measure_deviance
from support.random_runs import SETTINGS, Step, found_in, runs
from support.scripts import Script, site

KEY = site("entry.key", ("entry", "key", 0, 8), line=1)
VALUE = site("entry.value", ("entry", "value", 8, 8), line=2)
VALID = site("entry.valid", ("entry", "valid", 64, 8), line=3)


def reduced(found: Behaviours, behaviour: int) -> list[frozenset[int]]:
    """The static sites before each node in the transitive reduction of the persist order that `Nodes` defines."""
    own, nodes = found.nodes_of(behaviour).tolist(), found.nodes
    order: nx.DiGraph[int] = nx.DiGraph()
    order.add_nodes_from(own)
    for u in own:
        for v in own:
            chained = nodes.granule[u] == nodes.granule[v] and nodes.ordered[u] and nodes.ordered[v]
            if nodes.durable_from[u] <= nodes.event[v] or (chained and nodes.event[u] < nodes.event[v]):
                order.add_edge(u, v)
    least = nx.transitive_reduction(order)
    return [frozenset(int(found.label[u]) for u in least.predecessors(v)) for v in own]


@pytest.mark.parametrize("model", ["px86", "eadr", "page-cache"])
@SETTINGS
@given(steps=runs(14))
def test_predecessors_are_those_of_the_transitive_reduction(model: str, steps: list[Step]) -> None:
    found = found_in(steps, model)
    before = measure_deviance(found).predecessors
    for behaviour in range(len(found)):
        assert list(before.of(behaviour)) == reduced(found, behaviour)


def order_of(drawn: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """(reach, chain) of as many nodes, as `immediate_predecessors` takes them: reach never falls along a chain."""
    many = len(drawn)
    reach = [u + 1 + far % (many - u + 1) for u, (far, _) in enumerate(drawn)]
    chain = list(range(many))
    for u, (_, joined) in enumerate(drawn):
        chain[u] = [u, *range(min(4, u))][joined % (min(4, u) + 1)]
        chain[u] = chain[chain[u]]
    for first in set(chain):
        members = [u for u in range(many) if chain[u] == first]
        for u, rising in zip(members, sorted(reach[u] for u in members), strict=True):
            reach[u] = max(rising, u + 1)
    return reach, chain


# 27,720 is a multiple of each number up to 12, so that each remainder is as likely.
orders = st.lists(st.tuples(st.integers(0, 27_719), st.integers(0, 59)), min_size=1, max_size=12).map(order_of)


@settings(max_examples=1500, deadline=None, derandomize=True)
@given(orders)
def test_every_persist_order_is_reduced_as_networkx_does(order: tuple[list[int], list[int]]) -> None:
    reach, chain = order
    nodes = range(len(reach))
    full: nx.DiGraph[int] = nx.DiGraph()
    full.add_nodes_from(nodes)
    full.add_edges_from((u, v) for v in nodes for u in range(v) if reach[u] <= v or chain[u] == chain[v])
    assert nx.transitive_closure_dag(full).edges == full.edges
    least = nx.transitive_reduction(full)
    assert immediate_predecessors(nodes, reach, chain) == [frozenset(least.predecessors(v)) for v in nodes]
    folded = [u % 3 for u in nodes]
    assert immediate_predecessors(folded, reach, chain) == [
        frozenset(folded[u] for u in least.predecessors(v)) for v in nodes
    ]


@pytest.mark.parametrize("model", ["px86", "page-cache"])
@SETTINGS
@given(steps=runs(14))
def test_deviance_is_the_largest_surprise_of_an_entry_by_the_largest_of_the_run(model: str, steps: list[Step]) -> None:
    found = found_in(steps, model)
    deviance = measure_deviance(found)
    entries = []
    for behaviour in range(len(found)):
        own = set()
        for node, before in zip(found.nodes_of(behaviour).tolist(), deviance.predecessors.of(behaviour), strict=True):
            type_ = int(found.instances.type[found.instance[behaviour]])
            own.add((int(found.nodes.event[node]), type_, int(found.label[node]), before))
        entries.append([entry[1:] for entry in own])
    often = Counter(entry for own in entries for entry in own)
    usual = {key: max(many for entry, many in often.items() if entry[:2] == key) for key in {e[:2] for e in often}}
    most = max(usual.values(), default=1)
    for behaviour, own in enumerate(entries):
        surprise = max(math.log(usual[entry[:2]] / often[entry]) for entry in own)
        assert deviance.value[behaviour] == pytest.approx(surprise / math.log(most) if most > 1 else 0.0, abs=1e-12)
        assert bool(deviance.because(behaviour)) == (deviance.value[behaviour] > 0)


def insert(script: Script, number: int, *, fenced: bool) -> None:
    """An entry in two lines of its own: `key` and `value` in the first, `valid` in the second."""
    base = 4096 + number * 128
    script.trace.begin(number + 1)
    script.at(1, base, delta=0)
    script.at(2, base + 8, delta=8)
    if fenced:
        script.persist(base, 16)
    script.at(3, base + 64, delta=64)
    script.persist(base + 64)
    if not fenced:
        script.persist(base, 16)
    script.trace.end(number + 1)


def test_the_instance_without_its_fence_deviates_and_the_reason_is_named(tmp_path: Path) -> None:
    script = Script(tmp_path, KEY, VALUE, VALID)
    for number in range(20):
        insert(script, number, fenced=number != 7)
    found = script.found()
    deviance = measure_deviance(found)
    assert [found.behaviour(b).start for b in range(len(found)) if deviance.value[b] > 0] == [4096 + 7 * 128]
    behaviour = next(found.behaviour(b) for b in range(len(found)) if deviance.value[b] > 0)
    assert deviance.value[behaviour.id] == pytest.approx(math.log(19) / math.log(20))
    expected = "`entry.valid` (program.c:3) has no predecessor here; in 19 of 20 updates `entry.value` precedes it"
    assert deviance.because(behaviour) == deviance.because(behaviour.id) == expected


def test_an_order_that_the_others_do_not_have_deviates_too(tmp_path: Path) -> None:
    script = Script(tmp_path, KEY, VALUE, VALID)
    for number in range(10):
        insert(script, number, fenced=number == 3)
    deviance = measure_deviance(script.found())
    expected = "`entry.value` precedes `entry.valid` (program.c:3) here; in 9 of 10 updates it has none"
    assert [deviance.because(b) for b in range(len(deviance.value)) if deviance.value[b] > 0] == [expected]


def test_what_is_always_the_same_does_not_deviate(tmp_path: Path) -> None:
    script = Script(tmp_path, KEY, VALUE, VALID)
    for number in range(5):
        insert(script, number, fenced=True)
    deviance = measure_deviance(script.found())
    assert deviance.value.tolist() == [0.0] * 5


def test_a_set_seen_once_in_two_weighs_less_than_one_seen_once_in_many(tmp_path: Path) -> None:
    """Twenty-one inserts, one of them unlike the others; and three updates of a header, one of them unlike them."""
    count = site("header.count", ("header", "count", 0, 8), line=4)
    total = site("header.total", ("header", "total", 64, 8), line=5)
    script = Script(tmp_path, KEY, VALUE, VALID, count, total)
    for number in range(21):
        insert(script, number, fenced=number != 7)
    for base, fenced in ((0, True), (1024, False), (2048, True)):
        script.at(4, base, delta=0)
        if fenced:
            script.persist(base)
        script.at(5, base + 64, delta=64)
    found = script.found()
    deviance = measure_deviance(found)
    values = {found.behaviour(b).type: float(deviance.value[b]) for b in range(len(found)) if deviance.value[b] > 0}
    most = math.log(21)  # `key` never has a predecessor
    assert values == {"entry": pytest.approx(math.log(20) / most), "header": pytest.approx(math.log(2) / most)}


def test_a_run_without_updates_has_nothing_to_compare(tmp_path: Path) -> None:
    assert measure_deviance(Script(tmp_path, KEY).found()).value.tolist() == []
