"""What the models of file systems share: system calls cut into data by block, sizes and names, and what syncs cover.

Sizes and names are one row each, before the data of their call. A range that a call punches or zeroes is data: zeros.
What a call brings into the folder from outside has persisted before; what the run wrote there and did not sync, the
recorder records as writes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import among
from crashcheck.analyzer.persistence.graph import NEVER, Options
from crashcheck.analyzer.persistence.names import NameChange, NameTable, NameUpdate, name_updates
from crashcheck.analyzer.persistence.page_cache import DirtyPages, with_zeroed_pages
from crashcheck.analyzer.persistence.pieces import DATA, NAME, PAGE_BYTES, SIZE, Ints, Pieces, cut, number_granules
from crashcheck.analyzer.persistence.sync_intervals import SyncInterval
from crashcheck.analyzer.trace.calls import Allocate, Create, MakeFolder, Rename, Symlink, allocations
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.runtime.trace_format import Kind, SyncKind

# Syncs that do not cover a change of a time stamp alone, as a rename or link makes one (fs/ext4/fsync.c).
_DATA_SYNCS = (SyncKind.FDATASYNC, SyncKind.ODSYNC)


@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """The pieces of a trace, sorted by event: of each call sizes first, then names, then data."""

    trace: Trace
    pieces: Pieces
    fresh: NDArray[np.bool_]  # as PersistenceGraph has it
    names: NameTable
    calls: tuple[NameUpdate, ...]  # each piece of a name is of one
    granule_bytes: int
    grows: NDArray[np.bool_]  # sizes that a write beyond the end leaves; others a call sets
    durable_from: Ints  # by syncs of their own file: data and sizes
    stale: NDArray[np.bool_]  # as PersistenceGraph has it
    syncs: list[SyncInterval]

    @property
    def granule(self) -> Ints:
        """Of data by file and block, of sizes by file, of names none: numbers from 1 on; 0 for names."""
        return np.where(self.pieces.kind == NAME, 0, number_granules(self.pieces, self.granule_bytes) + 1)


@dataclass(frozen=True, slots=True)
class Extra:
    """A row that a model adds: (event, file, kind, offset, size, old size)."""

    event: int
    file: int
    kind: int
    offset: int
    size: int = 0
    old_size: int = -1


def updates_of(
    trace: Trace,
    options: Options,
    *,
    split: bool = False,
    replacing: bool = False,
    by_block: bool = False,
    stale: bool = False,
) -> Updates:
    """All updates. `split`: a change of several entries of directories is a piece for each of them.

    `replacing`: a rename over a file includes the size of what it renames (rule 5), and a truncation to the size that a
    file has sets it. `by_block`: a size that a write
    leaves is a piece for each block, after the data of its call. `stale`: a new block may hold what the disk
    held there.
    """
    granule_bytes = options.tear or PAGE_BYTES
    pieces, fresh = with_zeroed_pages(cut(trace, granule_bytes), granule_bytes)
    table, calls = name_updates(trace)
    changes: list[NameChange] = []
    rows: list[Extra] = []
    for call in calls:
        parts = [(entry,) for entry in call.change.entries] if split else [call.change.entries]
        for entries in parts:
            rows.append(Extra(call.call.event, call.call.inode, NAME, len(changes)))
            changes.append(replace(call.change, entries=entries))
    zeros = [row for allocate in allocations(trace) for row in _zeroed(allocate, granule_bytes)]
    brought, contents = _brought(trace, granule_bytes)
    if replacing:
        rows += [*_allocated(calls, pieces), *_cut_to_its_size(trace, pieces)]
    if by_block:
        keep, steps = _steps_by_block(trace, pieces)
        pieces, fresh = pieces.only(keep), fresh[keep]
        rows += steps
    pieces, fresh = _joined(pieces, fresh, [*rows, *zeros, *brought], trace.events["kind"], by_block)
    kinds = trace.events["kind"]
    old = np.zeros(len(pieces), dtype=np.bool_)
    if stale:
        pieces, fresh, old = _with_stale(trace, pieces, fresh, granule_bytes)
    grows = (pieces.kind == SIZE) & (kinds[pieces.event] == Kind.WRITE)
    dirty = DirtyPages(trace, pieces, options)
    durable_from = dirty.run()
    durable_from[pieces.kind == NAME] = NEVER
    outside = np.isin(pieces.event, contents)
    durable_from[outside] = pieces.event[outside] + 1
    table = replace(table, changes=tuple(changes))
    return Updates(trace, pieces, fresh, table, tuple(calls), granule_bytes, grows, durable_from, old, dirty.syncs)


def _with_stale(
    trace: Trace, pieces: Pieces, fresh: NDArray[np.bool_], granule_bytes: int
) -> tuple[Pieces, NDArray[np.bool_], NDArray[np.bool_]]:
    """Before the first data of each new block, what the disk held there: (pieces, fresh, stale).

    A block that fallocate allocated reads as zeros until its data are there, and is not new.
    """
    allocated: dict[int, list[Allocate]] = {}
    for call in allocations(trace):
        if not call.mode & ~(Allocate.KEEP_SIZE | Allocate.ZERO_RANGE):
            allocated.setdefault(call.inode, []).append(call)
    written = (pieces.kind == DATA) & (trace.events["kind"][pieces.source] != Kind.CONTENT)
    written &= among(trace.events["kind"][pieces.source], (Kind.STORE, Kind.WRITE))
    known: set[tuple[int, int]] = set()
    first = []
    for row in np.flatnonzero(written).tolist():
        file, place = int(pieces.file[row]), int(pieces.offset[row]) // granule_bytes
        there = -(-trace.files[file].first_size // PAGE_BYTES) * PAGE_BYTES > place * granule_bytes
        if (fresh[row] or not there) and (fresh[row] or (file, place) not in known):
            at, event = place * granule_bytes, int(pieces.event[row])
            before = (call for call in allocated.get(file, ()) if call.event < event)
            if not any(call.offset <= at < call.offset + call.size for call in before):
                first.append(row)
        known.add((file, place))
    rows = np.array(first, dtype=np.int64)
    low = pieces.offset[rows] // granule_bytes * granule_bytes
    offset, size, zeroed = pieces.offset.copy(), pieces.size.copy(), fresh.copy()
    offset[rows], size[rows], zeroed[rows] = low, granule_bytes, True  # a new block is written as a whole

    def twice(column: Ints) -> Ints:
        return np.insert(column, rows, column[rows])

    whole = Pieces(
        twice(pieces.event),
        twice(pieces.file),
        np.insert(pieces.kind, rows, pieces.kind[rows]),
        twice(offset),
        twice(size),
        twice(pieces.old_size),
        twice(pieces.source),
        pieces.continued,
    )
    none = np.zeros(len(pieces), dtype=np.bool_)
    return whole, np.insert(zeroed, rows, True), np.insert(none, rows, True)


def _zeroed(allocate: Allocate, granule_bytes: int) -> Iterator[Extra]:
    """Zeros of a range that is punched or zeroed, by block; a block in part is a write of its own (rule 1)."""
    if not allocate.mode & (Allocate.PUNCH_HOLE | Allocate.ZERO_RANGE):
        return
    at, end = allocate.offset, allocate.offset + allocate.size
    while at < end:
        stop = min((at // granule_bytes + 1) * granule_bytes, end)
        yield Extra(allocate.event, allocate.inode, DATA, at, stop - at)
        at = stop


def _brought(trace: Trace, granule_bytes: int) -> tuple[list[Extra], Ints]:
    """Content that came with a file from outside, and its size."""
    events = trace.events
    rows = []
    contents = np.flatnonzero((events["kind"] == Kind.CONTENT) & (events["size"] > 0))
    for event in contents.tolist():
        at, end = int(events["offset"][event]), int(events["offset"][event]) + int(events["size"][event])
        file = int(events["file"][event])
        rows.append(Extra(event, file, SIZE, end, 0, end))
        while at < end:
            stop = min((at // granule_bytes + 1) * granule_bytes, end)
            rows.append(Extra(event, file, DATA, at, stop - at))
            at = stop
    return rows, contents


def _allocated(calls: list[NameUpdate], pieces: Pieces) -> Iterator[Extra]:
    """auto_da_alloc: before a rename over a file the kernel allocates the blocks of the other one (ext4_rename)."""
    steps = np.flatnonzero(pieces.kind == SIZE)
    for update in calls:
        call = update.call
        if isinstance(call, Rename) and call.replaced:
            mine = steps[(pieces.file[steps] == call.inode) & (pieces.event[steps] < call.event)]
            if len(mine):
                size = int(pieces.offset[mine[-1]])
                yield Extra(call.event, call.inode, SIZE, size, 0, size)


def _cut_to_its_size(trace: Trace, pieces: Pieces) -> Iterator[Extra]:
    """A truncation to the size that a write left sets it on the disk at once (ext4_ext_truncate; xfs_setattr_size)."""
    steps = np.flatnonzero(pieces.kind == SIZE)
    kinds = trace.events["kind"]
    for event in np.setdiff1d(trace.rows(Kind.TRUNCATE), pieces.event[steps]).tolist():
        file = int(trace.events["file"][event])
        mine = steps[(pieces.file[steps] == file) & (pieces.event[steps] < event)]
        if len(mine) and kinds[pieces.event[mine[-1]]] == Kind.WRITE:
            size = int(pieces.offset[mine[-1]])
            yield Extra(event, file, SIZE, size, 0, size)


def _steps_by_block(trace: Trace, pieces: Pieces) -> tuple[NDArray[np.bool_], list[Extra]]:
    """Sizes that writes leave, one for each block; and which pieces are something else."""
    grows = (pieces.kind == SIZE) & (trace.events["kind"][pieces.event] == Kind.WRITE)
    rows = []
    for row in np.flatnonzero(grows).tolist():
        event, file, old, new = (int(c[row]) for c in (pieces.event, pieces.file, pieces.old_size, pieces.offset))
        while old < new:
            stop = min((old // PAGE_BYTES + 1) * PAGE_BYTES, new)
            rows.append(Extra(event, file, SIZE, stop, 0, old))
            old = stop
    return ~grows, rows


def _joined(
    pieces: Pieces, fresh: NDArray[np.bool_], rows: list[Extra], trace_kinds: NDArray[np.uint8], data_first: bool
) -> tuple[Pieces, NDArray[np.bool_]]:
    """The pieces with more rows, sorted; a range that a call zeroes reads as zeros."""
    if not rows:
        return pieces, fresh
    table = np.array([(r.event, r.file, r.kind, r.offset, r.size, r.old_size) for r in rows], dtype=np.int64)
    kind = np.concatenate([pieces.kind, table[:, 2].astype(np.uint8)])
    event = np.concatenate([pieces.event, table[:, 0]])
    offset = np.concatenate([pieces.offset, table[:, 3]])
    added = np.arange(len(event)) >= len(pieces)
    rank = np.where(kind == SIZE, 1, np.where(kind == NAME, 2, 0 if data_first else 3))
    order = np.lexsort((offset, rank, event))
    whole = Pieces(
        event[order],
        np.concatenate([pieces.file, table[:, 1]])[order],
        kind[order],
        offset[order],
        np.concatenate([pieces.size, table[:, 4]])[order],
        np.concatenate([pieces.old_size, table[:, 5]])[order],
        np.concatenate([pieces.source, table[:, 0]])[order],
        pieces.continued,
    )
    punched = added[len(pieces) :] & (table[:, 2] == DATA) & (trace_kinds[table[:, 0]] == Kind.ALLOCATE)
    zeroed = np.concatenate([fresh, punched])
    return whole, zeroed[order]


def journal_syncs(updates: Updates) -> Iterator[tuple[SyncInterval, int]]:
    """For each sync that succeeded, up to which event it makes the journal durable (rule 4); -1: nothing.

    A lower bound: the call commits the journal up to the last change of what it syncs. Of a file these are its
    creation, its sizes, and, unless the call leaves time stamps out, its other names; of a directory also its entries.
    """
    pieces, syncs = updates.pieces, [sync for sync in updates.syncs if not sync.failed]
    changed: dict[int, list[int]] = {}  # of each inode: names' events that every sync covers
    stamped: dict[int, list[int]] = {}  # events that only syncs of time stamps cover, too
    for update in updates.calls:
        call = update.call
        created = isinstance(call, Create | MakeFolder | Symlink)
        for (folder, _), inode in update.change.entries:
            changed.setdefault(folder, []).append(call.event)
            if inode:
                (changed if created else stamped).setdefault(inode, []).append(call.event)
        stamped.setdefault(call.inode, []).append(call.event)
    span = len(updates.trace.events)
    steps = np.flatnonzero(pieces.kind == SIZE)
    sizes = np.sort(pieces.file[steps] * span + pieces.event[steps])
    begins = np.searchsorted(sizes, np.array([sync.file * span + sync.begin for sync in syncs], dtype=np.int64))
    last_sizes = np.concatenate([[-1], sizes])[begins]
    for sync, last_size in zip(syncs, last_sizes.tolist(), strict=True):
        if sync.file == 0:
            yield sync, sync.begin
            continue
        tables = [changed] if sync.kind in _DATA_SYNCS else [changed, stamped]
        of_file = [table.get(sync.file, []) for table in tables]
        last = max((events[at - 1] for events in of_file if (at := bisect_left(events, sync.begin))), default=-1)
        yield sync, max(last, last_size % span if last_size // span == sync.file else -1)


def covered_from(events: Ints, syncs: Iterable[tuple[SyncInterval, int]]) -> Ints:
    """For each of these ascending events from when the first of the syncs that cover it has made it durable.

    Each sync covers what is up to the event that it comes with.
    """
    first = np.full(len(events) + 1, NEVER, dtype=np.int64)
    known = [(upto, sync.end + 1) for sync, upto in syncs]
    if known:
        upto, durable = np.array(known, dtype=np.int64).T
        np.minimum.at(first, np.searchsorted(events, upto, side="right"), durable)
    return np.minimum.accumulate(first[::-1])[::-1][1:]
