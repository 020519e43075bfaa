"""page-cache: ordinary files, mapped or written, and what a sync promises (crash-model.md, `page-cache`, rules 1-6).

Granules are pages (or sectors, with `tear`), each with a prefix of its updates (rules 1, 3), the size of each file
and its existence (rule 5). An update is what one instruction or call changes in one granule. Flushes and fences order
nothing (rule 6).

Shrinking a file is an update of its data too: the rest of the page in which it ends is zeroed, and a page
beyond it becomes zeros with the next write to it.

A failed sync leaves its pages clean and perhaps lost (rule 2): what was issued before it returned is covered
by a later success only if the page was written again before that began. Metadata are not lost in this way: an
error there aborts the journal, and no later sync succeeds.
"""

from __future__ import annotations

import os.path
from bisect import bisect_left
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.persistence.graph import NEVER, Options, PersistenceGraph, assemble
from crashcheck.analyzer.persistence.pieces import (
    DATA,
    EXISTS,
    IN_ORDER,
    PAGE_BYTES,
    SIZE,
    Ints,
    Pieces,
    cut,
    number_granules,
    persist_renamed,
)
from crashcheck.analyzer.persistence.sync_intervals import SyncInterval, folder_hash, syncs_of, write_ends
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.runtime.trace_format import Recorder, SyncKind


def build(trace: Trace, options: Options) -> PersistenceGraph:
    """The page-cache persistence graph of a trace."""
    granule_bytes = options.tear or PAGE_BYTES
    pieces, fresh = with_zeroed_pages(cut(trace, granule_bytes), granule_bytes)
    durable_from = DirtyPages(trace, pieces, options).run()
    persist_renamed(trace, pieces, durable_from, journal=options.files == "ext4")
    mode = np.full(len(pieces), IN_ORDER, dtype=np.uint8)
    granule = number_granules(pieces, granule_bytes)
    return assemble(trace, "page-cache", options, pieces, granule, durable_from, mode, granule_bytes, fresh)


def with_zeroed_pages(pieces: Pieces, granule_bytes: int) -> tuple[Pieces, NDArray[np.bool_]]:
    """Adds what shrinking a file does to its pages."""
    shrinks = np.flatnonzero((pieces.kind == SIZE) & (pieces.offset < pieces.old_size))
    fresh = np.zeros(len(pieces), dtype=np.bool_)
    if not len(shrinks):
        return pieces, fresh
    added: list[tuple[int, int, int, int, int]] = []  # event, file, offset, size, source
    whole: set[int] = set()  # pieces that begin their page again, from zeros
    for file in np.unique(pieces.file[shrinks]).tolist():
        shrinking = _Shrinking(pieces, file, granule_bytes)
        for row in np.flatnonzero(pieces.file == file).tolist():
            shrinking.step(row)
        added += shrinking.added
        whole |= shrinking.renewing
    # a renewed granule is one piece that starts from zeros: it replaces the plain pieces of its event
    replaced = sorted(whole)
    keep = np.ones(len(pieces), dtype=np.bool_)
    keep[replaced] = False
    extra = np.array(sorted(set(added)), dtype=np.int64).reshape(-1, 5)
    many = len(extra)
    events = np.concatenate([pieces.event[keep], extra[:, 0]])
    kinds = np.concatenate([pieces.kind[keep], np.full(many, DATA, dtype=np.uint8)])
    offset = np.concatenate([pieces.offset[keep], extra[:, 2]])
    order = np.lexsort((np.where(kinds == DATA, offset, 0), kinds == DATA, events))
    fresh = np.concatenate([np.zeros(int(keep.sum()), np.bool_), np.ones(many, np.bool_)])[order]
    return (
        Pieces(
            events[order],
            np.concatenate([pieces.file[keep], extra[:, 1]])[order],
            kinds[order],
            offset[order],
            np.concatenate([pieces.size[keep], extra[:, 3]])[order],
            np.concatenate([pieces.old_size[keep], np.full(many, -1, dtype=np.int64)])[order],
            np.concatenate([pieces.source[keep], extra[:, 4]])[order],
            pieces.continued,
        ),
        fresh,
    )


