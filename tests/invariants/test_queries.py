"""Which updates may persist without which, against all crash states; and in what order states are asked for."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import Run
from random_runs import SETTINGS, Step, runs, script_of
from scripts import Script, site

from crashcheck.analyzer.behaviours import Behaviours
from crashcheck.analyzer.behaviours.updates import numbered
from crashcheck.analyzer.invariants.keys import keys
from crashcheck.analyzer.invariants.pairs import ordered_pairs, parted_pairs
from crashcheck.analyzer.invariants.ppdg import accesses
from crashcheck.analyzer.invariants.queries import Updates, guardians_together
from crashcheck.checker.queries import states_of
from crashcheck.checker.representative import Places
from crashcheck.checker.states import StateSpace
from crashcheck.checker.strategies.exhaustive import Exhaustive


def updates_of(script: Script, model: str) -> Updates:
    found = script.found(model)
    nodes = found.nodes
    rows = accesses(found.graph.trace, np.unique(nodes.event[nodes.data]))
    rows = rows.chosen(np.arange(len(rows)))
    return Updates(found, rows, keys(found.graph.trace, script.facts, rows))


def lacking(found: Behaviours) -> set[tuple[int, int]]:
    """(event, event): some crash state holds all of the second and lacks some of the first, issued or later."""
    space = StateSpace(found.graph)
    event_of = found.graph.event
    everything = set(event_of.tolist())
    out = set()
    for state in space.states(Exhaustive()):
        lost = set(space.lost(state))
        held = (set(space.durable(state.point).tolist()) | set(space.persisted(state))) - lost
        missing = {int(event_of[piece]) for piece in lost}
        whole = {int(event_of[piece]) for piece in held} - missing
        later = everything - missing - whole
        out |= {(f, w) for f in missing for w in whole} | {(f, w) for f in later for w in whole if f > w}
    return out


def pairs_of(updates: Updates) -> Iterator[tuple[int, int]]:
    for f in range(len(updates.rows)):
        for w in range(len(updates.rows)):
            if f != w and not updates.overlap(np.array([f]), np.array([w]))[0]:
                yield f, w


@pytest.mark.parametrize("model", ["px86", "eadr", "page-cache"])
@SETTINGS
@given(steps=runs())
def test_an_update_may_be_missing_beside_another_just_where_some_state_lacks_it(steps: list[Step], model: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        updates = updates_of(script_of(Path(folder), steps), model)
        exists = lacking(updates.found)
        loose = any(what == "nt" for what, _, _ in steps)
        places = Places(StateSpace(updates.found.graph))
        for f, w in pairs_of(updates):
            says = bool(updates.may_lack(np.array([f]), np.array([w]))[0])
            there = (int(updates.event[f]), int(updates.event[w])) in exists
            assert says == there or (loose and says), (f, w)
            query = updates.query("RO1", f, w, 1)
            assert (query is not None) == says or loose, (f, w)
            if query is not None:
                assert bool(states_of(places, query)) == there


FIELDS = (site("t.a", ("t", "a", 0, 8)), site("t.b", ("t", "b", 64, 8)))
FIELD_AT = {"t.a": 0, "t.b": 64}
step = st.one_of(
    st.tuples(st.sampled_from([1, 1, 2, 2]), st.sampled_from([0, 256])),
    st.tuples(st.sampled_from(["persist a", "persist b", "begin"]), st.sampled_from([0, 256])),
)


@SETTINGS
@given(steps=st.lists(step, min_size=2, max_size=14))
def test_pairs_are_those_of_the_definition(steps: list[tuple[int | str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = Script(Path(folder), *FIELDS)
        began = 0
        for what, start in steps:
            if what == "begin":
                began += 1
                script.trace.begin(began)
            elif isinstance(what, str):
                script.persist(start + (0 if what == "persist a" else 64))
            else:
                script.at(what, start + (what - 1) * 64, delta=(what - 1) * 64)
        updates = updates_of(script, "px86")
        names = {key.text: number for number, key in enumerate(updates.keys.names)}
        asked = [("t.a", "t.b", False), ("t.a", "t.b", True), ("t.b", "t.a", False), ("t.b", "t.a", True)]
        if not {"t.a", "t.b"} <= names.keys():
            return
        columns = np.array([[names[first], names[then], shared] for first, then, shared in asked]).T
        everything = list(ordered_pairs(updates, columns[0], columns[1], columns[2] > 0, {}))
        for (first, then, shared), made in zip(asked, everything, strict=True):
            bad, held = by_definition(updates, first, then, shared)
            assert list(zip(made.then.tolist(), made.first.tolist(), strict=True)) == sorted((w, f) for f, w in bad)
            assert (made.held, made.violated) == (len(held), len(bad))
            alone = ordered_pairs(
                updates, *(np.array([names[field]]) for field in (first, then)), np.array([shared]), {}
            )
            (only,) = alone
            assert (only.held, only.violated) == (made.held, made.violated)


@pytest.mark.parametrize("seed", range(10))
def test_how_many_are_looked_at_together_changes_no_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    script = Script(tmp_path, *FIELDS, site("t.c", ("t", "c", 128, 128)))
    for _ in range(40):
        start, field = 256 * chance.randrange(3), chance.randrange(3)
        script.at(field + 1, start + 64 * field, size=(8, 8, 128)[field], delta=64 * field)
        if chance.random() < 0.3:
            script.persist(start + 64 * chance.randrange(4))
    updates = updates_of(script, "px86")
    fields = range(len(updates.keys.names))
    asked = np.array([(f, w, shared) for f in fields for w in fields for shared in (0, 1)]).T
    near = guardians_together(updates, np.arange(len(fields)))
    relation, heads = numbered(near.field_one, near.field_other, near.shared)

    def told() -> list[tuple[list[int], list[int], int, int]]:
        made = [
            *ordered_pairs(updates, asked[0], asked[1], asked[2] > 0, {}),
            *parted_pairs(updates, relation, near.one, near.other, len(heads)),
        ]
        return [(one.first.tolist(), one.then.tolist(), one.held, one.violated) for one in made]

    at_once = told()
    assert len(at_once) == len(asked[0]) + len(heads)
    assert sum(violated for _, _, _, violated in at_once) > 0
    monkeypatch.setattr("crashcheck.analyzer.invariants.pairs._CHUNK", chance.choice((1, 7, 50)))
    monkeypatch.setattr("crashcheck.analyzer.invariants.queries._COMPARED", chance.choice((1, 3)))
    assert told() == at_once


def by_definition(updates: Updates, first: str, then: str, shared: bool) -> tuple[set[tuple[int, int]], set[int]]:
    """(pairs that a crash may leave in the wrong order, updates of `then` before which `first` had persisted)."""
    stores = range(len(updates.rows))
    offset, event, durable = updates.rows.columns.offset, updates.event, updates.durable
    f_all, w_all = (
        [row for row in stores if offset[row] % 256 == (64 if name == "t.b" else 0)] for name in (first, then)
    )

    def alike(one: int, other: int) -> bool:
        return not shared or bool(offset[one] // 256 == offset[other] // 256)

    candidates = set()
    for w in w_all:
        candidates |= {(f, w) for f in [f for f in f_all if f < w and alike(f, w)][-1:]}
        candidates |= {(f, w) for f in [f for f in f_all if f > w and alike(f, w)][:1]}
    for f in f_all:
        candidates |= {(f, w) for w in [w for w in w_all if w > f and alike(f, w)][:1]}
    bad = {(f, w) for f, w in candidates if (f < w and durable[f] > event[w]) or (f > w and durable[w] > event[f])}
    held = {
        w
        for f, w in candidates
        if f < w and durable[f] <= event[w] and (shared or updates.operation[f] == updates.operation[w])
    }
    return bad, held


def three_inserts(folder: Path) -> Run:
    sites = (
        site("box.key", ("box", "key", 0, 8), kind="load"),
        site("box.valid", ("box", "valid", 64, 8), kind="load"),
        site("box.key", ("box", "key", 0, 8)),
        site("box.valid", ("box", "valid", 64, 8)),
        site("box.valid", ("box", "valid", 64, 8)),
    )
    made = Run(folder, *sites, depends={1: {2: "c"}})
    for number, start in enumerate((0, 256, 512), 1):
        made.trace.begin(number)
        made.at(3, start, delta=0)
        made.at(4 if number < 3 else 5, start + 64, delta=64)
        made.persist(start)
        made.persist(start + 64)
        made.trace.end(number)
        made.load(2, start + 64, delta=64)
        made.load(1, start, delta=0)
    return made


def test_the_first_occurrence_of_each_signature_comes_before_second_ones(tmp_path: Path) -> None:
    queries = list(three_inserts(tmp_path).inferred().queries)
    assert [query.signature for query in queries] == [("RO3", 0, 1), ("RO3", 0, 2), ("RO3", 0, 1)]
    assert queries[0].event < queries[2].event


def test_queries_are_the_same_each_time_they_are_asked_for(tmp_path: Path) -> None:
    inferred = three_inserts(tmp_path).inferred()
    assert list(inferred.queries) == list(inferred.queries) != []


def test_a_query_waits_for_both_updates(tmp_path: Path) -> None:
    made = three_inserts(tmp_path)
    found = made.found()
    for query in made.inferred().queries:
        assert query.event == max(int(found.graph.event[piece]) for piece in (*query.persisted, *query.unpersisted))


def test_a_run_without_loads_says_so(tmp_path: Path) -> None:
    from crashcheck.analyzer.invariants import infer

    script = Script(tmp_path, *FIELDS)
    script.at(1, 0, delta=0)
    inferred = infer(script.found(), script.facts)
    assert inferred.invariants == ()
    assert list(inferred.queries) == []
    assert inferred.note == "no likely invariants: no reads of watched files were recorded"


def test_a_run_without_facts_says_so(tmp_path: Path) -> None:
    from crashcheck.analyzer.invariants import infer

    inferred = infer(three_inserts(tmp_path).found(), None)
    assert inferred.note == "no likely invariants: the program has no facts (build it with crashcheck-cc)"
