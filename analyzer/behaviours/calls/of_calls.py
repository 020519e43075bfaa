"""Update behaviours of programs that were recorded by their system calls (Pathfinder §4.1)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import number_rows, ranges, unique
from crashcheck.analyzer.behaviours.behaviour import Behaviours
from crashcheck.analyzer.behaviours.calls.call_places import CallPlaces, Frames
from crashcheck.analyzer.behaviours.calls.call_stacks import (
    ROOT,
    CallTree,
    common,
    durable_turns,
    function_ranges,
    merged,
    near,
    turns,
)
from crashcheck.analyzer.behaviours.instances import Instances
from crashcheck.analyzer.behaviours.numbers import TARGETS
from crashcheck.analyzer.behaviours.sites import StaticSite, StaticSites
from crashcheck.analyzer.behaviours.updates import Nodes, build_nodes
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import NAME, Ints
from crashcheck.analyzer.persistence.shown_names import pattern_of
from crashcheck.analyzer.trace.reader import Facts, Trace
from crashcheck.runtime.trace_format import Kind

_WORDS: Mapping[int, str] = {
    Kind.WRITE: "write of",
    Kind.STORE: "stores to",
    Kind.TRUNCATE: "size of",
    Kind.ALLOCATE: "fallocate of",
    Kind.CONTENT: "arrival of",
    Kind.SYNC_BEGIN: "sync of",
}


@dataclass(frozen=True, eq=False)
class CallOperations:
    """Updates and syncs of a run in order, as parallel arrays: the event, who did it, and where it was called."""

    graph: PersistenceGraph
    places: CallPlaces
    event: Ints
    update: Ints  # 1: it changed something
    thread: Ints
    process: Ints
    call: Ints  # numbers places and stacks
    frames: tuple[Frames, ...]  # of each place and stack

    @cached_property
    def pattern(self) -> Ints:
        """What each does to which path, in numbers: names that differ in numbers or hashes alone count as one."""
        rows = self.graph.trace.events[self.event]
        named = np.sort(np.fromiter(self._changes, dtype=np.int64, count=len(self._changes)))
        since = np.searchsorted(named, self.event)  # between two changes of names a file has one path
        own = np.where(np.isin(self.event, named), self.event, -1)
        what = np.stack([rows["kind"].astype(np.int64), rows["file"].astype(np.int64), since, own])
        _, first, which = np.unique(what, axis=1, return_index=True, return_inverse=True)
        known: dict[str, int] = {}
        number = {at: known.setdefault(self.text(at), len(known)) for at in np.sort(first).tolist()}
        return np.array([number[at] for at in first.tolist()], np.int64)[which.reshape(-1)]

    @cached_property
    def _changes(self) -> dict[int, str]:
        graph = self.graph
        rows = np.flatnonzero(graph.kind == NAME)[::-1]
        return {
            event: graph.names.changes[change].text.removeprefix("the ")
            for event, change in zip(graph.event[rows].tolist(), graph.offset[rows].tolist(), strict=True)
        }

    def text(self, at: int) -> str:
        """ "write of 000#.log": what an operation does, without what differs between uses."""
        event = int(self.event[at])
        row = self.graph.trace.events[event]
        plain = f"{_WORDS.get(int(row['kind']), 'change of')} {self.graph.names.path(int(row['file']), event) or '.'}"
        return pattern_of(self._changes.get(event, plain))


def find_operations_of_calls(graph: PersistenceGraph, nodes: Nodes, facts: Facts | None) -> CallOperations:
    """The operations of a run of recorded system calls."""
    events = graph.trace.events
    updates = unique(nodes.event)
    event = unique(np.concatenate([updates, np.flatnonzero(events["kind"] == Kind.SYNC_BEGIN)]))
    rows = events[event]
    distinct, call = np.unique(graph.trace.calls(event), return_inverse=True)
    places = CallPlaces(graph.trace, facts)
    return CallOperations(
        graph,
        places,
        event,
        np.isin(event, updates).astype(np.int64),
        rows["thread"].astype(np.int64),
        rows["pid"].astype(np.int64),
        call.reshape(-1),
        tuple(map(places.frames, distinct.tolist())),
    )


def silent_processes(operations: CallOperations) -> tuple[int, ...]:
    """Processes whose stacks do not show what they do: most of their updates have no known caller, come from code that
    was compiled at run time, or are below a place in machine code that calls at least three functions. An interpreter
    has such a place, where it calls what the script names."""
    places, out = operations.places, []
    for process in unique(operations.process).tolist():
        mine = operations.process == process
        calls, many = np.unique(operations.call[mine & (operations.update == 1)], return_counts=True)
        called: dict[int, set[object]] = {}
        for call in calls.tolist():
            frames = operations.frames[call]
            for inner, outer in itertools.pairwise(frames):
                called.setdefault(outer, set()).add(places.function(inner))
        says = sum(
            count
            for call, count in zip(calls.tolist(), many.tolist(), strict=True)
            if places.shows(operations.frames[call])
            and all(len(called.get(site, ())) < TARGETS or places.is_scripted(site) for site in operations.frames[call])
        )
        if 2 * says < int(many.sum()):
            out.append(process)
    return tuple(out)


class _Found(NamedTuple):
    """A behaviour: its node of the call tree, whether it is one of a function (0) or merged (1), and its operations."""

    node: int
    level: int
    members: Ints


def find_call_behaviours(graph: PersistenceGraph, facts: Facts | None = None) -> Behaviours:
    """The behaviours of each function, and those that their callers merge (of `level` 1)."""
    nodes = build_nodes(graph)
    operations = find_operations_of_calls(graph, nodes, facts)
    silent = silent_processes(operations)
    speaks = ~np.isin(operations.process, silent)
    # what the stacks do not show, calls and paths do
    token = np.where(speaks, operations.call, len(operations.frames) + operations.pattern)
    tree = CallTree()
    paths = [
        tree.path([(operations.places.function(site), site) for site in reversed(frames)])
        for frames in operations.frames
    ]
    found: list[_Found] = []
    durable = _durable(operations, nodes)
    for own in _by_thread(operations):
        mine = [
            paths[call] if speaks[at] else (ROOT,)
            for at, call in zip(own.tolist(), operations.call[own].tolist(), strict=True)
        ]
        for one in _of_thread(mine, token[own], operations.event[own], durable[own], own):
            members = own[one.members]
            updates = members[operations.update[members] == 1]
            if len(updates):
                found.append(one._replace(members=updates))
    return _behaviours(operations, nodes, tree, silent, speaks, found)


def _by_thread(operations: CallOperations) -> Iterator[Ints]:
    order = np.argsort(operations.thread, kind="stable")
    begins = np.flatnonzero(np.diff(operations.thread[order], prepend=-1))
    yield from np.split(order, begins[1:]) if len(order) else ()


def _durable(operations: CallOperations, nodes: Nodes) -> Ints:
    """From which event each operation has persisted."""
    out = np.zeros(len(operations.event), dtype=np.int64)
    np.maximum.at(out, np.searchsorted(operations.event, nodes.event), nodes.durable_from)
    return out


def _of_thread(paths: list[tuple[int, ...]], token: Ints, event: Ints, durable: Ints, place: Ints) -> Iterator[_Found]:
    """The behaviours of one thread, by rows of its operations. `place`: of these in the run's."""
    known: dict[tuple[int, int], int] = {}

    def prefix(at: int) -> int:
        pair = id(paths[at]), id(paths[at + 1])
        if pair not in known:
            known[pair] = common(paths[at], paths[at + 1])
        return known[pair]

    found = function_ranges([prefix(at) for at in range(len(paths) - 1)], [len(path) - 1 for path in paths])
    tokens, made = token.tolist(), set[bytes]()
    for first, stop, depth in found:
        begins = [*turns(tokens[first:stop]), stop - first]
        for low, high in itertools.pairwise(begins):
            rows = np.arange(first + low, first + high)
            made.add(rows.tobytes())
            yield _Found(paths[first][depth], 0, rows)
    for node, numbers in merged([paths[first][: depth + 1] for first, _, depth in found]):
        rows = np.concatenate([np.arange(found[number][0], found[number][1]) for number in numbers])
        cluster = near(place[rows])
        for number in unique(cluster[cluster >= 0]).tolist():
            some = rows[cluster == number]
            begins = [*durable_turns(token[some].tolist(), event[some].tolist(), durable[some].tolist()), len(some)]
            for low, high in itertools.pairwise(begins):
                if (key := some[low:high].tobytes()) not in made:
                    made.add(key)
                    yield _Found(node, 1, some[low:high])


