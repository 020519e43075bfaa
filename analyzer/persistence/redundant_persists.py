"""Redundant flushes, fences and syncs: they made nothing durable. Counted by site, exact under the model.

None is a bug: each costs time and could be removed. docs/reports.md explains each kind, and why memory
that is allocated and never reachable after a crash is not among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import among
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import DATA, IN_ORDER, LINE_BYTES
from crashcheck.runtime.trace_format import SYNC_FAILED, FenceKind, FlushKind, Kind

Rows = NDArray[np.int64]


class Redundancy(StrEnum):
    CLEAN_FLUSH = "clean-flush"  # nothing on the line was waiting to be written back
    REPEATED_FLUSH = "repeated-flush"  # the thread had flushed the line since the last store to it, with no fence since
    EMPTY_FENCE = "empty-fence"  # the thread had nothing under way
    EMPTY_SYNC = "empty-sync"  # page-cache: all that the call covers was durable


@dataclass(frozen=True, slots=True)
class RedundantPersist:
    """All events of one site and call stack that are redundant in one way.

    `event`: the first of them. `count` of `total`: redundant flushes of a line of all that ran there, or redundant
    fences (syncs) of all that ran there.
    """

    waste: Redundancy
    event: int
    count: int
    total: int


def find_redundant_persists(graph: PersistenceGraph) -> tuple[RedundantPersist, ...]:
    """In order of first occurrence. px86: flushes and fences; models of files: syncs; eadr: none."""
    if graph.family.by_sync:
        return tuple(_syncs(graph))
    if graph.model == "px86":
        return tuple(sorted((*_flushes(graph), *_fences(graph)), key=lambda w: (w.event, w.waste)))
    return ()


def _flushes(graph: PersistenceGraph) -> list[RedundantPersist]:
    at, clean, repeated, _ = _lines(graph)
    return [
        *_counted(graph, Redundancy.CLEAN_FLUSH, at, clean),
        *_counted(graph, Redundancy.REPEATED_FLUSH, at, repeated),
    ]


def _lines(graph: PersistenceGraph) -> tuple[Rows, NDArray[np.bool_], NDArray[np.bool_], Rows]:
    """For each line of each flush: its event, whether the line was clean, whether flushed before, and with what."""
    events = graph.trace.events
    rows = np.flatnonzero((events["kind"] == Kind.FLUSH) & (events["file"] != 0)).astype(np.int64)
    low = events["offset"][rows].astype(np.int64) // LINE_BYTES
    high = (
        events["offset"][rows].astype(np.int64) + np.maximum(events["size"][rows].astype(np.int64), 1) - 1
    ) // LINE_BYTES
    many = high - low + 1
    at = np.repeat(rows, many)
    line = np.arange(len(at)) - np.repeat(np.cumsum(many) - many, many) + np.repeat(low, many)
    file = events["file"][at].astype(np.int64)
    last = _last_store(graph, file, line, at)  # the piece; -1 if none
    there = last >= 0
    dirty = np.zeros(len(at), dtype=np.bool_)
    dirty[there] = (graph.durable_from[last[there]] > at[there]) | _at_once(graph, last[there])
    thread = events["thread"][at].astype(np.int64)
    order = np.lexsort((at, line, file, thread))
    before = np.full(len(at), -1, dtype=np.int64)
    same = (
        (thread[order][1:] == thread[order][:-1])
        & (file[order][1:] == file[order][:-1])
        & (line[order][1:] == line[order][:-1])
    )
    before[order[1:][same]] = at[order[:-1][same]]
    stored = np.full(len(at), -1, dtype=np.int64)
    stored[there] = graph.event[last[there]]
    return at, ~dirty, dirty & (before > stored), events["aux"][at].astype(np.int64)


def _at_once(graph: PersistenceGraph, pieces: Rows) -> NDArray[np.bool_]:
    """Which pieces only count as durable at once, as zeros in a new file: that they are persisted is no waste."""
    stores = (graph.kind[pieces] == DATA) & (graph.trace.events["kind"][graph.event[pieces]] == Kind.STORE)
    out: NDArray[np.bool_] = stores & (graph.durable_from[pieces] == graph.event[pieces] + 1)
    return out


def _last_store(graph: PersistenceGraph, file: Rows, line: Rows, at: Rows) -> Rows:
    """For each (file, line, event) the last ordinary piece on the line before the event; its line's earlier ones are
    durable no later than it is."""
    pieces = np.flatnonzero((graph.kind == DATA) & (graph.mode == IN_ORDER))
    of_line = np.concatenate([graph.offset[pieces] // LINE_BYTES, line])
    of_file = np.concatenate([graph.file[pieces].astype(np.int64), file])
    when = np.concatenate([graph.event[pieces], at])
    order = np.lexsort((when, of_line, of_file))
    is_piece = order < len(pieces)
    places = np.where(is_piece, np.arange(len(order)), -1)
    latest = np.maximum.accumulate(places) if len(places) else places
    out = np.full(len(at), -1, dtype=np.int64)
    asked = np.flatnonzero(~is_piece)
    found = latest[asked]
    known = found >= 0
    a, b = order[asked[known]], order[found[known]]
    same = (of_line[a] == of_line[b]) & (of_file[a] == of_file[b])
    out[a[same] - len(pieces)] = pieces[b[same]]
    return out


def _fences(graph: PersistenceGraph) -> list[RedundantPersist]:
    """Fences proper: one that comes with a locked instruction, and mfence, order more than persists."""
    events = graph.trace.events
    fences = graph.trace.rows(Kind.FENCE)
    own = among(events["aux"][fences], (FenceKind.SFENCE, FenceKind.DRAIN))
    works = np.isin(fences + 1, graph.durable_from)
    # A fence after a clflush of a dirty line stays: the same program needs it where it has clwb.
    at, clean, _, kind = _lines(graph)
    cleared = graph.event[_at_once(graph, np.arange(len(graph)))]
    flushed = np.concatenate([at[~clean & (kind == FlushKind.CLFLUSH)], np.unique(cleared)])
    threads = events["thread"]
    for thread in np.unique(threads[flushed]).tolist():
        mine = np.flatnonzero(threads[fences] == thread)
        next_one = np.searchsorted(fences[mine], flushed[threads[flushed] == thread])
        works[mine[np.unique(next_one[next_one < len(mine)])]] = True
    return _counted(graph, Redundancy.EMPTY_FENCE, fences[own], ~works[own])


def _syncs(graph: PersistenceGraph) -> list[RedundantPersist]:
    events = graph.trace.events
    ends = np.flatnonzero((events["kind"] == Kind.SYNC_END) & ((events["flags"] & SYNC_FAILED) == 0)).astype(np.int64)
    return _counted(graph, Redundancy.EMPTY_SYNC, ends, ~np.isin(ends + 1, graph.durable_from))


def _counted(
    graph: PersistenceGraph, waste: Redundancy, at: Rows, redundant: NDArray[np.bool_]
) -> list[RedundantPersist]:
    """By site and stack."""
    events = graph.trace.events
    _, inverse, total = np.unique(graph.trace.calls(at), return_inverse=True, return_counts=True)
    inverse = inverse.reshape(-1)
    count = np.bincount(inverse[redundant], minlength=len(total))
    first = np.full(len(total), len(events), dtype=np.int64)
    np.minimum.at(first, inverse[redundant], at[redundant])
    found = sorted((int(first[i]), int(count[i]), int(total[i])) for i in np.flatnonzero(count).tolist())
    return [RedundantPersist(waste, event, many, of) for event, many, of in found]
