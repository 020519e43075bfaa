"""128-bit fingerprints of crash images: equal for equal images, and cheap for a state near another one.

A file's bytes are a sum (mod 2^64, in two lanes) of keyed hashes of (file, word number, word), over the 8-byte words
that differ from the first image: the order of the updates does not matter, and a store that rewrites the
same value adds nothing. Updates of one word persist in trace order, in every model. So the persisted ones are
a prefix of the word's history, each update adds a fixed difference (hash after it - hash before it), and the
sum over any set of persisted pieces is the sum of their differences. What a smaller size or a cut hides is
taken out word by word, in files where that can happen. Sizes, existence and acknowledgements are then hashed
together with the sums.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import number_rows, ranges, unique
from crashcheck.analyzer.persistence.graph import NEVER
from crashcheck.analyzer.persistence.pieces import DATA, EXISTS, NAME, SIZE, WORD_BYTES, Ints
from crashcheck.checker.images.first_image import FirstImage
from crashcheck.checker.images.words import MASK, Words, entries_of, term
from crashcheck.checker.states.ideals import Ids
from crashcheck.checker.states.space import CrashState, StateSpace

_SPARSE = 16  # of so many words one: sorting the words of some rows is faster than going through all
_PAGE_BYTES = 4096
_PAGE_WORDS = _PAGE_BYTES // WORD_BYTES
_FIRST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(WORD_BYTES + 1)], dtype=np.uint64)  # masks
_MOST_KNOWN = 32  # rows of one file
_FEW = 16  # so many pieces are gone through faster one by one than as an array


@dataclass(frozen=True, slots=True)
class Row:
    """One file in one image."""

    exists: bool
    size: int
    low: int
    high: int
    plain: bool = True  # nothing is hidden: the sums are those of the persisted pieces


def packed(row: Row) -> bytes:
    """A file in one image, as bytes."""
    return struct.pack("<?QQQ", row.exists, row.size, row.low, row.high) if row.exists else b"\0"


class Fingerprints:
    """Fingerprints of one space's states; tables are built once, points are cached."""

    def __init__(self, space: StateSpace, first: FirstImage) -> None:
        self.space = space
        self.graph = space.graph
        self.piece_count = len(space.graph)  # ids from here on are of parts
        self.first = first
        self.entries = entries_of(space.graph, first)
        sums = [np.concatenate([np.zeros(1, np.uint64), np.cumsum(lane)]) for lane in self.entries.lanes]
        self.piece = tuple(s[self.entries.start[1:]] - s[self.entries.start[:-1]] for s in sums)
        self.files = [_FileTable(self, number) for number in sorted(space.graph.trace.files)]
        self.place = {table.number: at for at, table in enumerate(self.files)}
        self._latest: tuple[CrashState, list[Row]] | None = None
        self._points: dict[tuple[int, bool], list[Row]] = {}

    def of(self, state: CrashState) -> bytes:
        point = self.space.points[state.point]
        rows = self.rows(state)
        body = struct.pack("<QQ", point.acked, point.stdout_bytes) + b"".join(map(packed, rows))
        return hashlib.blake2b(body, digest_size=16).digest()

    def base_rows(self, state: CrashState) -> list[Row]:
        """The rows of all files in the image that the state is near to: with everything, or with what is durable."""
        return self._base(state.point, state.dropped)

    def rows_of(self, state: CrashState) -> list[Row]:
        """`rows`, and the latest result is remembered."""
        if self._latest is None or self._latest[0] != state:
            self._latest = state, self.rows(state)
        return self._latest[1]

    def rows(self, state: CrashState) -> list[Row]:
        """One row per file, in the order of `files`: equal for equal contents.

        Files of which the state names no piece have the row of `base_rows`.
        """
        rows = self._base(state.point, state.dropped)
        touched = self._by_file(state.pieces)
        if touched:
            rows = list(rows)
            kept: Callable[[], dict[int, list[int]]] = partial(self._persisted_by_file, state)
            if len(touched) > 1:
                kept = cache(kept)
            for number, ids in touched.items():
                at = self.place[number]
                rows[at] = self.files[at].row(state, rows[at], ids, kept)
        return rows

    def _by_file(self, pieces: Ids) -> dict[int, list[int]]:
        """Pieces and parts, which ascend, by the file that they change; without those of names."""
        if len(self.files) == 1 and not self.graph.family.names:
            return {self.files[0].number: list(pieces)} if pieces else {}
        touched: dict[int, list[int]] = {}
        for id_ in pieces:
            whole = self.graph.whole(id_)[0]
            if int(self.graph.kind[whole]) != NAME:
                touched.setdefault(int(self.graph.file[whole]), []).append(id_)
        return touched

    def _persisted_by_file(self, state: CrashState) -> dict[int, list[int]]:
        out: dict[int, list[int]] = {}
        for id_ in self.space.persisted(state):
            out.setdefault(int(self.graph.file[self.graph.whole(id_)[0]]), []).append(id_)
        return out

    def plain_loss(self, state: CrashState) -> bool:
        """Whether a state lost only data, and no size hides any data of the files that it lost them from."""
        if not self.all_data(state.pieces):
            return False
        base = self._base(state.point, True) if state.pieces else []
        places = (self.place[number] for number in self._by_file(state.pieces))
        return all(self.files[place].plain(state, base[place]) for place in places)

    def all_data(self, pieces: Sequence[int]) -> bool:
        """Whether pieces and parts, which ascend, are all pieces of data."""
        kind = self.graph.kind
        if pieces and pieces[-1] >= self.piece_count:
            return False
        if len(pieces) < _FEW:
            return all(kind[id_] == DATA for id_ in pieces)
        return bool((kind[np.array(pieces)] == DATA).all())

    def words_before(self, pieces: Ints) -> tuple[Ints, Words]:
        """The words that some data pieces of one file write, ascending, and what each was before the first of them."""
        words, rows = self._last_of_each(self._rows_of(pieces)[::-1])
        return words, self.entries.before[rows]

    def words_after(self, pieces: Ints) -> tuple[Ints, Words]:
        """As `words_before`; what each word was after the last of them."""
        words, rows = self._last_of_each(self._rows_of(pieces))
        return words, self.entries.value[rows]

    def _last_of_each(self, rows: Ints) -> tuple[Ints, Ints]:
        """The words of some rows of one file, ascending, and the last of the rows of each; without sorting."""
        number, words, last = self._numbered
        mine = number[rows]
        if not len(mine):
            return mine, rows
        last[mine] = rows  # where a number occurs several times, the last row stays
        some = np.flatnonzero(last >= 0) if len(last) < _SPARSE * len(mine) else unique(mine)
        found = last[some]
        last[some] = -1
        return words[some], found

    @cached_property
    def _numbered(self) -> tuple[Ints, Ints, Ints]:
        """The number of each row's word, ascending with it; the word of each number; room for a row of each number."""
        number, first = number_rows(self.entries.word)
        return number, self.entries.word[first], np.full(len(first), -1, dtype=np.int64)

    def silent(self) -> NDArray[np.bool_]:
        """Data pieces that leave each of their words as it was."""
        entries = self.entries
        same = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(entries.value == entries.before)])
        many = entries.start[1:] - entries.start[:-1]
        whole: NDArray[np.bool_] = same[entries.start[1:]] - same[entries.start[:-1]] == many
        return whole & np.equal(self.graph.kind, DATA)

    def _rows_of(self, pieces: Ints) -> Ints:
        """The rows of some pieces, which ascend, in `entries`."""
        start = self.entries.start
        if len(pieces) and pieces[-1] - pieces[0] + 1 == len(pieces):
            return np.arange(start[pieces[0]], start[pieces[-1] + 1])
        return ranges(start[pieces], start[pieces + 1] - start[pieces])

    def _base(self, point: int, full: bool) -> list[Row]:
        """The rows of the point's full image, or of its durable one."""
        known = self._points.get((point, full))
        if known is None:
            if len(self._points) > 64:
                self._points.clear()
            event = int(self.space.points.event[point])
            known = [table.full(event) if full else table.durable(event) for table in self.files]
            if not all(row.plain for row in known):
                state = CrashState(point, full, ())
                pending: dict[int, list[int]] = {}
                for id_ in self.space.pending(point) if full else ():
                    pending.setdefault(int(self.graph.file[id_]), []).append(id_)
                for at, table in enumerate(self.files):
                    if not known[at].plain:
                        known[at] = table.exact(state, pending.get(table.number, []))
            self._points[point, full] = known
        return known

    def sums(self, ids: list[int]) -> tuple[int, int]:
        """What some data pieces add; other pieces and parts add nothing."""
        if len(ids) < _FEW:
            low = high = 0
            for id_ in ids:
                if id_ < self.piece_count:
                    low += int(self.piece[0][id_])
                    high += int(self.piece[1][id_])
            return low & MASK, high & MASK
        rows = np.array(ids, dtype=np.int64)
        rows = rows[rows < self.piece_count]
        return int(self.piece[0][rows].sum()), int(self.piece[1][rows].sum())


