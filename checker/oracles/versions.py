"""The versions that each file of a recorded run had, and which of them a crash state may still hold.

A version is what a file held at the start, at a sync, at a change of a name, when a journal is emptied, or at the end.
A file in a crash state is whole if it holds at least as many of each byte value as in one of the versions that count:
those that it had before the crash and, where it was changed since the last of them, the next one. Zeros are space, and
do not count.

1. Versions before the last sync of the whole file count no more; one that was there and empty at first may be empty.
2. Where the state has the removal of a name that held data at first, or a replacement of any, and the file with these
   data has no other name in it, versions from then on count, of all files that were written before it. So do those of
   a file that lost its old name in a rename and has not got the new one. What the run replaces under a name that it
   makes and removes (`scratch`) is such a loss only if it held data of what had been removed or replaced.
   Where the state has the rename of a file that the run made to a name that was not there, versions of that file from
   then on count: under such a name a file is meant to be there whole. Not so if the old name is given again, as that
   of a log which is rotated.
3. What the run removes on purpose may hold anything until then. A file that the run also made, as a lock, counts with
   others (rule 2) only if it holds data of what was removed or replaced.
4. A log that is used again (`begun_again`) may lose what it held.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from crashcheck.analyzer.arrays import unique
from crashcheck.analyzer.persistence.graph import NEVER, PersistenceGraph
from crashcheck.analyzer.persistence.names import REMOVED, Slot
from crashcheck.analyzer.persistence.pieces import NAME, Ints
from crashcheck.analyzer.persistence.sync_intervals import SyncInterval, find_syncs
from crashcheck.analyzer.trace.calls import Link, Rename, Unlink, name_event
from crashcheck.checker.images.issued_folder import Counts, IssuedFolder


class DataRemoval(NamedTuple):
    """A name that held data is gone, or another file's."""

    event: int
    lost: int  # the file with these data
    scratch: bool  # the run made it, and the name is gone in the end


@dataclass(frozen=True, slots=True)
class Span:
    """Which versions of a file count in a crash state: places in their list, and whether a removal or rename joins."""

    low: int
    high: int
    joined: bool


