"""Minimised states fail, are crash states, and are 1-minimal, whatever the check's verdicts are."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from crashcheck.analyzer.persistence import build
from crashcheck.analyzer.persistence.graph import Options
from crashcheck.checker.findings import minimise
from crashcheck.checker.findings.minimise import Pieces
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.runtime.trace_format import SyncKind
from support.examples_tried import examples
from support.tracing import TraceBuilder

Script = list[tuple[str, int]]

scripts = st.lists(
    st.one_of(
        st.tuples(st.just("store"), st.integers(0, 23)),
        st.tuples(st.just("wide"), st.integers(0, 20)),
        st.tuples(st.just("nt"), st.integers(0, 23)),
        st.tuples(st.just("clwb"), st.integers(0, 2)),
        st.tuples(st.just("sfence"), st.just(0)),
        st.tuples(st.just("clflush"), st.integers(0, 2)),
    ),
    min_size=2,
    max_size=14,
)


def space_of(script: Script) -> StateSpace:
    with tempfile.TemporaryDirectory() as folder:
        t = TraceBuilder(Path(folder) / "t.cct")
        t.file("p", size=4096)
        values = count(1)
        for what, where in script:
            if what == "store":
                t.store("p", where * 8, 8, next(values))
            elif what == "wide":
                t.store("p", where * 8, 24, bytes([next(values)]) * 24)
            elif what == "nt":
                t.nt_store("p", where * 8, 8, next(values))
            elif what == "clwb":
                t.clwb("p", where * 64)
            elif what == "clflush":
                t.clflush("p", where * 64)
            else:
                t.sfence()
        return StateSpace(build(t.trace(), "px86", Options()))


growing = st.lists(
    st.one_of(
        st.tuples(st.just("store"), st.integers(0, 3)),
        st.tuples(st.just("grow"), st.integers(2, 9)),
        st.tuples(st.just("sync"), st.just(0)),
    ),
    min_size=2,
    max_size=8,
)


def growing_space_of(script: Script) -> StateSpace:
    """Of a file that grows by several blocks at once: an extension may persist in parts."""
    with tempfile.TemporaryDirectory() as folder:
        t = TraceBuilder(Path(folder) / "t.cct")
        t.file("p", size=4096)
        for event, (what, where) in enumerate(script):
            if what == "store":
                t.store("p", where * 512, 8, event)
            elif what == "grow":
                t.truncate("p", where * 4096 + event)
            else:
                t.sync_end(t.sync_begin(SyncKind.FSYNC, "p"))
        return StateSpace(build(t.trace(), "page-cache", Options()))


def a_state(space: StateSpace, data: st.DataObject) -> CrashState:
    point = data.draw(st.sampled_from(range(len(space.points))), "point")
    pending = space.pending(point)
    assume(pending)
    graph = space.graph
    parts = [graph.part(whole, index) for whole in pending for index in range(int(graph.parts[whole]))]
    return space.drop(point, data.draw(st.sets(st.sampled_from([*pending, *parts]), min_size=1), "lost"))


def a_check(space: StateSpace, state: CrashState, data: st.DataObject) -> Callable[[CrashState], bool]:
    """Any pure predicate that the given state fails: clauses "these lost and those persisted"."""
    lost, persisted = space.lost(state), space.persisted(state)
    subsets = [st.sets(st.sampled_from(side)) if side else st.just(set[int]()) for side in (lost, persisted)]
    clauses = [(data.draw(subsets[0]), data.draw(subsets[1]))]
    every = st.sets(st.sampled_from(space.pending(state.point)), max_size=3)
    clauses += data.draw(st.lists(st.tuples(every, every), max_size=3))

    def fails(candidate: CrashState) -> bool:
        gone, there = set(space.lost(candidate)), set(space.persisted(candidate))
        return any(a <= gone and b <= there for a, b in clauses)

    return fails


spaces = st.one_of(scripts.map(space_of), scripts.map(space_of), growing.map(growing_space_of))


@settings(max_examples=examples(60))
@given(spaces, st.data())
def test_pieces_are_lost_or_kept_too_as_all_at_once(space: StateSpace, data: st.DataObject) -> None:
    state = a_state(space, data)
    lost, persisted = space.lost(state), space.persisted(state)
    back = data.draw(st.sets(st.sampled_from(lost)) if lost else st.just(set()))
    gone = data.draw(st.sets(st.sampled_from(persisted)) if persisted else st.just(set()))
    assert space.keep_too(state, back) == space.keep(state.point, (*persisted, *back))
    assert space.drop_too(state, gone) == space.drop(state.point, (*lost, *gone))


@settings(max_examples=examples(60))
@given(spaces, st.data())
def test_the_fewest_lost_fail_are_an_ideal_and_none_can_be_given_back(space: StateSpace, data: st.DataObject) -> None:
    state = a_state(space, data)
    fails = a_check(space, state, data)
    asked: list[CrashState] = []

    def watched(candidate: CrashState) -> bool:
        asked.append(candidate)
        return fails(candidate)

    result = minimise.fewest_lost(space, state, watched)
    assert fails(result)
    assert result.point == state.point
    lost = set(space.lost(result))
    assert lost <= set(space.lost(state))
    assert space.state(result.point, space.persisted(result)) == result
    for piece in lost:
        others = [kept for kept in space.persisted(result) if kept != piece]
        better = space.keep(result.point, (*others, space.graph.whole(piece)))
        assert not space.lost(better) or not fails(better)
    for candidate in asked:
        assert space.state(candidate.point, space.persisted(candidate)) == candidate
        assert space.lost(candidate)
    again: list[CrashState] = []
    minimise.fewest_lost(space, state, lambda candidate: (again.append(candidate), fails(candidate))[1])
    assert again == asked


@settings(max_examples=examples(60))
@given(spaces, st.data())
def test_the_fewest_persisted_fail_and_none_can_be_lost(space: StateSpace, data: st.DataObject) -> None:
    state = a_state(space, data)
    fails = a_check(space, state, data)
    persisted = space.persisted(state)
    assume(persisted)
    since = data.draw(st.sampled_from(persisted))
    among = [piece for piece in persisted if piece >= since]
    result, kept = minimise.fewest_persisted(space, state, among, fails)
    assert fails(result)
    assert set(kept) <= set(among)
    assert set(space.persisted(result)) == (set(persisted) - set(among)) | set(kept)
    assert {space.graph.whole(piece) for piece in space.lost(state)} <= {
        space.graph.whole(piece) for piece in space.lost(result)
    }
    for piece in kept:
        others = [lost for lost in space.lost(result) if lost != piece]
        worse = space.drop(result.point, (*others, space.graph.whole(piece)))
        assert not fails(worse)


def test_an_extension_stays_as_far_as_it_persisted(tmp_path: Path) -> None:
    t = TraceBuilder(tmp_path / "t.cct")
    t.file("p", size=4 * 4096)
    for page in range(3):
        t.store("p", page * 4096, 8, page + 1)
    t.truncate("p", 9 * 4096)
    space = StateSpace(build(t.trace(), "page-cache", Options()))
    point, (_, middle, _, extension) = len(space.points) - 1, space.pending(len(space.points) - 1)
    stores, part = (0, 1, 2), space.graph.part(extension, 2)
    assert space.pending(point) == (*stores, extension)

    fewest = minimise.fewest_lost(
        space, space.drop(point, (*stores, part)), lambda state: {middle, part} <= set(space.lost(state))
    )
    assert space.lost(fewest) == (middle, part)
    whole = space.keep(point, (*stores, part))
    state, kept = minimise.fewest_persisted(
        space, whole, (*stores, part), lambda state: {middle, part} <= set(space.persisted(state))
    )
    assert (space.persisted(state), kept) == ((middle, part), (middle, part))


def test_two_of_many_lost_updates_are_found_with_few_checks(tmp_path: Path) -> None:
    """By halves: one by one they would take some two thousand."""
    t = TraceBuilder(tmp_path / "t.cct")
    t.file("p", size=4096)
    for line in range(64):
        t.store("p", line * 64, 8, 1)
    space = StateSpace(build(t.trace(), "px86", Options()))
    asked: list[CrashState] = []

    def lacking(state: CrashState) -> bool:
        asked.append(state)
        return {0, 63} <= set(space.lost(state))

    assert space.lost(minimise.fewest_lost(space, space.drop(0, range(64)), lacking)) == (0, 63)
    assert len(asked) <= 2 * 64


@cache
def wide_stores() -> StateSpace:
    """Six stores on lines of their own, each of two pieces, which are unordered."""
    with tempfile.TemporaryDirectory() as folder:
        t = TraceBuilder(Path(folder) / "t.cct")
        t.file("p", size=4096)
        for line in range(6):
            t.store("p", line * 64, 16, bytes([line + 1]) * 16)
        return StateSpace(build(t.trace(), "px86", Options()))


@given(st.sets(st.integers(0, 11), min_size=1), st.sets(st.integers(0, 11)))
def test_what_shares_a_fate_is_lost_or_kept_together_in_every_state_that_is_tried(
    wanted: set[int], also: set[int]
) -> None:
    space = wide_stores()
    point = len(space.points) - 1
    assert space.pending(point) == tuple(range(12))

    def together(pieces: Pieces) -> Pieces:
        return tuple(sorted({piece // 2 * 2 + half for piece in pieces for half in (0, 1)}))

    def lacking(state: CrashState) -> bool:
        gone = space.lost(state)
        assert together(gone) == gone
        return wanted <= set(gone)

    def holding(state: CrashState) -> bool:
        there = space.persisted(state)
        assert together(there) == there
        return wanted <= set(there)

    culprits, others = together(tuple(wanted)), together(tuple(also))
    fewest = minimise.fewest_lost(space, space.drop(point, {*culprits, *others}), lacking, together)
    assert space.lost(fewest) == culprits
    whole = space.keep(point, {*culprits, *others})
    state, kept = minimise.fewest_persisted(space, whole, {*culprits, *others}, holding, together)
    assert (space.persisted(state), kept) == (culprits, culprits)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_the_earliest_point_fails_and_the_one_before_passes(low: int, more: int, first: int) -> None:
    high = low + more
    first = min(first, high)
    found = minimise.earliest(low, high, lambda point: point >= first)
    assert found == max(low, first)


def test_one_culprit_among_many_is_found_in_logarithmic_time(tmp_path: Path) -> None:
    t = TraceBuilder(tmp_path / "t.cct")
    t.file("p", size=1 << 20)
    for line in range(1024):
        t.store("p", line * 64, 8, 1)
    space = StateSpace(build(t.trace(), "px86", Options()))
    asked = []

    def fails(state: CrashState) -> bool:
        asked.append(state)
        return 700 in space.lost(state)

    result = minimise.fewest_lost(space, space.drop(0, range(1024)), fails)
    assert space.lost(result) == (700,)
    assert len(asked) <= 2 * 10
