"""What must persist directly before each of some pieces: by granule, by word, by file, and what the model adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.persistence.pieces import DATA, IN_ORDER, LOOSE, WORD_BYTES, Ints

if TYPE_CHECKING:
    from crashcheck.analyzer.persistence.graph import PersistenceGraph


class _Layers:
    """The ordered pieces of a granule by event: those of the latest event, and those of the one before it."""

    def __init__(self) -> None:
        self._event = -1
        self._latest: list[int] = []
        self._earlier: list[int] = []

    def before(self, event: int) -> list[int]:
        return self._earlier if event == self._event else self._latest

    def add(self, piece: int, event: int) -> None:
        if event != self._event:
            self._event, self._earlier, self._latest = event, self._latest, []
        self._latest.append(piece)


class DirectPredecessors:
    """What must persist just before each of some pieces, which are met in ascending order."""

    def __init__(self, graph: PersistenceGraph, ids: Sequence[int]) -> None:
        self._graph = graph
        self._journal, self._stops = graph.family.journal, graph.family.stops
        self._by_words = graph.unit_bytes == WORD_BYTES
        self._present = set(ids) if graph.extra else set()
        self._layers: dict[int, _Layers] = {}  # by granule
        self._last: dict[tuple[int, int], int] = {}  # of each word, the latest piece
        self._last_size: dict[int, int] = {}  # of each file, the latest size out of the journal's order

    def of(self, id_: int, granule: int, mode: int, event: int, kind: int, file: int, word: int) -> tuple[int, ...]:
        """The next piece's predecessors."""
        before: list[int] = []
        if self._journal and kind != DATA:
            event = id_  # two changes of the journal by one call have an order, too
            if mode != IN_ORDER and self._stops:
                before += self._sizes(id_, file)
        layer = self._layers.setdefault(granule, _Layers())
        if mode != LOOSE:
            before += layer.before(event)
        if kind == DATA and self._by_words:
            before += self._overwritten(id_, mode, (file, word))
        if mode == IN_ORDER:
            layer.add(id_, event)
        before += [u for u in self._graph.extra_before.get(id_, ()) if u in self._present]
        return tuple(dict.fromkeys(before))

    def _sizes(self, id_: int, file: int) -> list[int]:
        """The size of the file before this one."""
        last = self._last_size.get(file)
        self._last_size[file] = id_
        return [] if last is None else [last]

    def _overwritten(self, id_: int, mode: int, word: tuple[int, int]) -> list[int]:
        """The store to the same word, where one of the two is in no layer."""
        last = self._last.get(word)
        self._last[word] = id_
        if last is None or (mode == IN_ORDER and int(self._graph.mode[last]) == IN_ORDER):
            return []
        return [last]


def one_by_one(graph: PersistenceGraph, rows: Ints) -> list[tuple[int, ...]] | None:
    """What each of some pieces directly needs, all at once: where at most one ordered piece of each granule and layer
    is among them, which of recorded calls is the rule. None elsewhere.

    What `DirectPredecessors` gives, without words and added obligations.
    """
    if not len(rows):
        return []
    mode, kind = graph.mode[rows], graph.kind[rows]
    layer = np.where((kind != DATA) & graph.family.journal, rows * 2, graph.layer[rows])
    order = np.argsort(graph.granule[rows], kind="stable")
    granule = graph.granule[rows][order]
    ordered = (mode == IN_ORDER)[order]
    last = np.maximum.accumulate(np.where(ordered, np.arange(len(order)), -1))
    last = np.concatenate([[-1], last[:-1]])  # the ordered piece before each, in its granule or an earlier one
    there = (last >= 0) & (granule[last] == granule)
    if bool((there & (layer[order][last] == layer[order])).any()):
        return None
    before = np.full(len(rows), -1, dtype=np.int64)
    before[order] = np.where(there & (mode[order] != LOOSE), rows[order[last]], -1)
    size = np.full(len(rows), -1, dtype=np.int64)
    if graph.family.journal and graph.family.stops:
        size = _sizes_before(graph, rows, (kind != DATA) & (mode != IN_ORDER))
    before[before == size] = -1
    pairs = zip(size.tolist(), before.tolist(), strict=True)
    return [
        (one, other) if one >= 0 <= other else (one,) if one >= 0 else (other,) if other >= 0 else ()
        for one, other in pairs
    ]


def _sizes_before(graph: PersistenceGraph, rows: Ints, sizes: NDArray[np.bool_]) -> Ints:
    """Of each of these sizes out of the journal's order, the one of its file before it; -1 of others."""
    out = np.full(len(rows), -1, dtype=np.int64)
    some = np.flatnonzero(sizes)
    some = some[np.argsort(graph.file[rows[some]], kind="stable")]
    same = graph.file[rows[some[1:]]] == graph.file[rows[some[:-1]]]
    out[some[1:][same]] = rows[some[:-1][same]]
    return out


def in_layers(ids: Sequence[int], granules: Sequence[int], events: Sequence[int]) -> list[tuple[int, ...]]:
    """What each piece directly needs where all have the order of their granule: the ones of the event before its own
    there."""
    layers: dict[int, tuple[int, tuple[int, ...], list[int]]] = {}  # by granule: event, what it needs, its pieces
    out = []
    for id_, granule, event in zip(ids, granules, events, strict=True):
        at, earlier, latest = layers.get(granule, (event, (), []))
        if at != event:
            earlier, latest = tuple(latest), []
        latest.append(id_)
        layers[granule] = event, earlier, latest
        out.append(earlier)
    return out
