"""Crash states: at which instants a crash is worth considering, and what may have persisted at each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.persistence.graph import NEVER, PersistenceGraph
from crashcheck.analyzer.persistence.pieces import IN_ORDER, SIZE, Ints
from crashcheck.analyzer.trace.format import Kind
from crashcheck.checker.ideals import COUNT_BUDGET, Chain, Ideals, Ids, Layers, Order, Sizes

if TYPE_CHECKING:
    from crashcheck.checker.strategies import Strategy


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """A crash just before `event` (the number of events: after the last one)."""

    index: int
    event: int
    acked: int  # operations ended by then
    begun: int  # operations begun by then
    stdout_bytes: int


@dataclass(frozen=True, slots=True)
class CrashState:
    """A crash point and an order ideal of its pending pieces, told by its smaller side.

    `pieces` ascends: the pending pieces that were lost if `dropped`, else those that persisted. A part of an
    extension (PersistenceGraph) stands for the extension persisted up to that part, on either side.
    """

    point: int
    dropped: bool
    pieces: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Feasible:
    """How many distinct crash states there are; an upper bound, named in `note`, unless `exact`."""

    value: int
    exact: bool
    note: str


class CrashPoints(Sequence[CrashPoint]):
    """All crash points of a trace: before each obligation, mark and output, and at the end (Vocabulary)."""

    def __init__(self, graph: PersistenceGraph) -> None:
        events = graph.trace.events
        kinds = events["kind"]
        told = np.isin(kinds, np.array([Kind.MARK_BEGIN, Kind.MARK_END, Kind.OUTPUT], dtype=np.uint8))
        self.event: Ints = np.unique(
            np.concatenate([graph.obligations, np.flatnonzero(told), np.array([len(events)])])
        ).astype(np.int64)

        def before(kind: Kind) -> Ints:
            return np.searchsorted(np.flatnonzero(kinds == kind), self.event, side="left").astype(np.int64)

        self.acked = before(Kind.MARK_END)
        self.begun = before(Kind.MARK_BEGIN)
        sizes = events["offset"][kinds == Kind.OUTPUT].astype(np.int64)
        most = np.concatenate([np.zeros(1, dtype=np.int64), np.maximum.accumulate(sizes)])
        self.stdout_bytes: Ints = most[before(Kind.OUTPUT)]

    def __len__(self) -> int:
        return len(self.event)

    @overload
    def __getitem__(self, index: int) -> CrashPoint: ...
    @overload
    def __getitem__(self, index: slice) -> list[CrashPoint]: ...
    def __getitem__(self, index: int | slice) -> CrashPoint | list[CrashPoint]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        return CrashPoint(
            index,
            int(self.event[index]),
            int(self.acked[index]),
            int(self.begun[index]),
            int(self.stdout_bytes[index]),
        )

    @cached_property
    def told_more(self) -> NDArray[np.bool_]:
        """Whether the outside world knows more at a point than at the one before."""
        out = np.ones(len(self), dtype=np.bool_)
        out[1:] = (self.acked[1:] != self.acked[:-1]) | (self.stdout_bytes[1:] != self.stdout_bytes[:-1])
        return out


class StateSpace:
    """The crash states of a persistence graph, each once.

    An ideal is feasible at point k if it holds what is durable at k (D_k) and nothing that is not issued
    (U_k). D and U grow, so an ideal feasible at points j < k is feasible at all between, and is new at
    exactly one point of a run of points with equal acknowledgements: the first. There it is the one that is not
    feasible at k - 1, that is, it holds a piece issued since. Counting: ideals(D_k, U_k) - ideals(D_k, U_(k-1)).
    """

    def __init__(self, graph: PersistenceGraph) -> None:
        self.graph = graph
        self.points = CrashPoints(graph)
        self._finite = np.flatnonzero(graph.durable_from < NEVER)
        self._finite = self._finite[np.argsort(graph.durable_from[self._finite], kind="stable")]
        self._index = _Stab(graph.event, graph.durable_from)
        self._pending: dict[int, Ids] = {}

    # One crash point.

    def pending(self, point: int) -> Ids:
        """Pieces issued but not durable at a point, ascending; extensions as wholes, not in parts."""
        known = self._pending.get(point)
        if known is None:
            if len(self._pending) > 64:
                self._pending.clear()
            known = self._pending[point] = self._index.query(int(self.points.event[point]))
        return known

    def durable(self, point: int) -> Ints:
        """Ids of the pieces that are durable at a point, ascending."""
        return np.flatnonzero(self.graph.durable_from <= int(self.points.event[point]))

    def full(self, point: int) -> CrashState:
        """Everything issued has persisted."""
        return CrashState(point, True, ())

    def empty(self, point: int) -> CrashState:
        """Nothing persisted but what had to."""
        return self._state(point, ())

    def persisted(self, state: CrashState) -> Ids:
        """Pending pieces that the state holds, ascending; an extension held in part appears as its part."""
        return state.pieces if not state.dropped else self._other(state)

    def lost(self, state: CrashState) -> Ids:
        """Pending pieces that the state lacks, ascending; an extension held in part appears as its part."""
        return state.pieces if state.dropped else self._other(state)

    def _other(self, state: CrashState) -> Ids:
        parts = tuple(id_ for id_ in state.pieces if id_ >= len(self.graph))
        listed = {id_ for id_ in state.pieces if id_ < len(self.graph)}
        listed.update(self.graph.whole(part)[0] for part in parts)
        rest = tuple(id_ for id_ in self.pending(state.point) if id_ not in listed)
        return rest + parts

    def state(self, point: int, persisted: Iterable[int]) -> CrashState:
        """The state that holds exactly the given pending pieces.

        Raises ValueError if one of them is not pending or needs a piece that is not given.
        """
        given = tuple(sorted(set(persisted)))
        pending = set(self.pending(point))
        try:
            wholes = tuple(self.graph.whole(id_)[0] for id_ in given)
        except IndexError as error:
            raise ValueError(str(error)) from None
        stray = sorted(set(wholes) - pending)
        if stray or len(set(wholes)) < len(wholes):
            raise ValueError(f"pieces {stray or given} are not pending at crash point {point}")
        whole_held = {id_ for id_ in given if id_ < len(self.graph)}
        for id_, befores in self._before(point, wholes):
            missing = [b for b in befores if b not in whole_held]
            if missing:
                raise ValueError(f"piece {id_} cannot persist without pieces {missing} at crash point {point}")
        return self._state(point, given)

    def drop(self, point: int, pieces: Iterable[int]) -> CrashState:
        """The largest state without the given pieces: all that depend on them are lost as well.

        A part given stands for the rest of its extension beyond that part.
        """
        given = set(pieces)
        parts = {self.graph.whole(p)[0]: p for p in given if p >= len(self.graph)}
        gone = {p for p in given if p < len(self.graph)}
        for id_, befores in self._before(point, None):
            if any(b in gone or b in parts for b in befores):
                gone.add(id_)
        kept = [id_ for id_ in self.pending(point) if id_ not in gone and id_ not in parts]
        return self._state(point, tuple(kept) + tuple(sorted(p for w, p in parts.items() if w not in gone)))

    def keep(self, point: int, pieces: Iterable[int]) -> CrashState:
        """The smallest state with the given pieces: all that they need persisted as well."""
        given = set(pieces)
        held = {p for p in given if p < len(self.graph)}
        parts = {self.graph.whole(p)[0]: p for p in given if p >= len(self.graph)}
        for id_, befores in reversed(self._before(point, None)):
            if id_ in held or id_ in parts:
                held.update(befores)
        pending = set(self.pending(point))
        kept = tuple(sorted(held & pending)) + tuple(
            sorted(p for w, p in parts.items() if w not in held and w in pending)
        )
        return self._state(point, kept)

    def _before(self, point: int, wanted: Iterable[int] | None) -> list[tuple[int, Ids]]:
        """(piece, what it directly needs) for the pending pieces of the factors that hold `wanted`."""
        pending = self.pending(point)
        if wanted is not None:
            component = self.graph.component
            some = {int(component[id_]) for id_ in wanted}
            chosen = tuple(id_ for id_ in pending if int(component[id_]) in some)
            want = set(wanted)
            return [
                (id_, befores)
                for id_, befores in zip(chosen, self.graph.direct_before(chosen), strict=True)
                if id_ in want
            ]
        return list(zip(pending, self.graph.direct_before(pending), strict=True))

    def _state(self, point: int, kept: Ids) -> CrashState:
        """The canonical form: dropped if no more pieces were lost than persisted."""
        dropped = self._other(CrashState(point, False, kept))
        if len(dropped) <= len(kept):
            return CrashState(point, True, dropped)
        return CrashState(point, False, kept)

    # All of them.

    def states(self, strategy: Strategy) -> Iterator[CrashState]:
        """The states that a strategy selects, each once, in its order."""
        return strategy.states(self)

    def deviation(self, state: CrashState) -> int:
        """How far a state is from both "everything persisted" and "nothing pending did"."""
        return len(state.pieces)

    def count(self) -> Feasible:
        """The number of distinct states over all points."""
        total, bounded = 0, 0
        counts: dict[int, tuple[int, bool]] = {}
        product, inexact = 1, 0
        sweep = _Sweep(self)
        while sweep.advance():
            after, product, inexact = self._recount(sweep, sweep.removed, counts, product, inexact)
            before_new, before_inexact = after
            after, product, inexact = self._recount(sweep, sweep.add(), counts, product, inexact)
            value, loose = after
            if self.points.told_more[sweep.point] or sweep.all_new:
                total += value
                bounded += loose > 0
            elif not sweep.has_new:
                continue
            elif loose or before_inexact:
                total += value  # the difference of two bounds bounds nothing
                bounded += 1
            else:
                total += value - before_new
        if not bounded:
            return Feasible(total, True, "")
        return Feasible(
            total,
            False,
            f"upper bound: at {bounded} crash points the ideals of one granule take more than {COUNT_BUDGET} steps "
            "to count and are bounded by the product over a chain cover",
        )

    def _recount(
        self, sweep: _Sweep, changed: Iterable[int], counts: dict[int, tuple[int, bool]], product: int, inexact: int
    ) -> tuple[tuple[int, int], int, int]:
        for component in changed:
            old, old_exact = counts.pop(component, (1, True))
            ideals = sweep.ideals(component)
            new, exact = ideals.count() if ideals is not None else (1, True)
            if ideals is not None:
                counts[component] = (new, exact)
            product = product // old * new
            inexact += (not exact) - (not old_exact)
        return (product, inexact), product, inexact

    def max_deviation(self) -> int:
        """The largest deviation that any state may have."""
        most = 0
        sweep = _Sweep(self)
        while sweep.advance():
            sweep.add()
            most = max(most, (sweep.pending + sweep.parted) // 2)
        return most

    def level(self, d: int) -> Iterator[CrashState]:
        """All states of deviation exactly d, by crash point; memory follows what is pending."""
        sweep = _Sweep(self)
        while sweep.advance():
            sweep.add()
            if 2 * d > sweep.pending + sweep.parted:
                continue
            fresh = bool(self.points.told_more[sweep.point]) or sweep.all_new
            if not fresh and not sweep.has_new:
                continue
            yield from self._level_at(sweep, d, fresh)

    def _level_at(self, sweep: _Sweep, d: int, fresh: bool) -> Iterator[CrashState]:
        point, pending = sweep.point, sweep.pending
        if d == 0:
            yield CrashState(point, True, ())
            if pending and fresh:
                yield CrashState(point, False, ())
            return
        limit = len(self.graph)
        ideals = sweep.all_ideals()
        since = 0 if fresh else sweep.since
        for lost in _select(self.graph, ideals, d, since, lost=True):
            parts = sum(id_ >= limit for id_ in lost)
            if d <= pending - d + parts:
                yield CrashState(point, True, tuple(sorted(lost)))
        for kept in _select(self.graph, ideals, d, since, lost=False):
            parts = sum(id_ >= limit for id_ in kept)
            if d < pending - d + parts:
                yield CrashState(point, False, tuple(sorted(kept)))


def _select(graph: PersistenceGraph, ideals: list[Ideals], d: int, since: int, lost: bool) -> Iterator[Ids]:
    """Products of ideals with exactly d pieces lost (kept) that hold a piece with an id from `since` on.

    `since` 0: all products. Otherwise by the first factor that holds a new piece: the factors before it hold
    none, it holds one, those after it are free. So nothing is produced to be thrown away, but inside one factor.
    """
    if not since:
        yield from _products(ideals, 0, _room(ideals), d, lost)
        return
    news = [factor.newer(since) for factor in ideals]
    with_new = [at for at, new in enumerate(news) if new]
    for rank, at in enumerate(with_new):
        earlier = set(with_new[:rank])
        gone: Ids = tuple(id_ for j in with_new[:rank] for id_ in news[j]) if lost else ()
        need = d - len(gone)
        if need < 0:
            return
        rest = [factor.older(since) if j in earlier else factor for j, factor in enumerate(ideals) if j != at]
        room = _room(rest)
        factor, new = ideals[at], news[at]
        for here in range(max(0 if lost else 1, need - room[0]), min(need, factor.size) + 1):
            for own in factor.lost(here) if lost else factor.kept(here):
                # on the lost side a new piece held in part is listed by its part, which is not in `new`
                if lost and sum(id_ in new for id_ in own) == len(new):
                    continue
                if not lost and not any(graph.whole(id_)[0] >= since for id_ in own):
                    continue
                for others in _products(rest, 0, room, need - here, lost):
                    yield gone + own + others


def _room(ideals: Sequence[Ideals]) -> list[int]:
    room = [0] * (len(ideals) + 1)
    for at in range(len(ideals) - 1, -1, -1):
        room[at] = room[at + 1] + ideals[at].size
    return room


def _products(ideals: Sequence[Ideals], start: int, room: list[int], d: int, lost: bool) -> Iterator[Ids]:
    if not d:
        yield ()
        return
    for at in range(start, len(ideals)):
        if room[at] < d:
            return
        factor = ideals[at]
        for here in range(max(1, d - room[at + 1]), min(d, factor.size) + 1):
            for own in factor.lost(here) if lost else factor.kept(here):
                if here == d:
                    yield own
                else:
                    for others in _products(ideals, at + 1, room, d - here, lost):
                        yield own + others


class _Sweep:
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
        self._finite = space._finite
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

    def ideals(self, factor: int) -> Ideals | None:
        """The ideals of one factor's pending pieces; None if it has none."""
        pieces = self._factors.get(factor)
        if pieces is None:
            return None
        known = self._ideals.get(factor)
        if known is None:
            known = self._ideals[factor] = self._build(factor, pieces)
        return known

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
            for id_, event in zip(ids, self.graph.event[list(ids)].tolist(), strict=True):
                if event != last:
                    layers.append([])
                layers[-1].append(id_)
                last = event
            return Layers([tuple(layer) for layer in layers])
        return Order(ids, self.graph.direct_before(ids), self.graph)

    def all_ideals(self) -> list[Ideals]:
        """All factors that have something pending, in a stable order."""
        return [ideals for factor in sorted(self._factors) if (ideals := self.ideals(factor)) is not None]


