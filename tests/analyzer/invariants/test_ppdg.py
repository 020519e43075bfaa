"""The persistence program dependence graph against its definition, on random small runs."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crashcheck.analyzer.invariants.ppdg import ADDRESS, CONTROL, VALUE, Binder, collect_accesses, find_edges
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.runtime.trace_format import Kind
from support.examples_tried import examples
from support.scripts import KEY, Given, dependence
from support.scripts import given as dependences_given
from support.tracing import TraceBuilder

SITES = 4
LOADS = (1, 2)  # the others are stores


@dataclass(frozen=True)
class Access:
    site: int
    thread: int
    stack: tuple[int, ...]  # outermost first
    word: int
    load: bool


STACKS: tuple[tuple[int, ...], ...] = ((), (7,), (8,), (7, 8), (7, 7), (8, 7))

access = st.builds(
    lambda number, thread, stack, word: Access(number, thread, STACKS[stack], word, number in LOADS),
    st.integers(1, SITES),
    st.sampled_from([1, 1, 1, 2]),
    st.integers(0, len(STACKS) - 1),
    st.integers(0, 2),
)
static = st.tuples(
    st.integers(1, SITES),
    st.sampled_from(LOADS),
    st.sampled_from(["c", "a", "v", "ca", "cv", "av"]),
    st.booleans(),
)


def recorded(folder: Path, run: list[Access]) -> Trace:
    trace = TraceBuilder(folder / "trace.cct")
    trace.file("f", 4096)
    trace.unit(KEY, 8, "/bin/program")
    stacks = {(): 0}
    for chain in sorted(STACKS, key=len):
        if chain:
            stacks[chain] = trace.stack_def(stacks[chain[:-1]], chain[-1])
    for one in run:
        with trace.thread(one.thread):
            fields = {"site": one.site, "stack": stacks[one.stack]}
            if one.load:
                trace.gap()  # then those of all threads are in this order
                trace.load("f", 8 * one.word, 8, **fields)
            else:
                trace.event(Kind.STORE, data=bytes(8), file=1, offset=8 * one.word, **fields)
    return trace.trace()


def under(stack: tuple[int, ...], frame: tuple[int, ...]) -> bool:
    return stack[: len(frame)] == frame


def bound(run: list[Access], at: int, on: int, inherited: bool) -> int | None:
    """The execution of load `on` that access `at` depends on, by definition."""
    own = run[at].stack
    executions = [other for other, one in enumerate(run) if one.site == on and one.load]
    if inherited:
        if not own:
            return None
        executions = [other for other in executions if not under(run[other].stack, own)]
    for depth in range(len(own) - inherited, -1, -1):
        here = [other for other in executions if under(run[other].stack, own[:depth])]
        if here:
            return max((o for o in here if o < at and run[o].thread == run[at].thread), default=None)
    return None


def reference(run: list[Access], static_: list[tuple[int, int, str, bool]]) -> dict[tuple[int, int], int]:
    """{(access, load): how} of all edges."""
    found: dict[tuple[int, int], int] = {}
    for at, one in enumerate(run):
        for site, on, how, inherited in static_:
            load = bound(run, at, on, inherited) if site == one.site else None
            if load not in (None, at):
                mask = CONTROL * ("c" in how) | VALUE * ("v" in how) | ADDRESS * ("a" in how)
                found[at, load] = found.get((at, load), 0) | mask
    return found


def found_in(trace: Trace, table: Given) -> dict[tuple[int, int], int]:
    stores = np.flatnonzero(trace.events["kind"] == Kind.STORE)
    rows = collect_accesses(trace, stores)
    made = find_edges(Binder(trace, rows, table))
    return {(a, b): how for a, b, how in zip(made.access.tolist(), made.on.tolist(), made.how.tolist(), strict=True)}


@settings(max_examples=examples(100), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(access, min_size=1, max_size=14), st.lists(static, max_size=6))
def test_edges_are_those_of_the_definition(run: list[Access], static_: list[tuple[int, int, str, bool]]) -> None:
    table = dependences_given(*(dependence(*one) for one in static_))
    with tempfile.TemporaryDirectory() as folder:
        assert found_in(recorded(Path(folder), run), table) == reference(run, static_)


def edges_of(folder: Path, run: list[Access], *static_: tuple[int, int, str, bool]) -> dict[tuple[int, int], int]:
    return found_in(recorded(folder, run), dependences_given(*(dependence(*one) for one in static_)))


def a_load(site: int = 1, stack: tuple[int, ...] = (), thread: int = 1) -> Access:
    return Access(site, thread, stack, 0, True)


def a_store(stack: tuple[int, ...] = (), thread: int = 1) -> Access:
    return Access(3, thread, stack, 1, False)


def test_an_access_depends_on_the_latest_read(tmp_path: Path) -> None:
    assert edges_of(tmp_path, [a_load(), a_load(), a_store(), a_load()], (3, 1, "v", False)) == {(2, 1): VALUE}


def test_reads_of_other_threads_are_not_those_of_this_one(tmp_path: Path) -> None:
    assert edges_of(tmp_path, [a_load(thread=2), a_store()], (3, 1, "v", False)) == {}


@pytest.mark.parametrize(
    ("reads", "stores", "inherited", "joined"),
    [
        ((7,), (7,), False, True),  # one function
        ((7, 8), (7,), False, True),  # the result of a call
        ((7,), (7, 8), True, True),  # an argument
        ((7, 7), (7, 8), True, True),  # the argument of the second call is the result of the first
        ((7, 8), (7, 8), True, False),  # what comes from the caller was not read here
    ],
)
def test_frames_decide_which_reads_count(
    tmp_path: Path, reads: tuple[int, ...], stores: tuple[int, ...], inherited: bool, joined: bool
) -> None:
    found = edges_of(tmp_path, [a_load(stack=reads), a_store(stack=stores)], (3, 1, "v", inherited))
    assert found == ({(1, 0): VALUE} if joined else {})


def test_a_nearer_frame_wins_over_a_later_read(tmp_path: Path) -> None:
    run = [a_load(stack=(7,)), a_load(stack=(8,)), a_store(stack=(7,))]
    assert edges_of(tmp_path, run, (3, 1, "v", False)) == {(2, 0): VALUE}


def test_nothing_is_joined_across_a_gap_between_loads_nor_in_one(tmp_path: Path) -> None:
    trace = TraceBuilder(tmp_path / "trace.cct")
    trace.file("f", 4096)
    trace.unit(KEY, 8, "/bin/program")

    def load(site: int, offset: int) -> None:
        trace.load("f", offset, 8, site=site)

    def store(offset: int) -> None:
        trace.event(Kind.STORE, data=bytes(8), file=1, offset=offset, site=3)

    load(1, 0)
    store(64)
    trace.loads_left_out(True)
    store(72)
    trace.loads_left_out(False)
    load(2, 8)
    store(80)
    load(1, 16)
    load(2, 24)
    store(88)
    run = trace.trace()
    rows = collect_accesses(run, np.flatnonzero(run.events["kind"] == Kind.STORE))
    joined = find_edges(Binder(run, rows, dependences_given(dependence(3, 1, "v"), dependence(2, 1, "c"))))
    offset = rows.columns.offset
    assert [(int(offset[a]), int(offset[b])) for a, b in zip(joined.access, joined.on, strict=True)] == [
        (64, 0),
        (24, 16),
        (88, 16),
    ]