class _Shrinking:
    """One pass over the pieces of a file that shrinks at times, with the pages that begin again, from zeros."""

    def __init__(self, pieces: Pieces, file: int, granule_bytes: int) -> None:
        self.pieces = pieces
        self.file = file
        self.granule_bytes = granule_bytes
        # event, file, offset, size, source of pieces that shrinking adds
        self.added: list[tuple[int, int, int, int, int]] = []
        self.renewing: set[int] = set()  # pieces that begin their page again, from zeros
        self.cuts: list[tuple[int, int]] = []  # (first page cut off, row), rows ascending
        self.renewed: dict[int, tuple[int, int]] = {}  # page: row and event of its last renewal

    def step(self, row: int) -> None:
        """Take the next piece of the file."""
        kind, event, offset = int(self.pieces.kind[row]), int(self.pieces.event[row]), int(self.pieces.offset[row])
        if kind == SIZE and offset < int(self.pieces.old_size[row]):
            self._cut(row, event, offset, int(self.pieces.old_size[row]))
        elif kind == EXISTS:
            # A new file of the name. That the old one went is durable, so nothing of it can show.
            self.cuts.clear()
            self.renewed.clear()
        elif kind == DATA and self.cuts:
            self._write(row, event, offset // PAGE_BYTES)

    def _cut(self, row: int, event: int, new: int, old: int) -> None:
        """The rest of the page in which the file ends is zeroed; whole granules, where the page was cut off before."""
        page = -(-new // PAGE_BYTES)
        low, high = new, min(page * PAGE_BYTES, old)
        if low < high and self._begins_again(row, event, page - 1):
            low, high = low // self.granule_bytes * self.granule_bytes, page * PAGE_BYTES
        self.cuts.append((page, row))
        while low < high:
            stop = min((low // self.granule_bytes + 1) * self.granule_bytes, high)
            self.added.append((event, self.file, low, stop - low, event))
            low = stop

    def _begins_again(self, row: int, event: int, page: int) -> bool:
        """Whether an update is the first to a page after it was cut off: then it brings the page back as zeros."""
        latest = max((cut_row for first, cut_row in self.cuts if first <= page), default=-1)
        if latest <= self.renewed.get(page, (-1, -1))[0]:
            return False
        self.renewed[page] = row, event
        return True

    def _write(self, row: int, event: int, page: int) -> None:
        if self._begins_again(row, event, page):
            for at in range(page * PAGE_BYTES, (page + 1) * PAGE_BYTES, self.granule_bytes):
                self.added.append((event, self.file, at, self.granule_bytes, int(self.pieces.source[row])))
            self.renewing.add(row)
        elif self.renewed.get(page, (-1, -1))[1] == event:
            self.renewing.add(row)  # another sector of the page, in the same event


class DirtyPages:
    """One pass over the syncs with what is dirty in the page cache."""

    def __init__(self, trace: Trace, pieces: Pieces, options: Options) -> None:
        self.trace = trace
        self.pieces = pieces
        self.posix = options.files == "posix"
        self.durable_from: Ints = np.full(len(pieces), NEVER, dtype=np.int64)
        self.syncs = syncs_of(trace, options.amplify and trace.recorder is Recorder.SYSCALLS)
        self.failed = [sync for sync in self.syncs if sync.failed]
        self.write_ends = write_ends(trace)
        self.dirty: dict[int, dict[int, list[int]]] = {}  # file, page: pending data, ascending
        self.sizes: dict[int, list[int]] = {}  # file: pending size steps
        self.names: dict[int, list[int]] = {}  # file: pending creations
        self.own_synced: set[int] = set()  # creations whose file was synced (posix)
        self.folder_synced: set[int] = set()  # creations whose folder was synced (posix)

    def run(self) -> Ints:
        """From which event on each piece is durable."""
        pieces = self.pieces
        rows = zip(pieces.kind.tolist(), pieces.file.tolist(), (pieces.offset // PAGE_BYTES).tolist(), strict=True)
        at = 0
        for sync in self.syncs:
            if sync.failed:
                continue
            upto = max(at, int(np.searchsorted(pieces.event, sync.end)))
            for row, (kind, file, page) in enumerate(islice(rows, upto - at), at):
                self._change(row, kind, file, page)
            at = upto
            before = int(np.searchsorted(pieces.event, sync.begin))
            if sync.kind == SyncKind.DIRSYNC:
                self._folder(sync, before)
            else:
                self._files(sync, before)
        return self.durable_from

    def _change(self, row: int, kind: int, file: int, page: int) -> None:
        """A piece is pending from now on."""
        if kind == DATA:
            self.dirty.setdefault(file, {}).setdefault(page, []).append(row)
        else:
            (self.sizes if kind == SIZE else self.names).setdefault(file, []).append(row)

    def _files(self, sync: SyncInterval, before: int) -> None:
        """What a sync of one file, or of all, makes durable."""
        for file in [sync.file] if sync.file else {*self.dirty, *self.sizes, *self.names}:
            self._data(sync, file, before)
            self._metadata(sync, file, before)
            for table in (self.dirty, self.sizes, self.names):
                if not table.get(file, True):
                    del table[file]

    def _data(self, sync: SyncInterval, file: int, before: int) -> None:
        pages = self.dirty.get(file, {})
        low = sync.low // PAGE_BYTES
        high = sync.high // PAGE_BYTES if sync.high >= 0 else 1 << 62
        wanted = range(low, high) if high - low < len(pages) else sorted(p for p in pages if low <= p < high)
        for page in wanted:
            pending = pages.get(page)
            if not pending:
                continue
            early = self._ended(pending[: bisect_left(pending, before)], sync)
            if not early or self._lost(sync, file, page, early[-1]):
                continue
            self.durable_from[early] = sync.end + 1
            rest = _without(pending, early)
            if rest:
                pages[page] = rest
            else:
                del pages[page]

    def _ended(self, rows: list[int], sync: SyncInterval) -> list[int]:
        """Those that had ended when the sync began: a write may only have been submitted (io_submit)."""
        ends, events = self.write_ends, self.pieces.event
        return [row for row in rows if ends.get(int(events[row]), -1) < sync.begin] if ends else rows

    def _lost(self, sync: SyncInterval, file: int, page: int, last: int) -> bool:
        """Whether a failed sync may have left the page clean, with its last update `last` before this sync in it."""
        written = int(self.pieces.event[last])
        return any(
            failed.begin < sync.end and written < failed.end and failed.covers(file, page * PAGE_BYTES)
            for failed in self.failed
        )

    def _metadata(self, sync: SyncInterval, file: int, before: int) -> None:
        steps = self.sizes.get(file, [])
        early = self._ended(steps[: bisect_left(steps, before)], sync)
        self.durable_from[early] = sync.end + 1
        self.sizes[file] = _without(steps, early)
        for name in self.names.get(file, []):
            if name < before:
                self.own_synced.add(name)
                if sync.kind == SyncKind.SYNC:
                    self.folder_synced.add(name)
        self._created(sync, file)

    def _folder(self, sync: SyncInterval, before: int) -> None:
        for file, names in self.names.items():
            folder = os.path.dirname(self.trace.files[file].path)
            if sync.folder in (0, folder_hash(folder)):
                self.folder_synced.update(name for name in names if name < before)
        for file in list(self.names):
            self._created(sync, file)

    def _created(self, sync: SyncInterval, file: int) -> None:
        """Creations that this sync completes: by either sync on ext4 (one journal), by both under posix."""
        names = self.names.get(file, [])
        for name in list(names):
            own, folder = name in self.own_synced, name in self.folder_synced
            if (own and folder) if self.posix else (own or folder):
                self.durable_from[name] = sync.end + 1
                names.remove(name)


def _without(rows: list[int], some: list[int]) -> list[int]:
    """The others; `some` are often the first ones."""
    if rows[: len(some)] == some:
        return rows[len(some) :]
    known = set(some)
    return [row for row in rows if row not in known]