_CHAIN, _LAYERS, _SIZES, _ORDER = range(4)


def _shapes(graph: PersistenceGraph) -> list[int]:
    """The simplest class of ideals that fits each factor."""
    component = graph.component
    if not len(component):
        return []
    many = int(component.max()) + 1
    shape = np.full(many, _CHAIN)
    order = np.argsort(component, kind="stable")
    same = (component[order][1:] == component[order][:-1]) & (graph.event[order][1:] == graph.event[order][:-1])
    shape[component[order][1:][same]] = _LAYERS
    shape[component[(graph.kind == SIZE) & (graph.parts > 0)]] = _SIZES
    shape[component[graph.mode != IN_ORDER]] = _ORDER
    for pair in graph.extra:
        for id_ in pair:
            shape[component[id_]] = _ORDER
    return [int(s) for s in shape]


class _Stab:
    """Which pieces are pending at an event index, without looking at every piece of the trace."""

    _BLOCK = 4096

    def __init__(self, event: Ints, durable_from: Ints) -> None:
        self.event = event
        self.durable_from = durable_from
        starts = range(0, len(event), self._BLOCK)
        self.latest = np.array([int(durable_from[s : s + self._BLOCK].max()) for s in starts], dtype=np.int64)

    def query(self, event: int) -> Ids:
        issued = int(np.searchsorted(self.event, event, side="left"))
        blocks = -(-issued // self._BLOCK)
        out: list[int] = []
        for block in np.flatnonzero(self.latest[:blocks] > event).tolist():
            low = block * self._BLOCK
            high = min(low + self._BLOCK, issued)
            out += (np.flatnonzero(self.durable_from[low:high] > event) + low).tolist()
        return tuple(out)
