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

from crashcheck.analyzer.behaviours import Behaviours
from crashcheck.analyzer.invariants.pairs import ordered_pairs, parted_pairs
from crashcheck.analyzer.invariants.ppdg import Accesses, collect_accesses
from crashcheck.analyzer.invariants.queries import RunStores, StateQuery, guardians_together
from crashcheck.analyzer.invariants.variables import AccessedVariables, find_variables
from crashcheck.analyzer.persistence.pieces import IN_ORDER
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.space import StateSpace
from crashcheck.checker.strategies.exhaustive import Exhaustive
from crashcheck.checker.strategies.plan import select_states
from crashcheck.checker.strategies.violations import states_of
from support.random_runs import SETTINGS, Step, runs, script_of
from support.scripts import Run, Script, site


def updates_of(script: Script, model: str) -> RunStores:
    found = script.found(model)
    return RunStores(found, *known(script, found))


def known(script: Script, found: Behaviours) -> tuple[Accesses, AccessedVariables]:
    nodes = found.nodes
    rows = collect_accesses(found.graph.trace, np.unique(nodes.event[nodes.data]))
    rows = rows.chosen(np.arange(len(rows)))
    return rows, find_variables(found.graph.trace, script.facts, rows)


def lacking(found: Behaviours) -> set[tuple[int, int]]:
    """(event, event): some crash state holds all of the second and lacks some of the first, issued or later."""
    space = StateSpace(found.graph)
    event_of = found.graph.event
    everything = set(event_of.tolist())
    out = set()
    for state in select_states(space, Exhaustive()):
        lost = set(space.lost(state))
        held = (set(space.durable(state.point).tolist()) | set(space.persisted(state))) - lost
        missing = {int(event_of[piece]) for piece in lost}
        whole = {int(event_of[piece]) for piece in held} - missing
        later = everything - missing - whole
        out |= {(f, w) for f in missing for w in whole} | {(f, w) for f in later for w in whole if f > w}
    return out


def pairs_of(updates: RunStores) -> Iterator[tuple[int, int]]:
    for f in range(len(updates.event)):
        for w in range(len(updates.event)):
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
        canonical = CanonicalStates(StateSpace(updates.found.graph))
        for f, w in pairs_of(updates):
            says = bool(updates.may_lack(np.array([f]), np.array([w]))[0])
            there = (int(updates.event[f]), int(updates.event[w])) in exists
            assert says == there or (loose and says), (f, w)
            asked = updates.states(["RO1"], *(np.array([number]) for number in (f, w, 1)))
            query = next((query for _, query in asked), None)
            assert (query is not None) == says or loose, (f, w)
            if query is not None:
                assert bool(states_of(canonical, query)) == there


FIELDS = (site("t.a", ("t", "a", 0, 8)), site("t.b", ("t", "b", 64, 8)))
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
        names = {key.text: number for number, key in enumerate(known(script, updates.found)[1].names)}
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
def test_the_size_of_a_batch_changes_no_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance = random.Random(seed)
    script = Script(tmp_path, *FIELDS, site("t.c", ("t", "c", 128, 128)))
    for _ in range(40):
        start, field = 256 * chance.randrange(3), chance.randrange(3)
        script.at(field + 1, start + 64 * field, size=(8, 8, 128)[field], delta=64 * field)
        if chance.random() < 0.3:
            script.persist(start + 64 * chance.randrange(4))
    updates = updates_of(script, "px86")
    fields = range(updates.fields)
    asked = np.array([(f, w, shared) for f in fields for w in fields for shared in (0, 1)]).T
    monkeypatch.setattr("crashcheck.analyzer.invariants.pairs.SITE_PAIRS", chance.choice((1, 3, 256)))

    def all_pairs() -> list[tuple[int, list[int], list[int], int, int]]:
        made = [
            *enumerate(ordered_pairs(updates, asked[0], asked[1], asked[2] > 0, {})),
            *parted_pairs(updates, guardians_together(updates, np.arange(len(fields)))),
        ]
        return [(of, one.first.tolist(), one.then.tolist(), one.held, one.violated) for of, one in made]

    at_once = all_pairs()
    assert len(at_once) > len(asked[0])
    assert sum(violated for _, _, _, _, violated in at_once) > 0
    monkeypatch.setattr("crashcheck.analyzer.invariants.pairs._CHUNK", chance.choice((1, 7, 50)))
    monkeypatch.setattr("crashcheck.analyzer.invariants.queries._COMPARED", chance.choice((1, 3)))
    monkeypatch.setattr("crashcheck.analyzer.invariants.queries._MEMBERS", chance.choice((1, 4)))
    assert all_pairs() == at_once


