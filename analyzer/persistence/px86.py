"""px86: persistent memory behind volatile caches (crash-model.md, `px86`, rules 1-7).

Pieces are 8-byte words of stores, granules are cache lines. Ordinary stores keep their order within a line
(rule 1); non-temporal stores and `write` keep it only with stores to the same word (rules 5, 7). A flush
takes note of what is on its line and the next fence of its thread makes that durable (rules 3, 6); clflush
does so at once (rule 4); a sync makes everything earlier on its pages durable when it returns (rule 7).

A flush does not cover non-temporal stores: they wait in write-combining buffers, not in the line (rule 4 is
about clflush; the same holds for clwb). File sizes and existence are durable at once: the files of this model
are mapped from persistent memory by a DAX file system, whose metadata a crash-consistency bug in *stores* does not
depend on; varying them would report the setup of every pool as a bug.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import among, number_rows, ranges, sort_rows, unique
from crashcheck.analyzer.persistence.graph import NEVER, Options, PersistenceGraph, assemble
from crashcheck.analyzer.persistence.pieces import (
    DATA,
    IN_ORDER,
    LINE_BYTES,
    LOOSE,
    WORD_BYTES,
    Ints,
    Pieces,
    cut,
    number_granules,
    persist_renamed,
)
from crashcheck.analyzer.persistence.sync_intervals import SyncInterval, find_syncs
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.runtime.trace_format import FlushKind, Kind, StoreFlag, SyncKind

Line = tuple[int, int]  # file, line number
_MOST_COVERS = 8  # lines of flushes and syncs for each event
_CLEARED_BYTES = 1 << 15  # of a store of zeros, from which on it is asked what they replace: below, states are few


def build(trace: Trace, options: Options) -> PersistenceGraph:
    """The px86 persistence graph of a trace."""
    pieces = cut(trace, WORD_BYTES, joins=LINE_BYTES)
    mode = loose_modes(trace, pieces, LOOSE)
    durable_from = _durable_from(trace, pieces, mode)
    unseen = _zeros_on_zeros(trace, pieces)
    durable_from[unseen] = pieces.event[unseen] + 1
    persist_renamed(trace, pieces, durable_from, journal=False)
    return assemble(trace, "px86", options, pieces, number_granules(pieces, LINE_BYTES), durable_from, mode, WORD_BYTES)


def loose_modes(trace: Trace, pieces: Pieces, loose: int) -> NDArray[np.uint8]:
    """`loose` for the data of non-temporal stores and of `write`, IN_ORDER for all else."""
    kinds = trace.events["kind"][pieces.event]
    nt = (kinds == Kind.STORE) & ((trace.events["flags"][pieces.event] & int(StoreFlag.NT)) != 0)
    weak = (pieces.kind == DATA) & (nt | (kinds == Kind.WRITE))
    return np.where(weak, loose, IN_ORDER).astype(np.uint8)


def _durable_from(trace: Trace, pieces: Pieces, mode: NDArray[np.uint8]) -> Ints:
    """For each piece the event from which on it is durable.

    Lines with ordinary pieces only are decided by arrays, the others by one pass over what concerns them.
    """
    kinds = trace.events["kind"][pieces.event]  # what comes with a rename, persist_renamed decides
    data = np.flatnonzero((pieces.kind == DATA) & among(kinds, (Kind.STORE, Kind.WRITE)))
    number, first = number_rows(pieces.file[data], pieces.offset[data] // LINE_BYTES)
    lines = _Lines(pieces.file[data[first]], pieces.offset[data[first]] // LINE_BYTES)
    loose = np.zeros(len(first), dtype=np.bool_)
    loose[number[mode[data] != IN_ORDER]] = True
    covers = _covers(trace, lines)
    one_by_one = loose if covers is not None else np.ones(len(first), dtype=np.bool_)
    durable_from = np.where(pieces.kind == DATA, NEVER, pieces.event + 1)
    if covers is not None:
        durable_from[data] = covers.durable_from(number, pieces.event[data])
    if one_by_one.any():
        mine = data[one_by_one[number]]
        durable_from[mine] = _Caches(trace, pieces, mode, mine, lines.some(one_by_one)).run()[mine]
    return durable_from


def _zeros_on_zeros(trace: Trace, pieces: Pieces) -> Ints:
    """The pieces of large stores of zeros in lines of a new file to which nothing else was stored before.

    No image shows whether they persisted. A pool that is cleared as a whole has thousands of them, which every state
    would name.
    """
    events = trace.events
    large = np.flatnonzero((events["kind"] == Kind.STORE) & (events["size"] >= _CLEARED_BYTES))
    found = [np.empty(0, dtype=np.int64)]
    if not len(large):
        return found[0]
    updates, renames = trace.rows(Kind.STORE, Kind.WRITE), trace.rows(Kind.RENAME)
    replaced = {*events["file"][renames].tolist(), *events["aux"][renames].tolist()}
    size, start = (events[name][updates].astype(np.int64) for name in ("size", "offset"))
    end = start + np.maximum(size, 1)
    first, last = start // LINE_BYTES, (end - 1) // LINE_BYTES  # of the lines that each keeps pieces in
    for at in np.searchsorted(updates, large).tolist():
        store, file = int(updates[at]), int(events["file"][updates[at]])
        if trace.files[file].first_size or file in replaced or np.frombuffer(trace.data(store), dtype=np.uint8).any():
            continue
        low, high = int(start[at]) // LINE_BYTES, int(end[at] - 1) // LINE_BYTES + 1
        before = np.flatnonzero((events["file"][updates[:at]] == file) & (first[:at] < high) & (last[:at] >= low))
        begins, ends = np.maximum(first[before], low) - low, np.minimum(last[before] + 1, high) - low
        steps = np.bincount(begins, minlength=high - low + 1) - np.bincount(ends, minlength=high - low + 1)
        mine = np.flatnonzero((pieces.source == store) & (pieces.kind == DATA))
        found.append(mine[(np.cumsum(steps) == 0)[pieces.offset[mine] // LINE_BYTES - low]])
        first[at], last[at] = high, low - 1
    return np.concatenate(found)


@dataclass(frozen=True, slots=True, eq=False)
class _Lines:
    """Cache lines that hold data, sorted by file and number."""

    file: Ints
    line: Ints

    def some(self, keep: NDArray[np.bool_]) -> _Lines:
        return _Lines(self.file[keep], self.line[keep])

    def between(self, files: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """The first, and one after the last, of the lines in [low, high) of each file."""
        first, last = np.zeros_like(files), np.zeros_like(files)
        for file in unique(files).tolist():
            rows = files == file
            begin, end = np.searchsorted(self.file, [file, file + 1]).tolist()
            first[rows] = np.searchsorted(self.line[begin:end], low[rows]) + begin
            last[rows] = np.searchsorted(self.line[begin:end], high[rows]) + begin
        return first, np.maximum(first, last)


@dataclass(frozen=True, slots=True, eq=False)
class _Covers:
    """Flushes and syncs: what was on line number `line` before event `before` is durable after the event `done`."""

    line: Ints
    before: Ints
    done: Ints
    events: int

    def durable_from(self, line: Ints, event: Ints) -> Ints:
        """For each ordinary piece, of a line with no others, the event from which on it is durable."""
        span = self.events + 2
        order, _ = sort_rows(self.line, self.before)
        when = self.line[order] * span + self.before[order]
        # of each flush the earliest end among it and the later ones of its line
        earliest = np.minimum.accumulate((self.line[order] * span + self.done[order])[::-1])[::-1]
        at = np.searchsorted(when, line * span + event, side="right")
        done = np.append(earliest, NEVER)[at] - line * span
        return np.where(done < self.events, done + 1, NEVER)


def _covers(trace: Trace, lines: _Lines) -> _Covers | None:
    """None where they are so many, each of many lines, that a pass over what is dirty takes less time."""
    events = trace.events
    kinds, never = events["kind"], len(events)
    flushes = np.flatnonzero((kinds == Kind.FLUSH) & (events["file"] != 0))
    done = flushes.copy()
    later = np.flatnonzero(events["aux"][flushes] != FlushKind.CLFLUSH)
    done[later] = _next_fences(trace, flushes[later])
    offset = events["offset"][flushes].astype(np.int64)
    size = np.maximum(events["size"][flushes].astype(np.int64), 1)
    file = events["file"][flushes].astype(np.int64)
    first, last = lines.between(file, offset // LINE_BYTES, (offset + size - 1) // LINE_BYTES + 1)
    parts = [(first, last, flushes, done)]
    syncs = _syncs(trace)
    if syncs:
        begins, ends = np.array([[sync.begin, sync.end] for sync in syncs], dtype=np.int64).T
        low = np.array([sync.low // LINE_BYTES for sync in syncs], dtype=np.int64)
        high = np.array([1 << 62 if s.high < 0 else -(-s.high // LINE_BYTES) for s in syncs], dtype=np.int64)
        of = np.array([sync.file for sync in syncs], dtype=np.int64)
        parts.append((*lines.between(of, low, high), begins, ends))
        parts[-1][0][of == 0], parts[-1][1][of == 0] = 0, len(lines.line)  # sync(2)
    first, last, before, done = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    many = last - first
    if int(many.sum()) > _MOST_COVERS * (len(events) + 1):
        return None
    return _Covers(ranges(first, many), np.repeat(before, many), np.repeat(done, many), never)


def _next_fences(trace: Trace, rows: Ints) -> Ints:
    """For each of some events the next fence of its thread; the number of events if there is none."""
    span = len(trace.events) + 1
    thread = trace.events["thread"]
    fences = trace.rows(Kind.FENCE)
    keys = np.sort(thread[fences].astype(np.int64) * span + fences)
    mine = thread[rows].astype(np.int64)
    at = np.searchsorted(keys, mine * span + rows)
    found = np.append(keys, np.iinfo(np.int64).max)[at]
    return np.where(found // span == mine, found % span, span - 1)


def _syncs(trace: Trace) -> list[SyncInterval]:
    """Those that make data durable."""
    return [sync for sync in find_syncs(trace) if not sync.failed and sync.kind != SyncKind.DIRSYNC]


class _Caches:
    """One pass over the trace with what is dirty in the caches and on its way out."""

    def __init__(self, trace: Trace, pieces: Pieces, mode: NDArray[np.uint8], mine: Ints, lines: _Lines) -> None:
        """`mine`: the data pieces that are asked for, all of some `lines`."""
        self.trace = trace
        self.event = pieces.event.tolist()
        self.word = (pieces.offset // WORD_BYTES).tolist()
        self.loose = (mode != IN_ORDER).tolist()
        asked = np.zeros(len(pieces), dtype=np.bool_)
        asked[mine] = True
        self.asked = asked.tolist()
        self.durable_from = [NEVER] * len(pieces)
        self.pieces = pieces
        self.lines = lines
        self.dirty: dict[int, dict[int, list[int]]] = {}  # file, line: pending pieces, ascending
        self.mixed: set[Line] = set()  # lines on which a loose piece was seen
        self.flushed: dict[int, dict[Line, int]] = {}  # thread, line: last piece that its flush covers
        self.streaming: dict[int, list[int]] = {}  # thread: non-temporal pieces that wait for its fence

    def run(self) -> Ints:
        """For each piece the event from which on it is durable."""
        events = self.trace.events
        first = np.searchsorted(self.pieces.event, np.arange(len(events) + 1)).tolist()
        ends = {sync.end: sync for sync in _syncs(self.trace)}
        concerns = among(events["kind"], (Kind.FENCE, Kind.SYNC_END))
        concerns[self.pieces.event[np.flatnonzero(self.asked)]] = True
        flushes = np.flatnonzero(events["kind"] == Kind.FLUSH)
        file, offset, size = (events[name][flushes].astype(np.int64) for name in ("file", "offset", "size"))
        low, high = offset // LINE_BYTES, (offset + np.maximum(size, 1) - 1) // LINE_BYTES + 1
        first_line, last_line = self.lines.between(file, low, high)
        concerns[flushes] = first_line < last_line
        relevant = np.flatnonzero(concerns)
        rows = zip(
            relevant.tolist(),
            *(events[name][relevant].tolist() for name in ("kind", "thread", "file", "offset", "size", "aux")),
            strict=True,
        )
        for at, kind, thread, file, offset, size, aux in rows:
            if kind in (Kind.STORE, Kind.WRITE):
                self._store(range(first[at], first[at + 1]), kind, thread, file)
            elif kind == Kind.FLUSH:
                self._flush(at, thread, file, offset, size, aux)
            elif kind == Kind.FENCE:
                self._fence(at, thread)
            elif at in ends:
                self._sync(ends[at], first[ends[at].begin])
        return np.array(self.durable_from, dtype=np.int64)

    def _store(self, pieces: range, kind: int, thread: int, file: int) -> None:
        lines = self.dirty.setdefault(file, {})
        for piece in pieces:
            if not self.asked[piece]:
                continue
            line = self.word[piece] // (LINE_BYTES // WORD_BYTES)
            lines.setdefault(line, []).append(piece)
            if self.loose[piece]:
                self.mixed.add((file, line))
                if kind == Kind.STORE:
                    self.streaming.setdefault(thread, []).append(piece)

    def _lines(self, file: int, low: int, high: int) -> list[int]:
        """Dirty lines of a file in [low, high), by whichever way is shorter."""
        lines = self.dirty.get(file)
        if not lines:
            return []
        if high - low <= len(lines):
            return [line for line in range(low, high) if line in lines]
        return sorted(line for line in lines if low <= line < high)

    def _flush(self, at: int, thread: int, file: int, offset: int, size: int, aux: int) -> None:
        if not file:
            return
        last = (offset + max(size, 1) - 1) // LINE_BYTES
        for line in self._lines(file, offset // LINE_BYTES, last + 1):
            upto = self.dirty[file][line][-1]
            if aux == FlushKind.CLFLUSH:
                self._persist(file, line, at, upto, frozenset())
            else:
                self.flushed.setdefault(thread, {})[file, line] = upto

    def _fence(self, at: int, thread: int) -> None:
        streaming = self.streaming.pop(thread, [])
        by_line: dict[Line, set[int]] = {}
        for piece in streaming:
            where = (int(self.pieces.file[piece]), self.word[piece] // (LINE_BYTES // WORD_BYTES))
            by_line.setdefault(where, set()).add(piece)
        flushed = self.flushed.pop(thread, {})
        for (file, line), upto in flushed.items():
            self._persist(file, line, at, upto, frozenset(by_line.pop((file, line), ())))
        for (file, line), some in by_line.items():
            self._persist(file, line, at, -1, frozenset(some))

    def _sync(self, sync: SyncInterval, before: int) -> None:
        """Everything on the synced pages that was issued before the call, loose or not."""
        for file in list(self.dirty) if sync.file == 0 else [sync.file]:
            low = sync.low // LINE_BYTES
            high = 1 << 62 if sync.high < 0 else -(-sync.high // LINE_BYTES)
            for line in self._lines(file, low, high):
                early = frozenset(p for p in self.dirty[file][line] if p < before)
                self._persist(file, line, sync.end, -1, early)

    def _persist(self, file: int, line: int, at: int, upto: int, some: frozenset[int]) -> None:
        """Make durable after event `at`: ordinary pieces of the line up to piece `upto`, those in `some`, and
        whatever must persist before them."""
        pending = self.dirty[file].get(line)
        if not pending:
            return
        if (file, line) not in self.mixed:
            if some:
                upto = max(upto, max(some))
            many = bisect_right(pending, upto)
            # Of a wide store, the pieces on one line are flushed and synced together: a prefix is an ideal.
            for piece in pending[:many]:
                self.durable_from[piece] = at + 1
            rest = pending[many:]
        else:
            rest = self._persist_mixed(pending, at, upto, some)
        if rest:
            self.dirty[file][line] = rest
        else:
            del self.dirty[file][line]

    def _persist_mixed(self, pending: list[int], at: int, upto: int, some: frozenset[int]) -> list[int]:
        """As `_persist`, on a line with ordinary and loose pieces; what is not durable yet."""
        rest = []
        latest = -1  # latest event of a durable ordinary piece
        words: set[int] = set()
        for piece in reversed(pending):
            ordinary = not self.loose[piece]
            before_ordinary = ordinary and (piece <= upto or self.event[piece] < latest)
            if piece in some or before_ordinary or self.word[piece] in words:
                self.durable_from[piece] = at + 1
                words.add(self.word[piece])
                if ordinary:
                    latest = max(latest, self.event[piece])
            else:
                rest.append(piece)
        rest.reverse()
        return rest
