"""Minimised states fail, are crash states, and are 1-minimal, whatever the check's verdicts are."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from crashcheck.analyzer.persistence import build
from crashcheck.analyzer.persistence.graph import Options
from crashcheck.checker.findings import minimise
from crashcheck.checker.states.space import CrashState, StateSpace
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


def a_state(space: StateSpace, data: st.DataObject) -> CrashState:
    point = data.draw(st.sampled_from(range(len(space.points))), "point")
    pending = space.pending(point)
    assume(pending)
    return space.drop(point, data.draw(st.sets(st.sampled_from(pending), min_size=1), "lost"))


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


@settings(max_examples=100, deadline=None)
@given(scripts, st.data())
def test_the_fewest_lost_fail_are_an_ideal_and_none_can_be_given_back(script: Script, data: st.DataObject) -> None:
    space = space_of(script)
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
        better = space.keep(result.point, (*space.persisted(result), piece))
        assert not space.lost(better) or not fails(better)
    for candidate in asked:
        assert space.state(candidate.point, space.persisted(candidate)) == candidate
        assert space.lost(candidate)
    again: list[CrashState] = []
    minimise.fewest_lost(space, state, lambda candidate: (again.append(candidate), fails(candidate))[1])
    assert again == asked


@settings(max_examples=100, deadline=None)
@given(scripts, st.data())
def test_the_fewest_persisted_fail_and_none_can_be_lost(script: Script, data: st.DataObject) -> None:
    space = space_of(script)
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
    assert set(space.lost(state)) <= set(space.lost(result))
    for piece in kept:
        worse = space.drop(result.point, (*space.lost(result), piece))
        assert not fails(worse)


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