def _behaviours(
    operations: CallOperations,
    nodes: Nodes,
    tree: CallTree,
    silent: tuple[int, ...],
    speaks: NDArray[np.bool_],
    found: list[_Found],
) -> Behaviours:
    trace, places = operations.graph.trace, operations.places
    site_of = {places.function(site): site for frames in operations.frames for site in frames}
    types: dict[str, int] = {}

    def type_of(node: int) -> int:
        site = site_of.get(tree.functions[node])
        name = places.name(site) if site is not None else ""
        return types.setdefault(f"({name or _program(trace)})", len(types))

    distinct, instance = np.unique(np.array([one.node for one in found], dtype=np.int64), return_inverse=True)
    none, zero = np.zeros(0, dtype=np.int64), np.zeros(len(distinct), dtype=np.int64)
    kind = np.array([type_of(node) for node in distinct.tolist()], dtype=np.int64)
    instances = Instances(kind, zero, distinct, zero, none, none, none, tuple(types), ())
    rows = [_nodes_of(nodes, operations.event[one.members]) for one in found]
    start = np.cumsum([0, *map(len, rows)])
    return Behaviours(
        operations.graph,
        nodes,
        _static_sites(operations, nodes, speaks),
        instances,
        instance.reshape(-1),
        start,
        np.concatenate([*rows, none]),
        np.array([one.level for one in found], dtype=np.int64),
        _note(trace, silent),
    )