class Versions:
    """Versions by file, in order: the event before which each was taken, its counts, and whether it had a name."""

    def __init__(self, graph: PersistenceGraph, counted: Collection[int], folder: IssuedFolder) -> None:
        self._graph = graph
        self._folder = folder
        self._events: dict[int, list[int]] = {inode: [] for inode in counted}
        self._rows: dict[int, list[tuple[Counts, bool]]] = {inode: [] for inode in counted}
        self.changes = {inode: _changes(graph, inode) for inode in counted}  # events that change each file's content
        self._written = {inode: int(events[0]) for inode, events in self.changes.items() if len(events)}
        self._syncs, self._syncs_of_all = self._whole_syncs()
        self._removals, self._dropped = self._find_removals()
        self._publications = self._find_publications()
        self.take(0)

    def _whole_syncs(self) -> tuple[dict[int, list[int]], list[SyncInterval]]:
        """Of each file the returns of the syncs after which nothing of it was unsynced; and the syncs of all files."""
        out: dict[int, list[int]] = {inode: [] for inode in self._events}
        of_all = []
        for sync in find_syncs(self._graph.trace):
            if sync.failed or sync.low or sync.high >= 0 or sync.folder:
                continue
            if not sync.file:
                of_all.append(sync)
            elif sync.file in out and self._covers(sync, sync.file):
                out[sync.file].append(sync.end)
        return out, of_all

    def _covers(self, sync: SyncInterval, inode: int) -> bool:
        """Whether a file was written before a sync returned, and all of that before it began."""
        changes = self.changes[inode]
        at = int(changes.searchsorted(sync.end))
        return at > 0 and int(changes[at - 1]) < sync.begin

    def _find_removals(self) -> tuple[dict[int, list[DataRemoval]], set[int]]:
        """By piece the names that are removed or replaced; and the files that the run removes on purpose."""
        graph, inodes = self._graph, self._graph.trace.inodes
        held = dict(graph.names.first)
        found: list[tuple[int, int, int, Slot, bool]] = []
        dropped: set[int] = set()
        for piece in np.flatnonzero(graph.kind == NAME).tolist():
            event = int(graph.event[piece])
            call = name_event(graph.trace, event)
            for slot, inode in graph.name_change(piece).entries:
                lost = held.pop(slot, REMOVED)
                if inode != REMOVED:
                    held[slot] = inode
                if lost not in self._events or lost == inode:
                    continue
                replaced = isinstance(call, Rename | Link) and inode != REMOVED
                if replaced or (isinstance(call, Unlink | Rename) and inodes[lost].existed):
                    found.append((piece, event, lost, slot, replaced))
                if (
                    isinstance(call, Rename) and inode == REMOVED and inodes[lost].existed
                ):  # as if it were written: it has to be somewhere
                    self._written[lost] = min(self._written.get(lost, event), event - 1)
                if isinstance(call, Unlink):
                    dropped.add(lost)
        removals: dict[int, list[DataRemoval]] = {}  # a rename may lose two: what it replaces and what it moves
        for piece, event, lost, slot, replaced in found:
            lasts = inodes[lost].existed or slot in graph.names.first or slot in held
            removals.setdefault(piece, []).append(DataRemoval(event, lost, scratch=replaced and not lasts))
        return removals, dropped - set(held.values())

    def _find_publications(self) -> dict[int, tuple[int, int]]:
        """By piece, each rename of a file that the run made to a new name for good: its event, and the file."""
        graph = self._graph
        held = dict(graph.names.first)
        found: dict[int, tuple[int, int, Slot]] = {}
        given: dict[Slot, int] = {}  # the event that gave each name last
        for piece in np.flatnonzero(graph.kind == NAME).tolist():
            event, change = int(graph.event[piece]), graph.name_change(piece)
            call = name_event(graph.trace, event)
            for slot, inode in change.entries:
                new = held.pop(slot, REMOVED) == REMOVED
                if inode == REMOVED:
                    continue
                held[slot], given[slot] = inode, event
                if isinstance(call, Rename) and new and inode in self._events and not graph.trace.inodes[inode].existed:
                    found[piece] = event, inode, (call.folder, call.name)
        return {piece: (event, inode) for piece, (event, inode, old) in found.items() if given.get(old, -1) < event}

    # -- while the run is gone through

    def take(self, event: int, but: frozenset[int] = frozenset()) -> None:
        """What files hold before an event are versions, except those of `but`."""
        for inode in self._folder.changed & self._events.keys() - but:
            self._events[inode].append(event)
            counts, named = self._folder.counts_of(inode).copy(), bool(self._folder.names.get(inode))
            counts[0] = 0  # zeros are space, as at the end of a tar file or in a log that was made long before
            rows = self._rows[inode]
            if rows and np.array_equal(rows[-1][0], counts):
                rows.append((rows[-1][0], named))
            else:
                rows.append((counts.astype(np.min_scalar_type(int(counts.max()))), named))
        self._folder.changed &= but

    def forgive(self, event: int, inode: int) -> None:
        """A log is used again: it may be empty."""
        if inode in self._events:
            self._events[inode].append(event + 1)
            self._rows[inode].append((np.zeros(256, dtype=np.uint8), True))
            self._folder.changed.add(inode)

    # -- of crash states

    def was_synced(self, inode: int, crash: int) -> bool:
        """Whether all of a file was synced once before a crash."""
        return bool(self._last_sync(inode, crash))

    def _last_sync(self, inode: int, crash: int) -> int:
        """The return of the last sync before a crash after which nothing of a file was unsynced; 0 if there is none."""
        syncs = self._syncs[inode]
        at = bisect_left(syncs, crash)
        last = syncs[at - 1] if at else 0
        until = bisect_left(self._syncs_of_all, crash, key=lambda sync: sync.end)
        for place in range(until - 1, -1, -1):
            sync = self._syncs_of_all[place]
            if sync.end < last:
                break
            if self._covers(sync, inode):
                return sync.end
        return last

    def removals(self, pieces: Iterable[int], named: Collection[int]) -> list[DataRemoval]:
        """The removals and replacements of data among the changes of names of a state."""
        found = (removal for piece in pieces for removal in self._removals.get(piece, ()))
        return [some for some in found if some.lost not in named and self.held_data(some.lost, some.event)]

    def published(self, pieces: Iterable[int]) -> dict[int, int]:
        """The files that the changes of names of a state gave a new name by a rename, and by which event, at last."""
        found = (self._publications[piece] for piece in pieces if piece in self._publications)
        return {inode: event for event, inode in sorted(found)}

    def is_temporary(self, inode: int) -> bool:
        """Whether the run makes a file and removes it."""
        return inode in self._dropped and not self._graph.trace.inodes[inode].existed

    def named_after(self, inode: int) -> tuple[Ints, Ints]:
        """The events that change a file's content, and of each the event before which it had a version with a name."""
        named = [event for event, (_, named) in zip(self._events[inode], self._rows[inode], strict=True) if named]
        ends = np.array([*named, NEVER], dtype=np.int64)
        return self.changes[inode], ends[ends.searchsorted(self.changes[inode], side="right")]

    def span(self, inode: int, crash: int, removed: int | None) -> Span:
        """The versions that count at a crash, in a state whose last removal, or new name of the file, is this one."""
        events, since = self._events[inode], self._last_sync(inode, crash)
        joined = removed is not None and removed >= since and self._written.get(inode, removed) < removed - 1
        low = max(bisect_right(events, removed if joined and removed is not None else since) - 1, 0)
        high = bisect_right(events, crash)
        if high:
            first, last = self.changes[inode].searchsorted([events[high - 1], crash])
            high += int(first < last)
        return Span(low, max(high, low + 1), joined)

    def held_data(self, inode: int, event: int) -> bool:
        """Whether a file held bytes just before an event."""
        row, _ = self._rows[inode][bisect_right(self._events[inode], event) - 1]
        return bool(row.any())

    def first_with_data(self, inode: int) -> int:
        """The event before which a file first had a version with bytes; NEVER if it has none."""
        rows = zip(self._events[inode], self._rows[inode], strict=True)
        return next((event for event, (row, _) in rows if row.any()), NEVER)

    def span_from_data(self, inode: int, crash: int) -> Span:
        """The versions of a file that has some with data, if none without counts, even if the first is yet to come."""
        first = bisect_left(self._events[inode], self.first_with_data(inode))
        span = self.span(inode, crash, None)
        return Span(max(span.low, first), max(span.high, first + 1), joined=False)

    def lacks_data(self, inode: int, counts: Counts, crash: int) -> bool:
        """Whether bytes are missing to each of them, whatever the file is for."""
        return inode in self._written and self._missing(inode, counts, self.span_from_data(inode, crash)) > 0

    def is_issued(self, inode: int, crash: int, span: Span) -> bool:
        """Whether one of the versions that count is known to be what the program last saw in a file."""
        events = self._events[inode]
        place = bisect_right(events, crash) - 1
        if not span.low <= place < span.high or not (self._rows[inode][place][1] or span.joined):
            return False
        first, last = self.changes[inode].searchsorted([events[place], crash]).tolist()
        return bool(first == last)

    def distance(self, inode: int, counts: Counts, span: Span) -> int:
        """How many bytes are missing to the nearest version that counts."""
        file = self._graph.trace.inodes[inode]
        may_be_empty = inode in self._dropped or (file.existed and file.first_size == 0)
        if inode not in self._written or (may_be_empty and not span.joined):
            return 0
        return self._missing(inode, counts, span)

    def _missing(self, inode: int, counts: Counts, span: Span) -> int:
        """How many bytes are missing to the nearest version of a span, whatever the file is for."""
        rows, least = self._rows[inode], -1
        for place in range(span.low, min(span.high, len(rows))):
            row, named = rows[place]
            if named or span.joined:
                missing = int(np.maximum(row.astype(np.int64) - counts, 0).sum())
                least = missing if least < 0 else min(least, missing)
        return max(least, 0)

    def moments(self, inode: int, span: Span) -> Iterator[int]:
        """The events before which its versions that count were taken."""
        within = slice(span.low, span.high)
        for event, (row, named) in zip(self._events[inode][within], self._rows[inode][within], strict=True):
            if named and row.any():
                yield event


