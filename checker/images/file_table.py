"""One file in crash images: whether it exists, its size, and the sums of its words, at any crash point."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import among, ranges, unique
from crashcheck.analyzer.persistence.graph import NEVER, PersistenceGraph
from crashcheck.analyzer.persistence.pieces import DATA, EXISTS, SIZE, WORD_BYTES, Ints
from crashcheck.checker.images.first_image import FirstImage
from crashcheck.checker.images.piecewise import Changes, exists_after
from crashcheck.checker.images.words import MASK, entries_of, term
from crashcheck.checker.states.space import CrashState, StateSpace

_PAGE_BYTES = 4096
_PAGE_WORDS = _PAGE_BYTES // WORD_BYTES
_FIRST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(WORD_BYTES + 1)], dtype=np.uint64)  # masks
_MOST_KNOWN, _MOST_ROWS = 32, 1024  # rows of one file: of states, and of what is durable or issued
_FEW = 16  # so many pieces are gone through faster one by one than as an array


@dataclass(frozen=True, slots=True)
class Row:
    """One file in one image."""

    exists: bool
    size: int
    low: int
    high: int
    plain: bool = True  # nothing is hidden: the sums are those of the persisted pieces


_PACKED = np.dtype([("exists", "?"), ("size", "<u8"), ("low", "<u8"), ("high", "<u8")])


def packed(row: Row) -> bytes:
    """A file in one image, as bytes."""
    return struct.pack("<?QQQ", row.exists, row.size, row.low, row.high) if row.exists else b"\0"


class PieceSums:
    """What each piece of data adds to the sums of its file."""

    def __init__(self, graph: PersistenceGraph, first: FirstImage) -> None:
        self.first = first
        self.entries = entries_of(graph, first)
        lanes = [np.concatenate([np.zeros(1, np.uint64), np.cumsum(lane)]) for lane in self.entries.lanes]
        self.piece = tuple(lane[self.entries.start[1:]] - lane[self.entries.start[:-1]] for lane in lanes)
        self._kind = graph.kind
        self._count = len(graph)  # ids from here on are of parts

    def all_data(self, pieces: Sequence[int]) -> bool:
        """Whether pieces and parts, which ascend, are all pieces of data."""
        kind = self._kind
        if pieces and pieces[-1] >= self._count:
            return False
        if len(pieces) < _FEW:
            return all(kind[id_] == DATA for id_ in pieces)
        return bool((kind[np.array(pieces)] == DATA).all())

    def of(self, ids: list[int]) -> tuple[int, int]:
        """What some data pieces add; other pieces and parts add nothing."""
        if len(ids) < _FEW:
            low = high = 0
            for id_ in ids:
                if id_ < self._count:
                    low += int(self.piece[0][id_])
                    high += int(self.piece[1][id_])
            return low & MASK, high & MASK
        rows = np.array(ids, dtype=np.int64)
        rows = rows[rows < self._count]
        return int(self.piece[0][rows].sum()), int(self.piece[1][rows].sum())


class FileTable:
    """One file: the sums of what is durable at any event, and what its sizes hide."""

    def __init__(self, space: StateSpace, sums: PieceSums, number: int) -> None:
        graph = space.graph
        self.space = space
        self.sums = sums
        self.graph = graph
        self.number = number
        self.watched = graph.trace.files[number]
        mine = graph.pieces_of(number)
        kinds = graph.kind[mine]
        self.data: Ints = mine[kinds == DATA]
        self.issued = graph.event[self.data]
        self.ends = graph.offset[self.data] + graph.size[self.data]
        self.farthest = np.concatenate([np.zeros(1, np.int64), np.maximum.accumulate(self.ends)])
        finite = self.data[graph.durable_from[self.data] < NEVER]
        finite = finite[np.argsort(graph.durable_from[finite], kind="stable")]
        self.durable_at = graph.durable_from[finite]
        zero = np.zeros(1, dtype=np.uint64)
        self.durable_sums = [np.concatenate([zero, np.cumsum(lane[finite])]) for lane in sums.piece]
        self.steps: Ints = mine[kinds == SIZE]
        self._sizes = Changes(graph, self.steps)
        zero = np.zeros(1, dtype=np.uint64)
        self.issued_sums = [np.concatenate([zero, np.cumsum(lane[self.data])]) for lane in sums.piece]
        self.names: Ints = mine[kinds == EXISTS]
        self._names = Changes(graph, self.names)
        shrinks = self.steps[graph.offset[self.steps] < graph.old_size[self.steps]]
        self.shrinks = shrinks.tolist()
        # words from this one on may be cut off by a step in the middle of the trace
        self.floor = int(graph.offset[shrinks].min()) // WORD_BYTES if len(shrinks) else -1
        # of pieces of each kind, when they become durable, ascending; as arrays in which bisect searches faster
        self._persist_at = [
            array("q", np.sort(durable_from[durable_from < NEVER]).tobytes())
            for durable_from in (graph.durable_from[ids] for ids in (self.data, self.steps, self.names))
        ]
        self._exact: dict[tuple[int, ...], Row] = {}
        self._rows: dict[tuple[bool, int], Row] = {}

    def durable(self, event: int) -> Row:
        """What is durable at an event, if nothing of it is hidden."""
        return self._kept(False, event, self._durable)

    def full(self, event: int) -> Row:
        """What was issued before an event, if nothing of it is hidden."""
        return self._kept(True, event, self._full)

    def _kept(self, full: bool, event: int, found: Callable[[int], Row]) -> Row:
        """A row as it was found for another event between the same changes: a search goes to and fro."""
        key = full, bisect_right(self._turns, event)
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= _MOST_ROWS:
                self._rows.clear()
            row = self._rows[key] = found(event)
        return row

    @cached_property
    def _turns(self) -> array[int]:
        """The events at which something of the file counts as issued, or is durable, for the first time; ascending."""
        mine = self.graph.pieces_of(self.number)
        lasting = self.graph.durable_from[mine]
        events = unique(np.concatenate([self.graph.event[mine] + 1, lasting[lasting < NEVER]]))
        return array("q", events.tobytes())  # in which bisect searches faster

    def _durable(self, event: int) -> Row:
        at = int(np.searchsorted(self.durable_at, event, side="right"))
        size, exists = self._size_after(self._sizes.durable(event)), self._exists_after(self._names.durable(event))
        low, high = (int(lane[at]) for lane in self.durable_sums)
        return Row(exists, size, low, high, exists and self.floor < 0 and self._reach(event) <= size)

    def _full(self, event: int) -> Row:
        at = int(np.searchsorted(self.issued, event, side="left"))
        size, exists = self._size_after(self._sizes.issued(event)), self._exists_after(self._names.issued(event))
        low, high = (int(lane[at]) for lane in self.issued_sums)
        return Row(exists, size, low, high, exists and self.floor < 0 and self._reach(event) <= size)

    def versions(self) -> tuple[Ints, list[bytes]]:
        """The events that change the file, and its packed row after each of them where all that was issued persisted.

        Of a file that is never cut.
        """
        event = unique(np.concatenate([self.issued, self.graph.event[self.steps]]))
        at = np.searchsorted(self.issued, event, side="right")
        steps = np.searchsorted(self.graph.event[self.steps], event, side="right")
        rows = np.empty(len(event), dtype=_PACKED)
        rows["exists"] = True
        rows["size"] = np.concatenate([[self.watched.first_size], self.graph.offset[self.steps]])[steps]
        rows["low"], rows["high"] = (lane[at] for lane in self.issued_sums)
        keys: list[bytes] = rows.view(f"V{_PACKED.itemsize}").tolist()
        return event, keys

    def _size_after(self, step: int) -> int:
        """The file's size after a size step, or at first (-1)."""
        return self.watched.first_size if step < 0 else int(self.graph.offset[step])

    def _exists_after(self, change: int) -> bool:
        """Whether the file exists after a change of that, or at first (-1)."""
        if change < 0:
            return self.watched.existed or self.graph.family.names
        return exists_after(self.graph, change)

    def exact(self, state: CrashState, kept: list[int]) -> Row:
        """The row of the state that holds the pending pieces `kept` of this file, whatever it hides."""
        event = self.space.moment(state.point)
        durable = [bisect_right(at, event) for at in self._persist_at]
        persisted = (*durable, *kept)  # all that the row depends on
        known = self._exact.get(persisted)
        if known is None:
            base = self.durable(event)
            low, high = self.sums.of(kept)
            row = Row(base.exists, base.size, (base.low + low) & MASK, (base.high + high) & MASK)
            known = self.finish(state, row, kept)
            if len(self._exact) >= _MOST_KNOWN:
                self._exact.clear()
            self._exact[persisted] = known
        return known

    def row(self, state: CrashState, base: Row, ids: list[int], kept: Callable[[], dict[int, list[int]]]) -> Row:
        """`base` without (state.dropped) or with the pieces `ids` of this file. `kept`: the state's pieces by file."""
        if self.sums.all_data(ids) and self.plain(state, base):
            low, high = self.sums.of(ids)
            if state.dropped:
                return Row(base.exists, base.size, (base.low - low) & MASK, (base.high - high) & MASK)
            return Row(base.exists, base.size, (base.low + low) & MASK, (base.high + high) & MASK)
        return self.exact(state, kept().get(self.number, []))

    def plain(self, state: CrashState, base: Row) -> bool:
        """Nothing that may have persisted by now is hidden in an image of the base's size."""
        event = self.space.moment(state.point)
        return self.floor < 0 and base.exists and self._reach(event) <= base.size

    def _reach(self, event: int) -> int:
        """The end of the farthest data issued before an event."""
        return int(self.farthest[np.searchsorted(self.issued, event, side="left")])

    def finish(self, state: CrashState, row: Row, kept: list[int]) -> Row:
        """The true row of the image with the pieces `kept` of this file persisted besides the durable ones; `row` has
        the durable existence and size and the plain sums of both."""
        graph = self.graph
        event = self.space.moment(state.point)
        ids = np.array(kept, dtype=np.int64)
        wholes = graph.wholes(ids)
        names, steps = wholes[graph.kind[wholes] == EXISTS], np.flatnonzero(graph.kind[wholes] == SIZE)
        exists = exists_after(graph, int(names.max())) if len(names) else row.exists
        if not exists:
            return Row(False, 0, 0, 0)
        size = row.size
        if len(steps):
            last = steps[wholes[steps].argmax()]
            if wholes[last] > self._sizes.durable(event):
                size = graph.size_after(int(ids[last]))
        if not size:
            return Row(True, 0, 0, 0)
        if self.floor < 0 and self._reach(event) <= size:
            return Row(True, size, row.low, row.high)
        if self.floor < 0:
            low, high = self._beyond_uncut(event, wholes[graph.kind[wholes] == DATA], size)
            return Row(True, size, (row.low + low) & MASK, (row.high + high) & MASK)
        held = set(kept)
        cuts = [
            (id_, int(graph.offset[id_]))
            for id_ in self.shrinks
            if id_ in held or int(graph.durable_from[id_]) <= event
        ]
        low, high = self._beyond(event, held, cuts, min(size // WORD_BYTES, self.floor), size)
        return Row(True, size, (row.low + low) & MASK, (row.high + high) & MASK)

    def _beyond_uncut(self, event: int, kept: Ints, size: int) -> tuple[int, int]:
        """As `_beyond`, of a file that is never cut: there is one such word at most, in which the file ends."""
        entries, border = self.sums.entries, size // WORD_BYTES
        durable = self.data[self.graph.durable_from[self.data] <= event]
        pieces = np.concatenate([durable, kept])
        pieces = unique(pieces[self.graph.offset[pieces] + self.graph.size[pieces] > border * WORD_BYTES])
        rows = ranges(entries.start[pieces], entries.start[pieces + 1] - entries.start[pieces])
        rows = rows[entries.word[rows] >= border]
        low, high = (-int(lane[rows].sum()) for lane in entries.lanes)
        last = rows[entries.word[rows] == border][-1:]  # persisted updates of a word are a prefix of its history
        return self._differing(low, high, entries.word[last], entries.value[last], border, size)

    def _beyond(
        self, event: int, held: set[int], cuts: list[tuple[int, int]], border: int, size: int
    ) -> tuple[int, int]:
        """What to add to the plain sums for the words from `border` on: their true terms less their plain ones."""
        graph, entries = self.graph, self.sums.entries
        candidates = self.data[(self.ends > border * WORD_BYTES) & (graph.event[self.data] < event)]
        durable = graph.durable_from[candidates] <= event
        persisted = [
            id_ for id_, lasting in zip(candidates.tolist(), durable.tolist(), strict=True) if lasting or id_ in held
        ]
        low = high = 0
        pages: dict[int, bytearray] = {}
        done = 0
        floor = 1 << 62  # the lowest cut so far
        for id_ in persisted:
            while done < len(cuts) and cuts[done][0] < id_:
                _cut(pages, cuts[done][1])
                floor = min(floor, cuts[done][1])
                done += 1
            rows = slice(int(entries.start[id_]), int(entries.start[id_ + 1]))
            beyond = entries.word[rows] >= border
            low -= int(entries.lanes[0][rows][beyond].sum())
            high -= int(entries.lanes[1][rows][beyond].sum())
            self._write(pages, id_, floor, border)
        for _, at in cuts[done:]:
            _cut(pages, at)
            floor = min(floor, at)
        for page in sorted(pages):
            names = np.arange(page * _PAGE_WORDS, (page + 1) * _PAGE_WORDS, dtype=np.int64)
            low, high = self._differing(low, high, names, np.frombuffer(pages[page], dtype=np.uint64), border, size)
        # what the first image held beyond the lowest cut reads as zeros
        if cuts:
            names, values = self.sums.first.nonzero_words(self.number, floor)
            untouched = ~among(names // _PAGE_WORDS, pages)
            names, values = names[untouched], values[untouched]
            low, high = self._differing(low, high, names, values & _below(floor, names), border, size)
        return low & MASK, high & MASK

    def _differing(
        self, low: int, high: int, names: Ints, values: NDArray[np.uint64], border: int, size: int
    ) -> tuple[int, int]:
        """The sums with the terms of those words from `border` to `size` that are not as in the first image."""
        inside = (names >= border) & (names * WORD_BYTES < size)
        names, values = names[inside], values[inside] & _below(size, names[inside])
        differs = values != self.sums.first.words(self.number, names)
        numbers, values = names[differs].astype(np.uint64), values[differs]
        files = self.sums.first.identity(np.full(len(numbers), self.number))
        return (
            low + int(term(0, files, numbers, values).sum()),
            high + int(term(1, files, numbers, values).sum()),
        )

    def _write(self, pages: dict[int, bytearray], id_: int, floor: int, border: int) -> None:
        """Copy a piece's bytes into the pages themselves, where a cut makes the table's values unusable."""
        for offset, data in self.graph.runs(id_):
            at = max(border * WORD_BYTES - offset, 0)
            while at < len(data):
                page, within = divmod(offset + at, _PAGE_BYTES)
                many = min(_PAGE_BYTES - within, len(data) - at)
                if page not in pages:
                    names = np.arange(page * _PAGE_WORDS, (page + 1) * _PAGE_WORDS, dtype=np.int64)
                    first = self.sums.first.words(self.number, names) & _below(floor, names)
                    pages[page] = bytearray(first.tobytes())
                pages[page][within : within + many] = data[at : at + many]
                at += many


def _below(size: int, words: Ints) -> NDArray[np.uint64]:
    """Masks of the bytes of words that are below file offset `size`."""
    count = np.clip(size - words * WORD_BYTES, 0, WORD_BYTES)
    return _FIRST_BYTES[count]


def _cut(pages: dict[int, bytearray], size: int) -> None:
    for page, content in pages.items():
        keep = min(max(size - page * _PAGE_BYTES, 0), _PAGE_BYTES)
        content[keep:] = bytes(_PAGE_BYTES - keep)
