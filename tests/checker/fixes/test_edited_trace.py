"""Traces with flushes, fences and syncs put in, against brute force on random small programs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from crashcheck.analyzer.persistence import build
from crashcheck.analyzer.persistence.sync_intervals import find_syncs, write_ends
from crashcheck.checker.fixes.edited_trace import Cost, Counterparts, Insertion, cost, edited
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.runtime.trace_format import Kind, SyncKind
from support.random_programs import SETTINGS, memory_programs, page_programs
from support.reference import First, Program
from support.tracing import TraceBuilder
from support.worlds import explored, record

Known = tuple[frozenset[int], int, int]


def known(space: StateSpace, state: CrashState) -> Known:
    """What has persisted, and what was acknowledged: the identity of a state in both traces."""
    point = space.points[state.point]
    held = {*space.durable(state.point).tolist(), *space.persisted(state)}
    return frozenset(held), int(point.acked), int(point.stdout_bytes)


def check(first: First, program: Program, model: str, insertion: Insertion | None) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trace = record(folder, first, program).trace()
        whole = explored(trace, folder, first, model)
        graph = whole.space.graph
        stores = np.flatnonzero(trace.events["kind"] == Kind.STORE).tolist()
        for row in stores:
            put = insertion or Insertion(row, flushes=(row,), fence=True)
            edit = edited(graph, [Insertion(row, put.before, (row,) if put.flushes else (), put.fence, put.sync)])
            now = explored(edit.graph.trace, folder, first, model)
            of_edited = {known(now.space, state) for state in now.states}
            counterparts = Counterparts(whole.space, edit)
            for state in whole.states:
                assert counterparts.feasible(state) == (known(whole.space, state) in of_edited)
            originals = set(whole.states)
            for state in now.states:
                same = counterparts.recorded(state, now.space)
                assert same in originals
                assert known(whole.space, same) == known(now.space, state)
            if insertion is None:
                nothing_after_is_without(row, now.space, now.states, int(edit.at[row]))


def nothing_after_is_without(row: int, space: StateSpace, states: list[CrashState], at: int) -> None:
    mine = set(np.flatnonzero(space.graph.event == at).tolist())
    for state in states:
        held, _, _ = known(space, state)
        later = {piece for piece in held if int(space.graph.event[piece]) > at}
        assert not later or mine <= held


@SETTINGS
@given(memory_programs())
def test_with_a_flush_and_a_fence_after_a_store_nothing_later_persists_without_it(
    program: tuple[First, Program],
) -> None:
    check(*program, "px86", None)


@SETTINGS
@given(memory_programs())
def test_a_fence_before_a_store_leaves_exactly_the_states_that_are_predicted(
    program: tuple[First, Program],
) -> None:
    check(*program, "px86", Insertion(0, before=True, fence=True))


@SETTINGS
@given(page_programs())
def test_a_sync_after_a_store_leaves_exactly_the_states_that_are_predicted(
    program: tuple[First, Program],
) -> None:
    check(*program, "page-cache", Insertion(0, sync=SyncKind.MSYNC))


@pytest.fixture
def builder(tmp_path: Path) -> TraceBuilder:
    out = TraceBuilder(tmp_path / "t.cct")
    out.file("a", 4096)
    return out


def test_what_is_inserted_is_at_its_anchor_and_is_counted(builder: TraceBuilder) -> None:
    builder.site = 4
    builder.store("a", 60, 8, 1)  # on two lines
    with builder.thread(2):
        builder.store("a", 128, 8, 1)
    graph = build(builder.trace(), "px86")
    insertions = [Insertion(1, flushes=(1,)), Insertion(2, before=True, fence=True)]
    edit = edited(graph, insertions)
    events = edit.graph.trace.events
    assert events["kind"].tolist() == [Kind.FILE_DEF, Kind.STORE, Kind.FLUSH, Kind.FLUSH, Kind.FENCE, Kind.STORE]
    assert events["offset"][2:4].tolist() == [0, 64]
    assert events["thread"].tolist()[1:] == [1, 1, 1, 2, 2]
    assert events["site"].tolist()[1:4] == [4, 4, 4]
    assert edit.at.tolist() == [0, 1, 5]
    assert cost(graph.trace.events, insertions) == Cost(2, 1, 0)


def test_numbers_still_ascend_and_syncs_and_loads_keep_their_neighbours(builder: TraceBuilder) -> None:
    builder.store("a", 0, 8, 1)
    builder.msync("a")
    builder.load("a", 0)  # before the next store
    builder.store("a", 64, 8, 1)
    graph = build(builder.trace(), "page-cache")
    edit = edited(graph, [Insertion(1, sync=SyncKind.MSYNC), Insertion(4, before=True, fence=True)])
    trace = edit.graph.trace
    seqs = trace.events["seq"].astype(np.int64)
    assert bool(np.all(np.diff(seqs) > 0))
    assert [(sync.begin, sync.end) for sync in find_syncs(trace)] == [(2, 3), (4, 5)]
    last = int(seqs[-1])
    assert int(trace.loads["seq"][0]) == last
    assert graph.trace.events["seq"].tolist() == [1, 2, 3, 4, 5], "the recorded trace is as it was"


def test_a_clwb_is_put_in_whatever_the_program_flushes_with(builder: TraceBuilder) -> None:
    """A clflush would persist without a fence, and other machines flush otherwise."""
    builder.store("a", 0, 8, 1)
    builder.clflush("a", 0)
    builder.store("a", 64, 8, 1)
    graph = build(builder.trace(), "px86")
    assert edited(graph, [Insertion(3, flushes=(3,))]).graph.reason(1) == ""


def test_lines_that_are_stored_to_are_flushed_once_and_no_others(builder: TraceBuilder) -> None:
    builder.store("a", 56, 8, 1)
    builder.store("a", 62, 2, 1)
    events = build(builder.trace(), "px86").trace.events
    assert cost(events, [Insertion(2, flushes=(1, 2))]) == Cost(1, 0, 0)


def test_an_msync_put_in_covers_all_that_it_is_for(builder: TraceBuilder) -> None:
    builder.store("a", 8, 4, 1)
    builder.store("a", 3 * 4096, 8, 1)
    edit = edited(build(builder.trace(), "page-cache"), [Insertion(2, sync=SyncKind.MSYNC, synced=(2, 1))])
    (sync,) = find_syncs(edit.graph.trace)
    assert (sync.low, sync.high) == (0, 4 * 4096)


def test_a_submitted_write_still_ends_where_it_did(builder: TraceBuilder) -> None:
    write = builder.submit("a", 0, b"x")
    builder.store("a", 64, 8, 1)
    builder.ended("a", write)
    graph = build(builder.trace(), "page-cache")
    ((row, end),) = write_ends(graph.trace).items()
    changed = edited(graph, [Insertion(row + 1, sync=SyncKind.FSYNC)])
    assert write_ends(changed.graph.trace) == {int(changed.at[row]): int(changed.at[end])}
    assert changed.at[end] == end + 2
