"""The versions that each file of a recorded run had, and which of them a crash state may still hold.

A version is what a file held at the start, at a sync, at a change of a name, or at the end. A file in a crash state is
whole if it holds at least as many of each byte value as in one of the versions that count: those that it had before
the crash and, where it was changed since the last of them, the next one.

1. Versions before the last sync of the whole file count no more; one that was there and empty at first may be empty.
2. Where the state has the removal of a name that held data at first, or a replacement of any, and the file with these
   data has no other name in it, versions from then on count, of all files that were written before it. So do those of
   a file that lost its old name in a rename and has not got the new one.
3. What the run removes on purpose may hold anything until then. A file that the run also made, as a lock, counts with
   others (rule 2) only if it holds data of what was removed or replaced.
4. A log that is used again (rule in snapshot.py's `_Reuse`) may lose what it held.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.names import REMOVED
from crashcheck.analyzer.persistence.pieces import NAME
from crashcheck.analyzer.persistence.sync_intervals import find_syncs
from crashcheck.analyzer.trace.calls import Link, Rename, Unlink, name_event
from crashcheck.checker.images.issued_folder import Counts, IssuedFolder

_CHUNK = 64  # bytes that a log holds in one piece
_TRIED = 64  # pieces of a file, spread evenly, so that large files take seconds at most


Removal = tuple[int, int]  # the event, and the file whose data have no such name any more


@dataclass(frozen=True, slots=True)
class Span:
    """Which versions of a file count in a crash state: places in their list, and whether a removal joins the file."""

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
        self._touched = set(counted)
        self._paths = dict(folder.paths)
        written = graph.kind != NAME
        order = np.argsort(graph.file[written], kind="stable")
        files, first = np.unique(graph.file[written][order], return_index=True)
        events = np.split(graph.event[written][order], first)[1:]
        self._changes = dict(zip(files.tolist(), events, strict=True))  # events that change each file's content
        self._written = {inode: int(events[0]) for inode, events in self._changes.items()}
        self._syncs = self._whole_syncs()
        self._removals, self._dropped = self._find_removals()
        self.take(0)

    def _whole_syncs(self) -> dict[int, list[int]]:
        """Of each file the returns of the syncs after which nothing of it was unsynced."""
        out: dict[int, list[int]] = {inode: [] for inode in self._events}
        for sync in find_syncs(self._graph.trace):
            if sync.failed or sync.low or sync.high >= 0 or sync.folder:
                continue
            for inode in [sync.file] if sync.file else list(out):
                changes = self._changes.get(inode)
                before = int(np.searchsorted(changes, sync.end)) if changes is not None else 0
                if inode in out and changes is not None and before and changes[before - 1] < sync.begin:
                    out[inode].append(sync.end)
        return out

    def _find_removals(self) -> tuple[dict[int, list[Removal]], set[int]]:
        """Pieces of names that remove or replace data: (event, file); and the files that the run removes on purpose."""
        graph, inodes = self._graph, self._graph.trace.inodes
        held = dict(graph.names.first)
        removals: dict[int, list[Removal]] = {}  # a rename may lose two: what it replaces and what it moves
        dropped: set[int] = set()
        for piece in np.flatnonzero(graph.kind == NAME).tolist():
            event = int(graph.event[piece])
            call = name_event(graph.trace, event)
            for slot, inode in graph.names.changes[int(graph.offset[piece])].entries:
                lost = held.pop(slot, REMOVED)
                if inode != REMOVED:
                    held[slot] = inode
                if lost not in self._events or lost == inode:
                    continue
                replaced = isinstance(call, Rename | Link) and inode != REMOVED
                if replaced or (isinstance(call, Unlink | Rename) and inodes[lost].existed):
                    removals.setdefault(piece, []).append((event, lost))
                if (
                    isinstance(call, Rename) and inode == REMOVED and inodes[lost].existed
                ):  # as if it were written: it has to be somewhere
                    self._written[lost] = min(self._written.get(lost, event), event - 1)
                if isinstance(call, Unlink):
                    dropped.add(lost)
        return removals, dropped - set(held.values())

    # -- while the run is gone through

    def touch(self, inodes: Iterable[int], paths: Iterable[str]) -> None:
        """These files were changed, and what these paths name."""
        self._touched.update(inodes)
        for path in paths:
            self._touched.add(self._paths.pop(path, REMOVED))
            if path in self._folder.paths:
                self._paths[path] = self._folder.paths[path]
                self._touched.add(self._paths[path])

    def take(self, event: int) -> None:
        """What files hold before an event are versions."""
        for inode in self._touched & self._events.keys():
            self._events[inode].append(event)
            self._rows[inode].append((self._folder.counts_of(inode).copy(), bool(self._folder.names.get(inode))))
        self._touched.clear()

    def forgive(self, event: int, inode: int) -> None:
        """A log is used again: it may be empty."""
        if inode in self._events:
            self._events[inode].append(event + 1)
            self._rows[inode].append((np.zeros(256, dtype=np.int64), True))
            self._touched.add(inode)

    # -- of crash states

    def synced_before(self, event: int) -> set[int]:
        """The files of which all was synced once."""
        return {inode for inode, syncs in self._syncs.items() if syncs and syncs[0] < event}

    def removals(self, pieces: Iterable[int], named: Collection[int]) -> list[Removal]:
        """The removals and replacements of data among the changes of names of a state."""
        found = (removal for piece in pieces for removal in self._removals.get(piece, ()))
        return [removal for removal in found if removal[1] not in named]

    def is_temporary(self, inode: int) -> bool:
        """Whether the run makes a file and removes it."""
        return inode in self._dropped and not self._graph.trace.inodes[inode].existed

    def span(self, inode: int, crash: int, removed: int | None) -> Span:
        """The versions that count at a crash, in a state whose last removal is this one."""
        syncs, events = self._syncs[inode], self._events[inode]
        at = bisect_left(syncs, crash)
        since = syncs[at - 1] if at else 0
        joined = removed is not None and removed >= since and self._written.get(inode, removed) < removed - 1
        low = max(bisect_right(events, removed if joined and removed is not None else since) - 1, 0)
        high = bisect_right(events, crash)
        changes = self._changes.get(inode)
        if changes is not None and high:
            first, last = np.searchsorted(changes, [events[high - 1], crash])
            high += int(first < last)
        return Span(low, max(high, low + 1), joined)

    def distance(self, inode: int, counts: Counts, span: Span) -> int:
        """How many bytes are missing to the nearest version that counts."""
        file = self._graph.trace.inodes[inode]
        may_be_empty = inode in self._dropped or (file.existed and file.first_size == 0)
        if inode not in self._written or (may_be_empty and not span.joined):
            return 0
        rows = [row for row, named in self._rows[inode][span.low : span.high] if named or span.joined]
        return min((int(np.maximum(row - counts, 0).sum()) for row in rows), default=0)

    def moments(self, inode: int, span: Span) -> Iterator[int]:
        """The events before which its versions that count were taken."""
        within = slice(span.low, span.high)
        for event, (row, named) in zip(self._events[inode][within], self._rows[inode][within], strict=True):
            if named and row.any():
                yield event


def in_logs(held: bytes, wanted: bytes, logs: list[bytes]) -> bool:
    """Whether what a file lacks is in some log, in pieces of some length; few bytes would be in most files.

    Of a file that is shorter the log has to be a copy.
    """
    if len(wanted) < _CHUNK:
        return wanted in logs
    for at in range(0, len(wanted), _CHUNK):
        low = min(at, len(wanted) - _CHUNK)
        chunk = wanted[low : low + _CHUNK]
        if held[low : low + _CHUNK] != chunk and chunk.strip(b"\0") and not any(chunk in log for log in logs):
            return False
    return True


def share(data: bytes, other: bytes) -> bool:
    """Whether some piece of the data, or all of few bytes, is in another file; of many pieces some are tried."""
    step = max(_CHUNK, len(data) // _TRIED)
    chunks = (data[low : low + _CHUNK] for low in range(0, len(data), step))
    return any(chunk in other for chunk in chunks if chunk.strip(b"\0"))