def begun_again(graph: PersistenceGraph) -> dict[int, list[int]]:
    """By event, the files that it changes again after another one, written since they were synced, was synced.

    So a log is used: written and synced, what it protects written and synced, then cut off or overwritten.
    """
    syncs = sorted((s for s in find_syncs(graph.trace) if not s.failed and s.file), key=lambda sync: sync.end)
    ends = np.array([sync.end for sync in syncs], dtype=np.int64)
    changes = {file: _changes(graph, file) for file in {sync.file for sync in syncs}}
    written = [_last_before(changes[sync.file], sync.end) for sync in syncs]
    whole: dict[tuple[int, int], int] = {}  # of each file and its next change: the last sync before it, of all of it
    for sync, last in zip(syncs, written, strict=True):
        if last < sync.begin:
            whole[sync.file, _first_after(changes[sync.file], sync.end)] = sync.end
    out: dict[int, list[int]] = {}
    for (file, event), end in whole.items():
        latest = int(np.searchsorted(ends, event, side="right")) - 1  # the last sync until then
        if event >= 0 and syncs[latest].file != file and end < written[latest]:
            out.setdefault(event, []).append(file)
    return out


def _last_before(events: Ints, event: int) -> int:
    """The last of some events before another, -1 if there is none."""
    at = int(events.searchsorted(event))
    return int(events[at - 1]) if at else -1


def _first_after(events: Ints, event: int) -> int:
    """The first of some events after another, -1 if there is none."""
    at = int(events.searchsorted(event, side="right"))
    return int(events[at]) if at < len(events) else -1


def _changes(graph: PersistenceGraph, inode: int) -> Ints:
    """The events that change a file's content or size, ascending."""
    pieces = graph.pieces_of(inode)
    return unique(graph.event[pieces[graph.kind[pieces] != NAME]])
