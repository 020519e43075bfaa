"""Mutants of a recorded run: one flush, fence or sync of the source deleted or moved, each time that it ran.

Flushes, fences and syncs do not change what a program computes, so the trace without (or with later) ones is the trace
that the mutated program would leave: nothing is built or recorded again (docs/mutation.md; a test compares the two).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import among
from crashcheck.analyzer.persistence.sync_intervals import ENDS
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.findings.call_chains import CallChains, outside_helpers, storing_functions
from crashcheck.checker.mutation.common_space import MARKS
from crashcheck.checker.results import Location, SourcePoint
from crashcheck.checker.subject import UPDATES
from crashcheck.runtime.trace_format import FenceKind, Kind, SyncKind

Rows = NDArray[np.int64]

_SYNCS = (SyncKind.MSYNC, SyncKind.FSYNC, SyncKind.FDATASYNC, SyncKind.SYNC, SyncKind.DIRSYNC)


class What(StrEnum):
    FLUSH = "flush"
    FENCE = "fence"
    SYNC = "sync"


class Change(StrEnum):
    DELETED = "deleted"
    MOVED = "moved"


WORDS = {
    (What.FLUSH, Change.DELETED): "flush deleted",
    (What.FENCE, Change.DELETED): "fence deleted",
    (What.SYNC, Change.DELETED): "sync deleted",
    (What.FLUSH, Change.MOVED): "flush moved after the fence that follows",
    (What.FENCE, Change.MOVED): "fence moved before the flushes that precede it",
    (What.SYNC, Change.MOVED): "sync moved after the next update",
}


@dataclass(frozen=True, slots=True)
class Persist:
    """A flush, fence or sync of the source. `rows`: the events of each time that it ran (of syncs, their begins)."""

    what: What
    location: Location
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Mutant:
    persist: Persist
    change: Change
    trace: Trace

    @property
    def words(self) -> str:
        return WORDS[self.persist.what, self.change]


def persists(trace: Trace, chain: CallChains) -> list[Persist]:
    """Everything that can be mutated, in the order of the source.

    Helpers that only flush and fence are known by their callers: a place is the innermost one in a function that
    stores, or calls what stores, or else the outermost one. A locked instruction keeps its fence.
    """
    kinds, aux = trace.events["kind"], trace.events["aux"]
    storing = storing_functions(trace, chain)
    found: dict[tuple[What, tuple[tuple[SourcePoint, str], ...]], tuple[Location, list[int]]] = {}
    for what, rows in _rows(kinds, aux):
        for row in rows.tolist():
            whole = chain(row)
            at = outside_helpers(whole, storing)
            if at < 0:
                continue
            key = (what, tuple((place.point, place.function) for place in whole[: at + 1]))
            found.setdefault(key, (whole[at], []))[1].append(row)
    out = [Persist(what, location, tuple(rows)) for (what, _), (location, rows) in found.items()]
    return sorted(out, key=lambda p: (p.location.file, p.location.line, p.location.column, p.what, p.rows))


def persist_rows(trace: Trace) -> Rows:
    """The events that can be deleted, ascending; of syncs their begins."""
    found = [rows for _, rows in _rows(trace.events["kind"], trace.events["aux"])]
    return np.sort(np.concatenate(found))


def _rows(kinds: NDArray[np.uint8], aux: NDArray[np.uint32]) -> Iterator[tuple[What, Rows]]:
    yield What.FLUSH, np.flatnonzero(kinds == Kind.FLUSH)
    yield What.FENCE, np.flatnonzero((kinds == Kind.FENCE) & (aux != FenceKind.LOCKED))
    yield What.SYNC, np.flatnonzero((kinds == Kind.SYNC_BEGIN) & among(aux, _SYNCS))


def mutants(trace: Trace, all_persists: list[Persist]) -> Iterator[Mutant]:
    """Each deletion, and each move that changes something, in the order of `all_persists`."""
    threads = _Threads(trace)
    for persist in all_persists:
        yield Mutant(persist, Change.DELETED, without(trace, _with_ends(threads, persist.what, persist.rows)))
        moves = dict(filter(None, (threads.move(persist.what, row) for row in persist.rows)))
        if moves:
            yield Mutant(persist, Change.MOVED, _moved(trace, threads, persist.what, moves))


def without(trace: Trace, rows: list[int]) -> Trace:
    """The trace without some of its events."""
    kept = np.ones(len(trace.events), dtype=np.bool_)
    kept[rows] = False
    return dataclasses.replace(trace, events=trace.events[kept])


def without_some(trace: Trace, rows: Iterable[int]) -> Trace:
    """The trace without some flushes, fences and syncs; of syncs the begins are named, and their ends go, too."""
    syncs = trace.events["kind"] == Kind.SYNC_BEGIN
    threads = _Threads(trace)
    gone: list[int] = []
    for row in rows:
        gone += _with_ends(threads, What.SYNC if syncs[row] else What.FLUSH, [row])
    return without(trace, gone)


def without_persists(trace: Trace) -> Trace:
    """The trace without any flush, fence or sync."""
    threads = _Threads(trace)
    gone: list[int] = []
    for what, rows in _rows(trace.events["kind"], trace.events["aux"]):
        gone += _with_ends(threads, what, rows.tolist())
    return without(trace, gone)


def _with_ends(threads: _Threads, what: What, rows: Iterable[int]) -> list[int]:
    """With the ends of syncs that returned."""
    out = list(rows)
    if what is What.SYNC:
        out += [end for end in map(threads.end_of_sync, out) if end is not None]
    return out


def _moved(trace: Trace, threads: _Threads, what: What, moves: dict[int, float]) -> Trace:
    """`moves`: for each event a place between two others, as a number between their indices."""
    order = np.arange(len(trace.events), dtype=np.float64)
    for row, to in moves.items():
        order[row] = to
        end = threads.end_of_sync(row) if what is What.SYNC else None
        if end is not None:
            order[end] = to
    where = np.argsort(order, kind="stable")
    events = trace.events[where]
    events["seq"] = trace.events["seq"]  # numbers in the new order
    ends = np.flatnonzero(np.isin(events["kind"], ENDS))
    begins = np.searchsorted(trace.events["seq"], events["payload"][ends])  # an end names its begin by number
    there = begins < len(events)
    now = np.empty(len(events), dtype=np.int64)
    now[where] = np.arange(len(events))
    events["payload"][ends[there]] = events["seq"][now[begins[there]]]
    return dataclasses.replace(trace, events=events)


class _Threads:
    """Each thread's events of interest, in order."""

    def __init__(self, trace: Trace) -> None:
        kinds = trace.events["kind"]
        wanted = np.array([*UPDATES, *MARKS, Kind.FLUSH, Kind.FENCE, Kind.SYNC_BEGIN, Kind.SYNC_END], dtype=np.uint8)
        rows = np.flatnonzero(np.isin(kinds, wanted))
        self._kinds = kinds
        self._of: dict[int, Rows] = {}
        self._thread = trace.events["thread"]
        for thread in np.unique(self._thread[rows]).tolist():
            self._of[thread] = rows[self._thread[rows] == thread]

    def move(self, what: What, row: int) -> tuple[int, float] | None:
        """(row, where to), or None if nothing follows (precedes) within the operation."""
        if what is What.FENCE:
            first = None
            for other in self._from(row, -1):
                if self._kinds[other] != Kind.FLUSH:
                    break
                first = other
            return None if first is None else (row, first - 0.5)
        past = Kind.FENCE if what is What.FLUSH else None
        start = self.end_of_sync(row) if what is What.SYNC else row
        if start is None:
            return None
        for other in self._from(start, 1):
            kind = int(self._kinds[other])
            if kind in MARKS:
                return None
            if kind == past or (past is None and kind in UPDATES):
                return row, other + 0.5
        return None

    def end_of_sync(self, row: int) -> int | None:
        """The end of a sync that begins: its thread's next."""
        other = next(self._from(row, 1), None)
        return other if other is not None and self._kinds[other] == Kind.SYNC_END else None

    def _from(self, row: int, step: int) -> Iterator[int]:
        """The thread's events after (before) a row."""
        mine = self._of[int(self._thread[row])]
        at = int(np.searchsorted(mine, row)) + step
        while 0 <= at < len(mine):
            yield int(mine[at])
            at += step