class _FileTable:
    """One file: the sums of what is durable at any event, and what its sizes hide."""

    def __init__(self, owner: Fingerprints, number: int) -> None:
        graph = owner.graph
        self.owner = owner
        self.graph = graph
        self.number = number
        self.watched = graph.trace.files[number]
        mine = graph.file == number
        self.data: Ints = np.flatnonzero(mine & (graph.kind == DATA))
        self.issued = graph.event[self.data]
        self.ends = graph.offset[self.data] + graph.size[self.data]
        self.farthest = np.concatenate([np.zeros(1, np.int64), np.maximum.accumulate(self.ends)])
        finite = self.data[graph.durable_from[self.data] < NEVER]
        finite = finite[np.argsort(graph.durable_from[finite], kind="stable")]
        self.durable_at = graph.durable_from[finite]
        zero = np.zeros(1, dtype=np.uint64)
        self.durable_sums = [np.concatenate([zero, np.cumsum(lane[finite])]) for lane in owner.piece]
        self.steps: Ints = np.flatnonzero(mine & (graph.kind == SIZE))
        zero = np.zeros(1, dtype=np.uint64)
        self.issued_sums = [np.concatenate([zero, np.cumsum(lane[self.data])]) for lane in owner.piece]
        self.names: Ints = np.flatnonzero(mine & (graph.kind == EXISTS))
        shrinks = self.steps[graph.offset[self.steps] < graph.old_size[self.steps]]
        self.shrinks = shrinks.tolist()
        # words from this one on may be cut off by a step in the middle of the trace
        self.floor = int(graph.offset[shrinks].min()) // WORD_BYTES if len(shrinks) else -1
        self._persist_at = [np.sort(graph.durable_from[ids]) for ids in (self.data, self.steps, self.names)]
        self._exact: dict[tuple[int, ...], Row] = {}

    def durable(self, event: int) -> Row:
        """What is durable at an event, if nothing of it is hidden."""
        at = int(np.searchsorted(self.durable_at, event, side="right"))
        steps = self.steps[self.graph.durable_from[self.steps] <= event]
        size = int(self.graph.offset[steps[-1]]) if len(steps) else self.watched.first_size
        exists = self._exists_after(self.names[self.graph.durable_from[self.names] <= event])
        low, high = (int(sums[at]) for sums in self.durable_sums)
        return Row(exists, size, low, high, exists and self.floor < 0 and self._reach(event) <= size)

    def full(self, event: int) -> Row:
        """What was issued before an event, if nothing of it is hidden."""
        at = int(np.searchsorted(self.issued, event, side="left"))
        last = int(np.searchsorted(self.graph.event[self.steps], event, side="left"))
        size = int(self.graph.offset[self.steps[last - 1]]) if last else self.watched.first_size
        exists = self._exists_after(self.names[self.graph.event[self.names] < event])
        low, high = (int(sums[at]) for sums in self.issued_sums)
        return Row(exists, size, low, high, exists and self.floor < 0 and self._reach(event) <= size)

    def _exists_after(self, names: Ints) -> bool:
        """Whether the file exists after these changes: it went away where there was something before."""
        return (
            int(self.graph.old_size[names[-1]]) <= 0 if len(names) else self.watched.existed or self.graph.family.names
        )

    def exact(self, state: CrashState, kept: list[int]) -> Row:
        """The row of the state that holds the pending pieces `kept` of this file, whatever it hides."""
        event = int(self.owner.space.points.event[state.point])
        durable = (int(np.searchsorted(at, event, side="right")) for at in self._persist_at)
        persisted = (*durable, *kept)  # all that the row depends on
        known = self._exact.get(persisted)
        if known is None:
            base = self.durable(event)
            low, high = self.owner.sums(kept)
            row = Row(base.exists, base.size, (base.low + low) & MASK, (base.high + high) & MASK)
            known = self.finish(state, row, kept)
            if len(self._exact) >= _MOST_KNOWN:
                self._exact.clear()
            self._exact[persisted] = known
        return known

    def row(self, state: CrashState, base: Row, ids: list[int], kept: Callable[[], dict[int, list[int]]]) -> Row:
        """`base` without (state.dropped) or with the pieces `ids` of this file. `kept`: the state's pieces by file."""
        if self.owner.all_data(ids) and self.plain(state, base):
            low, high = self.owner.sums(ids)
            if state.dropped:
                return Row(base.exists, base.size, (base.low - low) & MASK, (base.high - high) & MASK)
            return Row(base.exists, base.size, (base.low + low) & MASK, (base.high + high) & MASK)
        return self.exact(state, kept().get(self.number, []))

    def plain(self, state: CrashState, base: Row) -> bool:
        """Nothing that may have persisted by now is hidden in an image of the base's size."""
        event = int(self.owner.space.points.event[state.point])
        return self.floor < 0 and base.exists and self._reach(event) <= base.size

    def _reach(self, event: int) -> int:
        """The end of the farthest data issued before an event."""
        return int(self.farthest[np.searchsorted(self.issued, event, side="left")])

    def finish(self, state: CrashState, row: Row, kept: list[int]) -> Row:
        """The true row of the image with the pieces `kept` of this file persisted besides the durable ones; `row` has
        the durable existence and size and the plain sums of both."""
        graph = self.graph
        event = int(self.owner.space.points.event[state.point])
        wholes = [graph.whole(id_)[0] for id_ in kept]
        names = [id_ for id_ in wholes if int(graph.kind[id_]) == EXISTS]
        exists = int(graph.old_size[max(names)]) <= 0 if names else row.exists
        if not exists:
            return Row(False, 0, 0, 0)
        size = row.size
        steps = [id_ for id_, whole in zip(kept, wholes, strict=True) if int(graph.kind[whole]) == SIZE]
        if steps:
            durable = self.steps[graph.durable_from[self.steps] <= event]
            last = max(steps, key=lambda id_: graph.whole(id_)[0])
            if not len(durable) or graph.whole(last)[0] > int(durable[-1]):
                size = graph.size_after(last)
        if not size:
            return Row(True, 0, 0, 0)
        if self.floor < 0 and self._reach(event) <= size:
            return Row(True, size, row.low, row.high)
        held = set(kept)
        cuts = [
            (id_, int(graph.offset[id_]))
            for id_ in self.shrinks
            if id_ in held or int(graph.durable_from[id_]) <= event
        ]
        border = size // WORD_BYTES
        if self.floor >= 0:
            border = min(border, self.floor)
        low, high = self._beyond(event, held, cuts, border, size)
        return Row(True, size, (row.low + low) & MASK, (row.high + high) & MASK)

    def _beyond(
        self, event: int, held: set[int], cuts: list[tuple[int, int]], border: int, size: int
    ) -> tuple[int, int]:
        """What to add to the plain sums for the words from `border` on: their true terms less their plain ones."""
        graph, entries = self.graph, self.owner.entries
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
            names, values = self.owner.first.nonzero_words(self.number, floor)
            untouched = ~np.isin(names // _PAGE_WORDS, np.array(list(pages), dtype=np.int64))
            names, values = names[untouched], values[untouched]
            low, high = self._differing(low, high, names, values & _below(floor, names), border, size)
        return low & MASK, high & MASK

    def _differing(
        self, low: int, high: int, names: Ints, values: NDArray[np.uint64], border: int, size: int
    ) -> tuple[int, int]:
        """The sums with the terms of those words from `border` to `size` that are not as in the first image."""
        inside = (names >= border) & (names * WORD_BYTES < size)
        names, values = names[inside], values[inside] & _below(size, names[inside])
        differs = values != self.owner.first.words(self.number, names)
        numbers, values = names[differs].astype(np.uint64), values[differs]
        files = self.owner.first.identity(np.full(len(numbers), self.number))
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
                    first = self.owner.first.words(self.number, names) & _below(floor, names)
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