@SETTINGS
@given(steps=runs())
def test_queries_that_are_made_together_are_those_of_the_definition(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        updates = updates_of(script_of(Path(folder), steps), "px86")
        pairs = list(pairs_of(updates))
        first, then = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        numbers = np.arange(len(pairs))
        made = list(updates.states(["RO2"] * len(pairs), first, then, numbers))
        assert made == [(number, one) for number, pair in enumerate(pairs) for one in defined(updates, *pair, number)]


def defined(updates: RunStores, first: int, then: int, number: int) -> Iterator[StateQuery]:
    """The query of a pair of updates; none if nothing of the first can be missing."""
    graph = updates.found.graph
    pieces = range(len(graph.event))
    kept = [piece for piece in pieces if graph.event[piece] == updates.event[then]]
    granules = {int(graph.granule[piece]) for piece in kept if graph.mode[piece] == IN_ORDER}
    now = max(int(updates.event[then]), int(updates.event[first]))
    older = updates.event[first] < updates.event[then]
    lost = [
        piece
        for piece in pieces
        if graph.event[piece] == updates.event[first]
        and graph.durable_from[piece] > now
        and not (older and graph.mode[piece] == IN_ORDER and int(graph.granule[piece]) in granules)
    ]
    if lost:
        labels = int(updates.label[first]), int(updates.label[then])
        yield StateQuery(tuple(kept), tuple(lost), now, number, ("RO2", *labels))


@pytest.mark.parametrize("marked", [True, False])
@SETTINGS
@given(steps=st.lists(step, min_size=2, max_size=30), threads=st.sampled_from([1, 2]))
def test_guardians_that_are_updated_together_are_those_of_the_definition(
    marked: bool, steps: list[tuple[int | str, int]], threads: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = Script(Path(folder), *FIELDS)
        for number, (what, start) in enumerate(steps):
            if what == "begin":
                script.trace.begin(number + 1) if marked else None
            elif isinstance(what, str):
                script.persist(start + (0 if what == "persist a" else 64))
            else:
                with script.trace.thread(1 + number % threads):
                    script.at(what, start + (what - 1) * 64, size=(8, 80)[number % 5 == 0], delta=(what - 1) * 64)
        updates = updates_of(script, "px86")
        found = parted_pairs(updates, guardians_together(updates, np.arange(updates.fields)))
        assert [
            (of, list(zip(one.then.tolist(), one.first.tolist(), strict=True)), one.held, one.violated)
            for of, one in found
        ] == sorted(parted_by_definition(updates))


def parted_by_definition(updates: RunStores) -> Iterator[tuple[int, list[tuple[int, int]], int, int]]:
    """(relation, (then, first) of which `then` may persist alone, pairs that persist together, pairs that may not)."""
    fields, thread = updates.fields, updates.thread
    members = [place for place in range(len(updates.update)) if updates.inner[place]]
    near: dict[int, set[tuple[int, int]]] = {}
    for number in set(thread.tolist()):
        mine = [place for place in members if thread[updates.update[place]] == number]
        for at, late in enumerate(mine):
            for early in mine[max(at - 8, 0) : at]:
                one, other = int(updates.update[early]), int(updates.update[late])
                if len(updates.begins):
                    meet = updates.operation[one] == updates.operation[other]
                else:
                    meet = updates.durable[one] > updates.event[other]
                if one != other and meet and not updates.overlap(np.array([one]), np.array([other]))[0]:
                    x, y = sorted((int(updates.field[early]), int(updates.field[late])))
                    shared = int(updates.instance[early] == updates.instance[late])
                    near.setdefault((x * fields + y) * 2 + shared, set()).add((one, other))
    for relation, pairs in near.items():
        both = {(one, other) for pair in pairs for one, other in (pair, pair[::-1])}
        bad = {(w, f) for f, w in both if updates.may_lack(np.array([f]), np.array([w]))[0]}
        broken = sum((one, other) in bad or (other, one) in bad for one, other in pairs)
        yield relation, sorted(bad), len(pairs) - broken, broken


def by_definition(updates: RunStores, first: str, then: str, shared: bool) -> tuple[set[tuple[int, int]], set[int]]:
    """(pairs that a crash may leave in the wrong order, updates of `then` before which `first` had persisted)."""
    stores, event, durable = range(len(updates.event)), updates.event, updates.durable
    offset = updates.found.graph.trace.events["offset"][event].astype(np.int64)
    f_all, w_all = (
        [row for row in stores if offset[row] % 256 == (64 if name == "t.b" else 0)] for name in (first, then)
    )

    def same_instance(one: int, other: int) -> bool:
        return not shared or bool(offset[one] // 256 == offset[other] // 256)

    candidates = set()
    for w in w_all:
        candidates |= {(f, w) for f in [f for f in f_all if f < w and same_instance(f, w)][-1:]}
        candidates |= {(f, w) for f in [f for f in f_all if f > w and same_instance(f, w)][:1]}
    for f in f_all:
        candidates |= {(f, w) for w in [w for w in w_all if w > f and same_instance(f, w)][:1]}
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


def test_the_first_occurrence_of_each_signature_precedes_second_ones(tmp_path: Path) -> None:
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


def test_a_run_without_loads_gives_a_note(tmp_path: Path) -> None:
    from crashcheck.analyzer.invariants import infer

    script = Script(tmp_path, *FIELDS)
    script.at(1, 0, delta=0)
    inferred = infer(script.found(), script.facts)
    assert inferred.invariants == ()
    assert list(inferred.queries) == []
    assert inferred.note == "no likely invariants: no reads of watched files were recorded"


def test_a_run_without_facts_gives_a_note(tmp_path: Path) -> None:
    from crashcheck.analyzer.invariants import infer

    inferred = infer(three_inserts(tmp_path).found(), None)
    assert inferred.note == "no likely invariants: the program has no facts (build it with crashcheck-cc)"
