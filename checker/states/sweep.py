"""Goes over the crash points in order and keeps what is pending at each, by granule."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import DATA, IN_ORDER, SIZE, WORD_BYTES, Ints
from crashcheck.checker.states.ideals import Chain, Ideals, Ids, Layers, Sizes
from crashcheck.checker.states.partial_order import Order
from crashcheck.checker.states.rooted import Journal, Rooted
from crashcheck.checker.states.space import StateSpace

_CHAIN, _LAYERS, _SIZES, _ORDER = range(4)


class Sweep:
    """Goes through the crash points in order and keeps what is pending, by independent factor.

    For each point: advance() takes out what became durable, add() brings in what was issued since.
    """

    def __init__(self, space: StateSpace) -> None:
        graph = space.graph
        self.graph = graph
        self.point = -1
        self.pending = 0
        self.parted = 0
        self.removed: list[int] = []
        self.has_new = False
        self.all_new = False
        self.since = 0
        self._event = space.points.event.tolist()
        self._finite = space.finite
        self._leaves = np.searchsorted(graph.durable_from[self._finite], space.points.event, side="right").tolist()
        self._enters = np.searchsorted(graph.event, space.points.event, side="left").tolist()
        self._in = 0
        self._out = 0
        self._gone_early: set[int] = set()
        self._factors: dict[int, dict[int, None]] = {}
        self._ideals: dict[int, Ideals] = {}
        self._shape = _shapes(graph)

    def advance(self) -> bool:
        """To the next point, where what is durable by then leaves. False after the last."""
        self.point += 1
        if self.point >= len(self._event):
            return False
        leaves = self._leaves[self.point]
        changed: dict[int, None] = {}
        if leaves > self._out:
            component = self.graph.component
            parts = self.graph.parts
            for id_ in self._finite[self._out : leaves].tolist():
                if id_ >= self._in:
                    self._gone_early.add(id_)  # issued since the point before, and durable already
                    continue
                factor = int(component[id_])
                pieces = self._factors[factor]
                del pieces[id_]
                self.pending -= 1
                self.parted -= bool(parts[id_])
                changed[factor] = None
                if not pieces:
                    del self._factors[factor]
            self._out = leaves
        self.removed = list(changed)
        for factor in self.removed:
            self._ideals.pop(factor, None)
        return True

    def add(self) -> list[int]:
        """Bring in what was issued since the point before; the factors that changed."""
        enters = self._enters[self.point]
        self.since = self._in
        self.has_new = self.all_new = False
        changed: dict[int, None] = {}
        if enters > self._in:
            component = self.graph.component[self._in : enters].tolist()
            parts = self.graph.parts
            for id_, factor in zip(range(self._in, enters), component, strict=True):
                self.has_new = True
                if id_ in self._gone_early:
                    self._gone_early.discard(id_)
                    self.all_new = True  # every state from here on holds it
                    continue
                self._factors.setdefault(factor, {})[id_] = None
                self.pending += 1
                self.parted += bool(parts[id_])
                changed[factor] = None
            self._in = enters
        for factor in changed:
            self._ideals.pop(factor, None)
        return list(changed)

    @property
    def factors(self) -> int:
        """How many independent factors have something pending."""
        return len(self._factors)

    def ideals(self, factor: int) -> Ideals | None:
        """The ideals of one factor's pending pieces; None if it has none."""
        pieces = self._factors.get(factor)
        if pieces is None:
            return None
        known = self._ideals.get(factor)
        if known is None:
            known = self._ideals[factor] = self._build(factor, pieces)
        return known

    def unordered(self, rows: Ints) -> NDArray[np.bool_]:
        """Of pieces that are pending at some point, ascending: whether each neither needs nor is needed by another."""
        factors, layers = self.graph.component[rows], self.graph.layer[rows]
        free = np.isin(self._shape[factors], (_CHAIN, _LAYERS))
        order = np.argsort(factors, kind="stable")
        starts = np.flatnonzero(np.diff(factors[order], prepend=-1))
        if len(starts):
            least, most = (each.reduceat(layers[order], starts) for each in (np.minimum, np.maximum))
            free[order] &= np.repeat(least == most, np.diff(starts, append=len(rows)))
        return free

    def ideals_of(self, pieces: Ids) -> list[Ideals]:
        """The ideals of pieces that are pending at some point, ascending, factor by factor."""
        return [self._build(factor, dict.fromkeys(some)) for factor, some in self._by_factor(pieces)]

    def factors_of(self, pieces: Ids) -> list[Ids]:
        """Such pieces, factor by factor, as `ideals_of` has them."""
        return [tuple(some) for _, some in self._by_factor(pieces)]

    def _by_factor(self, pieces: Ids) -> list[tuple[int, list[int]]]:
        if not pieces:
            return []
        factors = self.graph.component[list(pieces)]
        order = np.argsort(factors, kind="stable")
        ordered, ids = factors[order], np.array(pieces)[order].tolist()
        starts = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist()]
        bounds = zip(starts, [*starts[1:], len(ids)], strict=True)
        return [(factor, ids[low:high]) for factor, (low, high) in zip(ordered[starts].tolist(), bounds, strict=True)]

    def _build(self, factor: int, pieces: dict[int, None]) -> Ideals:
        shape = self._shape[factor]
        if shape == _CHAIN:
            return Chain(pieces)
        ids = tuple(pieces)
        if shape == _SIZES:
            return Sizes(self.graph, ids)
        if shape == _LAYERS:
            layers: list[list[int]] = []
            last = -1
            for id_, event in zip(ids, self.graph.layer[list(ids)].tolist(), strict=True):
                if event != last:
                    layers.append([])
                layers[-1].append(id_)
                last = event
            return Layers([tuple(layer) for layer in layers])
        if self.graph.one_journal:
            return Journal(self.graph, ids)
        if self.graph.model == "eadr" and not self.graph.extra:
            rooted = self._rooted(ids)
            if rooted is not None:
                return rooted
        return Order(ids, self.graph.direct_before(ids), self.graph)

    def _rooted(self, ids: Ids) -> Rooted | None:
        """The ideals of eADR's one order, unless an ordinary piece overwrites a loose one that is still pending."""
        graph, rows = self.graph, list(ids)
        layers: list[tuple[int, list[int]]] = []
        chains: dict[tuple[int, int], list[tuple[int, int]]] = {}
        columns = (graph.event, graph.mode, graph.file, graph.offset // WORD_BYTES)
        for id_, event, mode, file, word in zip(ids, *(c[rows].tolist() for c in columns), strict=True):
            if mode != IN_ORDER:
                chains.setdefault((file, word), []).append((event, id_))
            elif (file, word) in chains:
                return None
            elif layers and layers[-1][0] == event:
                layers[-1][1].append(id_)
            else:
                layers.append((event, [id_]))
        return Rooted([(event, tuple(layer)) for event, layer in layers], list(chains.values()))

    def all_ideals(self) -> list[Ideals]:
        """All factors that have something pending, in a stable order."""
        return [ideals for factor in sorted(self._factors) if (ideals := self.ideals(factor)) is not None]


def _shapes(graph: PersistenceGraph) -> Ints:
    """The simplest class of ideals that fits each factor."""
    component = graph.component
    if not len(component):
        return component
    many = int(component.max()) + 1
    shape = np.full(many, _CHAIN)
    order = np.argsort(component, kind="stable")
    same = (component[order][1:] == component[order][:-1]) & (graph.layer[order][1:] == graph.layer[order][:-1])
    shape[component[order][1:][same]] = _LAYERS
    shape[component[(graph.kind == SIZE) & (graph.parts > 0)]] = _SIZES
    shape[component[graph.mode != IN_ORDER]] = _ORDER
    if graph.family.journal:
        shape[component[graph.kind != DATA]] = _ORDER
    for pair in graph.extra:
        for id_ in pair:
            shape[component[id_]] = _ORDER
    return shape
