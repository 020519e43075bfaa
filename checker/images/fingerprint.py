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
from collections.abc import Iterable
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import number_rows, ranges, unique
from crashcheck.analyzer.persistence.pieces import DATA, NAME, Ints
from crashcheck.checker.images.file_table import FileTable, PieceSums, Row, packed
from crashcheck.checker.images.first_image import FirstImage
from crashcheck.checker.images.words import Words
from crashcheck.checker.states.ideals import Ids
from crashcheck.checker.states.space import CrashState, StateSpace

_POINTS = 64  # whose rows are remembered
_SPARSE = 16  # of so many words one: sorting the words of some rows is faster than going through all


class Fingerprints:
    """Fingerprints of one space's states; tables are built once, points are cached."""

    def __init__(self, space: StateSpace, first: FirstImage) -> None:
        self.space = space
        self.graph = space.graph
        self.sums = PieceSums(space.graph, first)
        self.entries = self.sums.entries
        self.files = [FileTable(space, self.sums, number) for number in sorted(space.graph.trace.files)]
        self.place = {table.number: at for at, table in enumerate(self.files)}
        self._latest: tuple[CrashState, list[Row]] | None = None
        self._points: dict[tuple[int, bool], list[Row]] = {}
        self._near: dict[bool, tuple[int, list[Row]]] = {}  # the point asked for last, with its rows
        finite = space.finite
        self._durable_from = self.graph.durable_from[finite]
        self._file_lasting = self.graph.file[finite]
        self.tables_asked = 0  # rows of files that were computed for points

    def of(self, state: CrashState) -> bytes:
        point = self.space.points[state.point]
        rows = self.rows(state)
        body = struct.pack("<QQ", point.acked, point.stdout_bytes) + b"".join(map(packed, rows))
        return hashlib.blake2b(body, digest_size=16).digest()

    def base_rows(self, state: CrashState) -> list[Row]:
        """The rows of all files in the image that the state is near to: with everything, or with what is durable."""
        return self._base(state.point, state.dropped)

    def touched(self, state: CrashState) -> set[int]:
        """The files that may differ from the image that the state is near to."""
        return set(self._by_file(state.pieces))

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
            kept = cache(lambda: self._by_file(self.space.persisted(state)))
            for number, ids in touched.items():
                at = self.place[number]
                rows[at] = self.files[at].row(state, rows[at], ids, kept)
        return rows

    def _by_file(self, pieces: Ids) -> dict[int, list[int]]:
        """Pieces and parts, which ascend, by the file that they change; without those of names."""
        if len(self.files) == 1 and not self.graph.family.names:
            return {self.files[0].number: list(pieces)} if pieces else {}
        if not pieces:
            return {}
        ids = np.array(pieces, dtype=np.int64)
        rows = self.graph.wholes(ids)
        some = self.graph.kind[rows] != NAME
        ids, files = ids[some], self.graph.file[rows[some]]
        order = np.argsort(files, kind="stable")
        out: dict[int, list[int]] = {}
        for number, id_ in zip(files[order].tolist(), ids[order].tolist(), strict=True):
            out.setdefault(number, []).append(id_)
        return out

    def plain_loss(self, state: CrashState) -> bool:
        """Whether a state lost only data, and no size hides any data of the files that it lost them from."""
        if not self.sums.all_data(state.pieces):
            return False
        base = self._base(state.point, True) if state.pieces else []
        places = (self.place[number] for number in self._by_file(state.pieces))
        return all(self.files[place].plain(state, base[place]) for place in places)

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
            if len(self._points) > _POINTS:
                self._points.clear()
            near = self._near.get(full)
            some: Iterable[int] = range(len(self.files))
            if near is not None:
                some = self._changed_between(near[0], point)
            known = self._at(point, full, some, [] if near is None else near[1])
            self._points[point, full] = known
            self._near[full] = point, known
        return known

    def _at(self, point: int, full: bool, some: Iterable[int], others: list[Row]) -> list[Row]:
        """The rows of an image, in which all files but those at some places are as in `others`."""
        event = self.space.moment(point)
        fresh = {}
        for at in some:
            self.tables_asked += 1
            fresh[at] = self.files[at].full(event) if full else self.files[at].durable(event)
        hiding = {self.files[at].number: at for at, row in fresh.items() if not row.plain}
        if hiding:
            state = CrashState(point, full, ())
            pending: dict[int, list[int]] = {}
            for id_ in self.space.pending(point) if full else ():
                if (number := int(self.graph.file[id_])) in hiding:
                    pending.setdefault(number, []).append(id_)
            for number, at in hiding.items():
                fresh[at] = self.files[at].exact(state, pending.get(number, []))
        if len(fresh) == len(self.files):
            return [fresh[at] for at in range(len(self.files))]
        rows = others.copy()
        for at, row in fresh.items():
            rows[at] = row
        return rows

    def _changed_between(self, point: int, other: int) -> list[int]:
        """The places of the files of which something is issued or becomes durable between two points."""
        low, high = sorted(self.space.moment(each) for each in (point, other))
        issued = slice(*np.searchsorted(self.graph.event, [low, high]).tolist())
        lasting = slice(*np.searchsorted(self._durable_from, [low, high], side="right").tolist())
        numbers = unique(np.concatenate([self.graph.file[issued], self._file_lasting[lasting]]))
        return [self.place[number] for number in numbers.tolist() if number in self.place]