def _nodes_of(nodes: Nodes, event: Ints) -> Ints:
    first = np.searchsorted(nodes.event, event)
    return ranges(first, np.searchsorted(nodes.event, event, side="right") - first)


def _program(trace: Trace) -> str:
    """The name of the program that was executed last."""
    executed = trace.rows(Kind.EXEC)
    return os.path.basename(os.fsdecode(trace.data(int(executed[-1])))) if len(executed) else "program"


def _note(trace: Trace, silent: tuple[int, ...]) -> str:
    if not silent:
        return ""
    executed = trace.rows(Kind.EXEC).tolist()
    last = {int(trace.events["pid"][at]): os.path.basename(os.fsdecode(trace.data(at))) for at in executed}
    who = ", ".join(dict.fromkeys(last.get(process, _program(trace)) for process in silent))
    return (
        f"the call stacks of {who} do not show what it does: "
        "its updates were grouped by the sequence of calls and their paths"
    )


def _static_sites(operations: CallOperations, nodes: Nodes, speaks: NDArray[np.bool_]) -> StaticSites:
    """A place is the call with its innermost callers in the program itself (definition 3.3); of a program whose stacks
    do not show what it does, the call with what it does to which path."""
    places = operations.places
    at = np.searchsorted(operations.event, nodes.event)
    number, heads = number_rows(
        np.where(speaks[at], operations.call[at], -1), np.where(speaks[at], 0, operations.pattern[at])
    )
    known: dict[tuple[object, ...], int] = {}
    sites: list[StaticSite] = []
    out = np.zeros(len(heads), dtype=np.int64)
    for row in np.argsort(heads, kind="stable").tolist():
        one = int(at[heads[row]])
        frames = places.own(operations.frames[int(operations.call[one])]) if speaks[one] else ()
        text = operations.text(one)
        identity = frames or (text,)
        if identity not in known:
            known[identity] = len(sites)
            first = frames[0] if frames else 0
            sites.append(StaticSite(len(sites), first, frames[1:], places.caller_of(frames), "", 0, text))
        out[row] = known[identity]
    return StaticSites(tuple(sites), out[number])
